package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
)

// SessionCookie is the cookie with the session token of a browser; CookieName has its full name.
const SessionCookie = "holdfast-session"

// FormHeader has the form token of a request that a script sends. A page of another origin may
// not set it.
const FormHeader = "X-Form-Token"

// hostPrefix begins the names of cookies over HTTPS: a browser takes them from this host alone
// (RFC 6265bis, section 4.1.3). Over plain HTTP a browser does not store a cookie with it.
const hostPrefix = "__Host-"

// CookieName returns the full name of a cookie; secure: the browser uses HTTPS.
func CookieName(name string, secure bool) string {
	if secure {
		return hostPrefix + name
	}
	return name
}

// SetCookie sets a cookie that ends with the browser; an empty value removes it.
func SetCookie(w http.ResponseWriter, name, value string, secure bool) {
	cookie := &http.Cookie{
		Name: CookieName(name, secure), Value: value, Path: "/", HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode,
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// FormToken returns the token by which a request shows that a page of this origin caused it: an
// HMAC-SHA256 under the value of a cookie that no page can read. It is "" for an empty value.
func FormToken(cookie string) string {
	if cookie == "" {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(cookie))
	mac.Write([]byte("holdfast console form v1"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// IsFormToken reports whether a token is the form token of a cookie's value.
func IsFormToken(token, cookie string) bool {
	want := FormToken(cookie)
	return want != "" && hmac.Equal([]byte(token), []byte(want))
}
