// Package openid signs people in at OpenID providers by the authorization code flow of OpenID
// Connect Core 1.0 with PKCE (RFC 7636), state and nonce. It stores nothing about a sign-in in
// progress: the caller stores the Flow, so that another node can finish the sign-in.
//
// Imports: std, go-oidc, x/oauth2, x/sync.
// Never:   accounts, consensus, storage, peer, settings; proxies of the environment.
package openid

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/holdfast-ipfs/holdfast/internal/publicip"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
)

// Limits of requests to a provider.
const (
	requestTimeout = 5 * time.Second // time limit of one request
	maxAnswer      = 1 << 20         // bytes of an answer
	maxHeader      = 64 << 10        // bytes of the header of an answer
	maxCode        = 4096            // bytes of an authorization code
	// fresh is how long a provider's endpoints are used before they are requested again.
	fresh = time.Hour
)

// Errors of a sign-in.
var (
	// ErrUnknown means that there is no provider with that id.
	ErrUnknown = errors.New("no such provider")
	// ErrDown means that the provider cannot be reached, or that its answer is not valid.
	ErrDown = errors.New("the provider does not answer")
	// ErrRefused means that the provider has rejected the sign-in, or that a check of the
	// provider's answer has failed.
	ErrRefused = errors.New("the sign-in was refused")
)

// Config has the settings of one provider.
type Config struct {
	ID                     string // id in paths: ASCII letters, digits and hyphens
	Name                   string // name for people
	Issuer                 string // issuer URL, byte for byte as the provider publishes it
	ClientID, ClientSecret string
	Scopes                 []string // in addition to openid and email
	Domains                []string // domains of e-mail addresses that may sign in, in lower case; empty means all
	Admins                 []string // e-mail addresses of administrators, in lower case
}

// Options configure Providers.
type Options struct {
	Providers []Config
	// URL is the origin of the console. Redirect URIs begin with it.
	URL string
	// Private allows providers at private and loopback addresses.
	Private bool
	Now     func() time.Time // nil means time.Now
}

// Provider is what web pages show of a provider.
type Provider struct{ ID, Name, Issuer string }

// Flow is the secret data of one sign-in in progress, which the caller stores between Begin and
// Finish.
type Flow struct {
	Provider string // id of the provider
	State    string
	Nonce    string
	Verifier string // PKCE verifier
}

// Person is a person as a provider describes them.
type Person struct {
	Issuer, Subject string
	Email           string // verified, in lower case
	InDomain        bool   // the provider is configured for certain domains, and Email is in one of them
	Admin           bool   // a setting names Email as that of an administrator
}

// Providers has the configured providers of a node.
type Providers struct {
	url     string
	private bool
	now     func() time.Time
	client  *http.Client
	all     []*provider
}

// provider is one provider, with the endpoints that it has published.
type provider struct {
	Config
	asking singleflight.Group // shares concurrent requests for the endpoints

	// mu guards the fields below. It is not held during calls of other code.
	mu    sync.Mutex
	found *oidc.Provider // nil before the first answer
	at    time.Time      // time of the last answer
}

// New returns the providers that the options name. It does not contact them.
func New(o Options) *Providers {
	dialer := &net.Dialer{Timeout: requestTimeout}
	if !o.Private {
		dialer.Control = publicip.Control
	}
	p := &Providers{
		url: o.URL, private: o.Private, now: o.Now,
		client: &http.Client{
			Timeout: requestTimeout,
			Transport: bounded{&http.Transport{
				DialContext: dialer.DialContext, TLSHandshakeTimeout: requestTimeout, ForceAttemptHTTP2: true,
				MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeader,
			}},
			// No endpoint of a provider redirects: where one leads elsewhere, the answer is not its own.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if p.now == nil {
		p.now = time.Now
	}
	for _, c := range o.Providers {
		p.all = append(p.all, &provider{Config: c})
	}
	return p
}

// bounded is a RoundTripper that fails the reading of answers above maxAnswer bytes.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	}
	return answer, err
}

// List returns the providers in the order of the options.
func (p *Providers) List() []Provider {
	all := make([]Provider, len(p.all))
	for i, v := range p.all {
		all[i] = Provider{v.ID, v.Name, v.Issuer}
	}
	return all
}

func (p *Providers) named(id string) (*provider, error) {
	i := slices.IndexFunc(p.all, func(v *provider) bool { return v.ID == id })
	if i < 0 {
		return nil, ErrUnknown
	}
	return p.all[i], nil
}

// Begin starts a sign-in at a provider. It returns the Flow and the URL of the provider to which
// the browser must go. If again is true, it requests that the person enters their credentials
// again, which not every provider supports. Errors: ErrUnknown, ErrDown.
func (p *Providers) Begin(ctx context.Context, id string, again bool) (Flow, string, error) {
	v, err := p.named(id)
	if err != nil {
		return Flow{}, "", err
	}
	found, err := p.discovered(ctx, v)
	if err != nil {
		return Flow{}, "", err
	}
	f := Flow{Provider: v.ID, State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	options := []oauth2.AuthCodeOption{oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)}
	if again {
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"))
	}
	return f, p.oauth(v, found).AuthCodeURL(f.State, options...), nil
}
