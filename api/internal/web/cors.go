package web

import (
	"net/http"
	"slices"
)

// AnyOrigin stands for all origins.
const AnyOrigin = "*"

// Values of the CORS headers.
const (
	corsMethods = "GET, HEAD, POST, DELETE"
	corsHeaders = "Authorization, Content-Type, " + IdempotencyHeader + ", " + UntilHeader + ", " + RequestIDHeader
	corsExposed = "Retry-After, WWW-Authenticate, " + RequestIDHeader
)

// IdempotencyHeader is the header that names a request, so that the cluster recognizes a
// repeat.
const IdempotencyHeader = "Idempotency-Key"

// UntilHeader is the header with the end of a new pin: an RFC 3339 time or a duration.
const UntilHeader = "X-Holdfast-Until"

// corsMaxAge is how long a browser may cache a preflight answer, in seconds.
const corsMaxAge = "600"

// CrossOrigin lets scripts of the given origins, or of all with AnyOrigin, use the surface
// from a browser. It never allows cookies: a script has to send its token. Without origins
// it changes nothing.
func CrossOrigin(origins []string, h http.Handler) http.Handler {
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
			header.Set("Access-Control-Expose-Headers", corsExposed)
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				header.Set("Access-Control-Allow-Methods", corsMethods)
				header.Set("Access-Control-Allow-Headers", corsHeaders)
				header.Set("Access-Control-Max-Age", corsMaxAge)
			}
		}
		h.ServeHTTP(w, r)
	})
}
