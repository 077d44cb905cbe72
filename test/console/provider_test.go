//go:build conformance

package console

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/internal/oidctest"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// plain is a browser without scripts: it keeps cookies, and follows no redirect by itself.
type plain struct {
	t    *testing.T
	http *http.Client
}

func newPlain(t *testing.T) *plain {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &plain{t, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// answer is what a node answered.
type answer struct {
	status   int
	location string
	body     string
}

func (p *plain) send(r *http.Request, err error) answer {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	got, err := p.http.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{got.StatusCode, got.Header.Get("Location"), string(body)}
}

func (p *plain) get(at string) answer {
	p.t.Helper()
	return p.send(http.NewRequestWithContext(p.t.Context(), http.MethodGet, at, nil))
}

var formToken = regexp.MustCompile(`name="form_token" value="([^"]+)"`)

// post opens a page of a node and sends a form of it.
func (p *plain) post(node, page, path string, form url.Values) answer {
	p.t.Helper()
	m := formToken.FindStringSubmatch(p.get(node + page).body)
	if m == nil {
		p.t.Fatalf("%s has no form", page)
	}
	form.Set("form_token", m[1])
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, node+path, strings.NewReader(form.Encode()))
	if err == nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return p.send(r, err)
}

// is checks whose account page a node shows.
func (p *plain) is(node, email string) {
	p.t.Helper()
	if got := p.get(node + "/account"); got.status != http.StatusOK || !strings.Contains(got.body, email) {
		p.t.Errorf("the account page is answered with %d: %s", got.status, got.body)
	}
}

// settingsOf are settings of nodes that know a provider.
func settingsOf(id *oidctest.Provider) string {
	return fmt.Sprintf(`[console]
url = "https://console.example.org"
oidc_private = true
sign_up = "invited"
security_contact = "mailto:security@example.org"

[[console.oidc]]
name = "Test ID"
issuer = %q
client_id = %q
client_secret = %q
domains = ["example.org"]
`, id.Issuer(), id.ClientID, id.ClientSecret)
}

// TestAPersonSignsInAtAProvider: a person presses the button of a provider, comes back signed in, and
// sees the provider on the page of the account. One-time links open an account and sign the operator
// in, who makes another one.
func TestAPersonSignsInAtAProvider(t *testing.T) {
	t.Parallel()
	id := oidctest.Start(t)
	b := startBrowser(t)
	c := harness.Start(t, harness.Options{Settings: settingsOf(id)})
	n := c.Followers()[0] // to which the provider sends the browser back
	n.SetEnv("HOLDFAST_CONSOLE_URL=" + n.ConsoleURL())
	n.Stop()
	n.Restart()
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := b.open(t, n.ConsoleURL())
	p.expect(id.Issuer()) // the browser goes there
	p.visit("/keys")
	p.shows("Sign in with Test ID")
	p.picture("sign-in-provider")
	id.Expect(oidctest.Person{Subject: "1", Email: "ann@example.org"})
	p.follow("Sign in with Test ID")
	p.shows("There is no key yet")
	p.visit("/account")
	p.shows("Linked providers")
	p.picture("account-provider")
	p.shows("your only way to sign in")
	link := func(args ...string) string {
		t.Helper()
		_, path, _ := strings.Cut(strings.TrimSpace(c.Nodes[0].CLI(args...)), "/link")
		return "/link" + path
	}
	p.visit(link("user", "link", "bob@example.org"))
	p.shows("Continue with Test ID")
	p.picture("link-invitation")
	p.enter(`[name=password]`, password)
	p.enter(`[name=again]`, password)
	p.press("Open the account")
	p.shows("Recent pins")
	p.visit(link("console", "link"))
	p.shows("the account of the command line")
	p.picture("link-operator")
	p.press("Sign in")
	p.shows("Recent pins")
	p.visit("/users")
	p.enter(`form[action="/users/links"] [name=email]`, "bob@example.org")
	p.press("Make a link")
	p.shows("This link sets a new password of the account")
	p.picture("link-new")
	unused := link("user", "link", "eve@example.org")
	if list := c.Nodes[0].CLI("user", "link", "ls"); !strings.Contains(list, "bob@example.org") || !strings.Contains(list, "eve@example.org") {
		t.Errorf("the open links are %s", list)
	}
	p.follow("All users")
	p.shows("Open one-time links")
	p.picture("users-links")
	p.click(`//*[@aria-label="Revoke the link of eve@example.org"]`)
	p.shows("bob@example.org")
	if list := c.Nodes[0].CLI("user", "link", "ls"); strings.Contains(list, "eve@example.org") {
		t.Errorf("after one was revoked the open links are %s", list)
	}
	p.expect("404")
	p.visit(unused)
	p.shows("This one-time link was used, has expired")
	p.expect("403")
	id.Expect(oidctest.Person{Subject: "2", Email: "eve@example.com"})
	p.visit("/sign-in/test-id")
	p.shows("E-mail addresses of example.com may not sign in with Test ID.")
	p.shows("You are still signed in as operator@localhost.")
	p.picture("sign-in-refused")
}

// TestSignInAtAProvider: a person begins to sign in at one node and comes back from the provider to
// another one; every node then knows the session. A link opens what it was made for, once, on any
// node. While the provider is down, who has a password signs in.
func TestSignInAtAProvider(t *testing.T) {
	longForm(t)
	t.Parallel()
	id := oidctest.Start(t)
	c := harness.Start(t, harness.Options{Settings: settingsOf(id)})
	a, b, third := c.Followers()[0].ConsoleURL(), c.Followers()[1].ConsoleURL(), c.Leader().ConsoleURL()
	through := func(p *plain, at string, who oidctest.Person) answer {
		t.Helper()
		begun := p.get(a + at)
		if begun.status != http.StatusSeeOther {
			t.Fatalf("%s is answered with %d: %s", at, begun.status, begun.body)
		}
		back := id.Answer(begun.location, who)
		if back.Host != "console.example.org" || back.Scheme != "https" {
			t.Errorf("the provider sends the browser to %s", back)
		}
		return p.get(b + back.RequestURI())
	}
	ann := newPlain(t)
	if page := ann.get(a + "/sign-in"); !strings.Contains(page.body, "Sign in with Test ID") {
		t.Errorf("the sign-in page is %s", page.body)
	}
	if got := through(ann, "/sign-in/test-id?to=/keys", oidctest.Person{Subject: "1", Email: "ann@example.org"}); got.status != http.StatusSeeOther || got.location != "/keys" {
		t.Fatalf("the sign-in ends with %d and %q: %s", got.status, got.location, got.body)
	}
	ann.is(third, "ann@example.org")
	for _, who := range []oidctest.Person{{Subject: "2", Email: "eve@example.com"}, {Subject: "3", Email: "eve@example.org", Unverified: true}} {
		if got := through(newPlain(t), "/sign-in/test-id", who); got.status != http.StatusForbidden {
			t.Errorf("%+v is answered with %d", who, got.status)
		}
	}
	// A local account of the same address is linked by its password.
	c.Nodes[0].CLIWithInput(password, "user", "add", founder, "--password-stdin")
	ada := newPlain(t)
	if got := through(ada, "/sign-in/test-id", oidctest.Person{Subject: "4", Email: founder}); got.location != "/sign-in?to=%2F" {
		t.Errorf("a local account is answered with %d and %q", got.status, got.location)
	}
	ada.post(b, "/sign-in", "/sign-in", url.Values{"email": {founder}, "password": {password}})
	again := newPlain(t)
	through(again, "/sign-in/test-id", oidctest.Person{Subject: "4", Email: founder})
	again.is(third, founder)
	// Links of the operator.
	link := func(args ...string) string {
		t.Helper()
		text := strings.TrimSpace(c.Nodes[0].CLI(args...))
		path, ok := strings.CutPrefix(text, "https://console.example.org")
		if !ok {
			t.Fatalf("the link is %q", text)
		}
		return path
	}
	for _, tc := range []struct{ path, email string }{
		{link("user", "link", "bob@example.org"), "bob@example.org"},
		{link("user", "link", founder), founder},
		{link("console", "link"), "operator@"},
	} {
		_, token, _ := strings.Cut(tc.path, "t=")
		form := url.Values{"link": {token}, "password": {"a new " + password}, "again": {"a new " + password}}
		p := newPlain(t)
		if got := p.post(b, tc.path, "/link", form); got.status != http.StatusSeeOther {
			t.Errorf("the link for %s is answered with %d: %s", tc.email, got.status, got.body)
		}
		p.is(third, tc.email)
		for _, node := range []string{a, b, third} {
			if got := newPlain(t).get(node + tc.path); got.status != http.StatusNotFound {
				t.Errorf("the link for %s again is answered with %d", tc.email, got.status)
			}
		}
	}
	if got := newPlain(t).get(a + "/.well-known/security.txt"); got.status != http.StatusOK || !strings.HasPrefix(got.body, "Contact: mailto:security@example.org\n") {
		t.Errorf("security.txt is answered with %d: %s", got.status, got.body)
	}
	id.Stop()
	p := newPlain(t)
	if got := p.get(third + "/sign-in/test-id"); got.status != http.StatusBadGateway {
		t.Errorf("a provider that is down is answered with %d", got.status)
	}
	if got := p.post(a, "/sign-in", "/sign-in", url.Values{"email": {founder}, "password": {"a new " + password}}); got.status != http.StatusSeeOther {
		t.Errorf("a local sign-in is answered with %d", got.status)
	}
	p.is(b, founder)
}
