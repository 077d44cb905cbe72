package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
)

// SessionCookie is the base name of the cookie that stores the session token of a browser, see
// CookieName.
const SessionCookie = "holdfast-session"

// FormHeader is the header in which a script of the console sends the form token, see FormToken.
// A page of another origin cannot set it without a CORS preflight.
const FormHeader = "X-Form-Token"

// hostPrefix is the prefix of cookie names over HTTPS. A browser accepts such a cookie only from
// this very host (RFC 6265bis, section 4.1.3), and not over plain HTTP.
const hostPrefix = "__Host-"

// CookieName returns the full name of a cookie. secure is true if the browser uses HTTPS; then
// the name begins with __Host-.
func CookieName(name string, secure bool) string {
	if secure {
		return hostPrefix + name
	}
	return name
}

// SetCookie sets a session cookie, which the browser deletes when it is closed. An empty value
// deletes the cookie at once. secure is true if the browser uses HTTPS.
func SetCookie(w http.ResponseWriter, name, value string, secure bool) {
	cookie := &http.Cookie{
		Name: CookieName(name, secure), Value: value, Path: "/", HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode,
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// FormToken returns the token that protects forms against cross-site request forgery: an
// HMAC-SHA256 whose key is the value of a cookie. Other origins cannot read the cookie, so only
// pages of this origin know the token. It is "" for an empty value.
func FormToken(cookie string) string {
	if cookie == "" {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(cookie))
	mac.Write([]byte("holdfast console form v1"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// IsFormToken reports whether token is FormToken(cookie). It is false if cookie is empty.
func IsFormToken(token, cookie string) bool {
	want := FormToken(cookie)
	return want != "" && hmac.Equal([]byte(token), []byte(want))
}
