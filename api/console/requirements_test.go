package console

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/apitest"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/oidctest"
)

// The requirements of docs/reliability.md for every route of the table. Each test calls every
// route by its sample, so a route without one fails TestEveryRouteHasASample. api/webapi has the
// same for the web API.
//
//	A43  TestARevokedKeyOpensNoPage
//	A44  TestAnEndedSessionOpensNoPage
//	A46  TestIDsOfAnotherAccountAreAbsent, TestBucketsOfAnotherAccountAreAbsent, TestIDsInFormsOfAnotherAccountAreAbsent, TestEveryIDIsOfAnAccount
//	A48  TestNoPageLeadsElsewhere, TestTheReturnPathIsOfThisHost, TestAnAppGetsAKeyWhereItRegistered
//	A49  TestRequestsOfOtherSitesChangeNothing, TestAFormWithoutAnOriginNeedsItsToken, TestNobodyElseAgreesForAPerson
//	A50  TestWrongPasswordsAreCounted, TestWrongPasswordsAreCountedAndAlike
//	A51  TestSecretsAreNotTold

// sample is how the tests call a route.
type sample struct {
	id    string     // what {id} is: key, pin, session, identity, user, node, onetime or share
	query string     // for Alice's bucket and upload, see world.calls
	form  url.Values // of a POST without files
	tries bool       // the form has the caller's password, whose tries are counted
	shows bool       // the answer shows secrets of a key
	wide  bool       // an id names what any caller with the access may see
}

// ofObject is the query of routes below a bucket.
const ofObject = "?key=cat.txt&part=1&size=5"

// samples has an entry for every route.
var samples = map[string]sample{
	"GET /sign-in":                                     {},
	"POST /sign-in":                                    {form: url.Values{"email": {"alice@example.org"}, "password": {"password of alice"}}, tries: true},
	"GET /sign-in/{provider}":                          {wide: true},
	"GET /sign-in/{provider}/callback":                 {wide: true},
	"POST /account/identities/{id}/remove":             {id: "identity"},
	"POST /account/colours":                            {form: url.Values{"scheme": {"dark"}}},
	"GET /link":                                        {query: "?t={link}"},
	"POST /link":                                       {form: url.Values{"link": {"{link}"}, "password": {"password of bob"}, "again": {"password of bob"}}},
	"POST /users/links":                                {form: url.Values{"email": {"dora@example.org"}}},
	"POST /users/links/{id}/revoke":                    {id: "onetime", wide: true},
	"GET /.well-known/security.txt":                    {},
	"POST /sign-out":                                   {},
	"GET /":                                            {},
	"GET /keys":                                        {},
	"POST /keys":                                       {form: url.Values{"name": {"laptop"}, "scope": {"write"}, "expiry": {"never"}}, shows: true},
	"GET /keys/{id}":                                   {id: "key"},
	"POST /keys/{id}/show":                             {id: "key", form: url.Values{"password": {"password of alice"}}, tries: true, shows: true},
	"POST /keys/{id}/revoke":                           {id: "key"},
	"GET /pins":                                        {},
	"POST /pins":                                       {form: url.Values{"cid": {cat}, "name": {"dog"}}},
	"POST /pins/create-many":                           {form: url.Values{"lines": {cat + " many"}}},
	"POST /pins/delete-many":                           {form: url.Values{"pin": {"{pin} cat"}}},
	"POST /pins/retry-many":                            {form: url.Values{"pin": {"{pin} cat"}}},
	"GET /pins/export":                                 {},
	"POST /pins/{id}/replace":                          {id: "pin", form: url.Values{"cid": {cat}, "name": {"new"}}},
	"POST /pins/{id}/retry":                            {id: "pin"},
	"GET /usage":                                       {},
	"GET /usage.csv":                                   {},
	"GET /usage/ledger.csv":                            {},
	"GET /cluster/activity":                            {},
	"GET /cluster/missing":                             {query: "?node=n2&size=0"},
	"GET /payments":                                    {},
	"GET /payments.csv":                                {},
	"GET /audit":                                       {},
	"POST /audit/verify":                               {},
	"GET /audit/export":                                {},
	"GET /cluster/nodes/{id}":                          {id: "node", wide: true},
	"GET /cluster/nodes/{id}/remove":                   {id: "node", wide: true},
	"GET /cluster/nodes/{id}/drain":                    {id: "node", wide: true},
	"POST /cluster/nodes/{id}/drain":                   {id: "node", wide: true},
	"POST /cluster/nodes/{id}/remove":                  {id: "node", form: url.Values{"sure": {"1"}}, wide: true},
	"POST /buckets/{bucket}/versioning":                {form: url.Values{"versioning": {"on"}}},
	"POST /buckets/{bucket}/cors":                      {form: url.Values{"origins": {"*"}}},
	"POST /buckets/{bucket}/object/move":               {query: ofObject, form: url.Values{"to": {"cat2.txt"}}},
	"POST /buckets/{bucket}/object/restore":            {query: ofObject},
	"POST /buckets/{bucket}/object/tags":               {query: ofObject, form: url.Values{"tags": {"a=b"}}},
	"POST /buckets/{bucket}/object/metadata":           {query: ofObject, form: url.Values{"etag": {"0"}, "created": {"1"}, "Content-Type": {"text/html"}, "meta": {"a=b"}}},
	"GET /events":                                      {},
	"GET /pins/{id}":                                   {id: "pin"},
	"GET /pins/{id}/download":                          {id: "pin"},
	"POST /pins/{id}/delete":                           {id: "pin"},
	"GET /account":                                     {},
	"POST /account/password":                           {form: url.Values{"password": {"password of alice"}, "new": {"password of alice"}, "again": {"password of alice"}}, tries: true},
	"POST /account/sessions/{id}/end":                  {id: "session"},
	"POST /account/end-others":                         {},
	"POST /account/delete":                             {form: url.Values{"email": {"alice@example.org"}, "password": {"password of alice"}}, tries: true},
	"GET /get-key":                                     {query: "?redirect=https%3A%2F%2Fphotos.example%2Fdone"},
	"POST /get-key":                                    {form: url.Values{"redirect": {"https://photos.example/done"}, "choice": {"deny"}}},
	"GET /setup":                                       {},
	"POST /setup":                                      {form: url.Values{"email": {"root@example.org"}, "password": {"password of root"}, "again": {"password of root"}}},
	"GET /cluster":                                     {},
	"POST /cluster/invite":                             {},
	"GET /users":                                       {},
	"POST /users":                                      {form: url.Values{"email": {"carol@example.org"}, "password": {"password of carol"}}},
	"GET /users/{id}":                                  {id: "user", wide: true},
	"POST /users/{id}/allowance":                       {id: "user", form: url.Values{"allowance": {"1 GiB"}}, wide: true},
	"GET /users/{id}/ledger.csv":                       {id: "user", wide: true},
	"POST /users/{id}/credits":                         {id: "user", form: url.Values{"kind": {"grant"}, "credits": {"5"}}, wide: true},
	"POST /users/{id}/password":                        {id: "user", form: url.Values{"password": {"password of bob"}}, wide: true},
	"POST /users/{id}/admin":                           {id: "user", form: url.Values{"admin": {"yes"}}, wide: true},
	"POST /users/{id}/disabled":                        {id: "user", form: url.Values{"disabled": {"yes"}}, wide: true},
	"POST /users/{id}/remove":                          {id: "user", form: url.Values{"email": {"bob@example.org"}}, wide: true},
	"GET /buckets":                                     {},
	"POST /buckets":                                    {form: url.Values{"name": {"holidays"}}},
	"GET /buckets/{bucket}":                            {},
	"POST /buckets/{bucket}/visibility":                {form: url.Values{"visibility": {"public"}}},
	"POST /buckets/{bucket}/delete":                    {},
	"POST /buckets/{bucket}/delete-many":               {form: url.Values{"object": {"cat.txt"}, "sure": {"1"}}},
	"POST /buckets/{bucket}/zip":                       {form: url.Values{"object": {"cat.txt"}}},
	"POST /buckets/{bucket}/shares":                    {form: url.Values{"place": {"cat.txt"}, "expiry": {"1d"}, "name": {"For Eve"}}, shows: true},
	"POST /buckets/{bucket}/shares/{id}/revoke":        {id: "share"},
	"POST /buckets/{bucket}/files":                     {},
	"POST /pins/upload":                                {},
	"POST /buckets/{bucket}/uploads":                   {query: ofObject},
	"GET /buckets/{bucket}/object":                     {query: ofObject},
	"PUT /buckets/{bucket}/object":                     {query: ofObject},
	"POST /buckets/{bucket}/object/delete":             {query: ofObject},
	"POST /buckets/{bucket}/object/share":              {query: ofObject, form: url.Values{"signer": {"{key}"}, "expiry": {"1h"}}},
	"GET /buckets/{bucket}/download":                   {query: ofObject},
	"GET /buckets/{bucket}/preview":                    {query: ofObject},
	"PUT /buckets/{bucket}/uploads/{upload}":           {query: ofObject},
	"DELETE /buckets/{bucket}/uploads/{upload}":        {query: ofObject},
	"POST /buckets/{bucket}/uploads/{upload}/complete": {query: ofObject},
	"GET /shared":                                      {},
	"GET /status":                                      {},
	"GET /robots.txt":                                  {},
	"GET /favicon.ico":                                 {},
	"GET /static/{version}/{name}":                     {wide: true},
}

// TestEveryRouteHasASample promises that the tests below call every route.
func TestEveryRouteHasASample(t *testing.T) {
	served := map[string]bool{}
	for _, row := range (&surface{}).table() {
		name := row.method + " " + row.path
		served[name] = true
		s, ok := samples[name]
		if !ok || strings.Contains(row.path, "{id}") != (s.id != "") {
			t.Errorf("%s has no sample, or one with the id %q", name, s.id)
		}
	}
	for name := range samples {
		if !served[name] {
			t.Errorf("%s has a sample and is not served", name)
		}
	}
}

// ground is a world in which Alice, an administrator, has what the samples name.
type ground struct {
	*world
	key    accounts.Key
	setup  string // token of a setup link from before there was an administrator
	link   string // token of a one-time link for Bob
	issuer string // of the provider
	values *strings.Replacer
}

func newGround(t *testing.T) *ground {
	t.Helper()
	provider := oidctest.Start(t)
	w := newWorld(t).another(at(provider))
	close(w.draining) // an event stream ends after its first events
	g := &ground{world: w, key: w.Key("alice"), issuer: provider.Issuer()}
	link, err := w.users.CreateLink(t.Context(), apitest.Email("bob"))
	if err != nil {
		t.Fatal(err)
	}
	g.link = link.Token
	open, err := w.users.Links(t.Context())
	if err != nil || len(open) != 1 {
		t.Fatal(open, err)
	}
	if g.setup, err = w.users.SetupToken(); err != nil {
		t.Fatal(err)
	}
	if err := w.users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	if _, err := w.users.AddApp(t.Context(), "photos", []string{"https://photos.example/done", "photos://done"}, []string{state.ScopeRead}); err != nil {
		t.Fatal(err)
	}
	upload := w.photos("cat.txt")
	shared := w.share("0123456789abcdef0123456789abcdef", "For Ann")
	b := w.browser()
	b.signIn("alice")
	pin := strings.TrimPrefix(b.post("/pins", "/pins", url.Values{"cid": {cat}}).Header().Get("Location"), "/pins/")
	other, err := w.users.Authenticate(t.Context(), b.cookies[sessionCookie])
	if err != nil || pin == "" {
		t.Fatal(pin, err)
	}
	g.values = strings.NewReplacer("{key}", string(g.key.ID), "{pin}", pin, "{session}", string(other.Session), "{user}", string(w.account("bob")), "{node}", "n3", "{identity}", string(w.linked("alice")), "{provider}", "one", "{link}", g.link, "{onetime}", string(open[0].ID), "{share}", string(shared.ID),
		"{bucket}", "photos", "{upload}", string(upload), "{version}", "0", "{name}", "console.css")
	return g
}

// sampled is a route with a sample: a request that a test can send.
type sampled struct {
	page
	sample
	name string
	to   string // path and query
}

// calls are requests to every route. What removes something comes behind what needs it. At the end
// Alice is the only administrator, so that the deletion of her account is refused.
func (g *ground) calls() (all []sampled) {
	var last, end []sampled
	for _, row := range (&surface{}).table() {
		c := sampled{page: row, name: row.method + " " + row.path}
		c.sample = samples[c.name]
		c.to = g.values.Replace(strings.ReplaceAll(row.path, "{id}", "{"+c.id+"}") + c.query)
		switch row.path[strings.LastIndexByte(row.path, '/')+1:] {
		case "delete", "delete-many", "move", "disabled", "remove", "revoke", "end", "end-others", "password", "complete", "sign-out":
			if row.path == "/account/delete" {
				end = append(end, c)
			} else {
				last = append(last, c)
			}
		default:
			all = append(all, c)
		}
	}
	return slices.Concat(all, last, end)
}

// guarded tells whether the route needs a session.
func (s sampled) guarded() bool { return s.access >= signedIn }

// change tells whether the request changes something where it is allowed.
func (s sampled) change() bool { return s.method != http.MethodGet }

// request returns one as the console's own pages send it, with a form token.
func (g *ground) request(c sampled, token string) *http.Request {
	g.t.Helper()
	r := g.browser().request(objectRoute{c.page, c.to}, token)
	if c.change() && c.access != byScript && c.access != withFiles {
		form := url.Values{tokenField: {token}}
		for name, values := range c.form {
			form.Set(name, g.values.Replace(values[0]))
		}
		r = formRequest(c.to, form)
	}
	return r
}

// signedOut fails the test unless an answer is that to a browser without a session.
func (g *ground) signedOut(what string, c sampled, got *httptest.ResponseRecorder) {
	g.t.Helper()
	switch {
	case c.access == byScript:
		if got.Code != http.StatusUnauthorized {
			g.t.Errorf("%s %s is answered with %d", what, c.name, got.Code)
		}
	case c.name == "GET /get-key": // an address that no app has is told first
		if got.Code != http.StatusSeeOther && got.Code != http.StatusBadRequest {
			g.t.Errorf("%s %s is answered with %d", what, c.name, got.Code)
		}
	case c.access == lasting: // an event source cannot sign in, and would ask again
		if got.Code != http.StatusNoContent {
			g.t.Errorf("%s %s is answered with %d", what, c.name, got.Code)
		}
	default:
		if to := got.Header().Get("Location"); got.Code != http.StatusSeeOther || !strings.HasPrefix(to, "/sign-in") {
			g.t.Errorf("%s %s is answered with %d and %q", what, c.name, got.Code, to)
		}
	}
}

// A43: an API key opens no page, revoked or not. A key that a page revoked opens nothing on another
// node from the answer on.
func TestARevokedKeyOpensNoPage(t *testing.T) {
	g := newGround(t)
	elsewhere := g.Elsewhere()
	keyOpensNothing := func(what string) {
		t.Helper()
		defer g.Unchanged(what)()
		for _, c := range g.calls() {
			if !c.guarded() {
				continue
			}
			thief := g.browser()
			thief.cookies[sessionCookie] = g.key.Token
			g.signedOut(what+", as the cookie:", c, thief.do(g.request(c, web.FormToken(g.key.Token))))
			r := g.request(c, "x")
			r.Header.Set("Authorization", "Bearer "+g.key.Token)
			g.signedOut(what+", as a Bearer token:", c, g.browser().do(r))
		}
	}
	keyOpensNothing("a key")
	if _, err := elsewhere.Authenticate(t.Context(), g.key.Token); err != nil {
		t.Fatal(err)
	}
	b := g.browser()
	b.signIn("alice")
	if got := b.post("/pins", "/keys/"+string(g.key.ID)+"/revoke", nil); got.Code != http.StatusOK {
		t.Fatalf("the revocation is answered with %d", got.Code)
	}
	for _, users := range []*accounts.Accounts{g.users, elsewhere} {
		if _, err := users.Authenticate(t.Context(), g.key.Token); err == nil {
			t.Error("the revoked key opens something")
		}
	}
	keyOpensNothing("a revoked key")
}

// A44: a session that ended in any way opens no page. Sessions that are not to end go on.
func TestAnEndedSessionOpensNoPage(t *testing.T) {
	post := func(by, path string, form url.Values) func(g *ground, ended, other *browser) {
		return func(g *ground, ended, other *browser) {
			b := map[string]*browser{"ended": ended, "other": other}[by]
			path := strings.ReplaceAll(path, "{user}", string(g.account("alice")))
			if got := b.post("/pins", path, form); got.Code >= http.StatusBadRequest {
				g.t.Fatalf("POST %s is answered with %d: %s", path, got.Code, got.Body)
			}
		}
	}
	for name, tc := range map[string]struct {
		end      func(g *ground, ended, other *browser)
		otherHas bool // the other session goes on
	}{
		"sign-out": {post("ended", "/sign-out", nil), true},
		"another session ends it": {func(g *ground, ended, other *browser) {
			who, err := g.users.Authenticate(t.Context(), ended.cookies[sessionCookie])
			if err != nil {
				g.t.Fatal(err)
			}
			post("other", "/account/sessions/"+string(who.Session)+"/end", nil)(g, ended, other)
		}, true},
		"another session ends all others": {post("other", "/account/end-others", nil), true},
		"new password":                    {post("other", "/account/password", url.Values{"password": {"password of alice"}, "new": {"another password"}, "again": {"another password"}}), true},
		"expiry":                          {func(g *ground, _, _ *browser) { g.Ahead(100 * 24 * time.Hour) }, false},
		"account disabled": {func(g *ground, _, _ *browser) {
			if err := g.users.SetAdmin(t.Context(), apitest.Email("bob"), true); err != nil { // else alice is the last one
				g.t.Fatal(err)
			}
			if err := g.users.SetDisabled(t.Context(), apitest.Email("alice"), true); err != nil {
				g.t.Fatal(err)
			}
		}, false},
		"account removed": {func(g *ground, _, _ *browser) {
			if err := g.users.RemoveAccount(t.Context(), apitest.Email("alice")); err != nil {
				g.t.Fatal(err)
			}
		}, false},
		"an administrator sets a password": {func(g *ground, _, _ *browser) {
			if err := g.users.SetAdmin(t.Context(), apitest.Email("bob"), true); err != nil {
				g.t.Fatal(err)
			}
			bob := g.browser()
			bob.signIn("bob")
			post("other", "/users/{user}/password", url.Values{"password": {"another password"}})(g, nil, bob)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t)
			ended, other := g.browser(), g.browser()
			ended.session("alice")
			other.session("alice")
			form := ended.formToken()
			cookie := ended.cookies[sessionCookie]
			tc.end(g, ended, other)
			defer g.Unchanged(name)()
			for _, c := range g.calls() {
				if c.guarded() {
					b := g.browser()
					b.cookies[sessionCookie] = cookie
					g.signedOut(name, c, b.do(g.request(c, form)))
				}
			}
			if status, _ := other.get("/account"); (status == http.StatusOK) != tc.otherHas {
				t.Errorf("the other session is answered with %d", status)
			}
		})
	}
}

// A46: each id in a path is one that the two tests of absent ids try for another account, or is for
// administrators.
func TestEveryIDIsOfAnAccount(t *testing.T) {
	for _, row := range (&surface{}).table() {
		s := samples[row.method+" "+row.path]
		switch {
		case strings.HasPrefix(row.path, "/buckets/{bucket}"), !strings.Contains(row.path, "{"): // TestBucketsOfAnotherAccountAreAbsent
		case row.access == signedIn && s.id != "" && !s.wide: // TestIDsOfAnotherAccountAreAbsent
		case row.access == admins && s.wide: // TestPagesOfAdministrators
		case s.wide && s.id == "": // the same for all
		default:
			t.Errorf("%s %s has an id that no test tries for another account", row.method, row.path)
		}
	}
}

// A46: an id in a form is answered as one that nobody has too, and changes nothing.
func TestIDsInFormsOfAnotherAccountAreAbsent(t *testing.T) {
	g := newGround(t)
	bob := g.browser()
	bob.session("bob")
	token := bob.formToken()
	own := strings.NewReplacer(string(g.key.ID), absentID, g.values.Replace("{pin}"), absentID)
	tried := 0
	defer g.Unchanged("Bob")()
	for _, c := range g.calls() {
		absent := c
		absent.form = url.Values{}
		for field, values := range c.form {
			absent.form.Set(field, own.Replace(g.values.Replace(values[0])))
		}
		r := g.request(c, token)
		if c.access == admins || !c.guarded() || c.form == nil || absent.form.Encode() == parsed(t, r).Encode() {
			continue
		}
		tried++
		got, want := bob.do(g.request(c, token)), bob.do(g.request(absent, token))
		if got.Code != want.Code || got.Body.String() != want.Body.String() {
			t.Errorf("%s is answered with %d %s and with ids that nobody has with %d %s", c.name, got.Code, got.Body, want.Code, want.Body)
		}
	}
	if tried < 3 {
		t.Errorf("%d forms have ids", tried)
	}
}

// parsed returns the form of a request without its token.
func parsed(t *testing.T, r *http.Request) url.Values {
	t.Helper()
	if err := r.ParseForm(); err != nil {
		t.Fatal(err)
	}
	r.PostForm.Del(tokenField)
	return r.PostForm
}

// A48: no answer leads to another host, whatever address a request brings in its query or its form.
func TestNoPageLeadsElsewhere(t *testing.T) {
	g := newGround(t)
	visitor, alice := g.browser(), g.browser()
	for _, c := range g.calls() {
		path, query, _ := strings.Cut(c.to, "?")
		for i, to := range apitest.HostileAddresses {
			values, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			form := maps.Clone(c.form)
			if form == nil {
				form = url.Values{}
			}
			for _, name := range apitest.AddressParameters {
				values.Set(name, to)
				form.Set(name, to)
			}
			if i > 0 && c.guarded() && !c.tries { // a hash takes long
				form.Del("password")
			}
			hostile := c
			hostile.to, hostile.form = path+"?"+values.Encode(), form
			for _, b := range []*browser{visitor, alice} {
				if b == alice && b.cookies[sessionCookie] == "" { // the route before has ended it
					b.session("alice")
				}
				got := b.do(g.request(hostile, b.formToken()))
				at := got.Header().Get("Location")
				if toProvider := c.name == "GET /sign-in/{provider}" && strings.HasPrefix(at, g.issuer+"/"); toProvider {
					var f flow
					if err := g.users.OpenValue(flowCookie, b.cookies[flowCookie], &f); err != nil || f.To != "/" && localPath(f.To) != f.To {
						t.Errorf("%s with %q comes back to %q, %v", c.name, to, f.To, err)
					}
				} else if at != "" && localPath(at) != at {
					t.Errorf("%s with %q leads to %q", c.name, to, at)
				}
				if strings.HasSuffix(c.name, "/get-key") && b == alice && got.Code != http.StatusBadRequest {
					t.Errorf("%s with %q is answered with %d", c.name, to, got.Code)
				}
			}
		}
	}
}

// formToken returns the form token of a browser, which visits the sign-in page first where it has none.
func (b *browser) formToken() string {
	b.t.Helper()
	if token := web.FormToken(b.cookies[sessionCookie]); token != "" {
		return token
	}
	if b.cookies[visitorCookie] == "" {
		b.get("/sign-in")
	}
	return web.FormToken(b.cookies[visitorCookie])
}

// session gives a browser a session of an account without a request.
func (b *browser) session(name string) {
	b.t.Helper()
	token, err := b.users.SignIn(b.t.Context(), apitest.Email(name), apitest.Password(name), netip.Addr{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.cookies[sessionCookie] = token
}

// A49: a change needs the form token of its browser, in a form or a header that no other site can
// send, and comes from this origin. That holds for who has no session too.
func TestRequestsOfOtherSitesChangeNothing(t *testing.T) {
	g := newGround(t)
	alice, other, visitor, another := g.browser(), g.browser(), g.browser(), g.browser()
	alice.session("alice")
	other.session("alice")
	defer g.Unchanged("requests of other sites")()
	for _, c := range g.calls() {
		if !c.change() {
			continue
		}
		b, own, foreign := alice, alice.formToken(), other.formToken()
		if !c.guarded() {
			b, own, foreign = visitor, visitor.formToken(), another.formToken()
		}
		for _, tc := range []struct{ name, token, header, value string }{
			{"no token", "", "", ""},
			{"a token of another browser", foreign, "", ""},
			{"the session as its token", b.cookies[sessionCookie], "", ""},
			{"another origin", own, "Origin", "https://evil.example"},
			{"no origin and no token", "", "Origin", "null"},
			{"no origin and a token of another browser", foreign, "Origin", "null"},
			{"another site", own, "Sec-Fetch-Site", "cross-site"},
			{"a site beside", own, "Sec-Fetch-Site", "same-site"},
			{"text", own, "Content-Type", "text/plain"},
			{"JSON", own, "Content-Type", "application/json"},
			{"a form without a token", "", "Content-Type", "application/x-www-form-urlencoded"},
			{"a form with files without a token", "", "Content-Type", "multipart/form-data; boundary=x"},
		} {
			if tc.header == "Content-Type" && tc.token != "" && (c.access == byScript || c.access == withFiles) {
				continue // the type of the file; a form with files is checked as it is read
			}
			r := g.request(c, tc.token)
			if tc.header != "" {
				r.Header.Set(tc.header, tc.value)
			}
			got := b.do(r)
			wrongFiles := c.access == withFiles && tc.header == "Content-Type" && got.Code == http.StatusBadRequest
			if got.Code != http.StatusForbidden && !wrongFiles {
				t.Errorf("%s with %s is answered with %d", c.name, tc.name, got.Code)
			}
		}
	}
	g.untouched("cat.txt", state.UploadID(g.values.Replace("{upload}")))
}

// A50: the sixth password within a minute is refused, also a right one, at every route that takes
// the password of the caller.
func TestWrongPasswordsAreCounted(t *testing.T) {
	routes := 0
	for name, s := range samples {
		if s.form.Get("password") == apitest.Password("alice") != s.tries {
			t.Errorf("%s has a password, and its sample does not say so", name)
		}
		if !s.tries {
			continue
		}
		routes++
		g := newGround(t)
		b := g.browser()
		var c sampled
		for _, c = range g.calls() {
			if c.name == name {
				break
			}
		}
		if c.guarded() {
			b.session("alice")
		}
		for try := 1; try <= 6; try++ {
			form := maps.Clone(c.form)
			want := http.StatusTooManyRequests
			if try < 6 {
				form.Set("password", "wrong")
				want = map[bool]int{true: http.StatusForbidden, false: http.StatusUnauthorized}[c.guarded()]
			}
			tried := c
			tried.form = form
			if got := b.do(g.request(tried, b.formToken())); got.Code != want {
				t.Errorf("try %d of %s is answered with %d and not %d", try, name, got.Code, want)
			}
		}
	}
	if routes < 3 {
		t.Errorf("%d routes take a password", routes)
	}
}

// A51: no log line and no page has a session token, a password or a secret of the cluster, and no
// page but those that show a key has one.
func TestSecretsAreNotTold(t *testing.T) {
	g := newGround(t)
	b := g.browser()
	b.session("alice")
	session := b.cookies[sessionCookie]
	token := b.formToken()
	secrets := map[string]string{
		"session": session, "key": g.key.Token, "secret key": g.key.SecretAccessKey, "setup token": g.setup, "one-time link": g.link,
		"password": "password of alice", "first password": "password of carol", "password of root": "password of root",
	}
	logged := map[string]string{"form token": token}
	for name, secret := range secrets {
		logged[name] = secret
	}
	for _, c := range g.calls() {
		for _, query := range []string{"", "t=" + g.setup, "t=" + g.link, "token=" + session + "&key=" + g.key.Token + "&password=password+of+alice"} {
			asked := c
			if query != "" {
				path, _, _ := strings.Cut(c.to, "?")
				asked.to = path + "?" + query
			}
			for _, with := range []string{token, "wrong"} {
				if c.name == "POST /sign-out" && with == token {
					continue // it would end what the others need
				}
				who := g.browser()
				who.cookies[sessionCookie] = session
				got := who.do(g.request(asked, with))
				if c.name == "GET /sign-in" || c.name == "GET /link" || query != "" || c.shows && got.Code == http.StatusOK {
					continue // it repeats the address, or shows a key
				}
				for name, secret := range secrets {
					if strings.Contains(got.Body.String(), secret) {
						t.Errorf("%s answers %d with the %s", c.name, got.Code, name)
					}
				}
			}
		}
	}
	if !strings.Contains(g.log.String(), "/buckets/photos/object") {
		t.Fatal("nothing was logged")
	}
	for name, secret := range logged {
		if strings.Contains(g.log.String(), secret) {
			t.Errorf("the log has the %s: %s", name, firstWith(g.log.String(), secret))
		}
	}
}

// firstWith returns the first line of a text that has a part.
func firstWith(text, part string) string {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}
