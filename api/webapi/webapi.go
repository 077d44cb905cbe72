// Package webapi serves a JSON API on the listener of the web console, below the path Prefix. It
// covers the session, API keys, shares, pins, content, buckets, objects and usage, and for administrators
// members and accounts. The HTML pages of the console do not use this API: they call the same
// application logic directly.
//
// A browser authenticates with the session cookie of the console. A change must then also have
// the form token of that session in the header X-Form-Token. A program sends a session token or
// an API key as a bearer token instead, which a browser never adds by itself. The scope of an API
// key limits it to pins, content, buckets, objects and usage.
//
// Imports: std, api/internal/drainbody, api/internal/web, cluster/pins, cluster/uploads, cluster/content,
// cluster/objects, cluster/accounts, cluster/members, consensus/state.
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
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/cluster/uploads"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Prefix is the path with which every path of the API begins.
const Prefix = "/api/v1"

// Accounts is the application logic behind sessions, keys, shares and accounts.
type Accounts interface {
	// Authenticate returns the principal of a token by a linearizable read, or
	// state.ErrUnauthorized.
	Authenticate(ctx context.Context, token string) (accounts.Principal, error)
	// SignOut ends the session of a token on all nodes. It returns state.ErrUnauthorized if token
	// is no session token.
	SignOut(ctx context.Context, token string) error
	// CheckPassword returns nil if password is that of the account with the e-mail address name.
	// The call counts as a sign-in attempt from the address from, and returns the same errors as
	// a sign-in.
	CheckPassword(ctx context.Context, name, password string, from netip.Addr) error
	// Ways returns how one can sign in to an account: by password, or at which OpenID providers.
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
	// Revoke revokes an API key. When it returns, no node accepts the key.
	Revoke(ctx context.Context, jti state.KeyID) error
	// AuthenticateS3 works like Authenticate, and also accepts the tokens of shares.
	AuthenticateS3(ctx context.Context, token string) (accounts.Principal, error)
	// CreateShare adds a share to a bucket and returns it with its secrets. A repeated identical
	// request returns the same share.
	CreateShare(ctx context.Context, account state.AccountID, r accounts.ShareRequest) (accounts.Share, error)
	// Shares returns a page of the shares of an account without secrets, beginning after the
	// position after. A bucket that is not empty selects the shares of that bucket.
	Shares(ctx context.Context, account state.AccountID, bucket string, after state.SharePlace, limit int) (accounts.SharePage, error)
	// RevokeShare revokes a share. When it returns, no node accepts the share.
	RevokeShare(ctx context.Context, account state.AccountID, bucket string, id state.ShareID) error
	// Holdings returns the account with the e-mail address or id who, with the counts of its
	// pins, objects, keys and sessions.
	Holdings(ctx context.Context, who string) (accounts.Holdings, error)
	// Links returns the one-time links that can still be used, without their secrets.
	Links(ctx context.Context) ([]accounts.OpenLink, error)
	// RevokeLink revokes a one-time link on every node, or returns state.ErrNotFound.
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
	// RemoveAccount removes an account with its keys, pins and objects.
	RemoveAccount(ctx context.Context, email string) error
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
	// accounts. It reads the local state, which may be stale.
	ContentEnds(account state.AccountID) (time.Time, bool, error)
}

// Payments lists the payments of the paid gateway.
type Payments interface {
	// List returns a page of payments, the newest first.
	List(ctx context.Context, cursor string, limit int) (payments.Page, error)
}

// Pins is the application logic behind the operations on pins. For a pin of another account it
// returns the same errors as for a missing pin.
type Pins interface {
	// Create adds a pin. When it returns, the record of the pin is durable in the cluster; its
	// content may still be missing.
	Create(ctx context.Context, account state.AccountID, r pins.Request) (pins.Record, error)
	// Get returns the current state of a pin, by a linearizable read.
	Get(ctx context.Context, account state.AccountID, id state.RequestID) (pins.Record, error)
	// List returns the newest pins that match q, up to its limit, and the number of all matching
	// pins.
	List(ctx context.Context, account state.AccountID, q state.PinQuery) (total uint64, rows []pins.Record, err error)
	// Delete removes a pin.
	Delete(ctx context.Context, account state.AccountID, id state.RequestID) error
}

// Uploads stores and pins what a client sends.
type Uploads interface {
	// File stores a file, Folder the tar stream of a folder, Files files as a folder, and CAR the blocks of a
	// CAR. Each pins what it has stored. When it returns, the content is durable on this node and the pins in the cluster.
	File(ctx context.Context, r uploads.Request, body io.Reader) (uploads.Result, error)
	Folder(ctx context.Context, r uploads.Request, body io.Reader) (uploads.Result, error)
	Files(ctx context.Context, r uploads.Request, next content.NextFile) (uploads.Result, error)
	CAR(ctx context.Context, r uploads.Request, body io.Reader) (uploads.Result, error)
}

// Content reads content by its CID with the rights of an account: what is public, and what its own pins and
// objects refer to. text is a CID, or a CID with a path in its folder after a slash. Errors: state.ErrInvalid
// if text has no CID; state.ErrNotFound if nothing is there, and also for private content of another account.
type Content interface {
	// OpenFor opens a file and returns its size in bytes. For a folder it returns content.ErrFolder.
	OpenFor(ctx context.Context, account state.AccountID, text string) (f io.ReadSeekCloser, size uint64, err error)
	// OpenFolderFor opens a folder.
	OpenFolderFor(ctx context.Context, account state.AccountID, text string) (content.Folder, error)
	// ExportCARFor writes the DAG of a CID, without a path, as a CAR. It writes nothing before it has
	// read the root.
	ExportCARFor(ctx context.Context, w io.Writer, account state.AccountID, text string) error
}

// Objects is the application logic behind the operations on buckets and objects. For those of
// another account it returns the same errors as for missing ones.
type Objects interface {
	// Buckets returns the buckets of the account a, ordered by name.
	Buckets(ctx context.Context, a state.AccountID) ([]state.Bucket, error)
	// Bucket returns a bucket by a linearizable read, or state.ErrNoBucket.
	Bucket(ctx context.Context, a state.AccountID, name string) (state.Bucket, error)
	// CreateBucket creates a bucket, or returns state.ErrExists. Everybody can read a public
	// bucket.
	CreateBucket(ctx context.Context, a state.AccountID, name string, public bool) error
	// DeleteBucket removes a bucket, or returns state.ErrNotEmpty if the bucket is not empty.
	DeleteBucket(ctx context.Context, a state.AccountID, name string) error
	// List returns a page of the objects of a bucket.
	List(ctx context.Context, a state.AccountID, bucket string, q state.ObjectsQuery) (state.ObjectsPage, error)
	// Object returns the version of a key that has the given id, or the newest version if id is
	// empty. The result may be a delete marker.
	Object(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID) (state.Object, error)
	// Open opens the content of an object for reading.
	Open(ctx context.Context, a state.AccountID, o *state.Object) (io.ReadSeekCloser, error)
	// Delete removes an object. If id is not empty, it permanently removes the version with this
	// id.
	Delete(ctx context.Context, a state.AccountID, bucket, key string, id state.VersionID, c state.Condition) (objects.Deleted, error)
}

// Members reads the status of the cluster.
type Members interface {
	// Status returns the cluster as this node sees it. It works without a majority.
	Status(ctx context.Context) (members.Status, error)
	// Quorum returns the number of voters and the unreachable ones, as gossip shows them.
	Quorum() members.Quorum
}

// Options configure the API. All but Limits and Metrics are required.
type Options struct {
	Accounts Accounts
	Audit    Audit
	Ledger   Ledger
	Payments Payments
	Pins     Pins
	Uploads  Uploads
	Content  Content
	Objects  Objects
	Members  Members
	Health   web.Health
	// Limits has the rates of accounts and addresses, and the list of trusted proxies, behind which it
	// finds the address of a client. nil means no limits and no proxies.
	Limits *web.Limits
	// S3URL returns the URL of the S3 gateway with the given host and scheme, which are those that the
	// client used for this API. It returns "" if the node does not serve the gateway.
	S3URL func(host, scheme string) string
	// Presign returns a presigned URL of an object at the S3 gateway.
	Presign func(web.Link) string
	Logger  *slog.Logger
	Metrics *web.Metrics // request metrics; nil: none
}

// Time limits of a request.
const (
	// caseTimeout bounds each call of the application logic, so that a node without a majority
	// answers 503 before the client gives up. A request makes at most two such calls, one of them
	// for authentication.
	caseTimeout = 7 * time.Second
	// answerTimeout bounds the writing of an answer. Content is exempt, see web.Steady.
	answerTimeout = 2 * time.Minute
)

// surface is the implementation of the web API of a node.
type surface struct{ Options }

// access names the callers that may use an operation.
type access int

// Kinds of access. The zero value is invalid, so that New rejects an operation without an access.
const (
	anybody       access = iota + 1 // everybody, without credentials or a rate limit
	mayRead                         // a session, or an API key with storage:read
	byToken                         // mayRead, or a share that covers the object; only with a bearer token
	listsByToken                    // mayRead, or a share that covers the prefix; only with a bearer token
	mayWrite                        // a session, or an API key with storage:write
	writesByToken                   // mayWrite; only with a bearer token, because serve reads a body of any type and size
	mayDelete                       // a session, or an API key with storage:write or storage:delete
	bySession                       // a session only, because no API key may manage keys or sign URLs
	admins                          // a session of an administrator
)

// operation is one row of the route table.
type operation struct {
	method, path string // path is relative to Prefix
	access       access
	// query has the allowed parameters of the query, and fields the allowed members of the JSON body. A
	// request with any other gets 400. If fields is nil, the body is not read.
	query, fields []string
	serve         func(c *call) error
}

// operations returns the complete route table. openapi.json documents each operation.
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
		{http.MethodPost, "/pins/upload", writesByToken, []string{"name", "until", "hash", "cid_version", "entries"}, nil, s.upload},
		{http.MethodGet, "/pins/{id}", mayRead, nil, nil, s.getPin},
		{http.MethodDelete, "/pins/{id}", mayWrite, nil, nil, s.deletePin},
		{http.MethodGet, "/content/{path...}", mayRead, nil, nil, s.content},
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

// New returns the handler of the API, or an error for an operation without an access.
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

// Starting returns the handler of a node that is starting, in place of New, whose dependencies do
// not exist yet. It answers every request with 503 and the reason. It needs the options Health
// and Logger, and uses Metrics.
func Starting(o Options) http.Handler {
	s := &surface{o}
	return s.wrap(web.Starting(o.Health, nil))
}

// wrap returns an http.Handler that calls h, answers its errors, and sets the common headers.
func (s *surface) wrap(h web.Handler) http.Handler {
	return web.Attended(web.StallTimeout, web.Wrap(web.Options{Name: "webapi", Answer: answer, Logger: s.Logger, Metrics: s.Metrics},
		func(w http.ResponseWriter, r *http.Request) error {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout)) // not every writer has deadlines
			w.Header().Set("Referrer-Policy", "no-referrer")
			w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
			return h(w, r)
		}))
}
