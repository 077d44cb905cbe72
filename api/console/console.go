// Package console serves the web console: HTML pages for users and administrators, which the
// server renders. It calls the same application logic as the APIs. Pages work without JavaScript.
// Scripts add copy buttons and update open pages.
//
// A browser authenticates with a session cookie, whose session token every node of the cluster
// accepts. Every form contains a token of its session, so that a page of another origin cannot
// send a form.
//
// Imports: std, api/internal/web, cluster/pins, cluster/uploads, cluster/content, cluster/objects, cluster/accounts,
// cluster/members, cluster/openid, consensus/state.
// Never:   other surfaces, consensus, storage, peer, listeners.
package console

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/audit"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/openid"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/cluster/uploads"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/activity"
)

// Accounts is the application logic behind sign-in, keys, shares and accounts.
type Accounts interface {
	// SignIn starts a session of the account with this name and password and returns its token.
	// from is the client's address, for the limit on wrong passwords.
	SignIn(ctx context.Context, name, password string, from netip.Addr) (token string, err error)
	// CheckPassword returns nil if password is that of the account with this name. It counts as a
	// sign-in attempt.
	CheckPassword(ctx context.Context, name, password string, from netip.Addr) error
	// Sessions returns the sessions of an account that have not ended, the newest first.
	Sessions(ctx context.Context, account state.AccountID) ([]accounts.SessionInfo, error)
	// EndSession ends a session of an account on every node, or returns state.ErrNotFound.
	EndSession(ctx context.Context, account state.AccountID, id state.SessionID) error
	// EndSessions ends all sessions of an account except keep, on every node.
	EndSessions(ctx context.Context, account state.AccountID, keep state.SessionID) error
	// SignOut ends the session of a token on every node, or returns state.ErrUnauthorized.
	SignOut(ctx context.Context, token string) error
	// Authenticate returns the principal of a token by a linearizable read, or
	// state.ErrUnauthorized.
	Authenticate(ctx context.Context, token string) (accounts.Principal, error)
	// Recognize returns the principal of a token by the local state, which may be stale.
	Recognize(token string) (accounts.Principal, error)
	// Usage returns the storage and the requests of an account on each of the last days, the
	// oldest day first.
	Usage(ctx context.Context, account state.AccountID, days int) ([]state.Usage, error)
	// Glance returns a summary of the account of a session by the local state, or
	// state.ErrUnauthorized. before is an earlier result: if no log entry was applied since,
	// Glance returns it.
	Glance(ctx context.Context, token string, before accounts.Glance) (accounts.Glance, error)
	// Holdings returns the account with the e-mail address or id who, with the counts of its
	// pins, objects, keys and sessions.
	Holdings(ctx context.Context, who string) (accounts.Holdings, error)
	// CreateKey adds an API key and returns it with its secrets. Without scopes the key has all
	// scopes. A ttl of 0 means that it does not expire.
	CreateKey(ctx context.Context, email, name string, scopes []string, ttl time.Duration) (accounts.Key, error)
	// Keys returns the keys of the account with an e-mail address, without secrets.
	Keys(ctx context.Context, email string) ([]accounts.Key, error)
	// Key returns a key without its secrets, or state.ErrNotFound.
	Key(ctx context.Context, jti state.KeyID) (accounts.Key, error)
	// Show returns a key with its secrets, or state.ErrNotFound.
	Show(ctx context.Context, jti state.KeyID) (accounts.Key, error)
	// Revoke revokes an API key. When it returns, no node accepts the key.
	Revoke(ctx context.Context, jti state.KeyID) error
	// Shares returns a page of the shares of a bucket without secrets, beginning after the
	// position after.
	Shares(ctx context.Context, account state.AccountID, bucket string, after state.SharePlace, limit int) (accounts.SharePage, error)
	// CreateShare adds a share to a bucket and returns it with its secrets.
	CreateShare(ctx context.Context, account state.AccountID, r accounts.ShareRequest) (accounts.Share, error)
	// ShareOf returns a share of a bucket without its secrets.
	ShareOf(ctx context.Context, account state.AccountID, bucket string, id state.ShareID) (accounts.Share, error)
	// RevokeShare revokes a share. When it returns, no node accepts the share.
	RevokeShare(ctx context.Context, account state.AccountID, bucket string, id state.ShareID) error
	// AppOf returns the application that registered a redirect URI, or state.ErrNotFound.
	AppOf(ctx context.Context, redirect string) (accounts.App, error)
	// CheckSetup returns nil if token is the valid setup token of the cluster, else
	// state.ErrNotFound.
	CheckSetup(ctx context.Context, token string) error
	// SetUp creates the first administrator of the cluster. token is the setup token.
	SetUp(ctx context.Context, token, email, password string) error
	// SignInAs starts a session for a person who signed in at an OpenID provider, and returns its
	// token. It creates an account for a new person if the settings allow it, or if invitation is
	// the token of an invitation.
	SignInAs(ctx context.Context, p accounts.Person, invitation string) (token string, err error)
	// Ways returns how one can sign in to an account: by password, or at which OpenID providers.
	Ways(ctx context.Context, account state.AccountID) (accounts.Ways, error)
	// LinkIdentity lets a person with an identity at an OpenID provider sign in to the account,
	// which must have the same e-mail address.
	LinkIdentity(ctx context.Context, account state.AccountID, p accounts.Person) error
	// UnlinkIdentity removes an identity from an account. It returns state.ErrForbidden if that
	// is the only way to sign in.
	UnlinkIdentity(ctx context.Context, account state.AccountID, id state.IdentityID) error
	// SealValue encrypts a value for a cookie, which the browser can neither read nor change.
	// OpenValue decrypts it on any node for the same kind, until life has passed.
	SealValue(kind string, life time.Duration, value any) (string, error)
	OpenValue(kind, text string, into any) error
	// CreateLink creates a one-time link that sets a new password for the account with an e-mail
	// address, or invites a person who has no account.
	CreateLink(ctx context.Context, email string) (accounts.Link, error)
	// LinkOf returns the purpose and the account of a one-time link, or state.ErrNotFound.
	LinkOf(ctx context.Context, token string) (accounts.Link, error)
	// UseLink uses a one-time link, which is then no longer valid, starts a session and returns
	// its token.
	UseLink(ctx context.Context, token, password string) (session string, err error)
	// Links returns the one-time links that can still be used, without their secrets. RevokeLink
	// revokes one on every node, or returns state.ErrNotFound.
	Links(ctx context.Context) ([]accounts.OpenLink, error)
	RevokeLink(ctx context.Context, id state.LinkID) error
	// Page returns a page of accounts, ordered by e-mail address.
	Page(ctx context.Context, q accounts.UserQuery) (accounts.UserPage, error)
	// CreateAccount adds an account. With an empty password nobody can sign in by password.
	CreateAccount(ctx context.Context, email, password string) (accounts.User, error)
	// SetPassword changes the password of an account and ends its sessions.
	SetPassword(ctx context.Context, email, password string) error
	// SetAllowance sets the bytes that an account may store without credits.
	SetAllowance(ctx context.Context, email string, bytes uint64) error
	// SetAdmin gives an account the rights of an administrator, or takes them away.
	SetAdmin(ctx context.Context, email string, admin bool) error
	// SetDisabled disables an account, or enables it again.
	SetDisabled(ctx context.Context, email string, on bool) error
	// CloseOwn removes the caller's own account. It returns state.ErrForbidden for the operator
	// account and for the only administrator. MayClose returns the same error without removing
	// anything.
	CloseOwn(ctx context.Context, account state.AccountID) error
	MayClose(ctx context.Context, account state.AccountID) error
	// RemoveAccount removes an account with its keys, pins and objects.
	RemoveAccount(ctx context.Context, email string) error
}

// Uploads stores and pins what a browser sends.
type Uploads interface {
	// Files stores files as a folder, and CAR the blocks of a CAR. Both pin what they have stored. When
	// they return, the content is durable on this node and the pins in the cluster.
	Files(ctx context.Context, r uploads.Request, next content.NextFile) (uploads.Result, error)
	CAR(ctx context.Context, r uploads.Request, body io.Reader) (uploads.Result, error)
}

// Pins is the application logic behind pins. For a pin of another account it returns the same
// errors as for a missing pin.
type Pins interface {
	// Create adds a pin. When it returns, the record of the pin is durable in the cluster; its
	// content may still be missing.
	Create(ctx context.Context, account state.AccountID, r pins.Request) (pins.Record, error)
	// Get returns the current state of a pin, by a linearizable read.
	Get(ctx context.Context, account state.AccountID, id state.RequestID) (pins.Record, error)
	// Detail returns a pin with its copies, and with the history of statuses that this node has
	// seen.
	Detail(ctx context.Context, account state.AccountID, id state.RequestID) (pins.Detail, error)
	// List returns the newest pins that match q, up to its limit, and the number of all matching
	// pins.
	List(ctx context.Context, account state.AccountID, q state.PinQuery) (total uint64, rows []pins.Record, err error)
	// Holders returns, for each pin, the names of the nodes that store its complete content.
	Holders(rows []pins.Record) ([][]string, error)
	// Replace atomically replaces the pin old by a new one. After an error the old pin still
	// exists.
	Replace(ctx context.Context, account state.AccountID, old state.RequestID, r pins.Request) (pins.Record, error)
	// Delete removes a pin.
	Delete(ctx context.Context, account state.AccountID, id state.RequestID) error
}

// Members is the application logic behind the pages about members, which only administrators see.
type Members interface {
	// Status returns the cluster as this node sees it. It works without a majority.
	Status(ctx context.Context) (members.Status, error)
	// Quorum returns the number of voters and the unreachable ones, as gossip shows them.
	Quorum() members.Quorum
	// Shortage counts the missing copies of each node by the size and the age of their content.
	// MissingOn returns a page of the missing copies of one node and class.
	Shortage(ctx context.Context) (members.Shortage, error)
	MissingOn(ctx context.Context, node state.NodeID, class members.Class, from state.RootKey, limit int) (rows []members.MissingCopy, next state.RootKey, err error)
	// Leaving returns what the removal of the member with the id or name who would cause. With
	// count the result also has the numbers that need a scan of all roots.
	Leaving(ctx context.Context, who string, count bool) (members.Leaving, error)
	// DrainPlan returns what the drain of the member with the id or name who would cause.
	DrainPlan(ctx context.Context, who string) (members.DrainPlan, error)
	// Drain begins the drain of a member if on is true, and cancels it otherwise.
	Drain(ctx context.Context, id state.NodeID, on bool) error
	// Remove removes a member. Without force it returns state.ErrConflict if content or the
	// majority would be lost.
	Remove(ctx context.Context, id state.NodeID, force bool) error
	// CreateTicket creates a join ticket that admits one node and expires after ttl. random fills
	// a slice with random bytes.
	CreateTicket(ctx context.Context, ttl time.Duration, random func([]byte)) (string, error)
}

// Payments lists the payments of the paid gateway, for administrators.
type Payments interface {
	// List returns a page of payments, the newest first.
	List(ctx context.Context, cursor string, limit int) (payments.Page, error)
}

// Audit is the application logic behind the audit log. Only administrators see its results,
// except those of RevokedKeys.
type Audit interface {
	// List returns a page of the rows that match q, the newest first.
	List(ctx context.Context, q audit.Query) (audit.Page, error)
	// Verify verifies the hash chain of the whole log. The result reports a changed row; that is
	// no error.
	Verify(ctx context.Context) (audit.Verification, error)
	// RevokedKeys returns up to limit recently revoked keys of an account, the newest first.
	RevokedKeys(ctx context.Context, account state.AccountID, limit int) ([]audit.RevokedKey, error)
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

// Providers signs people in at OpenID providers.
type Providers interface {
	// List returns the providers in the order in which pages show them.
	List() []openid.Provider
	// Begin starts a sign-in at the provider with an id. It returns the state of the sign-in, and
	// the URL to which the browser must go. With again the provider asks the person to sign in
	// again.
	Begin(ctx context.Context, id string, again bool) (openid.Flow, string, error)
	// Finish ends the sign-in f and returns the person who signed in. query is the query with
	// which the provider sent the browser back.
	Finish(ctx context.Context, f openid.Flow, query url.Values) (openid.Person, error)
}

// Options configure the console. Accounts, Audit, Ledger, Pins, Uploads, Content, Objects, Members, Health and
// Logger are required.
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
	// Providers are the OpenID providers at which people sign in; nil means none.
	Providers Providers
	// URL is the web origin of the console; empty if it is unknown. IPFSGateway is the origin of the
	// IPFS gateway to which the page of a pin links; empty for none. SecurityContact is the URI in
	// security.txt; empty means that there is no such file.
	URL, IPFSGateway, SecurityContact string
	// SignUpOpen is true if everybody who signs in at a provider gets an account.
	SignUpOpen bool
	// Limits has the rates of accounts and addresses, and the list of trusted proxies, behind which it
	// finds the address of a client. nil means no limits and no proxies.
	Limits *web.Limits
	// PinningURL and S3URL return the URLs of these APIs that pages show. host and scheme are those
	// with which the browser reached the console. An empty result means that the node does not serve
	// that API.
	PinningURL, S3URL func(host, scheme string) string
	Region            string
	// MaxObject is the maximum size of the content of one request, and MinPart the minimum size of a
	// part except the last, in bytes.
	MaxObject, MinPart int64
	// Presign returns a presigned URL of an object at the S3 gateway.
	Presign func(web.Link) string
	// Activity has the newest log records of this node. nil means that there are none.
	Activity *activity.Log
	// Draining is closed when the node begins to stop. Event streams then end. nil means never.
	Draining <-chan struct{}
	// Pages is the result of LoadPages. nil means that New calls LoadPages itself.
	Pages   *Pages
	Version string
	Logger  *slog.Logger
	Metrics *web.Metrics // request metrics; nil: none
}

// load sets Pages to the result of LoadPages if the caller has not set it.
func (o *Options) load() (err error) {
	if o.Pages == nil {
		o.Pages, err = LoadPages()
	}
	return err
}

// caseTimeout bounds each call of the application logic, so that a node without a majority
// reports it before the user gives up.
const caseTimeout = 7 * time.Second

// pageTimeout bounds the time until a page is sent, or until the first bytes of content are sent.
const pageTimeout = 2 * time.Minute

// surface is the implementation of the console of a node.
type surface struct {
	Options
	streams streams
}

// access names the callers that may use a route.
type access int

// Kinds of access. The zero value is invalid, so that New rejects a route without an access.
const (
	anybody   access = iota + 1 // everybody, without a rate limit
	visitor                     // everybody, with the rate limit of the address
	signedIn                    // a session of an account
	admins                      // a session of an administrator
	byScript                    // a session, with the form token in the header X-Form-Token; serve reads the body
	lasting                     // a session; the answer is a stream that lasts as long as the page is open
	withFiles                   // a session; serve reads the form and checks its token
)

// page is one row of the route table.
type page struct {
	method, path string
	access       access
	serve        func(c *call) error
}

// table returns the complete route table. All routes except those for GET require a form token.
func (s *surface) table() []page {
	return append(s.bucketTable(), []page{
		{http.MethodGet, "/sign-in", visitor, s.signInPage},
		{http.MethodPost, "/sign-in", visitor, s.signIn},
		{http.MethodGet, "/sign-in/{provider}", visitor, s.toProvider},
		{http.MethodGet, "/sign-in/{provider}/callback", visitor, s.fromProvider},
		{http.MethodPost, "/sign-out", signedIn, s.signOut},
		{http.MethodGet, "/", signedIn, s.live(s.overview)},
		{http.MethodGet, "/keys", signedIn, s.keysPage},
		{http.MethodPost, "/keys", signedIn, s.createKey},
		{http.MethodGet, "/keys/{id}", signedIn, s.keyPage},
		{http.MethodPost, "/keys/{id}/show", signedIn, s.showKey},
		{http.MethodPost, "/keys/{id}/revoke", signedIn, s.revokeKey},
		{http.MethodGet, "/pins", signedIn, s.live(s.pinsPage)},
		{http.MethodPost, "/pins", signedIn, s.createPin},
		{http.MethodPost, "/pins/create-many", signedIn, s.createPins},
		{http.MethodPost, "/pins/upload", withFiles, s.uploadPins},
		{http.MethodPost, "/pins/delete-many", signedIn, s.deletePins},
		{http.MethodPost, "/pins/retry-many", signedIn, s.retryPins},
		{http.MethodGet, "/pins/export", signedIn, s.exportPins},
		{http.MethodGet, "/pins/{id}", signedIn, s.live(s.pinPage)},
		{http.MethodGet, "/pins/{id}/download", signedIn, s.downloadPin},
		{http.MethodPost, "/pins/{id}/replace", signedIn, s.replacePin},
		{http.MethodPost, "/pins/{id}/retry", signedIn, s.retryPin},
		{http.MethodPost, "/pins/{id}/delete", signedIn, s.deletePin},
		{http.MethodGet, "/usage", signedIn, s.usagePage},
		{http.MethodGet, "/usage.csv", signedIn, s.usageCSV},
		{http.MethodGet, "/usage/ledger.csv", signedIn, s.ownLedgerCSV},
		{http.MethodGet, "/account", signedIn, s.accountPage},
		{http.MethodPost, "/account/colours", signedIn, s.setColours},
		{http.MethodPost, "/account/password", signedIn, s.changePassword},
		{http.MethodPost, "/account/sessions/{id}/end", signedIn, s.endSession},
		{http.MethodPost, "/account/end-others", signedIn, s.endOthers},
		{http.MethodPost, "/account/delete", signedIn, s.deleteAccount},
		{http.MethodPost, "/account/identities/{id}/remove", signedIn, s.removeIdentity},
		{http.MethodGet, "/link", visitor, s.linkPage},
		{http.MethodPost, "/link", visitor, s.useLink},
		{http.MethodGet, "/get-key", visitor, s.getKeyPage},
		{http.MethodPost, "/get-key", signedIn, s.giveKey},
		{http.MethodGet, "/setup", visitor, s.setupPage},
		{http.MethodPost, "/setup", visitor, s.setUp},
		{http.MethodGet, "/cluster", admins, s.live(s.clusterPage)},
		{http.MethodPost, "/cluster/invite", admins, s.invite},
		{http.MethodGet, "/cluster/activity", admins, s.live(s.activityPage)},
		{http.MethodGet, "/cluster/missing", admins, s.missingPage},
		{http.MethodGet, "/payments", admins, s.paymentsPage},
		{http.MethodGet, "/payments.csv", admins, s.paymentsCSV},
		{http.MethodGet, "/audit", admins, s.auditPage},
		{http.MethodPost, "/audit/verify", admins, s.verifyAudit},
		{http.MethodGet, "/audit/export", admins, s.exportAudit},
		{http.MethodGet, "/cluster/nodes/{id}", admins, s.live(s.memberPage)},
		{http.MethodGet, "/cluster/nodes/{id}/remove", admins, s.leavingPage},
		{http.MethodPost, "/cluster/nodes/{id}/remove", admins, s.removeMember},
		{http.MethodGet, "/cluster/nodes/{id}/drain", admins, s.drainPage},
		{http.MethodPost, "/cluster/nodes/{id}/drain", admins, s.drainMember},
		{http.MethodGet, "/users", admins, s.usersPage},
		{http.MethodPost, "/users", admins, s.createUser},
		{http.MethodPost, "/users/links", admins, s.createLink},
		{http.MethodPost, "/users/links/{id}/revoke", admins, s.revokeLink},
		{http.MethodGet, "/users/{id}", admins, s.userPage},
		{http.MethodPost, "/users/{id}/allowance", admins, s.changeUser(says("The allowance was changed."), s.setUserAllowance)},
		{http.MethodGet, "/users/{id}/ledger.csv", admins, s.userLedgerCSV},
		{http.MethodPost, "/users/{id}/credits", admins, s.changeUser(says("The posting was made."), s.postCredits)},
		{http.MethodPost, "/users/{id}/password", admins, s.changeUser(says("The password was changed, and the sessions ended."), s.setUserPassword)},
		{http.MethodPost, "/users/{id}/admin", admins, s.changeUser(saysWhich("admin", "The account is an administrator now.", "The account is no administrator any more."), s.setUserAdmin)},
		{http.MethodPost, "/users/{id}/disabled", admins, s.changeUser(saysWhich("disabled", "Every node refuses this account now.", "Every node accepts this account again."), s.setUserDisabled)},
		{http.MethodPost, "/users/{id}/remove", admins, s.removeUser},
		{http.MethodGet, "/events", lasting, s.events},
		{http.MethodGet, sharePage, anybody, s.sharedPage},
		{http.MethodGet, "/status", anybody, s.status},
		{http.MethodGet, "/robots.txt", anybody, robots},
		{http.MethodGet, "/.well-known/security.txt", anybody, s.securityText},
		{http.MethodGet, "/favicon.ico", anybody, s.favicon},
		{http.MethodGet, "/static/{version}/{name}", anybody, s.static},
	}...)
}

// bucketTable returns the routes of buckets and objects.
func (s *surface) bucketTable() []page {
	return []page{
		{http.MethodGet, "/buckets", signedIn, s.bucketsPage},
		{http.MethodPost, "/buckets", signedIn, s.createBucket},
		{http.MethodGet, "/buckets/{bucket}", signedIn, s.live(s.bucketPage)},
		{http.MethodPost, "/buckets/{bucket}/visibility", signedIn, s.setVisibility},
		{http.MethodPost, "/buckets/{bucket}/versioning", signedIn, s.setVersioning},
		{http.MethodPost, "/buckets/{bucket}/cors", signedIn, s.setCors},
		{http.MethodPost, "/buckets/{bucket}/delete", signedIn, s.deleteBucket},
		{http.MethodPost, "/buckets/{bucket}/delete-many", signedIn, s.deleteChosen},
		{http.MethodPost, "/buckets/{bucket}/zip", signedIn, s.zipChosen},
		{http.MethodPost, "/buckets/{bucket}/shares", signedIn, s.createShare},
		{http.MethodPost, "/buckets/{bucket}/shares/{id}/revoke", signedIn, s.revokeShare},
		{http.MethodPost, "/buckets/{bucket}/files", withFiles, s.uploadFiles},
		{http.MethodPost, "/buckets/{bucket}/uploads", byScript, s.createUpload},
		{http.MethodPut, "/buckets/{bucket}/uploads/{upload}", byScript, s.putPart},
		{http.MethodDelete, "/buckets/{bucket}/uploads/{upload}", byScript, s.abortUpload},
		{http.MethodPost, "/buckets/{bucket}/uploads/{upload}/complete", byScript, s.completeUpload},
		{http.MethodGet, "/buckets/{bucket}/object", signedIn, s.objectPage},
		{http.MethodPut, "/buckets/{bucket}/object", byScript, s.putObject},
		{http.MethodPost, "/buckets/{bucket}/object/delete", signedIn, s.deleteObject},
		{http.MethodPost, "/buckets/{bucket}/object/move", signedIn, s.moveObject},
		{http.MethodPost, "/buckets/{bucket}/object/restore", signedIn, s.restoreObject},
		{http.MethodPost, "/buckets/{bucket}/object/tags", signedIn, s.tagObject},
		{http.MethodPost, "/buckets/{bucket}/object/metadata", signedIn, s.changeMetadata},
		{http.MethodPost, "/buckets/{bucket}/object/share", signedIn, s.shareObject},
		{http.MethodGet, "/buckets/{bucket}/download", signedIn, s.download},
		{http.MethodGet, "/buckets/{bucket}/preview", signedIn, s.preview},
	}
}

// New returns the handler of the console. It returns an error if the embedded pages cannot be
// parsed, or if a route has no access.
func New(o Options) (http.Handler, error) {
	if err := o.load(); err != nil {
		return nil, err
	}
	if o.Providers == nil {
		o.Providers = openid.New(openid.Options{})
	}
	s := &surface{Options: o}
	var routes []web.Route
	for _, row := range s.table() {
		if row.access == 0 {
			return nil, fmt.Errorf("console: %s %s does not say who may open it", row.method, row.path)
		}
		routes = append(routes, web.Route{Method: row.method, Path: row.path, Serve: s.guarded(row)})
	}
	routes = append(routes, web.HealthRoutes(o.Health, o.Version)...)
	return s.wrap(web.Routes(routes)), nil
}

// Starting returns the handler of a node that is starting, in place of New, whose dependencies do
// not exist yet. It answers health checks, and all other requests with a page that says that the
// node is starting. It needs the options Health, Version and Logger, and uses Metrics.
func Starting(o Options) (http.Handler, error) {
	if err := o.load(); err != nil {
		return nil, err
	}
	s := &surface{Options: o}
	return s.wrap(web.Starting(o.Health, web.HealthRoutes(o.Health, o.Version))), nil
}

// policy is the Content-Security-Policy of pages. It lets a page load only files of this origin.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; " +
	"connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// wrap returns an http.Handler that calls h, answers its errors, and sets the headers that all
// answers of the console have.
func (s *surface) wrap(h web.Handler) http.Handler {
	fail := func(w http.ResponseWriter, r *http.Request, err error) error { return s.failed(w, r, err) }
	return web.Attended(web.StallTimeout, web.Wrap(web.Options{Name: "console", Fail: fail, Logger: s.Logger, Metrics: s.Metrics},
		func(w http.ResponseWriter, r *http.Request) error {
			// Content is read and written beyond these, see web.Patient and web.Steady. Not
			// every writer has deadlines.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pageTimeout))
			header := w.Header()
			header.Set("Content-Security-Policy", policy)
			header.Set("Referrer-Policy", "no-referrer")
			header.Set("Cross-Origin-Opener-Policy", "same-origin")
			return h(w, r)
		}))
}
