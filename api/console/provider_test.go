package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/openid"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/oidctest"
)

// linked returns the identity of an account of the world at a provider.
func (w *world) linked(name string) state.IdentityID {
	w.t.Helper()
	err := w.users.LinkIdentity(w.t.Context(), w.account(name), accounts.Person{Issuer: "https://id.example", Subject: name, Email: name + "@example.org"})
	if err != nil {
		w.t.Fatal(err)
	}
	ways, err := w.users.Ways(w.t.Context(), w.account(name))
	if err != nil || len(ways.Identities) == 0 {
		w.t.Fatalf("%+v, %v", ways, err)
	}
	return ways.Identities[0].ID
}

// at gives a node the providers of tests, which it knows as one, two and so on.
func at(all ...*oidctest.Provider) func(*Options) {
	return func(o *Options) {
		settings := openid.Options{URL: "https://" + host, Private: true}
		for i, p := range all {
			name := []string{"One", "Two"}[i]
			settings.Providers = append(settings.Providers, openid.Config{
				ID: strings.ToLower(name), Name: name, Issuer: p.Issuer(), ClientID: p.ClientID, ClientSecret: p.ClientSecret,
				Domains: []string{"example.org"}, Admins: []string{"root@example.org"},
			})
		}
		o.Providers, o.URL = openid.New(settings), settings.URL
	}
}

// open opens a page and returns where it leads.
func (b *browser) open(path string) (status int, location, body string) {
	b.t.Helper()
	answer := b.do(httptest.NewRequest(http.MethodGet, path, nil))
	return answer.Code, answer.Header().Get("Location"), answer.Body.String()
}

// through signs a person in at a provider, and returns the path at which the browser comes back.
func (b *browser) through(p *oidctest.Provider, path string, who oidctest.Person) string {
	b.t.Helper()
	status, to, body := b.open(path)
	if status != http.StatusSeeOther || !strings.HasPrefix(to, p.Issuer()) {
		b.t.Fatalf("%s is answered with %d and %q: %s", path, status, to, body)
	}
	back := p.Answer(to, who)
	if back.Host != host {
		b.t.Fatalf("the provider sends the browser to %s", back)
	}
	return back.RequestURI()
}

// elsewhere returns the same browser at another node.
func (b *browser) elsewhere(w *world) *browser { return &browser{world: w, cookies: b.cookies} }

// is checks whom the browser has a session of.
func (b *browser) is(email string) accounts.Principal {
	b.t.Helper()
	p, err := b.users.Authenticate(b.t.Context(), b.cookies[sessionCookie])
	if err != nil || p.Email != email {
		b.t.Fatalf("the session is of %+v, %v", p, err)
	}
	return p
}

var carol = oidctest.Person{Subject: "c", Email: "carol@example.org"}

// A sign-in begins at one node and ends at another one, once.
func TestASignInEndsAtAnotherNode(t *testing.T) {
	p := oidctest.Start(t)
	first := newWorld(t).another(at(p))
	second := first.another(at(p))
	b := first.browser()
	if _, _, body := b.open("/sign-in?to=/keys"); !strings.Contains(body, `href="/sign-in/one?to=%2fkeys"`) && !strings.Contains(body, `href="/sign-in/one?to=/keys"`) {
		t.Errorf("the sign-in page has no button: %s", body)
	}
	back := b.through(p, "/sign-in/one?to=/keys", carol)
	flowText := b.cookies[flowCookie]
	if flowText == "" || strings.Contains(flowText, "state") {
		t.Errorf("the flow is %q", flowText)
	}
	status, to, body := b.elsewhere(second).open(back)
	if status != http.StatusSeeOther || to != "/keys" {
		t.Fatalf("the end is answered with %d and %q: %s", status, to, body)
	}
	if who := b.is("carol@example.org"); who.Admin {
		t.Error("she is an administrator")
	}
	if b.cookies[flowCookie] != "" {
		t.Error("the flow goes on")
	}
	thief := first.browser()
	if status, _, _ := thief.open(back); status != http.StatusBadRequest {
		t.Errorf("another browser is answered with %d", status)
	}
	thief.cookies[flowCookie] = flowText // as if both were stolen
	if status, _, _ := thief.open(back); status != http.StatusForbidden || thief.cookies[sessionCookie] != "" {
		t.Errorf("the code again is answered with %d", status)
	}
	root := first.browser()
	root.open(root.through(p, "/sign-in/one", oidctest.Person{Subject: "r", Email: "root@example.org"}))
	if who := root.is("root@example.org"); !who.Admin {
		t.Error("root is no administrator")
	}
}

// An answer of a provider that is forged, late, for another flow or for an address that may not sign in makes no session.
func TestSignInsThatAreRefused(t *testing.T) {
	p := oidctest.Start(t)
	w := newWorld(t)
	node := w.another(at(p))
	for _, tc := range []struct {
		name   string
		who    oidctest.Person
		change func(b *browser, back string) string
		status int
	}{
		{"another state", carol, func(_ *browser, back string) string {
			return regexp.MustCompile("state=[^&]*").ReplaceAllString(back, "state=x")
		}, http.StatusForbidden},
		{"another nonce", carol, func(b *browser, back string) string {
			var f flow
			if err := w.users.OpenValue(flowCookie, b.cookies[flowCookie], &f); err != nil {
				t.Fatal(err)
			}
			f.Nonce = "x"
			b.cookies[flowCookie], _ = w.users.SealValue(flowCookie, time.Minute, f)
			return back
		}, http.StatusForbidden},
		{"a flow that was changed", carol, func(b *browser, back string) string {
			b.cookies[flowCookie] = "A" + b.cookies[flowCookie]
			return back
		}, http.StatusBadRequest},
		{"too late", carol, func(_ *browser, back string) string {
			w.Ahead(flowLife)
			return back
		}, http.StatusBadRequest},
		{"at another provider", carol, func(_ *browser, back string) string {
			return strings.Replace(back, "/one/", "/two/", 1)
		}, http.StatusBadRequest},
		{"an unverified address", oidctest.Person{Subject: "c", Email: "carol@example.org", Unverified: true}, nil, http.StatusForbidden},
		{"another domain", oidctest.Person{Subject: "c", Email: "carol@example.com"}, nil, http.StatusForbidden},
	} {
		b := node.browser()
		back := b.through(p, "/sign-in/one", tc.who)
		if tc.change != nil {
			back = tc.change(b, back)
		}
		status, to, _ := b.open(back)
		if status != tc.status || to != "" || b.cookies[sessionCookie] != "" || b.cookies[flowCookie] != "" {
			t.Errorf("%s is answered with %d, %q and the cookies %v", tc.name, status, to, b.cookies)
		}
		w.Ahead(0)
	}
	if _, err := w.users.ByEmail(t.Context(), "carol@example.org"); err == nil {
		t.Error("there is an account")
	}
	if status, _, _ := node.browser().open("/sign-in/three"); status != http.StatusNotFound {
		t.Errorf("a provider that is not there is answered with %d", status)
	}
	for _, to := range []string{"https://evil.example", "//evil.example", `/\evil.example`} {
		b := node.browser()
		if _, to, _ := b.open(b.through(p, "/sign-in/one?to="+url.QueryEscape(to), carol)); to != "/" {
			t.Errorf("the sign-in leads to %q", to)
		}
	}
}

// While a provider is down, who has a password signs in.
func TestAProviderIsDown(t *testing.T) {
	p := oidctest.Start(t)
	node := newWorld(t).another(at(p))
	b := node.browser()
	back := b.through(p, "/sign-in/one", carol)
	p.Stop()
	if status, _, body := b.open(back); status != http.StatusBadGateway || !strings.Contains(body, "sign in with a password") || !strings.Contains(body, "You were not signed in") {
		t.Errorf("the end is answered with %d: %s", status, body)
	}
	fresh := node.another(at(p)).browser()
	if status, _, _ := fresh.open("/sign-in/one"); status != http.StatusBadGateway {
		t.Errorf("the start is answered with %d", status)
	}
	if _, _, body := fresh.open("/sign-in/one"); !strings.Contains(body, `<a href="/sign-in">To the sign-in page</a>`) || !strings.Contains(body, "<p>The provider does not answer as it should.</p>") {
		t.Errorf("the start is answered with %s", body)
	}
	fresh.signIn("alice")
	fresh.is("alice@example.org")
	if _, _, body := fresh.open("/sign-in/one"); !strings.Contains(body, "You are still signed in as alice@example.org.") || strings.Contains(body, "You were not signed in") {
		t.Errorf("in a session the start is answered with %s", body)
	}
}

// The address of an account at a provider does not open it. Who signs in once more as before links it.
func TestAnAccountIsLinkedAfterASignInAtBoth(t *testing.T) {
	one, two := oidctest.Start(t), oidctest.Start(t)
	node := newWorld(t).another(at(one, two))
	alice := oidctest.Person{Subject: "a", Email: "alice@example.org"}
	b := node.browser()
	status, to, _ := b.open(b.through(one, "/sign-in/one?to=/keys", alice))
	if status != http.StatusSeeOther || to != "/sign-in?to=%2Fkeys" || b.cookies[sessionCookie] != "" {
		t.Fatalf("the address of an account is answered with %d and %q", status, to)
	}
	if _, _, body := b.open(to); !strings.Contains(body, "from then on One signs you in too") || !strings.Contains(body, `value="alice@example.org"`) {
		t.Errorf("the page is %s", body)
	}
	b.signIn("bob") // another account is not linked
	if b.cookies[pendingCookie] != "" {
		t.Error("the person waits on")
	}
	if _, _, body := b.open("/account"); strings.Contains(body, "/remove") {
		t.Errorf("Bob is linked: %s", body)
	}
	b = node.browser()
	b.open(b.through(one, "/sign-in/one", alice))
	b.signIn("alice")
	b.is("alice@example.org")
	again := node.browser()
	again.open(again.through(one, "/sign-in/one", alice))
	again.is("alice@example.org")
	// The second provider by a sign-in at the first.
	again = node.browser()
	again.open(again.through(two, "/sign-in/two", alice))
	if again.cookies[sessionCookie] != "" {
		t.Fatal("the second provider opens the account")
	}
	again.open(again.through(one, "/sign-in/one", alice))
	again.is("alice@example.org")
	third := node.browser()
	third.open(third.through(two, "/sign-in/two", alice))
	third.is("alice@example.org")
	ways, err := node.users.Ways(t.Context(), node.account("alice"))
	if err != nil || len(ways.Identities) != 2 {
		t.Errorf("the ways are %+v, %v", ways, err)
	}
}

// The page of the account links a provider of the same address and removes it again, but not the
// only way to sign in.
func TestTheAccountPageLinksAProvider(t *testing.T) {
	p := oidctest.Start(t)
	node := newWorld(t).another(at(p))
	b := node.browser()
	b.signIn("alice")
	before := b.cookies[sessionCookie]
	if status, _, _ := b.open(b.through(p, "/sign-in/one?to=/account", oidctest.Person{Subject: "b", Email: "bob@example.org"})); status != http.StatusForbidden {
		t.Errorf("another address is answered with %d", status)
	}
	if _, to, _ := b.open(b.through(p, "/sign-in/one?to=/account", oidctest.Person{Subject: "a", Email: "alice@example.org"})); to != "/account" {
		t.Errorf("the link leads to %q", to)
	}
	if _, err := node.users.Authenticate(t.Context(), before); err == nil || before == b.cookies[sessionCookie] {
		t.Error("the session of before goes on")
	}
	_, _, body := b.open("/account")
	remove := regexp.MustCompile(`/account/identities/[^/]+/remove`).FindString(body)
	if remove == "" || !strings.Contains(body, "One") || strings.Contains(body, "Link One") {
		t.Fatalf("the page is %s", body)
	}
	if answer := b.post("/account", remove, nil); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "Link One") {
		t.Errorf("the removal is answered with %d: %s", answer.Code, answer.Body)
	}
	c := node.browser()
	c.open(c.through(p, "/sign-in/one", carol))
	_, _, body = c.open("/account")
	if !strings.Contains(body, "has no password") {
		t.Errorf("the page of an account without a password is %s", body)
	}
	if !strings.Contains(body, "your only way to sign in") || strings.Contains(body, "/remove") {
		t.Errorf("the page of an account with one way to sign in is %s", body)
	}
	ways, err := node.users.Ways(t.Context(), node.account("carol"))
	if err != nil || len(ways.Identities) != 1 {
		t.Fatalf("the ways are %+v, %v", ways, err)
	}
	remove = "/account/identities/" + string(ways.Identities[0].ID) + "/remove"
	if answer := c.post("/account", remove, nil); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "the only way") {
		t.Errorf("the removal of the only way is answered with %d", answer.Code)
	}
	// A page of another site links nothing.
	for _, site := range []string{"cross-site", "same-site"} {
		r := httptest.NewRequest(http.MethodGet, "/sign-in/one?to=/account", nil)
		r.Header.Set("Sec-Fetch-Site", site)
		if answer := c.do(r); answer.Code != http.StatusForbidden || c.cookies[flowCookie] != "" {
			t.Errorf("a link of another site is answered with %d", answer.Code)
		}
	}
	// A session that began in another browser is not the one that began this.
	back := c.through(p, "/sign-in/one", carol)
	delete(c.cookies, sessionCookie)
	if status, _, _ := c.open(back); status != http.StatusBadRequest {
		t.Errorf("without the session it is answered with %d", status)
	}
}

// The page of a user tells how the person signs in.
func TestTheWaysToSignInToAnAccount(t *testing.T) {
	p := oidctest.Start(t)
	node := newWorld(t).another(at(p))
	if err := node.users.SetAdmin(t.Context(), "alice@example.org", true); err != nil {
		t.Fatal(err)
	}
	if _, err := node.users.CreateAccount(t.Context(), "keys@example.org", ""); err != nil {
		t.Fatal(err)
	}
	c := node.browser()
	c.open(c.through(p, "/sign-in/one", carol))
	bob := node.browser()
	bob.signIn("bob")
	bob.open(bob.through(p, "/sign-in/one", oidctest.Person{Subject: "b", Email: "bob@example.org"}))
	admin := node.browser()
	admin.signIn("alice")
	for name, want := range map[string]string{"alice": "password</dd>", "bob": "password, One</dd>", "carol": "One</dd>", "keys": "make a one-time link"} {
		if _, body := admin.get("/users/" + string(node.account(name))); !strings.Contains(body, want) {
			t.Errorf("the page of %s has no %q: %s", name, want, body)
		}
	}
}

// A form that needs no session takes one of its own browser only.
func TestFormsOfOtherSitesWithoutASession(t *testing.T) {
	w := newWorld(t)
	checked := 0
	for _, row := range (&surface{}).table() {
		if row.access != visitor || row.method != http.MethodPost {
			continue
		}
		checked++
		b := w.browser()
		b.get("/sign-in")
		form := url.Values{"email": {"alice@example.org"}, "password": {"password of alice"}, "again": {"password of alice"}}
		if answer := b.do(formRequest(row.path, form)); answer.Code != http.StatusForbidden || b.cookies[sessionCookie] != "" {
			t.Errorf("%s without a token is answered with %d", row.path, answer.Code)
		}
		_, page := b.get("/sign-in")
		form.Set(tokenField, tokenOf.FindStringSubmatch(page)[1])
		r := formRequest(row.path, form)
		r.Header.Set("Origin", "https://evil.example")
		if answer := b.do(r); answer.Code != http.StatusForbidden || b.cookies[sessionCookie] != "" {
			t.Errorf("%s from another origin is answered with %d", row.path, answer.Code)
		}
	}
	if checked < 3 {
		t.Errorf("only %d forms were tried", checked)
	}
}

// signedInBefore returns a node and a browser in which carol has signed in at a provider, so long ago
// that the sign-in proves nothing any more.
func signedInBefore(t *testing.T) (node *world, b *browser, p *oidctest.Provider) {
	t.Helper()
	p = oidctest.Start(t)
	w := newWorld(t)
	node = w.another(at(p))
	w.Ahead(-proofLife)
	b = node.browser()
	b.open(b.through(p, "/sign-in/one", carol))
	w.Ahead(0)
	return node, b, p
}

// An account without a password shows a key within ten minutes of a sign-in.
func TestAKeyIsShownAfterAFreshSignIn(t *testing.T) {
	node, b, p := signedInBefore(t)
	key, err := node.users.CreateKey(t.Context(), "carol@example.org", "laptop", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	page := "/keys/" + string(key.ID)
	answer := b.post(page, page+"/show", nil)
	if answer.Code != http.StatusForbidden || strings.Contains(answer.Body.String(), key.Token) || !strings.Contains(answer.Body.String(), `href="/sign-in/one?again=yes&amp;to=`) {
		t.Errorf("after ten minutes it is answered with %d: %s", answer.Code, answer.Body)
	}
	b.open(b.through(p, "/sign-in/one?to="+page, carol))
	if answer := b.post(page, page+"/show", nil); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), key.Token) {
		t.Errorf("after a sign-in it is answered with %d: %s", answer.Code, answer.Body)
	}
}

var linkOf = regexp.MustCompile(`/link\?t=[\w-]+`)

// An administrator makes links; who has one opens an account or sets a password, once.
func TestOneTimeLinks(t *testing.T) {
	p := oidctest.Start(t)
	node := newWorld(t).another(at(p))
	if err := node.users.SetAdmin(t.Context(), "alice@example.org", true); err != nil {
		t.Fatal(err)
	}
	admin := node.browser()
	admin.signIn("alice")
	make := func(email string) string {
		t.Helper()
		answer := admin.post("/users", "/users/links", url.Values{"email": {email}})
		link := linkOf.FindString(answer.Body.String())
		if answer.Code != http.StatusOK || link == "" || !strings.Contains(answer.Body.String(), "https://"+host+link) {
			t.Fatalf("a link for %s is answered with %d: %s", email, answer.Code, answer.Body)
		}
		return link
	}
	if answer := admin.post("/users", "/users/links", url.Values{"email": {"nonsense"}}); answer.Code != http.StatusBadRequest {
		t.Errorf("no address is answered with %d", answer.Code)
	}
	use := func(b *browser, link, password, again string) *httptest.ResponseRecorder {
		_, token, _ := strings.Cut(link, "t=")
		return b.post(link, "/link", url.Values{"link": {token}, "password": {password}, "again": {again}})
	}
	link := make("carol@example.org")
	b := node.browser()
	if status, body := b.get(link); status != http.StatusOK || !strings.Contains(body, "carol@example.org") || !strings.Contains(body, "Continue with One") {
		t.Errorf("the invitation is answered with %d: %s", status, body)
	}
	for _, tc := range [][2]string{{"password of carol", "another"}, {"short", "short"}, {"", ""}} {
		if answer := use(b, link, tc[0], tc[1]); answer.Code != http.StatusBadRequest {
			t.Errorf("the passwords %q are answered with %d", tc, answer.Code)
		}
	}
	if answer := use(b, link, "password of carol", "password of carol"); answer.Code != http.StatusSeeOther {
		t.Fatalf("the invitation ends with %d: %s", answer.Code, answer.Body)
	}
	b.is("carol@example.org")
	if status, body := node.browser().get(link); status != http.StatusNotFound || !strings.Contains(body, "was used") {
		t.Errorf("the link again is answered with %d", status)
	}
	if answer := use(node.browser(), make("bob@example.org"), "a new one of bob", "a new one of bob"); answer.Code != http.StatusSeeOther {
		t.Errorf("a new password is answered with %d: %s", answer.Code, answer.Body)
	}
	// At a provider, an invitation lets in who has its address.
	link = make("dave@example.org")
	_, token, _ := strings.Cut(link, "t=")
	other := node.browser()
	if status, _, _ := other.open(other.through(p, "/sign-in/one?invitation="+token, oidctest.Person{Subject: "e", Email: "eve@example.org"})); status != http.StatusForbidden {
		t.Errorf("another address is answered with %d", status)
	}
	dave := node.browser()
	dave.signIn("alice") // whose session it is does not matter, and it ends
	session := dave.cookies[sessionCookie]
	dave.open(dave.through(p, "/sign-in/one?invitation="+token, oidctest.Person{Subject: "d", Email: "dave@example.org"}))
	dave.is("dave@example.org")
	if _, err := node.users.Authenticate(t.Context(), session); err == nil {
		t.Error("the session of before goes on")
	}
	if status, _, _ := other.open(other.through(p, "/sign-in/one?invitation="+token, oidctest.Person{Subject: "f", Email: "frank@example.org"})); status != http.StatusNotFound {
		t.Errorf("a used invitation is answered with %d", status)
	}
	// A link that nobody has used is on the page of users, and ends there.
	link = make("frank@example.org")
	open, err := node.users.Links(t.Context())
	if err != nil || len(open) != 1 {
		t.Fatalf("%+v, %v", open, err)
	}
	_, token, _ = strings.Cut(link, "t=")
	revoke := "/users/links/" + string(open[0].ID) + "/revoke"
	if _, body := admin.get("/users"); !strings.Contains(body, "<td>frank@example.org</td><td>invitation</td>") || !strings.Contains(body, revoke) || strings.Contains(body, token) {
		t.Errorf("the page of users is %s", body)
	}
	for range 2 { // it was revoked already
		if answer := admin.post("/users", revoke, nil); answer.Code != http.StatusSeeOther {
			t.Errorf("the revocation is answered with %d: %s", answer.Code, answer.Body)
		}
	}
	if status, _ := node.browser().get(link); status != http.StatusNotFound {
		t.Errorf("a revoked link is answered with %d", status)
	}
	// The operator's link signs in.
	l, err := node.users.CreateOperatorLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	operator := node.browser()
	if answer := use(operator, "/link?t="+l.Token, "", ""); answer.Code != http.StatusSeeOther {
		t.Errorf("the operator's link is answered with %d: %s", answer.Code, answer.Body)
	}
	if status, _ := operator.get("/cluster"); status != http.StatusOK {
		t.Errorf("the operator's pages are answered with %d", status)
	}
	// A form of another site uses no link.
	r := formRequest("/link", url.Values{"link": {token}})
	if answer := node.browser().do(r); answer.Code != http.StatusForbidden {
		t.Errorf("a form without a token is answered with %d", answer.Code)
	}
}

// security.txt has the contact of the setting, an expiry within a year and its own address; without the setting it is a 404.
func TestSecurityText(t *testing.T) {
	w := newWorld(t)
	if status, _ := w.browser().get("/.well-known/security.txt"); status != http.StatusNotFound {
		t.Errorf("without a contact it is answered with %d", status)
	}
	node := w.another(func(o *Options) { o.SecurityContact, o.URL = "mailto:security@example.org", "https://"+host })
	status, body := node.browser().get("/.well-known/security.txt")
	form := regexp.MustCompile(`^Contact: mailto:security@example\.org\nExpires: (\S+)\nCanonical: https://console\.test/\.well-known/security\.txt\n$`)
	m := form.FindStringSubmatch(body)
	if status != http.StatusOK || m == nil {
		t.Fatalf("it is answered with %d: %s", status, body)
	}
	at, err := time.Parse(time.RFC3339, m[1])
	if left := time.Until(at); err != nil || left < 24*time.Hour || left > 365*24*time.Hour {
		t.Errorf("it expires at %s: %s", fmt.Sprint(at), err)
	}
}
