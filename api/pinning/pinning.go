// Package pinning serves the Pinning Service API 1.0.0 over HTTP: its five operations
// on an account's pins, session tokens, and health. Bodies, queries and errors follow
// the public specification. Where the specification is silent, this package names the
// limits.
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

// Pins has the use cases of this API. The pin of another account behaves like a missing
// one.
type Pins interface {
	// Create adds a pin; the record is durable when it returns.
	Create(ctx context.Context, account state.AccountID, r pins.Request) (pins.Record, error)
	// Replace replaces an old pin by a new one, in one change.
	Replace(ctx context.Context, account state.AccountID, old state.RequestID, r pins.Request) (pins.Record, error)
	// Get returns the current state of a pin in the cluster.
	Get(ctx context.Context, account state.AccountID, id state.RequestID) (pins.Record, error)
	// Wait returns a pin as soon as its status differs from known, or the state of its content
	// changes. It returns at once if known is a final status, and at the latest when enough is
	// closed. Errors: state.ErrNotFound if the pin is gone, state.ErrLimited if too many requests
	// wait, and that of ctx.
	Wait(ctx context.Context, account state.AccountID, id state.RequestID, known state.Status, enough <-chan struct{}) (pins.Record, error)
	// List returns the newest matching pins and the number of all matches.
	List(ctx context.Context, account state.AccountID, q state.PinQuery) (total uint64, rows []pins.Record, err error)
	// Delete removes a pin.
	Delete(ctx context.Context, account state.AccountID, id state.RequestID) error
}

// Sessions has the use cases of session tokens.
type Sessions interface {
	// SignIn starts a session of the account with this name and password and returns its
	// token. from is the client's address, for the rate limit.
	SignIn(ctx context.Context, name, password string, from netip.Addr) (token string, err error)
	// SignOut ends the session of a token on all nodes. It fails with state.ErrUnauthorized
	// if token is not that of a session.
	SignOut(ctx context.Context, token string) error
}

// Options configure the surface. Pins, Authenticate, Health, DefaultStatus and Logger are
// required.
type Options struct {
	Pins Pins
	// Authenticate checks a token against the state of the cluster.
	Authenticate web.Authenticate
	// Recognize checks a token against the state of this node. With it a change takes one
	// round trip in the cluster, which also checks the key, and a request refused by the
	// rate limit takes none. Without it they take two and one.
	Recognize web.Authenticate
	// Sessions starts and ends sessions; nil: this server has none.
	Sessions Sessions
	// Limits has the rates of accounts and addresses; nil: no limits.
	Limits *web.Limits
	// Origins are the web origins whose scripts may use the API.
	Origins []string
	Health  web.Health
	// DefaultStatus has the statuses of a list whose query names none.
	DefaultStatus []string
	// Draining is closed when the server stops, so that waiting requests return.
	Draining <-chan struct{}
	// Unavailable returns the reason why the cluster cannot commit, or "". It is for the
	// operator. Nil: answers have no reason, because it names members.
	Unavailable func() string
	Version     string
	Logger      *slog.Logger
	Metrics     *web.Metrics // nil: no metrics
}

// caseTimeout bounds each call of a use case, so that a node without a majority answers 503
// before a client gives up. A request makes at most two calls.
const caseTimeout = 7 * time.Second

type surface struct {
	pins         Pins
	sessions     Sessions
	limits       *web.Limits
	health       web.Health
	version      string
	authenticate web.Authenticate
	recognize    web.Authenticate // nil: changes are authenticated by the cluster first
	statuses     []state.Status   // of a list whose query names none
	draining     <-chan struct{}
}

// New returns the handler of the API.
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

// Values of operation.scope besides the scopes of the state.
const (
	anybody   = "anybody"              // no token
	unmetered = "anybody, and no rate" // no token and no rate limit
)

// operation is one route with its permissions.
type operation struct {
	method, path string
	// scope is the scope that the token must have, or one of the callers above. New fails
	// for a route without a scope.
	scope string
	serve func(w http.ResponseWriter, r *http.Request, p accounts.Principal) error
}

// operations returns the one table of routes. openapi.json describes each.
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

// routes returns the routes of the table, each with its checks before its handler.
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

// metered enforces the rate of the client address, before any other check of the request.
func (s *surface) metered(h web.Handler) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := s.limits.Address(r); err != nil {
			return err
		}
		return h(w, r)
	}
}

// authorized checks the token before it reads the body of the request.
func (s *surface) authorized(op operation) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		spent, err := s.ahead(r)
		if err != nil {
			return err
		}
		return s.confirmed(op, w, r, spent)
	}
}

// ahead counts a request against the rate of the account that this node recognizes, and returns
// the account. It does so only while accounts exceed their rates, so that a refusal costs the
// cluster nothing. It does not authenticate the request.
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

// charge counts a request against the rate of an account. It delays the next pages of a list
// instead of refusing them, because Kubo asks for ten pins at a time and gives up at a 429.
func (s *surface) charge(account state.AccountID, r *http.Request) error {
	if strings.Contains(r.URL.RawQuery, "before=") {
		return s.limits.Paced(account, r)
	}
	return s.limits.Account(account, r)
}

// confirmed authenticates the request by the state of the cluster and serves it. If spent is not
// empty, the request already counts against the rate of that account.
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

// changed is authorized for operations that change pins. It recognizes the caller by the state of
// this node, because the cluster checks the token again with the change. Before any other
// error it authenticates the caller by the state of the cluster. A caller whose token is no
// longer valid therefore learns nothing else, and errors have the same order as in authorized.
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

// undecided reports whether an error means that the cluster did not answer. A second question is
// then useless, and the error reveals nothing about accounts.
func undecided(err error) bool {
	return errors.Is(err, state.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// permitted enforces the rate of the account, unless the request counts against it already, and
// the scope of the operation. It then serves the request. A change carries the key of the token,
// so that the cluster can check it again, because the body may have taken long to arrive.
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
	name, named, err := requestName(r)
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
		return web.Errorf(http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED", "this %s came with another pin before", web.IdempotencyHeader)
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

// requestID returns the id in the path. For an id that no pin can have it returns
// state.ErrNotFound.
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
