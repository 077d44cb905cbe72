package console

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/openid"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// flowLife is the maximum duration of a sign-in at an OpenID provider.
const flowLife = 10 * time.Minute

// Cookies of a sign-in at an OpenID provider. Their values are encrypted by SealValue with the name as the
// kind.
const (
	flowCookie    = "holdfast-flow"    // a flow
	pendingCookie = "holdfast-pending" // an accounts.Person whom the next sign-in links with an account
)

// flow is a running sign-in at an OpenID provider.
type flow struct {
	openid.Flow
	To         string          // page to open after the sign-in
	Account    state.AccountID `json:",omitempty"` // account of the session in which the sign-in began
	Invitation string          `json:",omitempty"` // token of the one-time link with which the sign-in began
}

// toProvider serves GET /sign-in/{provider}. It redirects the browser to the provider. If the
// browser has a session, the sign-in will link the person with the account; otherwise it will
// start a session.
func (s *surface) toProvider(c *call) error {
	if site := c.r.Header.Get("Sec-Fetch-Site"); c.session != "" && (site == "cross-site" || site == "same-site") {
		return web.Errorf(http.StatusForbidden, "FORBIDDEN", "a page of another site sent you here: link providers on the page of your account")
	}
	query := c.r.URL.Query()
	f, to, err := s.Providers.Begin(c.ctx, c.r.PathValue("provider"), query.Get("again") == "yes")
	if err != nil {
		return s.providerTrouble(c, err)
	}
	begun := flow{Flow: f, To: localPath(query.Get("to")), Invitation: query.Get("invitation")}
	if begun.Invitation == "" { // an invitation is for another account than that of the session
		begun.Account = c.who.Account
	}
	sealed, err := s.Accounts.SealValue(flowCookie, flowLife, begun)
	if errors.Is(err, state.ErrTooLarge) { // a long address is no reason not to sign in
		begun.To = "/"
		sealed, err = s.Accounts.SealValue(flowCookie, flowLife, begun)
	}
	if err != nil {
		return err
	}
	c.setCookie(flowCookie, sealed)
	return c.redirect(to)
}

// fromProvider serves GET /sign-in/{provider}/callback, to which the provider redirects the
// browser. That may reach another node than the one that started the sign-in.
func (s *surface) fromProvider(c *call) error {
	var f flow
	known := c.sealed(s, flowCookie, &f) && f.Provider == c.r.PathValue("provider")
	c.setCookie(flowCookie, "") // whatever comes of it: a sign-in ends once
	if !known {
		return notSignedIn(http.StatusBadRequest, "this sign-in took longer than 10 minutes, or began in another browser or at another address of this console")
	}
	told, err := s.Providers.Finish(c.ctx, f.Flow, c.r.URL.Query())
	if err != nil {
		return s.providerTrouble(c, err)
	}
	p := accounts.Person{Issuer: told.Issuer, Subject: told.Subject, Email: told.Email, InDomain: told.InDomain, Admin: told.Admin}
	if f.Account != "" {
		if c.who.Account != f.Account {
			return notSignedIn(http.StatusBadRequest, "the session in which this began has ended")
		}
		if err := s.Accounts.LinkIdentity(c.ctx, f.Account, p); err != nil {
			return err
		}
	}
	token, err := s.Accounts.SignInAs(c.ctx, p, f.Invitation)
	switch {
	case errors.Is(err, state.ErrExists):
		return s.toKnownAccount(c, p, f.To)
	case errors.Is(err, state.ErrNotFound):
		return errUsedLink
	case errors.Is(err, state.ErrUnauthorized): // for one, the account is disabled
		return notSignedIn(http.StatusForbidden, "this person cannot sign in here")
	}
	if problem := refusal(err, state.CodeForbidden, state.CodeInvalid); problem != "" {
		return notSignedIn(http.StatusForbidden, problem)
	}
	if err != nil {
		return err
	}
	return s.enter(c, token, f.To)
}

// toKnownAccount redirects a person to the sign-in page whose e-mail address has an account that
// is not linked with the provider. After the next sign-in to that account, linkPending links
// them. to is the page to open then.
func (s *surface) toKnownAccount(c *call, p accounts.Person, to string) error {
	sealed, err := s.Accounts.SealValue(pendingCookie, flowLife, p)
	if err != nil {
		return err
	}
	c.setCookie(pendingCookie, sealed)
	return c.redirect(signInPath(to))
}

// enter sets the cookie of a new session, ends an earlier session, and redirects to the page to.
// It also calls linkPending.
func (s *surface) enter(c *call, token, to string) error {
	if c.session != "" {
		if err := s.Accounts.SignOut(c.ctx, c.session); err != nil && !errors.Is(err, state.ErrUnauthorized) {
			return err
		}
	}
	c.begin(token) // also if the link fails
	if err := s.linkPending(c, token); err != nil {
		return err
	}
	return c.redirect(to)
}

// linkPending links the person in pendingCookie with the account of a new session, if both have
// the same e-mail address. It removes the cookie.
func (s *surface) linkPending(c *call, token string) error {
	var p accounts.Person
	if !c.sealed(s, pendingCookie, &p) {
		return nil
	}
	c.setCookie(pendingCookie, "")
	who, err := s.Accounts.Authenticate(c.ctx, token)
	if err != nil || who.Email != p.Email {
		return err
	}
	return s.Accounts.LinkIdentity(c.ctx, who.Account, p)
}

// pending returns the person in pendingCookie and the name of the person's provider, or zero
// values without the cookie.
func (s *surface) pending(c *call) (p accounts.Person, provider string) {
	if !c.sealed(s, pendingCookie, &p) {
		return accounts.Person{}, ""
	}
	return p, s.providerName(p.Issuer)
}

// providerName returns the name of the provider with an issuer URL, or the issuer itself if it is
// not configured.
func (s *surface) providerName(issuer string) string {
	all := s.Providers.List()
	if i := slices.IndexFunc(all, func(p openid.Provider) bool { return p.Issuer == issuer }); i >= 0 {
		return all[i].Name
	}
	return issuer
}

// sealed decrypts a cookie that SealValue has encrypted into into. It returns false without a
// valid cookie.
func (c *call) sealed(s *surface, name string, into any) bool {
	cookie, err := c.r.Cookie(c.cookieName(name))
	return err == nil && cookie.Value != "" && s.Accounts.OpenValue(name, cookie.Value, into) == nil
}

// providerTrouble converts an error of a sign-in at a provider to one with a text for the user.
func (s *surface) providerTrouble(c *call, err error) error {
	switch {
	case errors.Is(err, openid.ErrUnknown):
		return web.NoSuchRoute()
	case errors.Is(err, openid.ErrDown):
		s.Logger.WarnContext(c.ctx, "an OpenID provider does not answer", "provider", c.r.PathValue("provider"), "err", err)
		return notSignedIn(http.StatusBadGateway, "the provider does not answer as it should")
	case errors.Is(err, openid.ErrRefused):
		return notSignedIn(http.StatusForbidden, strings.TrimPrefix(err.Error(), openid.ErrRefused.Error()+": "))
	}
	return err
}

// reasonSignIn is the Reason of errors of sign-ins at providers.
const reasonSignIn = "SIGN_IN_FAILED"

// notSignedIn returns the error for a failed sign-in at a provider. why is a text for the user.
func notSignedIn(status int, why string) error {
	return web.Errorf(status, reasonSignIn, "%s", why)
}

// removeIdentity serves POST /account/identities/{id}/remove: the identity can no longer sign in
// to the account.
func (s *surface) removeIdentity(c *call) error {
	err := s.Accounts.UnlinkIdentity(c.ctx, c.who.Account, state.IdentityID(c.r.PathValue("id")))
	if problem := refusal(err, state.CodeForbidden); problem != "" {
		return s.showAccount(c, http.StatusBadRequest, "", "Nothing was removed: "+problem+".")
	}
	if err != nil {
		return err
	}
	return s.showAccount(c, http.StatusOK, "The provider was removed. Sessions that began with it go on; end them below.", "")
}
