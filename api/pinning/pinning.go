// Package pinning is the Pinning Service API 1.0.0 over HTTP: its five
// operations on an account's pins, and health. The forms of bodies, queries and
// errors are those of the public specification; where it is silent, the limits
// are named here.
//
// Imports: std, api/internal/web, cluster/pins, cluster/accounts,
// consensus/state.
// Never:   other surfaces, consensus, storage, peer, listeners.
package pinning

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Pins are the use cases that this surface serves. Another account's pin
// behaves as if it did not exist.
type Pins interface {
	// Create adds a pin; the record is durable when it returns.
	Create(ctx context.Context, account state.AccountID, r pins.Request) (pins.Record, error)
	// Replace puts a new pin in the place of an old one, in one change.
	Replace(ctx context.Context, account state.AccountID, old state.RequestID, r pins.Request) (pins.Record, error)
	// Get returns a pin as it is now, anywhere in the cluster.
	Get(ctx context.Context, account state.AccountID, id state.RequestID) (pins.Record, error)
	// List returns the newest pins that match and how many match in all.
	List(ctx context.Context, account state.AccountID, q state.PinQuery) (total uint64, rows []pins.Record, err error)
	// Delete removes a pin.
	Delete(ctx context.Context, account state.AccountID, id state.RequestID) error
}

// Options are what the surface is made of. All but Recognize and Version are
// required.
type Options struct {
	Pins Pins
	// Authenticate judges a token by the state of the cluster.
	Authenticate web.Authenticate
	// Recognize does so by that of this node. With it a change costs one round
	// of the cluster, in which the key is judged; without, two.
	Recognize web.Authenticate
	Health    web.Health
	// DefaultStatus are the names of the statuses that a list without a status
	// shows.
	DefaultStatus []string
	Version       string
	Logger        *slog.Logger
}

// caseTimeout bounds each call of a use case: a node without a majority answers
// 503 before a client gives up. A request makes two at the most.
const caseTimeout = 7 * time.Second

type surface struct {
	pins         Pins
	authenticate web.Authenticate
	recognize    web.Authenticate // nil: changes too are authenticated first
	statuses     []state.Status   // of a list without a status
}

// New returns the handler of the surface.
func New(o Options) (http.Handler, error) {
	s := &surface{pins: o.Pins, authenticate: o.Authenticate, recognize: o.Recognize}
	for _, name := range o.DefaultStatus {
		status, ok := parseStatus(name)
		if !ok {
			return nil, fmt.Errorf("pinning: default status %q is none of queued, pinning, pinned, failed", name)
		}
		s.statuses = append(s.statuses, status)
	}
	if len(s.statuses) == 0 {
		return nil, fmt.Errorf("pinning: no default status")
	}
	server := "holdfast"
	if o.Version != "" {
		server += "/" + o.Version
	}
	table := append(s.routes(), web.Route{Method: http.MethodGet, Path: "/healthz", Serve: web.Alive(o.Version)},
		web.Route{Method: http.MethodGet, Path: "/readyz", Serve: web.Ready(o.Health, o.Version)})
	return web.Wrap(web.Options{Name: "pinning", Server: server, Answer: answer, Logger: o.Logger}, web.Routes(table)), nil
}

// operation is what an account's principal may do at a route.
type operation struct {
	method, path string
	scope        string // that the token must have
	serve        func(w http.ResponseWriter, r *http.Request, p accounts.Principal) error
}

// operations is the table of what accounts may do. A route without a scope is
// refused to everybody.
func (s *surface) operations() []operation {
	return []operation{
		{http.MethodGet, "/pins", state.ScopeRead, s.list},
		{http.MethodPost, "/pins", state.ScopeWrite, s.create},
		{http.MethodGet, "/pins/{requestid}", state.ScopeRead, s.get},
		{http.MethodPost, "/pins/{requestid}", state.ScopeWrite, s.replace},
		{http.MethodDelete, "/pins/{requestid}", state.ScopeWrite, s.delete},
	}
}

func (s *surface) routes() []web.Route {
	var table []web.Route
	for _, op := range s.operations() {
		serve := s.authorized(op)
		if op.scope == state.ScopeWrite && s.recognize != nil {
			serve = s.changed(op)
		}
		table = append(table, web.Route{Method: op.method, Path: op.path, Serve: serve})
	}
	return table
}

// authorized checks the token before anything of the request's body is read.
func (s *surface) authorized(op operation) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
		p, err := s.authenticate(ctx, r)
		cancel()
		if err != nil {
			return fmt.Errorf("authenticate: %w", err)
		}
		return s.permitted(op, w, r, p)
	}
}

// changed is authorized for what changes pins: who is recognized here may try,
// since the key is judged again with the change. An answer that tells anything
// else is given to nobody whose key has been revoked: before it the token is
// judged as for a read, so that the order of errors stays that of authorized.
func (s *surface) changed(op operation) web.Handler {
	authorized := s.authorized(op)
	return func(w http.ResponseWriter, r *http.Request) error {
		p, err := s.recognize(r.Context(), r)
		if err != nil {
			return authorized(w, r) // it may be known elsewhere
		}
		err = s.permitted(op, w, r.WithContext(pins.As(r.Context(), p.KeyID)), p)
		if err == nil || undecided(err) {
			return err
		}
		ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
		defer cancel()
		if _, refused := s.authenticate(ctx, r); refused != nil {
			return fmt.Errorf("authenticate: %w", refused)
		}
		return err
	}
}

// undecided tells whether an error says that the cluster did not answer: then
// asking it again tells no more, and the answer says nothing of anybody's.
func undecided(err error) bool {
	return errors.Is(err, state.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// permitted serves who has the scope.
func (s *surface) permitted(op operation, w http.ResponseWriter, r *http.Request, p accounts.Principal) error {
	if op.scope == "" || !p.May(op.scope) {
		return state.Errorf(state.CodeForbidden, "the token does not have the scope %s", op.scope)
	}
	return op.serve(w, r, p)
}

func (s *surface) list(w http.ResponseWriter, r *http.Request, p accounts.Principal) error {
	q, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	if len(q.Statuses) == 0 {
		q.Statuses = slices.Clone(s.statuses)
	}
	ctx, cancel := context.WithTimeout(pins.Seen(r.Context(), p.Index), caseTimeout)
	defer cancel()
	total, rows, err := s.pins.List(ctx, p.Account, q)
	if err != nil {
		return fmt.Errorf("list pins: %w", err)
	}
	return writeResults(w, total, rows)
}

func (s *surface) create(w http.ResponseWriter, r *http.Request, p accounts.Principal) error {
	pin, err := readPin(w, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
	defer cancel()
	record, err := s.pins.Create(ctx, p.Account, pin)
	if err != nil {
		return fmt.Errorf("create pin: %w", err)
	}
	return web.JSON(w, http.StatusAccepted, statusOf(&record))
}

func (s *surface) replace(w http.ResponseWriter, r *http.Request, p accounts.Principal) error {
	pin, err := readPin(w, r)
	if err != nil {
		return err
	}
	id, err := requestID(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
	defer cancel()
	record, err := s.pins.Replace(ctx, p.Account, id, pin)
	if err != nil {
		return fmt.Errorf("replace pin: %w", err)
	}
	return web.JSON(w, http.StatusAccepted, statusOf(&record))
}

func (s *surface) get(w http.ResponseWriter, r *http.Request, p accounts.Principal) error {
	id, err := requestID(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(pins.Seen(r.Context(), p.Index), caseTimeout)
	defer cancel()
	record, err := s.pins.Get(ctx, p.Account, id)
	if err != nil {
		return fmt.Errorf("get pin: %w", err)
	}
	return web.JSON(w, http.StatusOK, statusOf(&record))
}

func (s *surface) delete(w http.ResponseWriter, r *http.Request, p accounts.Principal) error {
	id, err := requestID(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
	defer cancel()
	if err := s.pins.Delete(ctx, p.Account, id); err != nil {
		return fmt.Errorf("delete pin: %w", err)
	}
	return web.Empty(w, http.StatusAccepted)
}

// requestID returns the id of the path. One that no pin can have is unknown.
func requestID(r *http.Request) (state.RequestID, error) {
	id := r.PathValue("requestid")
	if len(id) > state.MaxIDLen {
		return "", state.ErrNotFound
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return "", state.ErrNotFound
		}
	}
	return state.RequestID(id), nil
}
