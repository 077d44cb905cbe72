// Package console serves the web interface: pages for people, made on the server, over the
// same use cases as the two APIs. A page works without JavaScript; scripts add copy buttons
// and what changes while a page is open.
//
// A browser has a session cookie. The token in the cookie is a session token of
// cluster/accounts, so any node of the cluster serves the next request. Every form carries a
// token of its session, and a request that a page of another origin sends is refused.
//
// Imports: std, api/internal/web, cluster/pins, cluster/objects, cluster/accounts,
// cluster/members, cluster/openid, consensus/state.
// Never:   other surfaces, consensus, storage, peer, listeners.
package console

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/audit"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/openid"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/activity"
)

// Accounts are the use cases of sign-in, keys and accounts.
type Accounts interface {
	// SignIn begins a session of the account with a name and a password, and returns its
	// token. from is the address of the caller.
	SignIn(ctx context.Context, name, password string, from netip.Addr) (token string, err error)
	// CheckPassword returns nil if the password opens the account with a name, and counts
	// the try as SignIn does.
	CheckPassword(ctx context.Context, name, password string, from netip.Addr) error
	// Sessions returns the sessions of an account that have not ended, the newest first.
	Sessions(ctx context.Context, account state.AccountID) ([]accounts.SessionInfo, error)
	// EndSession ends a session of an account everywhere, or returns state.ErrNotFound.
	EndSession(ctx context.Context, account state.AccountID, id state.SessionID) error
	// EndSessions ends all sessions of an account except one, on every node.
	EndSessions(ctx context.Context, account state.AccountID, keep state.SessionID) error
	// SignOut ends the session of a token everywhere, or returns state.ErrUnauthorized.
	SignOut(ctx context.Context, token string) error
	// Authenticate returns the principal of a token, by the current state of the cluster.
	Authenticate(ctx context.Context, token string) (accounts.Principal, error)
	// Recognize returns the principal of a token by the state of this node, which may be stale.
	Recognize(token string) (accounts.Principal, error)
	// Usage returns what an account stored and requested on each of the last days.
	Usage(ctx context.Context, account state.AccountID, days int) ([]state.Usage, error)
	// Glance returns a summary of the account of a session, as this node knows it, or
	// state.ErrUnauthorized. If no entry was applied since before, it returns before.
	Glance(ctx context.Context, token string, before accounts.Glance) (accounts.Glance, error)
	// Holdings returns an account with the counts of its pins, objects, keys and sessions.
	Holdings(ctx context.Context, who string) (accounts.Holdings, error)
	// CreateKey adds an API key and returns it with its secrets. No scopes means all of
	// them; a ttl of 0 means that the key does not expire.
	CreateKey(ctx context.Context, email, name string, scopes []string, ttl time.Duration) (accounts.Key, error)
	// Keys returns the keys of the account with an e-mail address, without secrets.
	Keys(ctx context.Context, email string) ([]accounts.Key, error)
	// Key returns a key without its secrets, or state.ErrNotFound.
	Key(ctx context.Context, jti state.KeyID) (accounts.Key, error)
	// Show returns a key with its secrets, or state.ErrNotFound.
	Show(ctx context.Context, jti state.KeyID) (accounts.Key, error)
	// Revoke ends a key on every node before it returns.
	Revoke(ctx context.Context, jti state.KeyID) error
	// Shares returns a page of the shares of a bucket, without secrets.
	Shares(ctx context.Context, account state.AccountID, bucket string, after state.SharePlace, limit int) (accounts.SharePage, error)
	// CreateShare adds a share to a bucket and returns it with its secrets.
	CreateShare(ctx context.Context, account state.AccountID, r accounts.ShareRequest) (accounts.Share, error)
	// ShareOf returns a share of a bucket without its secrets.
	ShareOf(ctx context.Context, account state.AccountID, bucket string, id state.ShareID) (accounts.Share, error)
	// RevokeShare ends a share on every node before it returns.
	RevokeShare(ctx context.Context, account state.AccountID, bucket string, id state.ShareID) error
	// AppOf returns the app that registered a redirect URI, or state.ErrNotFound.
	AppOf(ctx context.Context, redirect string) (accounts.App, error)
	// CheckSetup returns nil if SetUp takes a token, else state.ErrNotFound.
	CheckSetup(ctx context.Context, token string) error
	// SetUp adds the first administrator of the cluster.
	SetUp(ctx context.Context, token, email, password string) error
	// SignInAs begins a session of the account of a person whom a provider vouches for, and
	// returns the token of the session. It opens an account for a new person if the settings or
	// the token of an invitation allow it.
	SignInAs(ctx context.Context, p accounts.Person, invitation string) (token string, err error)
	// Ways returns the ways to sign in to an account.
	Ways(ctx context.Context, account state.AccountID) (accounts.Ways, error)
	// LinkIdentity lets a person sign in to an account of the same e-mail address.
	LinkIdentity(ctx context.Context, account state.AccountID, p accounts.Person) error
	// UnlinkIdentity ends the link of an identity with an account, or returns
	// state.ErrForbidden if the identity is the only way to sign in.
	UnlinkIdentity(ctx context.Context, account state.AccountID, id state.IdentityID) error
	// SealValue returns a value for a cookie, and OpenValue reads it on any node.
	SealValue(kind string, life time.Duration, value any) (string, error)
	OpenValue(kind, text string, into any) error
	// CreateLink makes a one-time link: an invitation, or for a new password.
	CreateLink(ctx context.Context, email string) (accounts.Link, error)
	// LinkOf returns the purpose and the account of a one-time link, or state.ErrNotFound.
	LinkOf(ctx context.Context, token string) (accounts.Link, error)
	// UseLink uses a one-time link up, begins a session and returns its token.
	UseLink(ctx context.Context, token, password string) (session string, err error)
	// Links returns the one-time links that can be used, without their tokens, and RevokeLink
	// ends one everywhere, or returns state.ErrNotFound.
	Links(ctx context.Context) ([]accounts.OpenLink, error)
	RevokeLink(ctx context.Context, id state.LinkID) error
	// Page returns a page of accounts by their e-mail addresses.
	Page(ctx context.Context, q accounts.UserQuery) (accounts.UserPage, error)
	// CreateAccount adds an account; an empty password means none.
	CreateAccount(ctx context.Context, email, password string) (accounts.User, error)
	// SetPassword changes the password of an account and ends its sessions.
	SetPassword(ctx context.Context, email, password string) error
	// SetAllowance sets the bytes that an account may store without credits.
	SetAllowance(ctx context.Context, email string, bytes uint64) error
	// SetAdmin gives an account the rights of an administrator, or takes them away.
	SetAdmin(ctx context.Context, email string, admin bool) error
	// SetDisabled disables an account, or enables it again.
	SetDisabled(ctx context.Context, email string, on bool) error
	// CloseOwn removes the account of the person who asks, or returns state.ErrForbidden where
	// MayClose does: for the account of local commands and the only administrator.
	CloseOwn(ctx context.Context, account state.AccountID) error
	MayClose(ctx context.Context, account state.AccountID) error
	// RemoveAccount removes an account and what belongs to it.
	RemoveAccount(ctx context.Context, email string) error
}

// Pins are the use cases of pins. Another account's pin behaves like an absent one.
type Pins interface {
	// Create adds a pin; the record is durable when it returns.
	Create(ctx context.Context, account state.AccountID, r pins.Request) (pins.Record, error)
	// Get returns the current state of a pin in the cluster.
	Get(ctx context.Context, account state.AccountID, id state.RequestID) (pins.Record, error)
	// Detail returns a pin with its copies and with the statuses that this node has seen.
	Detail(ctx context.Context, account state.AccountID, id state.RequestID) (pins.Detail, error)
	// List returns the newest matching pins and the number of all matches.
	List(ctx context.Context, account state.AccountID, q state.PinQuery) (total uint64, rows []pins.Record, err error)
	// Holders returns for each pin the names of the nodes that have its complete content.
	Holders(rows []pins.Record) ([][]string, error)
	// Replace puts a new pin in the place of an old one; on any error the old one stays.
	Replace(ctx context.Context, account state.AccountID, old state.RequestID, r pins.Request) (pins.Record, error)
	// Delete removes a pin.
	Delete(ctx context.Context, account state.AccountID, id state.RequestID) error
}

// Members are the use cases of membership, for administrators.
type Members interface {
	// Status returns the cluster as this node sees it; it needs no majority.
	Status(ctx context.Context) (members.Status, error)
	// Quorum returns the voters and the missing ones among them.
	Quorum() members.Quorum
	// Shortage counts the missing copies of each node by the size and the age of their content, and
	// MissingOn returns a page of those of a node and a class.
	Shortage(ctx context.Context) (members.Shortage, error)
	MissingOn(ctx context.Context, node state.NodeID, class members.Class, from state.RootKey, limit int) (rows []members.MissingCopy, next state.RootKey, err error)
	// Leaving returns the effect of the removal of a member. With count the answer also has the
	// figures that need a scan of all content.
	Leaving(ctx context.Context, who string, count bool) (members.Leaving, error)
	// DrainPlan returns the effect of the drain of a member.
	DrainPlan(ctx context.Context, who string) (members.DrainPlan, error)
	// Drain begins the drain of a member, or ends it.
	Drain(ctx context.Context, id state.NodeID, on bool) error
	// Remove ends a membership. It returns state.ErrConflict if content or the majority would
	// be lost, unless force is true.
	Remove(ctx context.Context, id state.NodeID, force bool) error
	// CreateTicket makes a ticket that admits one node and expires after ttl. random fills
	// a slice with unpredictable bytes.
	CreateTicket(ctx context.Context, ttl time.Duration, random func([]byte)) (string, error)
}

// Payments are the use cases of payments, for administrators.
type Payments interface {
	// List returns a page of payments, the newest first.
	List(ctx context.Context, cursor string, limit int) (payments.Page, error)
}

// Audit are the use cases of the audit log: for administrators, but for RevokedKeys.
type Audit interface {
	// List returns a page of the rows that a query asks for, the newest first.
	List(ctx context.Context, q audit.Query) (audit.Page, error)
	// Verify walks through the whole log. A broken row is no error.
	Verify(ctx context.Context) (audit.Verification, error)
	// RevokedKeys returns the keys of an account that were revoked lately, the newest first.
	RevokedKeys(ctx context.Context, account state.AccountID, limit int) ([]audit.RevokedKey, error)
}

// Ledger are the use cases of credits.
type Ledger interface {
	// Post adds a posting to the ledger of the account with an e-mail address or id, once for each
	// id of a posting.
	Post(ctx context.Context, who string, r credits.Request) (state.Posting, error)
	// List returns a page of a ledger, the newest postings first.
	List(ctx context.Context, who string, before uint64, limit int) (credits.Page, error)
	// ContentEnds returns when the newest content of an account begins to end, because its credits are
	// used up and it stores more than its allowance. It returns false for all other accounts. It reads
	// the local state.
	ContentEnds(account state.AccountID) (time.Time, bool, error)
}

// Providers are the OpenID providers at which people sign in.
type Providers interface {
	// List returns the providers in the order in which pages show them.
	List() []openid.Provider
	// Begin returns a sign-in at a provider and the URL to which the browser goes. With again
	// it asks the provider to let the person sign in there once more.
	Begin(ctx context.Context, id string, again bool) (openid.Flow, string, error)
	// Finish returns the person who signed in, by the query with which the provider sent the
	// browser back.
	Finish(ctx context.Context, f openid.Flow, query url.Values) (openid.Person, error)
}

// Options configure the surface. Accounts, Audit, Ledger, Pins, Objects, Members, Health and Logger are required.
type Options struct {
	Accounts Accounts
	Audit    Audit
	Ledger   Ledger
	Payments Payments
	Pins     Pins
	Objects  Objects
	Members  Members
	Health   web.Health
	// Providers are the OpenID providers at which people sign in; nil means none.
	Providers Providers
	// URL is the origin at which people reach the console; empty if it is not known.
	// IPFSGateway is the origin of the IPFS gateway that the page of a pin links to; empty for none.
	// SecurityContact is the URI in security.txt; empty means that there is no such file.
	URL, IPFSGateway, SecurityContact string
	// SignUpOpen says whether everybody who signs in at a provider gets an account.
	SignUpOpen bool
	// Limits hold accounts and addresses to their rates, and say where a request came from;
	// nil: no limits, and the other end of the connection.
	Limits *web.Limits
	// PinningURL and S3URL are what pages show as the addresses of the two APIs for a
	// request to a host; an empty answer means that the node does not serve that API.
	PinningURL, S3URL func(host, scheme string) string
	Region            string
	// MaxObject is the maximum size in bytes of what is stored by one request, MinPart the
	// minimum size of a part that is not the last.
	MaxObject, MinPart int64
	// Presign signs a link to an object at the object gateway.
	Presign func(web.Link) string
	// Activity has the newest log records of this node; nil: none.
	Activity *activity.Log
	// Draining is closed when the node begins to stop, which ends event streams; nil: never.
	Draining <-chan struct{}
	// Pages are those of LoadPages; nil: they are parsed for this surface.
	Pages   *Pages
	Version string
	Logger  *slog.Logger
	Metrics *web.Metrics // of the requests; nil: none
}

// load sets Pages where it is nil.
func (o *Options) load() (err error) {
	if o.Pages == nil {
		o.Pages, err = LoadPages()
	}
	return err
}

// caseTimeout bounds each call of a use case: a node without a majority says so before a
// person gives up.
const caseTimeout = 7 * time.Second

// pageTimeout bounds the time until a page is answered, or until the first bytes of content are
// sent.
const pageTimeout = 2 * time.Minute

// surface is the console of a node.
type surface struct {
	Options
	streams streams
}

// access says who may open a page.
type access int

// The kinds of access. The zero value is none of them, so that a row of the table without an
// access is refused.
const (
	anybody   access = iota + 1 // needs no session, and no rate applies
	visitor                     // needs no session
	signedIn                    // a session of an account
	admins                      // a session of an administrator
	byScript                    // a session, and its form token in the header X-Form-Token; serve reads the body
	lasting                     // a session; the answer lasts as long as the page is open
	withFiles                   // a session; serve reads the form and checks its token
)

// page is one row of the table of routes.
type page struct {
	method, path string
	access       access
	serve        func(c *call) error
}

// table returns every route. All but those of GET take a form token.
func (s *surface) table() []page {
	return []page{
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
		{http.MethodPost, "/pins/delete-many", signedIn, s.deletePins},
		{http.MethodPost, "/pins/retry-many", signedIn, s.retryPins},
		{http.MethodGet, "/pins/export", signedIn, s.exportPins},
		{http.MethodGet, "/pins/{id}", signedIn, s.live(s.pinPage)},
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
		{http.MethodPost, "/users/{id}/allowance", admins, s.changeUser("The allowance was changed.", s.setUserAllowance)},
		{http.MethodGet, "/users/{id}/ledger.csv", admins, s.userLedgerCSV},
		{http.MethodPost, "/users/{id}/credits", admins, s.changeUser("The posting was made.", s.postCredits)},
		{http.MethodPost, "/users/{id}/password", admins, s.changeUser("The password was changed, and the sessions ended.", s.setUserPassword)},
		{http.MethodPost, "/users/{id}/admin", admins, s.changeUser("Done.", s.setUserAdmin)},
		{http.MethodPost, "/users/{id}/disabled", admins, s.changeUser("Done: every node knows it.", s.setUserDisabled)},
		{http.MethodPost, "/users/{id}/remove", admins, s.removeUser},
		{http.MethodGet, "/buckets", signedIn, s.bucketsPage},
		{http.MethodPost, "/buckets", signedIn, s.createBucket},
		{http.MethodGet, "/buckets/{bucket}", signedIn, s.live(s.bucketPage)},
		{http.MethodPost, "/buckets/{bucket}/visibility", signedIn, s.setVisibility},
		{http.MethodPost, "/buckets/{bucket}/versioning", signedIn, s.setVersioning},
		{http.MethodPost, "/buckets/{bucket}/cors", signedIn, s.setCors},
		{http.MethodPost, "/buckets/{bucket}/delete", signedIn, s.deleteBucket},
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
		{http.MethodGet, "/events", lasting, s.events},
		{http.MethodGet, sharePage, anybody, s.sharedPage},
		{http.MethodGet, "/status", anybody, s.status},
		{http.MethodGet, "/robots.txt", anybody, robots},
		{http.MethodGet, "/.well-known/security.txt", anybody, s.securityText},
		{http.MethodGet, "/favicon.ico", anybody, s.favicon},
		{http.MethodGet, "/static/{version}/{name}", anybody, s.static},
	}
}

// New returns the handler of the surface.
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

// Starting returns the handler until the use cases for New exist: health, and a page that says
// so for all other requests. It needs the options Health, Version and Logger, and uses Metrics.
func Starting(o Options) (http.Handler, error) {
	if err := o.load(); err != nil {
		return nil, err
	}
	s := &surface{Options: o}
	return s.wrap(web.Starting(o.Health, web.HealthRoutes(o.Health, o.Version))), nil
}

// policy is the Content-Security-Policy. It lets a page load only files of this origin.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; " +
	"connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// wrap adds the headers that all answers of the console have.
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
