package web

import (
	"net/http"
	"slices"
)

// AnyOrigin in a list of origins allows scripts of every origin.
const AnyOrigin = "*"

// Cors has the CORS header values of an API: what scripts of other origins may send and read.
type Cors struct {
	Methods string // Access-Control-Allow-Methods
	Headers string // Access-Control-Allow-Headers
	Exposed string // Access-Control-Expose-Headers
}

// IdempotencyHeader is the request header with a key that the client chooses. The cluster
// executes a request with a known key only once, so a client can repeat a request.
const IdempotencyHeader = "Idempotency-Key"

// UntilHeader is the request header with the expiry of a new pin: an RFC 3339 time, or a duration
// from now.
const UntilHeader = "X-Holdfast-Until"

// corsMaxAge is how long a browser may cache a preflight answer, in seconds.
const corsMaxAge = "600"

// Allow returns a handler that adds CORS headers to the answers of h for the given origins.
// AnyOrigin allows all origins; an empty list returns h itself. It never sends
// Access-Control-Allow-Credentials, so a script must send a token instead of cookies.
func (c Cors) Allow(origins []string, h http.Handler) http.Handler {
	if len(origins) == 0 {
		return h
	}
	all := slices.Contains(origins, AnyOrigin)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		allowed := ""
		if all {
			allowed = AnyOrigin
		} else {
			header.Set("Vary", "Origin")
			if origin := r.Header.Get("Origin"); slices.Contains(origins, origin) {
				allowed = origin
			}
		}
		if allowed != "" && r.Header.Get("Origin") != "" {
			header.Set("Access-Control-Allow-Origin", allowed)
			header.Set("Access-Control-Expose-Headers", c.Exposed)
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				header.Set("Access-Control-Allow-Methods", c.Methods)
				header.Set("Access-Control-Allow-Headers", c.Headers)
				header.Set("Access-Control-Max-Age", corsMaxAge)
			}
		}
		h.ServeHTTP(w, r)
	})
}
