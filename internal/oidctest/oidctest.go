// Package oidctest runs an OpenID provider on loopback, for tests.
package oidctest

import (
	"context"
	"net/http"
	"net/url"
	"testing"

	"github.com/oauth2-proxy/mockoidc"
)

// Provider is an OpenID provider. A test uses it from one goroutine at a time.
type Provider struct {
	*mockoidc.MockOIDC

	tb testing.TB
}

// Person is the person who signs in at the provider.
type Person struct {
	Subject    string
	Email      string
	Unverified bool
}

// Start starts a provider, which stops with the test.
func Start(tb testing.TB) *Provider {
	tb.Helper()
	m, err := mockoidc.Run()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Provider{m, tb}
	tb.Cleanup(p.Stop)
	return p
}

// Stop stops the provider: from now on nobody reaches it.
func (p *Provider) Stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Server.Shutdown(ctx) // it waits for nobody
	_ = p.Server.Close()
}

// Rotate has the provider sign with a new key.
func (p *Provider) Rotate() {
	p.tb.Helper()
	pair, err := mockoidc.RandomKeypair(2048)
	if err != nil {
		p.tb.Fatal(err)
	}
	p.Keypair = pair
}

// Expect makes who sign in when the next browser comes to the provider.
func (p *Provider) Expect(who Person) {
	p.QueueUser(&mockoidc.MockUser{Subject: who.Subject, Email: who.Email, EmailVerified: !who.Unverified})
}

// Answer sends a browser to the provider, where a person signs in, and returns the URL to which
// the provider sends it back.
func (p *Provider) Answer(at string, who Person) *url.URL {
	p.tb.Helper()
	p.Expect(who)
	r, err := http.NewRequestWithContext(p.tb.Context(), http.MethodGet, at, nil)
	if err != nil {
		p.tb.Fatal(err)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		p.tb.Fatal(err)
	}
	defer answer.Body.Close()
	back, err := answer.Location()
	if err != nil {
		p.tb.Fatalf("the provider answers %s: %v", answer.Status, err)
	}
	return back
}
