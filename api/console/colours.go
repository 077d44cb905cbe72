package console

import (
	"net/http"
	"slices"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// coloursCookie has the scheme of colours that the person chose in this browser. It is not there for the
// scheme that the system prefers.
const coloursCookie = "holdfast-colours"

// coloursLife is how long a browser keeps the choice, in seconds: 400 days, the most that browsers accept.
const coloursLife = 400 * 24 * 60 * 60

// schemes are the schemes of colours that a person can choose.
var schemes = []string{"light", "dark"}

// coloursOf returns the scheme that the browser of a request chose, or "" for that of the system.
func coloursOf(r *http.Request, secure bool) string {
	cookie, err := r.Cookie(web.CookieName(coloursCookie, secure))
	if err != nil || !slices.Contains(schemes, cookie.Value) {
		return ""
	}
	return cookie.Value
}

// setColours serves POST /account/colours. The choice is of this browser and not of the account.
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
