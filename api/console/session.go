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

// Base names of cookies. web.CookieName returns their full names.
const (
	sessionCookie = web.SessionCookie
	visitorCookie = "holdfast-visitor" // random value for a browser without a session
)

// tokenField is the name of the form field with the form token.
const tokenField = "form_token"

// formHeader is the header in which a script sends the form token.
const formHeader = web.FormHeader

// maxForm is the maximum size of the body of a form in bytes. It is enough for a pin with all
// origins and metadata, with every byte escaped.
const maxForm = 256 << 10

// call is one request to a page.
type call struct {
	w http.ResponseWriter
	r *http.Request
	// ctx ends with the request, or caseTimeout after the request began. See renew.
	ctx context.Context
	// who is the principal of the session, or the zero value without a session.
	who accounts.Principal
	// session is the session token, or empty without a session.
	session string
	// seen is a fingerprint of the account from before the page was rendered, for a page that is
	// updated while it is open; otherwise empty.
	seen   string
	secure bool // the browser uses HTTPS
}

// renew gives the request another caseTimeout, after a step that must not be repeated. The caller
// calls end when the request is answered.
func (c *call) renew() (end context.CancelFunc) {
	c.ctx, end = context.WithTimeout(context.WithoutCancel(c.ctx), caseTimeout)
	return end
}

// errForm is the error for a form whose token does not belong to this session.
var errForm = web.Errorf(http.StatusForbidden, "FORBIDDEN", "this form belongs to another session: open the page again and repeat the change")

// guarded returns the handler of a route. It checks the rate limits, the session and the access,
// and for all methods except GET the origin of the request and its form token, and then calls
// row.serve.
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

// maskedOrigin reports whether the browser hides the origin of a form, so that only the form
// token can prove it. The console's own pages send forms with the origin "null", because of their
// policy no-referrer (Fetch Standard, "append a request Origin header"). Over HTTPS and on
// loopback, browsers add Sec-Fetch-Site, which is proof enough. Over plain HTTP to another
// machine there is no other proof. Requests of scripts always name their origin.
func (c *call) maskedOrigin() bool {
	return !c.secure && c.r.Header.Get("Origin") == "null" && c.r.Header.Get("Sec-Fetch-Site") == ""
}

// live returns the handler of a page with parts that are updated while it is open. It takes the
// fingerprint of the account before serve renders the page, so that no change is missed.
func (s *surface) live(serve func(*call) error) func(*call) error {
	return func(c *call) error {
		if g, err := s.Accounts.Glance(c.ctx, c.session, accounts.Glance{}); err == nil {
			c.seen = seenOf(g)
		}
		return serve(c)
	}
}

// identify authenticates the session cookie by a linearizable read. If the session has ended, it
// removes the cookie, and the request has no session.
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

// sessionToken returns the session token in the cookie, or "" if it is missing or too long.
func (c *call) sessionToken() string {
	cookie, err := c.r.Cookie(c.cookieName(sessionCookie))
	if err != nil || len(cookie.Value) > accounts.MaxToken {
		return ""
	}
	return cookie.Value
}

// form parses the form of a POST and checks its form token.
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

// isToken reports whether token is the form token of this browser.
func (c *call) isToken(token string) bool { return web.IsFormToken(token, c.formSecret()) }

// formToken returns the token for the forms of this browser. It is empty if the browser has
// neither a session nor a visitor cookie.
func (c *call) formToken() string { return web.FormToken(c.formSecret()) }

// formSecret returns the cookie value from which the form token is computed: the session token,
// or without a session the visitor cookie.
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

// visit sets a visitor cookie for a browser without a session, from which its form tokens are
// computed.
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

// cookieName returns the full name of a cookie on this connection.
func (c *call) cookieName(name string) string { return web.CookieName(name, c.secure) }

// setCookie sets a cookie that the browser deletes when it is closed. An empty value deletes the
// cookie at once.
func (c *call) setCookie(name, value string) { web.SetCookie(c.w, name, value, c.secure) }

// begin sets the session cookie to the token of a new session.
func (c *call) begin(token string) {
	c.setCookie(visitorCookie, "")
	c.setCookie(sessionCookie, token)
}

// redirect answers 303 with a path of this host.
func (c *call) redirect(path string) error {
	c.w.Header().Set("Location", path)
	return web.Empty(c.w, http.StatusSeeOther)
}

// toSignIn redirects a GET to the sign-in page, which opens the requested page afterwards.
func (c *call) toSignIn() error {
	return c.redirect(signInPath(c.r.URL.RequestURI()))
}

// signInPath returns the path of the sign-in page, with the local path to open afterwards.
func signInPath(to string) string { return "/sign-in?" + url.Values{"to": {to}}.Encode() }

// localPath returns path if it is a path of this host that a GET may open, else "/". It prevents
// open redirects: paths that a browser could read as another host, such as //evil.example and
// /\evil.example, become "/".
func localPath(path string) string {
	u, err := url.Parse(path)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || u.Opaque != "" ||
		!strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f }) {
		return "/"
	}
	return path
}
