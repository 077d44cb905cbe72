// Package webapi serves the JSON API of the web console's listener, below Prefix: session, API
// keys, shares, pins, buckets, objects, usage, and for administrators members and accounts. The pages of
// the console call the use cases and not this API.
//
// A browser is known by the session cookie of the console. A request that changes something has
// the form token of that session in the header X-Form-Token. A program sends a session token or
// an API key as a Bearer token instead, which no browser sends by itself. An API key opens what
// its scope covers: pins, buckets, objects and usage.
//
// Imports: std, api/internal/drainbody, api/internal/web, cluster/pins, cluster/objects, cluster/accounts,
// cluster/members, consensus/state.
// Never:   other surfaces, consensus, storage, peer, listeners.
package webapi

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/audit"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Prefix begins every path of the API.
const Prefix = "/api/v1"

// Accounts are the use cases of sessions, keys and accounts.
type Accounts interface {
	// Authenticate returns the principal of a token, by the current state of the cluster.
	Authenticate(ctx context.Context, token string) (accounts.Principal, error)
	// SignOut ends the session of a token everywhere, or returns state.ErrUnauthorized.
	SignOut(ctx context.Context, token string) error
	// CheckPassword returns nil if password opens the account whose name is name. The call counts
	// as an attempt to sign in from the address from, and has the errors of an attempt.
	CheckPassword(ctx context.Context, name, password string, from netip.Addr) error
	// Ways returns the ways to sign in to an account.
	Ways(ctx context.Context, account state.AccountID) (accounts.Ways, error)
	// CreateKey adds an API key and returns it with its secrets. A ttl of 0 means that the key
	// does not expire.
	CreateKey(ctx context.Context, email, name string, scopes []string, ttl time.Duration) (accounts.Key, error)
	// Keys returns the keys of the account with an e-mail address, without secrets.
	Keys(ctx context.Context, email string) ([]accounts.Key, error)
	// Key returns a key without its secrets, or state.ErrNotFound.
	Key(ctx context.Context, jti state.KeyID) (accounts.Key, error)
	// Show returns a key with its secrets, or state.ErrNotFound.
	Show(ctx context.Context, jti state.KeyID) (accounts.Key, error)
	// Revoke ends a key on every node before it returns.
	Revoke(ctx context.Context, jti state.KeyID) error
	// AuthenticateS3 does the same as Authenticate, and also accepts the tokens of shares.
	AuthenticateS3(ctx context.Context, token string) (accounts.Principal, error)
	// CreateShare adds a share to a bucket and returns it with its secrets. The same request
	// again returns the same share.
	CreateShare(ctx context.Context, account state.AccountID, r accounts.ShareRequest) (accounts.Share, error)
	// Shares returns a page of the shares of an account, or of a bucket, without secrets.
	Shares(ctx context.Context, account state.AccountID, bucket string, after state.SharePlace, limit int) (accounts.SharePage, error)
	// RevokeShare ends a share on every node before it returns.
	RevokeShare(ctx context.Context, account state.AccountID, bucket string, id state.ShareID) error
	// Holdings returns the account of an id or e-mail address with what belongs to it.
	Holdings(ctx context.Context, who string) (accounts.Holdings, error)
	// Links returns the one-time links that can be used, without their tokens.
	Links(ctx context.Context) ([]accounts.OpenLink, error)
	// RevokeLink ends a one-time link on every node, or returns state.ErrNotFound.
	RevokeLink(ctx context.Context, id state.LinkID) error
	// Page returns a page of accounts, ordered by e-mail address.
	Page(ctx context.Context, q accounts.UserQuery) (accounts.UserPage, error)
	// CreateAccount adds an account.
	CreateAccount(ctx context.Context, email, password string) (accounts.User, error)
	// SetAllowance sets the bytes that an account may store without credits.
	SetAllowance(ctx context.Context, email string, bytes uint64) error
	// SetAdmin gives an account the rights of an administrator, or takes them away.
	SetAdmin(ctx context.Context, email string, admin bool) error
	// SetDisabled disables an account if on is true, and enables it again otherwise.
	SetDisabled(ctx context.Context, email string, on bool) error
	// RemoveAccount removes an account and what belongs to it.
	RemoveAccount(ctx context.Context, email string) error
}

// Audit are the use cases of the audit log.
type Audit interface {
	// List returns a page of the rows that a query asks for, the newest first.
	List(ctx context.Context, q audit.Query) (audit.Page, error)
	// Verify walks through the whole log. A broken row is no error.
	Verify(ctx context.Context) (audit.Verification, error)
}

// Ledger are the use cases of credits.
type Ledger interface {
	// Post adds a posting to the ledger of the account with an e-mail address or id. A posting that
	// has an id is added only once.
	Post(ctx context.Context, who string, r credits.Request) (state.Posting, error)
	// List returns a page of a ledger, the newest postings first.
	List(ctx context.Context, who string, before uint64, limit int) (credits.Page, error)
	// ContentEnds returns when the newest content of an account begins to end, because its credits are
	// used up and it stores more than its allowance. It returns false for all other accounts. It reads
	// the local state.
	ContentEnds(account state.AccountID) (time.Time, bool, error)
}

// Payments are the use cases of payments.
type Payments interface {
	// List returns a page of payments, the newest first.
	List(ctx context.Context, cursor string, limit int) (payments.Page, error)
}

// Pins are the use cases of pins. Another account's pin behaves like an absent one.
type Pins interface {
	// Create adds a pin; the record is durable when it returns.
	Create(ctx context.Context, account state.AccountID, r pins.Request) (pins.Record, error)
	// Get returns the current state of a pin in the cluster.
	Get(ctx context.Context, account state.AccountID, id state.RequestID) (pins.Record, error)
	// List returns the newest matching pins and the number of all matches.
	List(ctx context.Context, account state.AccountID, q state.PinQuery) (total uint64, rows []pins.Record, err error)
	// Delete removes a pin.
	Delete(ctx context.Context, account state.AccountID, id state.RequestID) error
}

// Objects are the use cases of buckets and objects. Resources of another account behave like
// absent ones.
type Objects interface {
	// Buckets returns an account's buckets, ordered by name.
	Buckets(ctx context.Context, a state.AccountID) ([]state.Bucket, error)
	// Bucket returns the current state of a bucket in the cluster, or state.ErrNoBucket.
	Bucket(ctx context.Context, a state.AccountID, name string) (state.Bucket, error)
	// CreateBucket makes a bucket, public or not, or returns state.ErrExists.
	CreateBucket(ctx context.Context, a state.AccountID, name string, public bool) error
	// DeleteBucket removes a bucket, or returns state.ErrNotEmpty if the bucket is not empty.
	DeleteBucket(ctx context.Context, a state.AccountID, name string) error
	// List returns one page of a bucket's keys.
	List(ctx context.Context, a state.AccountID, bucket string, q state.ObjectsQuery) (state.ObjectsPage, error)
	// Object returns the version of a key that has the given id, or the newest version if id is
	// empty. The result may be a delete marker.
	Object(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID) (state.Object, error)
	// Open reads an object's content.
	Open(ctx context.Context, a state.AccountID, o *state.Object) (io.ReadSeekCloser, error)
	// Delete removes an object. With the id of a version it removes this version permanently.
	Delete(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID, c state.Condition) (objects.Deleted, error)
}

// Members are the use cases of membership.
type Members interface {
	// Status returns the cluster as this node sees it; it needs no majority.
	Status(ctx context.Context) (members.Status, error)
	// Quorum returns the voters and the missing ones among them.
	Quorum() members.Quorum
}

// Options configure the surface. All but Limits and Metrics are required.
type Options struct {
	Accounts Accounts
	Audit    Audit
	Ledger   Ledger
	Payments Payments
	Pins     Pins
	Objects  Objects
	Members  Members
	Health   web.Health
	// Limits has the rates of accounts and addresses, and finds the address of a client behind
	// trusted proxies. nil: no limits, and a client's address is that of its connection.
	Limits *web.Limits
	// S3URL returns the URL of the object gateway for a client that reached this API at host by
	// scheme, or "" if the node does not serve the gateway.
	S3URL func(host, scheme string) string
	// Presign signs a link to an object at the object gateway.
	Presign func(web.Link) string
	Logger  *slog.Logger
	Metrics *web.Metrics // of the requests; nil: none
}

// Bounds of a request.
const (
	// caseTimeout bounds each call of a use case, so that a node without a majority answers
	// before a client gives up. A request makes two at most, one of them to authenticate.
	caseTimeout = 7 * time.Second
	// answerTimeout bounds the writing of an answer, but for content: see web.Steady.
	answerTimeout = 2 * time.Minute
)

// surface is the web API of a node.
type surface struct{ Options }

// access says who may use an operation.
type access int

// The kinds of access. The zero value is none of them, so that a row of the table without an
// access is refused.
const (
	anybody      access = iota + 1 // needs no credentials, and no rate applies
	mayRead                        // a session, or an API key with storage:read
	byToken                        // mayRead, or a share that covers the object; no cookie counts
	listsByToken                   // mayRead, or a share that covers the prefix; no cookie counts
	mayWrite                       // a session, or an API key with storage:write
	mayDelete                      // a session, or an API key with storage:write or storage:delete
	bySession                      // a session: no API key manages keys or signs links
	admins                         // a session of an administrator
)

// operation is one row of the table of routes.
type operation struct {
	method, path string // path is relative to Prefix
	access       access
	// query are the parameters of the query, and fields the members of the JSON body. A request
	// with any other is refused. Without fields the body is not read.
	query, fields []string
	serve         func(c *call) error
}

// operations returns the one table of routes. openapi.json describes each.
func (s *surface) operations() []operation {
	page := []string{"limit", "cursor"}
	object := []string{"key", "version"}
	return []operation{
		{http.MethodGet, "/session", bySession, nil, nil, s.session},
		{http.MethodDelete, "/session", bySession, nil, nil, s.endSession},
		{http.MethodGet, "/keys", bySession, nil, nil, s.listKeys},
		{http.MethodPost, "/keys", bySession, nil, []string{"name", "scope", "expires_in"}, s.createKey},
		{http.MethodGet, "/keys/{id}", bySession, nil, nil, s.getKey},
		{http.MethodDelete, "/keys/{id}", bySession, nil, nil, s.revokeKey},
		{http.MethodPost, "/keys/{id}/show", bySession, nil, []string{"password"}, s.showKey},
		{http.MethodGet, "/pins", mayRead, append([]string{"status", "name", "match"}, page...), nil, s.listPins},
		{http.MethodPost, "/pins", mayWrite, nil, []string{"cid", "name", "origins", "meta", "until"}, s.createPin},
		{http.MethodGet, "/pins/{id}", mayRead, nil, nil, s.getPin},
		{http.MethodDelete, "/pins/{id}", mayWrite, nil, nil, s.deletePin},
		{http.MethodGet, "/buckets", mayRead, nil, nil, s.listBuckets},
		{http.MethodPost, "/buckets", mayWrite, nil, []string{"name", "public"}, s.createBucket},
		{http.MethodDelete, "/buckets/{bucket}", mayDelete, nil, nil, s.deleteBucket},
		{http.MethodGet, "/buckets/{bucket}/objects", mayRead, append([]string{"prefix", "delimiter"}, page...), nil, s.listObjects},
		{http.MethodGet, "/buckets/{bucket}/object", mayRead, object, nil, s.getObject},
		{http.MethodDelete, "/buckets/{bucket}/object", mayDelete, object, nil, s.deleteObject},
		{http.MethodPost, "/buckets/{bucket}/object/link", bySession, object, []string{"key_id", "expires_in"}, s.linkObject},
		{http.MethodGet, "/shares", mayRead, append([]string{"bucket"}, page...), nil, s.listShares},
		{http.MethodPost, "/shares", mayWrite, nil, append([]string{"bucket", "share_id"}, web.ShareFields...), s.createShare},
		{http.MethodDelete, "/shares/{bucket}/{id}", mayWrite, nil, nil, s.revokeShare},
		{http.MethodGet, "/shared/{bucket}", listsByToken, append([]string{"prefix", "delimiter"}, page...), nil, s.listObjects},
		{http.MethodGet, "/shared/{bucket}/{key...}", byToken, nil, nil, s.sharedContent},
		{http.MethodGet, "/usage", mayRead, nil, nil, s.usage},
		{http.MethodGet, "/ledger", mayRead, append([]string{"account"}, page...), nil, s.ledger},
		{http.MethodGet, "/members", admins, nil, nil, s.listMembers},
		{http.MethodGet, "/users", admins, append([]string{"email"}, page...), nil, s.listUsers},
		{http.MethodPost, "/users", admins, nil, []string{"email", "password"}, s.createUser},
		{http.MethodGet, "/users/{id}", admins, nil, nil, s.getUser},
		{http.MethodDelete, "/users/{id}", admins, nil, nil, s.removeUser},
		{http.MethodPut, "/users/{id}/allowance", admins, nil, []string{"bytes"}, s.setAllowance},
		{http.MethodPost, "/users/{id}/ledger", admins, nil, []string{"kind", "credits", "posting", "corrects", "note"}, s.post},
		{http.MethodPut, "/users/{id}/disabled", admins, nil, []string{"disabled"}, s.setDisabled},
		{http.MethodPut, "/users/{id}/admin", admins, nil, []string{"admin"}, s.setAdmin},
		{http.MethodGet, "/payments", admins, page, nil, s.listPayments},
		{http.MethodGet, "/audit", admins, web.AuditParams, nil, s.listAudit},
		{http.MethodGet, "/audit/verify", admins, nil, nil, s.verifyAudit},
		{http.MethodGet, "/links", admins, nil, nil, s.listLinks},
		{http.MethodDelete, "/links/{id}", admins, nil, nil, s.revokeLink},
		{http.MethodGet, "/openapi.json", anybody, nil, nil, describe},
	}
}

// New returns the handler of the surface.
func New(o Options) (http.Handler, error) {
	s := &surface{o}
	var routes []web.Route
	for _, op := range s.operations() {
		if op.access == 0 {
			return nil, fmt.Errorf("webapi: %s %s does not say who may use it", op.method, op.path)
		}
		routes = append(routes, web.Route{Method: op.method, Path: Prefix + op.path, Serve: s.guarded(op)})
	}
	return s.wrap(web.Routes(routes)), nil
}

// Starting returns a handler for a node that is starting, until the use cases that New needs exist.
// The handler answers every request with 503 and the reason. Starting needs the options Health and
// Logger, and uses Metrics.
func Starting(o Options) http.Handler {
	s := &surface{o}
	return s.wrap(web.Starting(o.Health, nil))
}

// wrap adds the headers that all answers have.
func (s *surface) wrap(h web.Handler) http.Handler {
	return web.Attended(web.StallTimeout, web.Wrap(web.Options{Name: "webapi", Answer: answer, Logger: s.Logger, Metrics: s.Metrics},
		func(w http.ResponseWriter, r *http.Request) error {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout)) // not every writer has deadlines
			w.Header().Set("Referrer-Policy", "no-referrer")
			w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
			return h(w, r)
		}))
}
