package openid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/oidctest"
)

const console = "https://console.example.org"

var ann = oidctest.Person{Subject: "7", Email: "Ann@Example.org"}

// at returns the providers of a node that knows one.
func at(p *oidctest.Provider, change ...func(*Options)) *Providers {
	o := Options{URL: console, Private: true, Providers: []Config{{
		ID: "test", Name: "Test ID", Issuer: p.Issuer(), ClientID: p.ClientID, ClientSecret: p.ClientSecret,
	}}}
	for _, c := range change {
		c(&o)
	}
	return New(o)
}

// begin begins a sign-in and lets a person sign in at the provider.
func begin(t *testing.T, p *oidctest.Provider, node *Providers, who oidctest.Person) (Flow, url.Values) {
	t.Helper()
	f, to, err := node.Begin(t.Context(), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	back := p.Answer(to, who)
	if !strings.HasPrefix(back.String(), console+"/sign-in/test/callback?") {
		t.Errorf("the provider sends the browser to %s", back)
	}
	return f, back.Query()
}

// A sign-in that begins at one node ends at another with the person's subject and e-mail, and its code works once.
func TestAPersonSignsInThroughTwoNodes(t *testing.T) {
	p := oidctest.Start(t)
	f, query := begin(t, p, at(p), ann)
	got, err := at(p).Finish(t.Context(), f, query)
	if want := (Person{Issuer: p.Issuer(), Subject: "7", Email: "ann@example.org"}); err != nil || got != want {
		t.Errorf("it is %+v, %v", got, err)
	}
	if _, err := at(p).Finish(t.Context(), f, query); !errors.Is(err, ErrRefused) {
		t.Errorf("the code again: %v", err)
	}
}

// The URL at the provider has PKCE, state and nonce, which differ for each sign-in, and no secret.
func TestWhereTheBrowserGoes(t *testing.T) {
	p := oidctest.Start(t)
	f, to, err := at(p, func(o *Options) { o.Providers[0].Scopes = []string{"openid", "profile"} }).Begin(t.Context(), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for name, want := range map[string]string{
		"response_type": "code", "client_id": p.ClientID, "redirect_uri": console + "/sign-in/test/callback", "scope": "openid email profile",
		"state": f.State, "nonce": f.Nonce, "code_challenge_method": "S256",
	} {
		if q.Get(name) != want {
			t.Errorf("%s is %q, not %q", name, q.Get(name), want)
		}
	}
	if strings.Contains(to, f.Verifier) || strings.Contains(to, p.ClientSecret) || q.Get("code_challenge") == "" || len(f.State) < 20 {
		t.Errorf("the browser goes to %s", to)
	}
	if q.Has("prompt") {
		t.Errorf("the provider is asked for %q", q.Get("prompt"))
	}
	other, again, err := at(p).Begin(t.Context(), "test", true)
	if !strings.Contains(again, "&prompt=login&") {
		t.Errorf("to sign in anew the browser goes to %s", again)
	}
	if err != nil || other.State == f.State || other.Nonce == f.Nonce || other.Verifier == f.Verifier {
		t.Errorf("another sign-in is %+v after %+v, %v", other, f, err)
	}
}

// A sign-in is refused, with the reason, if the state, the nonce, the code, the token or the person is not as it must
// be.
func TestAnswersThatAreRefused(t *testing.T) {
	p := oidctest.Start(t)
	node := at(p, func(o *Options) {
		o.Providers[0].Domains, o.Providers[0].Admins = []string{"example.org"}, []string{"ann@example.org"}
	})
	for _, tc := range []struct {
		name   string
		who    oidctest.Person
		change func(f *Flow, q url.Values)
		says   string
	}{
		{"another state", ann, func(_ *Flow, q url.Values) { q.Set("state", "x") }, "another sign-in"},
		{"no state", ann, func(f *Flow, q url.Values) { f.State = ""; q.Del("state") }, "another sign-in"},
		{"another nonce", ann, func(f *Flow, _ url.Values) { f.Nonce = "x" }, "another sign-in"},
		{"no nonce", ann, func(f *Flow, _ url.Values) { f.Nonce = "" }, "another sign-in"},
		{"another verifier", ann, func(f *Flow, _ url.Values) { f.Verifier = strings.Repeat("x", 43) }, "does not take the code"},
		{"a code that is over", ann, func(*Flow, url.Values) { clear(p.SessionStore.Store) }, "does not take the code"},
		{"no code", ann, func(_ *Flow, q url.Values) { q.Del("code") }, "has no code"},
		{"a long code", ann, func(_ *Flow, q url.Values) { q.Set("code", strings.Repeat("x", maxCode+1)) }, "has no code"},
		{"the person refused", ann, func(_ *Flow, q url.Values) { q.Set("error", "access_denied\x00<") }, `"access_denied?<"`},
		{"of another issuer", ann, func(_ *Flow, q url.Values) { q.Set("iss", "https://evil.example") }, "another provider"},
		{"a token that is over", ann, func(*Flow, url.Values) { p.FastForward(-time.Hour) }, "token is expired"},
		{"an unverified address", oidctest.Person{Subject: "7", Email: "ann@example.org", Unverified: true}, nil, "has not verified"},
		{"another domain", oidctest.Person{Subject: "7", Email: "ann@sub.example.org"}, nil, "may not sign in"},
		{"no address", oidctest.Person{Subject: "7"}, nil, "tells no e-mail address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, query := begin(t, p, node, tc.who)
			if tc.change != nil {
				tc.change(&f, query)
			}
			got, err := node.Finish(t.Context(), f, query)
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("it is %+v, %v", got, err)
			}
			p.FastForward(-p.FastForward(0))
		})
	}
	f, query := begin(t, p, node, ann)
	if got, err := node.Finish(t.Context(), f, query); err != nil || !got.InDomain || !got.Admin {
		t.Errorf("as it should be, it is %+v, %v", got, err)
	}
}

// A sign-in succeeds after the provider has changed its signing key.
func TestAProviderChangesItsKey(t *testing.T) {
	p := oidctest.Start(t)
	node := at(p)
	for i := range 3 {
		f, query := begin(t, p, node, ann)
		if _, err := node.Finish(t.Context(), f, query); err != nil {
			t.Errorf("after %d changes: %v", i, err)
		}
		p.Rotate()
	}
}

// A provider that is down is ErrDown, a provider that is not configured is ErrUnknown, and a node begins sign-ins
// with what it knew before.
func TestAProviderThatIsDown(t *testing.T) {
	p := oidctest.Start(t)
	now := time.Now()
	node := at(p, func(o *Options) { o.Now = func() time.Time { return now } })
	f, query := begin(t, p, node, ann)
	p.Stop()
	if _, err := node.Finish(t.Context(), f, query); !errors.Is(err, ErrDown) {
		t.Errorf("the end of a sign-in: %v", err)
	}
	if _, _, err := at(p).Begin(t.Context(), "test", false); !errors.Is(err, ErrDown) {
		t.Errorf("the start of a sign-in: %v", err)
	}
	now = now.Add(2 * fresh) // what it said before is used while it is down
	if _, _, err := node.Begin(t.Context(), "test", false); err != nil {
		t.Errorf("the start of a sign-in at a provider that is known: %v", err)
	}
	if _, _, err := node.Begin(t.Context(), "other", false); !errors.Is(err, ErrUnknown) {
		t.Errorf("a provider that nobody configured: %v", err)
	}
}

// Sign-ins that begin together ask the provider once, and one that is given up ends no other.
func TestSignInsThatBeginTogetherAskOnce(t *testing.T) {
	p := oidctest.Start(t)
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-answer
		_, _ = fmt.Fprintf(w, `{"issuer":"http://%s","authorization_endpoint":%q,"token_endpoint":%q}`, r.Host, p.AuthorizationEndpoint(), p.TokenEndpoint())
	}))
	t.Cleanup(slow.Close)
	node := at(p, func(o *Options) { o.Providers[0].Issuer = slow.URL })
	first, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 10)
	begin := func(ctx context.Context) {
		_, _, err := node.Begin(ctx, "test", false)
		ended <- err
	}
	go begin(first)
	<-asked
	for range 9 {
		go begin(t.Context())
	}
	giveUp()
	if err := <-ended; !errors.Is(err, ErrDown) {
		t.Errorf("the one that was given up: %v", err)
	}
	close(answer)
	for range 9 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if _, _, err := node.Begin(t.Context(), "test", false); err != nil {
		t.Error(err)
	}
	if more := len(asked); more > 0 {
		t.Errorf("the provider was asked %d times more", more)
	}
}

// stranger answers discovery with what it is told.
func stranger(t *testing.T, document func(issuer string) map[string]string) string {
	t.Helper()
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(document(s.URL)); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// A discovery document of another issuer, with bad endpoints, too large or behind a redirect is refused with ErrDown.
func TestAnswersOfDiscoveryThatAreRefused(t *testing.T) {
	p := oidctest.Start(t)
	for name, document := range map[string]func(issuer string) map[string]string{
		"another issuer": func(string) map[string]string {
			return map[string]string{"issuer": p.Issuer(), "authorization_endpoint": p.AuthorizationEndpoint(), "token_endpoint": p.TokenEndpoint()}
		},
		"an endpoint that runs": func(issuer string) map[string]string {
			return map[string]string{"issuer": issuer, "authorization_endpoint": "javascript:alert(1)", "token_endpoint": p.TokenEndpoint()}
		},
		"no endpoints": func(issuer string) map[string]string { return map[string]string{"issuer": issuer} },
		"too much": func(issuer string) map[string]string {
			return map[string]string{"issuer": issuer, "authorization_endpoint": p.AuthorizationEndpoint(), "token_endpoint": p.TokenEndpoint(), "x": strings.Repeat("x", maxAnswer)}
		},
	} {
		node := at(p, func(o *Options) { o.Providers[0].Issuer = stranger(t, document) })
		if _, to, err := node.Begin(t.Context(), "test", false); !errors.Is(err, ErrDown) {
			t.Errorf("%s: %s, %v", name, to, err)
		}
	}
	redirects := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, p.DiscoveryEndpoint(), http.StatusFound)
	}))
	t.Cleanup(redirects.Close)
	node := at(p, func(o *Options) { o.Providers[0].Issuer = redirects.URL })
	if _, to, err := node.Begin(t.Context(), "test", false); !errors.Is(err, ErrDown) {
		t.Errorf("a redirect: %s, %v", to, err)
	}
}

// Without the setting for it a node dials no provider on loopback, neither by its address nor by a name.
func TestPrivateAddressesAreNotDialled(t *testing.T) {
	p := oidctest.Start(t)
	asked := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	t.Cleanup(asked.Close)
	for _, issuer := range []string{asked.URL, strings.Replace(asked.URL, "127.0.0.1", "localhost", 1)} {
		node := at(p, func(o *Options) { o.Private, o.Providers[0].Issuer = false, issuer })
		if _, _, err := node.Begin(t.Context(), "test", false); !errors.Is(err, ErrDown) || !strings.Contains(err.Error(), "is not a public address") {
			t.Errorf("%s: %v", issuer, err)
		}
	}
}

// The claim email_verified counts as true if it is true or the text "true", and as false otherwise. Some providers
// write it as text.
func TestVerifiedIsReadAsProvidersWriteIt(t *testing.T) {
	for text, want := range map[string]bool{`true`: true, `"true"`: true, `false`: false, `"false"`: false, `1`: false, `null`: false, `"TRUE"`: false, `{}`: false} {
		var c claims
		if err := json.Unmarshal(fmt.Appendf(nil, `{"email_verified":%s}`, text), &c); err != nil || bool(c.Verified) != want {
			t.Errorf("%s is read as %v, %v", text, c.Verified, err)
		}
	}
}
