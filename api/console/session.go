package console

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Cookies. web.CookieName has their full names.
const (
	sessionCookie = web.SessionCookie
	visitorCookie = "holdfast-visitor" // random value for a browser without a session
)

// tokenField is the name of the form field with the form token.
const tokenField = "form_token"

// formHeader has the form token of a request that a script sends.
const formHeader = web.FormHeader

// maxForm is the largest size of the body of a form in bytes: all fields, origins and meta of a
// pin, with every byte escaped.
const maxForm = 256 << 10

// call is one request to a page.
type call struct {
	w http.ResponseWriter
	r *http.Request
	// ctx ends with the request, or caseTimeout after it began. See renew.
	ctx context.Context
	// who is the account of the session, or the zero value without a session.
	who accounts.Principal
	// session is the session token, or empty without a session.
	session string
	// seen is a fingerprint of the account from before a live page was made; empty if it is not
	// known.
	seen   string
	secure bool // the browser uses HTTPS
}

// renew gives the request the time of one more use case, after a use case that cannot be repeated. The
// caller calls end when the request is answered.
func (c *call) renew() (end context.CancelFunc) {
	c.ctx, end = context.WithTimeout(context.WithoutCancel(c.ctx), caseTimeout)
	return end
}

// errForm is the error for a form that was not made for this session.
var errForm = web.Errorf(http.StatusForbidden, "FORBIDDEN", "this form belongs to another session: open the page again and repeat the change")

// guarded returns the handler of a row. Before the page is served, it checks the caller, and
// for all methods except GET also the origin of the request.
func (s *surface) guarded(row page) web.Handler {
	origins := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, r *http.Request) error {
		c := &call{w: w, r: r, secure: s.Limits.Scheme(r) == "https"}
		if row.access == anybody {
			c.ctx = r.Context()
			return row.serve(c)
		}
		if err := s.Limits.Address(r); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(r.Context(), caseTimeout)
		defer cancel()
		c.ctx = ctx
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if !reads && origins.Check(r) != nil && (row.access == byScript || !c.maskedOrigin()) {
			return web.Errorf(http.StatusForbidden, "FORBIDDEN", "a page of another site sent this form")
		}
		if err := s.identify(c); err != nil {
			return err
		}
		c.ctx = accounts.WithAgent(state.WithActor(ctx, s.Limits.Actor(r, &c.who)), web.Browser(r.UserAgent()))
		if row.access == lasting && c.session == "" {
			// An event source asks again after every other answer (HTML Living Standard, section 9.2.3).
			return web.Empty(w, http.StatusNoContent)
		}
		if row.access >= signedIn && c.session == "" {
			if !reads {
				if r.Header.Get(formHeader) != "" { // a script cannot sign in
					return web.Errorf(http.StatusUnauthorized, "UNAUTHORIZED", "the session has ended: sign in again")
				}
				return c.redirect("/sign-in")
			}
			return c.toSignIn()
		}
		switch {
		case reads || row.access == withFiles:
		case row.access == byScript:
			if !c.isToken(r.Header.Get(formHeader)) {
				return errForm
			}
		default:
			if err := c.form(); err != nil {
				return err
			}
		}
		if c.session == "" {
			return row.serve(c)
		}
		if row.access == admins && !c.who.Admin {
			return web.Errorf(http.StatusForbidden, "FORBIDDEN", "this page is for administrators")
		}
		if err := s.Limits.Account(c.who.Account, nil); err != nil {
			return err
		}
		if row.access == lasting { // it is no request that waits for the processors
			return row.serve(c)
		}
		leave, err := s.Limits.Enter(ctx, c.who.Account)
		if err != nil {
			return err
		}
		defer leave()
		return row.serve(c)
	}
}

// maskedOrigin returns whether the browser hides where a form comes from, so that the form token
// alone decides. A page with the policy no-referrer sends its forms with the origin "null" (Fetch
// Standard, "append a request Origin header"), and browsers add Sec-Fetch-Site for HTTPS and loopback
// only. Over plain HTTP to another machine the console's own forms have nothing else. Requests of
// scripts name their origin in any case.
func (c *call) maskedOrigin() bool {
	return !c.secure && c.r.Header.Get("Origin") == "null" && c.r.Header.Get("Sec-Fetch-Site") == ""
}

// live returns the handler of a page with parts that change while it is open. The handler takes
// the fingerprint of the account before the page is made, so that no change is missed.
func (s *surface) live(serve func(*call) error) func(*call) error {
	return func(c *call) error {
		if g, err := s.Accounts.Glance(c.ctx, c.session, accounts.Glance{}); err == nil {
			c.seen = seenOf(g)
		}
		return serve(c)
	}
}

// identify finds the caller by the current state of the cluster. If the session has ended,
// there is no caller, and the cookie is removed.
func (s *surface) identify(c *call) error {
	token := c.sessionToken()
	if token == "" {
		return nil
	}
	who, err := s.Accounts.Authenticate(c.ctx, token)
	switch {
	case errors.Is(err, state.ErrUnauthorized) || err == nil && who.Session == "": // an API key is no session
		c.setCookie(sessionCookie, "")
		return nil
	case err != nil:
		return err
	}
	c.who, c.session = who, token
	return nil
}

// sessionToken returns the session token in the cookie. It is empty without a cookie and for a
// malformed token.
func (c *call) sessionToken() string {
	cookie, err := c.r.Cookie(c.cookieName(sessionCookie))
	if err != nil || len(cookie.Value) > accounts.MaxToken {
		return ""
	}
	return cookie.Value
}

// form reads the form of a POST and checks its token.
func (c *call) form() error {
	kind, _, _ := strings.Cut(c.r.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "application/x-www-form-urlencoded") {
		return web.Errorf(http.StatusForbidden, "FORBIDDEN", "a form is sent as application/x-www-form-urlencoded")
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxForm)
	if err := c.r.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return web.Errorf(http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "a form has %d bytes at most", maxForm)
		}
		return web.BadRequest("the form cannot be read: %v", err)
	}
	if !c.isToken(c.r.PostForm.Get(tokenField)) {
		return errForm
	}
	return nil
}

// isToken returns whether a token is the form token of this browser.
func (c *call) isToken(token string) bool { return web.IsFormToken(token, c.formSecret()) }

// formToken returns the token that the forms of this browser contain. It is empty if the
// browser has neither a session nor a visitor cookie.
func (c *call) formToken() string { return web.FormToken(c.formSecret()) }

// formSecret returns the value of the cookie from which form tokens are made: the session
// token, or without a session the visitor cookie.
func (c *call) formSecret() string {
	if c.session != "" {
		return c.session
	}
	cookie, err := c.r.Cookie(c.cookieName(visitorCookie))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// visit gives a browser without a session a visitor cookie, from which its form tokens are
// made.
func (c *call) visit() {
	if c.session != "" {
		return
	}
	name := c.cookieName(visitorCookie)
	if cookie, err := c.r.Cookie(name); err == nil && len(cookie.Value) == len(rand.Text()) {
		return
	}
	value := rand.Text()
	c.setCookie(visitorCookie, value)
	c.r.AddCookie(&http.Cookie{Name: name, Value: value})
}

// cookieName returns the name of a cookie on this connection.
func (c *call) cookieName(name string) string { return web.CookieName(name, c.secure) }

// setCookie sets a cookie that ends with the browser; an empty value removes it.
func (c *call) setCookie(name, value string) { web.SetCookie(c.w, name, value, c.secure) }

// begin gives the browser the cookie of a new session.
func (c *call) begin(token string) {
	c.setCookie(visitorCookie, "")
	c.setCookie(sessionCookie, token)
}

// redirect answers 303 to a path of this host.
func (c *call) redirect(path string) error {
	c.w.Header().Set("Location", path)
	return web.Empty(c.w, http.StatusSeeOther)
}

// toSignIn redirects a GET to the sign-in page, which leads back to the requested page.
func (c *call) toSignIn() error {
	return c.redirect(signInPath(c.r.URL.RequestURI()))
}

// signInPath returns the sign-in page, which leads to a path of this host.
func signInPath(to string) string { return "/sign-in?" + url.Values{"to": {to}}.Encode() }

// localPath returns path if it is a path of this host to which a GET may return, else "/".
// Paths that a browser could read as another host, such as //evil.example and /\evil.example,
// become "/".
func localPath(path string) string {
	u, err := url.Parse(path)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || u.Opaque != "" ||
		!strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f }) {
		return "/"
	}
	return path
}
