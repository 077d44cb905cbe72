package console

import (
	"net/http"
	"slices"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// coloursCookie is the cookie with the colour scheme that the user chose in this browser. Without
// the cookie, the page follows the preference of the operating system.
const coloursCookie = "holdfast-colours"

// coloursLife is the lifetime of coloursCookie in seconds: 400 days, the longest that browsers
// accept.
const coloursLife = 400 * 24 * 60 * 60

// schemes are the colour schemes that a user can choose.
var schemes = []string{"light", "dark"}

// coloursOf returns the colour scheme in the cookie of a request, or "". secure is true if the
// browser uses HTTPS.
func coloursOf(r *http.Request, secure bool) string {
	cookie, err := r.Cookie(web.CookieName(coloursCookie, secure))
	if err != nil || !slices.Contains(schemes, cookie.Value) {
		return ""
	}
	return cookie.Value
}

// setColours serves POST /account/colours. It stores the choice in this browser only, not in the
// account.
func (s *surface) setColours(c *call) error {
	scheme := c.r.PostForm.Get("scheme")
	if scheme != "" && !slices.Contains(schemes, scheme) {
		return web.BadRequest("there is no scheme of colours %q", scheme)
	}
	cookie := &http.Cookie{
		Name: c.cookieName(coloursCookie), Value: scheme, Path: "/", MaxAge: coloursLife,
		HttpOnly: true, Secure: c.secure, SameSite: http.SameSiteLaxMode,
	}
	if scheme == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(c.w, cookie)
	return c.redirect("/account")
}
