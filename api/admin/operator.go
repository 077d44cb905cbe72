package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/audit"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/cluster/integrity"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// Members is the application logic behind the operations on members.
type Members interface {
	// Status returns the cluster as this node sees it. It works without a majority.
	Status(ctx context.Context) (members.Status, error)
	// CreateTicket creates a join ticket that admits one node and expires after ttl. random fills
	// a slice with random bytes.
	CreateTicket(ctx context.Context, ttl time.Duration, random func([]byte)) (string, error)
	// Quorum returns the number of voters and the unreachable ones, as gossip shows them. It
	// sends no request.
	Quorum() members.Quorum
	// Writable returns nil if a majority answers within 2 s.
	Writable(ctx context.Context) error
	// Named returns the member whose id is who, or the only member whose name is who.
	Named(ctx context.Context, who string) (state.Node, error)
	// Leaving returns what the removal of the member with the id or name who would cause. If
	// count is false, it does not scan the roots, and Pins and Sole of the result are 0.
	Leaving(ctx context.Context, who string, count bool) (members.Leaving, error)
	// DrainPlan returns what the drain of the member with the id or name who would cause.
	DrainPlan(ctx context.Context, who string) (members.DrainPlan, error)
	// Drain begins the drain of a member if on is true, and cancels it otherwise.
	Drain(ctx context.Context, id state.NodeID, on bool) error
	// Remove removes a member. Without force it returns an error if the node is down, or has the
	// only copy of some content.
	Remove(ctx context.Context, id state.NodeID, force bool) error
}

// Accounts is the application logic behind the operations on accounts and keys.
type Accounts interface {
	// CreateAccount adds an account. With an empty password nobody can sign in by password.
	CreateAccount(ctx context.Context, email, password string) (accounts.User, error)
	// List returns all accounts.
	List(ctx context.Context) ([]accounts.User, error)
	// SetPassword changes the password of the account with an e-mail address.
	SetPassword(ctx context.Context, email, password string) error
	// RemoveAccount removes the account with an e-mail address and its keys. The cluster
	// removes its pins afterwards.
	RemoveAccount(ctx context.Context, email string) error
	// SetDisabled disables the account with an e-mail address if on is true, and enables it again
	// otherwise.
	SetDisabled(ctx context.Context, email string, on bool) error
	// SetAllowance sets the bytes that the account with an e-mail address may store without
	// credits.
	SetAllowance(ctx context.Context, email string, bytes uint64) error
	// Holdings returns the account with the e-mail address or id who, with the counts of its
	// pins, objects, keys and sessions.
	Holdings(ctx context.Context, who string) (accounts.Holdings, error)
	// ByEmail returns the account with an e-mail address, or state.ErrNotFound.
	ByEmail(ctx context.Context, email string) (state.Account, error)
	// Operator returns the operator account, which local commands use.
	Operator(ctx context.Context) (state.Account, error)
	// CreateKey adds an API key and returns it with its secrets. Without scopes the key has all
	// scopes. A ttl of 0 means that it does not expire.
	CreateKey(ctx context.Context, email, name string, scopes []string, ttl time.Duration) (accounts.Key, error)
	// Keys returns the keys of the account with an e-mail address, without their secrets. An
	// empty address returns all keys of the cluster.
	Keys(ctx context.Context, email string) ([]accounts.Key, error)
	// Key returns a key without its secrets, or state.ErrNotFound.
	Key(ctx context.Context, jti state.KeyID) (accounts.Key, error)
	// Show returns a key with its secrets, or state.ErrNotFound.
	Show(ctx context.Context, jti state.KeyID) (accounts.Key, error)
	// AllShares returns the shares of all accounts, without their secrets.
	AllShares(ctx context.Context) ([]accounts.OwnedShare, error)
	// AddApp registers an application. Without scopes its keys can read and write.
	AddApp(ctx context.Context, name string, redirects, scopes []string) (accounts.App, error)
	// RemoveApp removes an application, or returns state.ErrNotFound. Its keys stay valid.
	RemoveApp(ctx context.Context, name string) error
	// Apps returns the registered applications, ordered by name.
	Apps(ctx context.Context) ([]accounts.App, error)
	// CreateLink creates a one-time link that sets a new password for the account with an e-mail
	// address, or invites a person who has no account.
	CreateLink(ctx context.Context, email string) (accounts.Link, error)
	// CreateOperatorLink creates a one-time link that signs in as the operator account.
	CreateOperatorLink(ctx context.Context) (accounts.Link, error)
	// Links returns the one-time links that can still be used, without their secrets.
	Links(ctx context.Context) ([]accounts.OpenLink, error)
	// RevokeLink revokes a one-time link on every node, or returns state.ErrNotFound.
	RevokeLink(ctx context.Context, id state.LinkID) error
	// RotateSigningKey replaces the cluster key that signs the tokens of new API keys, and
	// returns the number of the new one. Existing API keys stay valid.
	RotateSigningKey(ctx context.Context) (generation uint64, err error)
	// Revoke revokes an API key. When it returns, no node accepts the key.
	Revoke(ctx context.Context, jti state.KeyID) error
}

// Files imports files and folders and reads them by CID.
type Files interface {
	Folders
	// Add imports a file. When it returns, all blocks are durable on this node.
	Add(ctx context.Context, r io.Reader, as content.Layout) (root cid.Cid, size uint64, err error)
	// Open opens the file with the CID text, or the file at a path in a folder if text has a path
	// after the CID. It reads blocks from this node or from other members, until ctx ends. It
	// returns content.ErrFolder for a folder.
	Open(ctx context.Context, text string) (f io.ReadSeekCloser, size uint64, err error)
	// OpenFor works like Open, with the rights of an account. It returns state.ErrNotFound for
	// content that the account may not read, as for content that does not exist.
	OpenFor(ctx context.Context, account state.AccountID, text string) (f io.ReadSeekCloser, size uint64, err error)
	CARs
}

// Blocks verifies the blocks on this node.
type Blocks interface {
	// Scrub verifies every stored block and fetches damaged ones from other members. It waits as
	// long as these fetches make progress.
	Scrub(ctx context.Context) (integrity.Report, error)
}

// Audit is the application logic behind the audit log.
type Audit interface {
	// List returns a page of the rows that match q, the newest first.
	List(ctx context.Context, q audit.Query) (audit.Page, error)
	// Verify verifies the hash chain of the whole log. The result reports a changed row; that is
	// no error.
	Verify(ctx context.Context) (audit.Verification, error)
}

// Ledger is the application logic behind the credit ledgers.
type Ledger interface {
	// Post adds a posting to the ledger of the account with the e-mail address or id who. If the
	// request has an id, a retry does not add the posting again.
	Post(ctx context.Context, who string, r credits.Request) (state.Posting, error)
	// List returns a page of the ledger of an account, the newest postings first. before is the
	// cursor of the page; 0 means the first page.
	List(ctx context.Context, who string, before uint64, limit int) (credits.Page, error)
	// ContentEnds returns when the cluster begins to delete the newest content of an account that
	// stores more than its allowance and has used up its credits. It returns false for all other
	// accounts.
	ContentEnds(account state.AccountID) (time.Time, bool, error)
}

// Limits of the local API.
const (
	// callTimeout bounds each call that transfers no file.
	callTimeout = 30 * time.Second
	// defaultTicketTTL is the lifetime of a ticket if the request names none.
	defaultTicketTTL = 24 * time.Hour
	// fileBuffer is the size in bytes of the buffer through which a file is sent.
	fileBuffer = 256 << 10
)

// OperatorOptions configure the local API. All fields are required.
type OperatorOptions struct {
	Members  Members
	Accounts Accounts
	Audit    Audit
	Ledger   Ledger
	Files    Files
	Blocks   Blocks
	Replica  Replica
	Backups  Backups
	Upkeep   Upkeep
	Payments Payments
	// Pins serves /pins and the paths below it: the Pinning Service API with Local for
	// authentication.
	Pins http.Handler
	// Addrs has the addresses of this node's listeners.
	Addrs  Addrs
	Logger *slog.Logger
}

// Local returns an Authenticate for requests through the socket. The principal is the account
// with the e-mail address in the query parameter user, or the operator account. It may read and
// write. Local returns a 404 error if the account does not exist.
func Local(a Accounts) web.Authenticate {
	return func(ctx context.Context, r *http.Request) (accounts.Principal, error) {
		query, err := queryOf(r)
		if err != nil {
			return accounts.Principal{}, err
		}
		var account state.Account
		if email := query.Get("user"); email != "" {
			account, err = a.ByEmail(ctx, email)
		} else {
			account, err = a.Operator(ctx)
		}
		if errors.Is(err, state.ErrNotFound) {
			return accounts.Principal{}, web.Errorf(http.StatusNotFound, "NOT_FOUND", "there is no account with this e-mail address")
		}
		if err != nil {
			return accounts.Principal{}, err
		}
		return accounts.Principal{
			Account: account.ID, Email: account.Email, Scopes: []string{state.ScopeRead, state.ScopeWrite},
		}, nil
	}
}

// Unavailable returns a function that names the missing voters while the cluster has no majority,
// and returns "" otherwise. The local API adds this text to its 503 answers.
func Unavailable(m Members) func() string {
	return func() string {
		if q := m.Quorum(); !q.Complete() {
			return q.Lacking()
		}
		return ""
	}
}

// queryOf returns the query of a request. If any part is malformed, it returns a 400 error,
// because that part could name the account.
func queryOf(r *http.Request) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, web.BadRequest("the query is not valid: a %% must stand before two hexadecimal digits, and a ; is written %%3B")
	}
	return query, nil
}

type operator struct{ opts OperatorOptions }

// NewOperator returns the handler of the local API.
func NewOperator(o OperatorOptions) http.Handler {
	p := &operator{o}
	own := web.Wrap(web.Options{Name: "operator", Answer: web.Explained(answer, Unavailable(o.Members)), Logger: o.Logger}, web.Routes(p.routes()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/pins" || strings.HasPrefix(r.URL.Path, "/pins/") {
			o.Pins.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	})
}

func (p *operator) routes() []web.Route {
	return []web.Route{
		{Method: http.MethodGet, Path: "/status", Serve: call(p.status)},
		{Method: http.MethodGet, Path: "/peers", Serve: call(p.peers)},
		{Method: http.MethodGet, Path: "/quorum", Serve: call(p.quorum)},
		{Method: http.MethodGet, Path: "/peers/{id}", Serve: call(p.leaving)},
		{Method: http.MethodDelete, Path: "/peers/{id}", Serve: p.change(p.removePeer)},
		{Method: http.MethodGet, Path: "/peers/{id}/drain", Serve: call(p.drainPlan)},
		{Method: http.MethodPut, Path: "/peers/{id}/drain", Serve: p.change(p.drainPeer)},
		{Method: http.MethodPost, Path: "/tickets", Serve: p.change(p.createTicket)},
		{Method: http.MethodGet, Path: "/users", Serve: call(p.users)},
		{Method: http.MethodPost, Path: "/users", Serve: p.change(p.createUser)},
		{Method: http.MethodGet, Path: "/users/{email}", Serve: call(p.user)},
		{Method: http.MethodDelete, Path: "/users/{email}", Serve: p.change(p.removeUser)},
		{Method: http.MethodPut, Path: "/users/{email}/password", Serve: p.change(p.setPassword)},
		{Method: http.MethodPut, Path: "/users/{email}/disabled", Serve: p.change(p.setDisabled)},
		{Method: http.MethodPut, Path: "/users/{email}/quota", Serve: p.change(p.setQuota)},
		{Method: http.MethodPost, Path: "/users/{email}/credits", Serve: p.change(p.post)},
		{Method: http.MethodGet, Path: "/users/{email}/ledger", Serve: call(p.ledger)},
		{Method: http.MethodPost, Path: "/users/{email}/links", Serve: p.change(p.createUserLink)},
		{Method: http.MethodPost, Path: "/console/links", Serve: p.change(p.createConsoleLink)},
		{Method: http.MethodGet, Path: "/links", Serve: call(p.links)},
		{Method: http.MethodDelete, Path: "/links/{id}", Serve: p.change(p.revokeLink)},
		{Method: http.MethodGet, Path: "/keys", Serve: call(p.keys)},
		{Method: http.MethodPost, Path: "/keys", Serve: p.change(p.createKey)},
		{Method: http.MethodGet, Path: "/keys/{jti}", Serve: call(p.showKey)},
		{Method: http.MethodPost, Path: "/signing-keys", Serve: p.change(p.rotateSigningKey)},
		{Method: http.MethodDelete, Path: "/keys/{jti}", Serve: p.change(p.revokeKey)},
		{Method: http.MethodGet, Path: "/shares", Serve: call(p.shares)},
		{Method: http.MethodGet, Path: "/apps", Serve: call(p.apps)},
		{Method: http.MethodPost, Path: "/apps", Serve: p.change(p.addApp)},
		{Method: http.MethodDelete, Path: "/apps/{name}", Serve: p.change(p.removeApp)},
		{Method: http.MethodGet, Path: "/audit", Serve: call(p.audit)},
		{Method: http.MethodGet, Path: "/audit/verify", Serve: call(p.verifyAudit)},
		{Method: http.MethodGet, Path: "/payments", Serve: call(p.payments)},
		{Method: http.MethodPost, Path: "/content", Serve: p.addContent},
		{Method: http.MethodGet, Path: "/content/{cid}", Serve: p.content},
		{Method: http.MethodPost, Path: "/car", Serve: p.importCAR},
		{Method: http.MethodGet, Path: "/car/{cid}", Serve: p.exportCAR},
		{Method: http.MethodPost, Path: "/scrub", Serve: p.scrub},
		{Method: http.MethodGet, Path: "/backup", Serve: p.backup},
		{Method: http.MethodPost, Path: "/gc", Serve: p.collect},
		{Method: http.MethodPost, Path: "/fsck", Serve: p.check},
		{Method: http.MethodGet, Path: "/state/hash", Serve: p.stateHash},
		{Method: http.MethodGet, Path: "/state/checks", Serve: call(p.stateChecks)},
		{Method: http.MethodPost, Path: "/state/checks", Serve: p.checkState},
	}
}

// call returns a handler that runs h within callTimeout and answers with the result in JSON. If
// the result is nil, the answer has no body.
func call(h func(w http.ResponseWriter, r *http.Request) (any, error)) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(state.WithActor(r.Context(), state.Actor{Kind: state.ActorOperator}), callTimeout)
		defer cancel()
		body, err := h(w, r.WithContext(ctx))
		switch {
		case err != nil:
			return err
		case body == nil:
			return web.Empty(w, http.StatusNoContent)
		case r.Method == http.MethodPost:
			return web.JSON(w, http.StatusCreated, body)
		default:
			return web.JSON(w, http.StatusOK, body)
		}
	}
}

// change works like call, for a handler that changes the replicated state. Before h it makes a
// linearizable read. Without a majority that read fails, and the answer states truthfully that
// nothing was written. A failed proposal could not promise this, because it may still be in the
// leader's log.
func (p *operator) change(h func(w http.ResponseWriter, r *http.Request) (any, error)) web.Handler {
	return call(func(w http.ResponseWriter, r *http.Request) (any, error) {
		if _, err := p.opts.Accounts.Operator(r.Context()); errors.Is(err, state.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("%w: %w", state.Errorf(state.CodeUnavailable, "the cluster does not answer, nothing was written"), err)
		}
		return h(w, r)
	})
}

// read decodes the JSON body of a request into one of the request types of this package. Errors
// are those of web.Body and web.Object.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := web.Body(w, r, web.MaxJSONBody, nil)
	if err != nil {
		return err
	}
	if _, err := web.Object("the body", body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return web.BadRequest("the body has a member of the wrong type: %v", err)
	}
	return nil
}

func (p *operator) read(ctx context.Context) (Status, error) {
	s, err := p.opts.Members.Status(ctx)
	if err != nil {
		return Status{}, fmt.Errorf("status: %w", err)
	}
	return statusOf(&s, p.opts.Addrs), nil
}

func (p *operator) status(_ http.ResponseWriter, r *http.Request) (any, error) {
	return p.read(r.Context())
}

func (p *operator) peers(_ http.ResponseWriter, r *http.Request) (any, error) {
	s, err := p.read(r.Context())
	return s.Peers, err
}

func (p *operator) removePeer(_ http.ResponseWriter, r *http.Request) (any, error) {
	force, err := flagOf(r, "force", false)
	if err != nil {
		return nil, err
	}
	node, err := p.opts.Members.Named(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return nil, p.opts.Members.Remove(r.Context(), node.ID, force)
}

func (p *operator) drainPlan(_ http.ResponseWriter, r *http.Request) (any, error) {
	plan, err := p.opts.Members.DrainPlan(r.Context(), r.PathValue("id"))
	return drainPlanOf(&plan), err
}

func (p *operator) drainPeer(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask SetDrain
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	node, err := p.opts.Members.Named(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return nil, p.opts.Members.Drain(r.Context(), node.ID, ask.On)
}

// leaving answers GET /peers/{id}. With count=false in the query, the answer does not count pins
// and sole copies.
func (p *operator) leaving(_ http.ResponseWriter, r *http.Request) (any, error) {
	count, err := flagOf(r, "count", true)
	if err != nil {
		return nil, err
	}
	l, err := p.opts.Members.Leaving(r.Context(), r.PathValue("id"), count)
	return leavingOf(&l), err
}

// flagOf returns the boolean query parameter name, or other if it is absent. A malformed value is
// a 400 error.
func flagOf(r *http.Request, name string, other bool) (bool, error) {
	query, err := queryOf(r)
	if err != nil {
		return false, err
	}
	text := query.Get(name)
	if text == "" {
		return other, nil
	}
	flag, err := strconv.ParseBool(text)
	if err != nil {
		return false, web.BadRequest("%s must be true or false", name)
	}
	return flag, nil
}

// quorum answers GET /quorum, also while the cluster has no majority.
func (p *operator) quorum(_ http.ResponseWriter, r *http.Request) (any, error) {
	err := p.opts.Members.Writable(r.Context())
	q := p.opts.Members.Quorum()
	return quorumOf(&q, err), nil
}

func (p *operator) createTicket(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask NewTicket
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	ttl, err := lifeOf(ask.TTL, defaultTicketTTL)
	if err != nil {
		return nil, err
	}
	random := func(b []byte) { _, _ = rand.Read(b) } // crypto/rand ends the process if it fails
	ticket, err := p.opts.Members.CreateTicket(r.Context(), ttl, random)
	return Ticket{ticket}, err
}

func (p *operator) users(_ http.ResponseWriter, r *http.Request) (any, error) {
	all, err := p.opts.Accounts.List(r.Context())
	rows := make([]User, len(all))
	for i := range all {
		rows[i] = userOf(&all[i])
	}
	return rows, err
}

func (p *operator) user(_ http.ResponseWriter, r *http.Request) (any, error) {
	h, err := p.opts.Accounts.Holdings(r.Context(), r.PathValue("email"))
	if err != nil {
		return nil, err
	}
	u := holdingsOf(&h)
	end, ends, err := p.opts.Ledger.ContentEnds(h.ID)
	if ends {
		u.ContentEnds = end.UTC().Format(timeForm)
	}
	return u, err
}

func (p *operator) createUser(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask NewUser
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	account, err := p.opts.Accounts.CreateAccount(r.Context(), ask.Email, ask.Password)
	return userOf(&account), err
}

func (p *operator) removeUser(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, p.opts.Accounts.RemoveAccount(r.Context(), r.PathValue("email"))
}

func (p *operator) setPassword(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask NewPassword
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	return nil, p.opts.Accounts.SetPassword(r.Context(), r.PathValue("email"), ask.Password)
}

func (p *operator) setDisabled(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask NewDisabled
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	if ask.Disabled == nil {
		return nil, web.BadRequest("disabled is missing: true or false")
	}
	return nil, p.opts.Accounts.SetDisabled(r.Context(), r.PathValue("email"), *ask.Disabled)
}

func (p *operator) setQuota(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask NewQuota
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	if ask.Unlimited == (ask.AllowanceBytes != nil) {
		return nil, web.BadRequest("one of allowance_bytes and unlimited is needed")
	}
	allowance := uint64(state.Unlimited)
	if !ask.Unlimited {
		allowance = *ask.AllowanceBytes
	}
	return nil, p.opts.Accounts.SetAllowance(r.Context(), r.PathValue("email"), allowance)
}

func (p *operator) keys(_ http.ResponseWriter, r *http.Request) (any, error) {
	query, err := queryOf(r)
	if err != nil {
		return nil, err
	}
	if jti := query.Get("id"); jti != "" {
		return p.keysNamed(r.Context(), state.KeyID(jti))
	}
	all, err := p.opts.Accounts.Keys(r.Context(), query.Get("user"))
	rows := make([]KeyRow, len(all))
	for i := range all {
		rows[i] = rowOf(&all[i])
	}
	return rows, err
}

// keysNamed returns the key with the id jti as a list of one, or an empty list if it does not
// exist.
func (p *operator) keysNamed(ctx context.Context, jti state.KeyID) ([]KeyRow, error) {
	key, err := p.opts.Accounts.Key(ctx, jti)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return []KeyRow{}, nil
	case err != nil:
		return nil, err
	}
	return []KeyRow{rowOf(&key)}, nil
}

func (p *operator) createKey(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask NewKey
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	if ask.Scopes != nil && len(ask.Scopes) == 0 {
		return nil, web.BadRequest("a list of scopes is not empty; without one the key has all of them")
	}
	ttl, err := lifeOf(ask.TTL, 0)
	if err != nil {
		return nil, err
	}
	key, err := p.opts.Accounts.CreateKey(r.Context(), ask.User, ask.Name, ask.Scopes, ttl)
	return keyOf(&key), err
}

func (p *operator) showKey(_ http.ResponseWriter, r *http.Request) (any, error) {
	key, err := p.opts.Accounts.Show(r.Context(), state.KeyID(r.PathValue("jti")))
	return keyOf(&key), err
}

func (p *operator) rotateSigningKey(_ http.ResponseWriter, r *http.Request) (any, error) {
	generation, err := p.opts.Accounts.RotateSigningKey(r.Context())
	return SigningKey{generation}, err
}

func (p *operator) revokeKey(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, p.opts.Accounts.Revoke(r.Context(), state.KeyID(r.PathValue("jti")))
}

func (p *operator) apps(_ http.ResponseWriter, r *http.Request) (any, error) {
	all, err := p.opts.Accounts.Apps(r.Context())
	rows := make([]App, len(all))
	for i := range all {
		rows[i] = formOf(&all[i])
	}
	return rows, err
}

func (p *operator) addApp(w http.ResponseWriter, r *http.Request) (any, error) {
	var ask NewApp
	if err := read(w, r, &ask); err != nil {
		return nil, err
	}
	added, err := p.opts.Accounts.AddApp(r.Context(), ask.Name, ask.Redirects, ask.Scopes)
	return formOf(&added), err
}

func (p *operator) removeApp(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, p.opts.Accounts.RemoveApp(r.Context(), r.PathValue("name"))
}

// scrub answers POST /scrub after all blocks are verified. That takes as long as reading the
// disk, so only the client can end it earlier.
func (p *operator) scrub(w http.ResponseWriter, r *http.Request) error {
	report, err := p.opts.Blocks.Scrub(r.Context())
	if err != nil {
		return fmt.Errorf("scrub: %w", err)
	}
	return web.JSON(w, http.StatusOK, Scrubbed{
		Blocks: report.Blocks, Bytes: report.Bytes, Damaged: report.Damaged, Repaired: report.Repaired,
	})
}

// file answers GET /content/{cid} with a file. It sends the header with the first bytes. If a
// later read fails, the connection is closed before Content-Length bytes were sent, so the client
// notices.
func (p *operator) file(w http.ResponseWriter, r *http.Request) (err error) {
	f, size, err := p.open(r)
	if err != nil {
		return fmt.Errorf("open file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, fileBuffer)
	for sent := uint64(0); sent < size; {
		n, err := io.ReadFull(f, buf[:min(uint64(len(buf)), size-sent)])
		if err != nil {
			return fmt.Errorf("read file at %d of %d: %w", sent, size, err)
		}
		if sent == 0 {
			begin(w, r.PathValue("cid"), size)
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return fmt.Errorf("write file at %d of %d: %w", sent, size, err)
		}
		sent += uint64(n)
	}
	if size == 0 {
		begin(w, r.PathValue("cid"), size)
	}
	return nil
}

// open opens the file of a request with the rights of the user in the query. Without a user it
// opens the file as the operator, who may read everything.
func (p *operator) open(r *http.Request) (f io.ReadSeekCloser, size uint64, err error) {
	root := r.PathValue("cid")
	query, err := queryOf(r)
	if err != nil {
		return nil, 0, err
	}
	if !query.Has("user") {
		return p.opts.Files.Open(r.Context(), root)
	}
	who, err := Local(p.opts.Accounts)(r.Context(), r)
	if err != nil {
		return nil, 0, err
	}
	return p.opts.Files.OpenFor(r.Context(), who.Account, root)
}

func begin(w http.ResponseWriter, root string, size uint64) {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatUint(size, 10))
	h.Set("X-Holdfast-Cid", url.PathEscape(root))
	w.WriteHeader(http.StatusOK)
}
