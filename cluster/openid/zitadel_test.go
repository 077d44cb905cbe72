package openid

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// A person signs in at a provider of another make, which tells the e-mail address at its UserInfo endpoint only. It
// checks the redirect URI, PKCE and the secret in the Authorization header.
func TestAPersonSignsInAtAProviderOfZitadel(t *testing.T) {
	const redirect = console + "/sign-in/test/callback"
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	users := storage.NewUserStore(server.URL)
	handler = exampleop.SetupServer(server.URL, storage.NewStorageWithClients(users, map[string]*storage.Client{
		"holdfast": storage.WebClient("holdfast", "secret", redirect),
	}), nil, false, op.WithAllowInsecure())
	node := New(Options{URL: console, Private: true, Providers: []Config{{
		ID: "test", Name: "Zitadel", Issuer: server.URL, ClientID: "holdfast", ClientSecret: "secret", Domains: []string{"zitadel.ch"},
	}}})
	f, to, err := node.Begin(t.Context(), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	follow := func(r *http.Request, err error) *url.URL {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		answer, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		next, err := answer.Location()
		if err != nil {
			t.Fatalf("%s is answered with %s: %v", r.URL, answer.Status, err)
		}
		return next
	}
	page := follow(http.NewRequestWithContext(t.Context(), http.MethodGet, to, nil))
	form := url.Values{"username": {"test-user2"}, "password": {"verysecure"}, "id": {page.Query().Get("authRequestID")}}
	sign, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+page.Path, strings.NewReader(form.Encode()))
	if err == nil {
		sign.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	next := follow(sign, err)
	back := follow(http.NewRequestWithContext(t.Context(), http.MethodGet, next.String(), nil))
	if !strings.HasPrefix(back.String(), redirect+"?") {
		t.Fatalf("the provider sends the browser to %s", back)
	}
	got, err := node.Finish(t.Context(), f, back.Query())
	if want := (Person{Issuer: server.URL, Subject: "id2", Email: "test-user2@zitadel.ch", InDomain: true}); err != nil || got != want {
		t.Errorf("it is %+v, %v", got, err)
	}
}
