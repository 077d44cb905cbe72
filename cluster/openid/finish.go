package openid

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Finish completes a sign-in and returns the person. query is the query string with which the
// provider has redirected the browser back.
//
// Errors: ErrUnknown; ErrDown; ErrRefused with a reason, for example a wrong state or nonce, a
// code that the provider does not accept, a token without a valid signature of the provider, or
// an e-mail address that is not verified or not allowed to sign in.
func (p *Providers) Finish(ctx context.Context, f Flow, query url.Values) (Person, error) {
	v, err := p.named(f.Provider)
	if err != nil {
		return Person{}, err
	}
	if f.State == "" || subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(f.State)) != 1 {
		return Person{}, refused("this answer belongs to another sign-in")
	}
	if iss := query.Get("iss"); iss != "" && iss != v.Issuer { // RFC 9207
		return Person{}, refused("the answer is of another provider, %q", iss)
	}
	if code := query.Get("error"); code != "" {
		return Person{}, refused("%s says %q", v.Name, printable(code))
	}
	code := query.Get("code")
	if code == "" || len(code) > maxCode {
		return Person{}, refused("the answer has no code")
	}
	found, err := p.discovered(ctx, v)
	if err != nil {
		return Person{}, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	tokens, err := p.oauth(v, found).Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		var answer *oauth2.RetrieveError
		if errors.As(err, &answer) && answer.Response.StatusCode < 500 {
			return Person{}, refused("%s does not take the code: %s", v.Name, printable(answer.ErrorCode))
		}
		return Person{}, fmt.Errorf("%w: %w", ErrDown, err)
	}
	c, err := p.claimsOf(ctx, v, found, tokens, f.Nonce)
	if err != nil {
		return Person{}, err
	}
	return v.admitted(c)
}

// claims are the claims of a provider about a person.
type claims struct {
	Subject  string   `json:"sub"`
	Email    string   `json:"email"`
	Verified verified `json:"email_verified"`
}

// verified is the claim email_verified, which some providers write as text instead of a JSON
// boolean.
type verified bool

// UnmarshalJSON implements json.Unmarshaler.
func (v *verified) UnmarshalJSON(b []byte) error {
	*v = string(b) == `true` || string(b) == `"true"`
	return nil
}

// claimsOf checks the signature, issuer, audience, expiry and nonce of an ID token and returns
// its claims. If the token has no e-mail address, claimsOf requests it from the UserInfo
// endpoint.
func (p *Providers) claimsOf(ctx context.Context, v *provider, found *oidc.Provider, tokens *oauth2.Token, nonce string) (claims, error) {
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return claims{}, fmt.Errorf("%w: its answer has no ID token", ErrDown)
	}
	token, err := found.Verifier(&oidc.Config{ClientID: v.ClientID, Now: p.now}).Verify(ctx, raw)
	if err != nil {
		return claims{}, refused("the ID token is not valid: %v", err)
	}
	if nonce == "" || subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1 {
		return claims{}, refused("the ID token belongs to another sign-in")
	}
	if token.AccessTokenHash != "" {
		if err := token.VerifyAccessToken(tokens.AccessToken); err != nil {
			return claims{}, refused("the ID token belongs to another access token")
		}
	}
	var c claims
	if err := token.Claims(&c); err != nil {
		return claims{}, refused("the ID token cannot be read: %v", err)
	}
	if c.Email != "" || found.UserInfoEndpoint() == "" {
		return c, nil
	}
	info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	if err != nil {
		return claims{}, fmt.Errorf("%w: %w", ErrDown, err)
	}
	if info.Subject != c.Subject {
		return claims{}, refused("the provider tells of another person")
	}
	c.Email, c.Verified = info.Email, verified(info.EmailVerified)
	return c, nil
}

// admitted returns the person with these claims, or ErrRefused if the person may not sign in
// through this provider.
func (v *provider) admitted(c claims) (Person, error) {
	email := strings.ToLower(strings.TrimSpace(c.Email))
	_, domain, ok := strings.Cut(email, "@")
	switch {
	case !ok:
		return Person{}, refused("%s tells no e-mail address", v.Name)
	case !bool(c.Verified):
		return Person{}, refused("%s has not verified the e-mail address %s", v.Name, printable(email))
	case len(v.Domains) > 0 && !slices.Contains(v.Domains, domain):
		return Person{}, refused("e-mail addresses of %s may not sign in with %s", printable(domain), v.Name)
	}
	return Person{
		Issuer: v.Issuer, Subject: c.Subject, Email: email, InDomain: len(v.Domains) > 0, Admin: slices.Contains(v.Admins, email),
	}, nil
}

// oauth returns the OAuth client configuration for a provider.
func (p *Providers) oauth(v *provider, found *oidc.Provider) *oauth2.Config {
	scopes := []string{oidc.ScopeOpenID, "email"}
	for _, s := range v.Scopes {
		if !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	return &oauth2.Config{
		ClientID: v.ClientID, ClientSecret: v.ClientSecret, Endpoint: found.Endpoint(), Scopes: scopes,
		RedirectURL: p.url + "/sign-in/" + v.ID + "/callback",
	}
}

// discovered returns the endpoints that a provider publishes. It caches them for an hour, and
// uses older ones while the provider does not answer.
func (p *Providers) discovered(ctx context.Context, v *provider) (*oidc.Provider, error) {
	known, good := v.known(p.now())
	if good {
		return known, nil
	}
	asked := v.asking.DoChan("", func() (any, error) {
		if found, good := v.known(p.now()); good { // another request asked meanwhile
			return found, nil
		}
		// Several requests may wait for this answer, so the end of the first does not end it.
		ctx, cancel := context.WithTimeout(oidc.ClientContext(context.WithoutCancel(ctx), p.client), requestTimeout)
		defer cancel()
		found, err := oidc.NewProvider(ctx, v.Issuer)
		if err == nil {
			err = p.usable(found)
		}
		if err != nil {
			return nil, err
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.found, v.at = found, p.now()
		return found, nil
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrDown, ctx.Err())
	case answer := <-asked:
		if found, ok := answer.Val.(*oidc.Provider); ok && answer.Err == nil {
			return found, nil
		}
		var other *oidc.IssuerMismatchError
		if known != nil && !errors.As(answer.Err, &other) {
			return known, nil
		}
		return nil, fmt.Errorf("%w: %w", ErrDown, answer.Err)
	}
}

// known returns the endpoints from the provider's last answer, or nil if there was none. good is
// true if they are less than an hour old.
func (v *provider) known(now time.Time) (found *oidc.Provider, good bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.found, v.found != nil && now.Sub(v.at) < fresh
}

// usable returns an error if an endpoint is not a URL to which a browser may be sent.
func (p *Providers) usable(found *oidc.Provider) error {
	for _, at := range []string{found.Endpoint().AuthURL, found.Endpoint().TokenURL} {
		u, err := url.Parse(at)
		if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !p.private) {
			return fmt.Errorf("%q is not an endpoint that can be used", at)
		}
	}
	return nil
}

// refused returns an error that wraps ErrRefused and has a reason for people.
func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// maxShown is the largest number of characters of a provider's text that an error contains.
const maxShown = 100

// printable returns a provider's text in a form that is safe in an error: visible ASCII and
// spaces, at most maxShown characters.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), maxShown)]
}
