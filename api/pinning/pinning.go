// Package pinning serves the IPFS Pinning Service API 1.0.0 over HTTP: its five operations on the
// pins of an account, session tokens, and health checks. Bodies, queries and errors follow the
// public specification. Limits that the specification leaves open are constants of this package.
//
// Imports: std, api/internal/web, api/internal/pinbody, cluster/pins, cluster/accounts,
// consensus/state.
// Never:   other surfaces, consensus, storage, peer, listeners.
package pinning

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/pinbody"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Pins is the application logic behind the pin operations. For a pin of another account it
// returns the same errors as for a missing pin.
type Pins interface {
	// Create adds a pin. When it returns, the record of the pin is durable in the cluster; its
	// content may still be missing.
	Create(ctx context.Context, account state.AccountID, r pins.Request) (pins.Record, error)
	// Replace atomically replaces the pin old by a new one, which has a new id.
	Replace(ctx context.Context, account state.AccountID, old state.RequestID, r pins.Request) (pins.Record, error)
	// Get returns the current state of a pin, by a linearizable read.
	Get(ctx context.Context, account state.AccountID, id state.RequestID) (pins.Record, error)
	// Wait returns a pin as soon as its status differs from known, or the state of its content
	// changes. If known is a final status, it returns at once. It returns the unchanged pin when
	// enough is closed. Errors: state.ErrNotFound if the pin was removed, state.ErrLimited if too
	// many requests wait, and that of ctx.
	Wait(ctx context.Context, account state.AccountID, id state.RequestID, known state.Status, enough <-chan struct{}) (pins.Record, error)
	// List returns the newest pins that match q, up to its limit, and the number of all matching
	// pins.
	List(ctx context.Context, account state.AccountID, q state.PinQuery) (total uint64, rows []pins.Record, err error)
	// Delete removes a pin.
	Delete(ctx context.Context, account state.AccountID, id state.RequestID) error
}

// Sessions is the application logic behind session tokens.
type Sessions interface {
	// SignIn starts a session of the account with this name and password and returns its token.
	// from is the client's address, for the limit on wrong passwords.
	SignIn(ctx context.Context, name, password string, from netip.Addr) (token string, err error)
	// SignOut ends the session of a token on all nodes. It returns state.ErrUnauthorized if token
	// is no session token.
	SignOut(ctx context.Context, token string) error
}

// Options configure the API. Pins, Authenticate, Health, DefaultStatus and Logger are required.
type Options struct {
	Pins Pins
	// Authenticate verifies a token by a linearizable read of the cluster state.
	Authenticate web.Authenticate
	// Recognize verifies a token by the local state of this node, which may be stale. It saves a
	// round trip in the cluster: the proposal of a change verifies the token again, and a request
	// over the rate limit needs no round trip at all. nil: every request uses Authenticate.
	Recognize web.Authenticate
	// Sessions starts and ends sessions. nil: the paths for session tokens do not exist.
	Sessions Sessions
	// Limits has the rates of accounts and addresses. nil: no limits.
	Limits *web.Limits
	// Origins are the web origins whose scripts may use the API.
	Origins []string
	Health  web.Health
	// DefaultStatus has the statuses of the pins that a list returns if its query names none.
	DefaultStatus []string
	// Draining is closed when the server stops. Requests that wait for a pin then return.
	Draining <-chan struct{}
	// Unavailable returns the reason why the cluster cannot commit, or "". Set it only if all
	// clients are operators, because the reason names members. nil: answers have no reason.
	Unavailable func() string
	Version     string
	Logger      *slog.Logger
	Metrics     *web.Metrics // nil: no metrics
}

// caseTimeout bounds each call of Pins, Sessions and Authenticate, so that a node without a
// majority answers 503 before the client gives up. A request makes at most two such calls.
const caseTimeout = 7 * time.Second

type surface struct {
	pins         Pins
	sessions     Sessions
	limits       *web.Limits
	health       web.Health
	version      string
	authenticate web.Authenticate
	recognize    web.Authenticate // see Options.Recognize
	statuses     []state.Status   // statuses that a list returns if its query names none
	draining     <-chan struct{}
}

// New returns the handler of the API. It returns an error if DefaultStatus is empty or has an
// unknown status.
func New(o Options) (http.Handler, error) {
	s := &surface{
		pins: o.Pins, sessions: o.Sessions, limits: o.Limits, health: o.Health, version: o.Version,
		authenticate: o.Authenticate, recognize: o.Recognize, draining: o.Draining,
	}
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
	routes, err := s.routes(s.operations())
	if err != nil {
		return nil, err
	}
	wrapped := web.Wrap(web.Options{Name: "pinning", Server: serverOf(o.Version), Answer: web.Explained(answer, o.Unavailable), Logger: o.Logger, Metrics: o.Metrics}, web.Routes(routes))
	return shared.Allow(o.Origins, wrapped), nil
}

// Values of operation.scope for operations without a token.
const (
	anybody   = "anybody"              // no token is needed
	unmetered = "anybody, and no rate" // no token is needed, and no rate limit applies
)

// operation is one row of the route table, with the permission that it requires.
type operation struct {
	method, path string
	// scope is the scope that the token must have, or anybody, or unmetered. New returns an error
	// for an operation without a scope.
	scope string
	serve func(w http.ResponseWriter, r *http.Request, p accounts.Principal) error
}

// operations returns the complete route table. openapi.json documents each operation.
func (s *surface) operations() []operation {
	table := []operation{
		{http.MethodGet, "/pins", state.ScopeRead, s.list},
		{http.MethodPost, "/pins", state.ScopeWrite, s.create},
		{http.MethodGet, "/pins/{requestid}", state.ScopeRead, s.get},
		{http.MethodPost, "/pins/{requestid}", state.ScopeWrite, s.replace},
		{http.MethodDelete, "/pins/{requestid}", state.ScopeWrite, s.delete},
		{http.MethodGet, web.AlivePath, unmetered, withoutPrincipal(web.Alive(s.version))},
		{http.MethodGet, web.ReadyPath, unmetered, withoutPrincipal(web.Ready(s.health, s.version))},
		{http.MethodGet, "/openapi.json", unmetered, withoutPrincipal(describe)},
	}
	if s.sessions != nil {
		table = append(table,
			operation{http.MethodPost, "/auth/token", anybody, withoutPrincipal(s.signIn)},
			// A key has no session to end; SignOut checks that the token is a session's.
			operation{http.MethodDelete, "/auth/token", anybody, withoutPrincipal(s.signOut)})
	}
	return table
}

func withoutPrincipal(h web.Handler) func(http.ResponseWriter, *http.Request, accounts.Principal) error {
	return func(w http.ResponseWriter, r *http.Request, _ accounts.Principal) error { return h(w, r) }
}

// routes converts the table to routes whose handlers check rates, token and scope before they
// call serve. It returns an error for an operation with an unknown scope.
func (s *surface) routes(operations []operation) ([]web.Route, error) {
	var table []web.Route
	for _, op := range operations {
		var serve web.Handler
		switch op.scope {
		case unmetered:
			serve = func(w http.ResponseWriter, r *http.Request) error { return op.serve(w, r, accounts.Principal{}) }
			table = append(table, web.Route{Method: op.method, Path: op.path, Serve: serve})
			continue
		case anybody:
			serve = func(w http.ResponseWriter, r *http.Request) error { return op.serve(w, r, accounts.Principal{}) }
		case state.ScopeRead:
			serve = s.authorized(op)
		case state.ScopeWrite:
			serve = s.authorized(op)
			if s.recognize != nil {
				serve = s.changed(op)
			}
		default:
			return nil, fmt.Errorf("pinning: %s %s has the scope %q, which says not who may use it", op.method, op.path, op.scope)
		}
		table = append(table, web.Route{Method: op.method, Path: op.path, Serve: s.metered(serve)})
	}
	return table, nil
}

// metered returns a handler that enforces the rate of the client's address before it calls h.
func (s *surface) metered(h web.Handler) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := s.limits.Address(r); err != nil {
			return err
		}
		return h(w, r)
	}
}

// authorized returns a handler that verifies the token by a linearizable read, and checks the
// rate of the account and the scope, before it reads the body.
func (s *surface) authorized(op operation) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		spent, err := s.ahead(r)
		if err != nil {
			return err
		}
		return s.confirmed(op, w, r, spent)
	}
}

// ahead identifies the account of a token by the local state and counts the request against its
// rate. It does so only after some account has exceeded its rate within the last second. A
// refused request then needs no linearizable read. spent is the account that was charged, or "".
// The request is not authenticated by this.
func (s *surface) ahead(r *http.Request) (spent state.AccountID, err error) {
	if s.recognize == nil || !s.limits.Pressed() {
		return "", nil
	}
	if err := s.limits.Refusal(r); err != nil {
		return "", err
	}
	p, err := s.recognize(r.Context(), r)
	if err != nil {
		return "", nil //nolint:nilerr // another node may know the token
	}
	return p.Account, s.charge(p.Account, r)
}

// charge counts a request against the rate of an account. Instead of refusing it, it delays a
// request for a further page of a list, because Kubo requests pages of ten pins and gives up
// after a 429.
func (s *surface) charge(account state.AccountID, r *http.Request) error {
	if strings.Contains(r.URL.RawQuery, "before=") {
		return s.limits.Paced(account, r)
	}
	return s.limits.Account(account, r)
}

// confirmed authenticates the request by a linearizable read and serves it. spent is the account
// whose rate the request was already charged to, or "".
func (s *surface) confirmed(op operation, w http.ResponseWriter, r *http.Request, spent state.AccountID) error {
	ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
	p, err := s.authenticate(ctx, r)
	cancel()
	switch {
	case err != nil && op.scope == state.ScopeWrite && undecided(err):
		return fmt.Errorf("%w: authenticate: %w", state.Errorf(state.CodeUnavailable, "the cluster does not answer, nothing was written"), err)
	case err != nil:
		return fmt.Errorf("authenticate: %w", err)
	}
	return s.permitted(op, w, r, p, spent)
}

// changed returns a handler for an operation that changes pins. It verifies the token by the
// local state only, because the proposal of the change verifies it again. If the operation fails,
// it verifies the token by a linearizable read before it returns the error. So a caller whose
// token was revoked gets 401 and no other information, as with authorized.
func (s *surface) changed(op operation) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := s.limits.Refusal(r); err != nil {
			return err
		}
		p, err := s.recognize(r.Context(), r)
		if err != nil {
			return s.confirmed(op, w, r, "") // another node may know the token
		}
		err = s.permitted(op, w, r, p, "")
		var own *web.Error
		tooMany := errors.As(err, &own) && own.Answer.Status == http.StatusTooManyRequests // the answer must be cheap
		if err == nil || tooMany || undecided(err) {
			return err
		}
		// If the body did not arrive in time, the context of the request has ended:
		// net/http treats the read deadline as the end of the connection.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), caseTimeout)
		defer cancel()
		if _, refused := s.authenticate(ctx, r); refused != nil {
			return fmt.Errorf("authenticate: %w", refused)
		}
		return err
	}
}

// undecided reports whether err means that the cluster did not answer in time. A linearizable
// read would then fail too, and the error reveals nothing about accounts.
func undecided(err error) bool {
	return errors.Is(err, state.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// permitted charges the request to the rate of the account, unless spent is that account, checks
// the scope, and calls the operation. It adds the key or session to the context of a change, so
// that the state machine verifies it again: it may have been revoked while the body arrived.
func (s *surface) permitted(op operation, w http.ResponseWriter, r *http.Request, p accounts.Principal, spent state.AccountID) error {
	if spent == "" || spent != p.Account {
		if err := s.charge(p.Account, r); err != nil {
			return err
		}
	}
	if op.scope == "" || !p.May(op.scope) {
		return state.Errorf(state.CodeForbidden, "the token does not have the scope %s", op.scope)
	}
	leave, err := s.limits.Enter(r.Context(), p.Account)
	if err != nil {
		return fmt.Errorf("wait for other requests of the account: %w", err)
	}
	defer leave()
	switch {
	case op.scope != state.ScopeWrite:
	case p.Session != "":
		r = r.WithContext(state.AsSession(r.Context(), p.Session))
	case p.KeyID != "":
		r = r.WithContext(state.As(r.Context(), p.KeyID))
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
	held := s.limits.Hold(p.Account)
	defer held.Release()
	if err := held.Grow(weight(rows)); err != nil {
		return err
	}
	return writeResults(w, total, rows)
}

func (s *surface) create(w http.ResponseWriter, r *http.Request, p accounts.Principal) error {
	held := s.limits.Hold(p.Account)
	defer held.Release()
	pin, err := readPin(w, r, held)
	if err != nil {
		return err
	}
	name, named, err := web.RequestName(r)
	if err != nil {
		return err
	}
	if pin.End, err = requestEnd(r); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
	defer cancel()
	if named {
		ctx = pins.Once(ctx, name)
	}
	record, err := s.pins.Create(ctx, p.Account, pin)
	if named && errors.Is(err, state.ErrExists) {
		return web.ErrNameReused
	}
	if err != nil {
		return fmt.Errorf("create pin: %w", err)
	}
	return web.JSON(w, http.StatusAccepted, pinbody.Of(&record))
}

func (s *surface) replace(w http.ResponseWriter, r *http.Request, p accounts.Principal) error {
	held := s.limits.Hold(p.Account)
	defer held.Release()
	pin, err := readPin(w, r, held)
	if err != nil {
		return err
	}
	id, err := requestID(r)
	if err != nil {
		return err
	}
	if pin.End, err = requestEnd(r); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
	defer cancel()
	record, err := s.pins.Replace(ctx, p.Account, id, pin)
	if err != nil {
		return fmt.Errorf("replace pin: %w", err)
	}
	return web.JSON(w, http.StatusAccepted, pinbody.Of(&record))
}

func (s *surface) get(w http.ResponseWriter, r *http.Request, p accounts.Principal) error {
	id, err := requestID(r)
	if err != nil {
		return err
	}
	patience, err := parseWait(r.URL.RawQuery)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(pins.Seen(r.Context(), p.Index), caseTimeout)
	defer cancel()
	record, err := s.pins.Get(ctx, p.Account, id)
	if err == nil && patience > 0 {
		record, err = s.wait(w, r, p, record, patience)
	}
	if err != nil {
		return fmt.Errorf("get pin: %w", err)
	}
	held := s.limits.Hold(p.Account)
	defer held.Release()
	return web.HeldJSON(w, http.StatusOK, pinbody.Of(&record), held)
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

// requestID returns the request id in the path, or state.ErrNotFound if no pin can have such an
// id.
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
