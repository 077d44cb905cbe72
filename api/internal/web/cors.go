package web

import (
	"net/http"
	"slices"
)

// AnyOrigin stands for all origins.
const AnyOrigin = "*"

// Cors is what scripts of other origins may use of a surface: values of the headers of CORS.
type Cors struct {
	Methods string // of requests
	Headers string // of requests
	Exposed string // headers of answers
}

// IdempotencyHeader is the header that names a request, so that the cluster recognizes a
// repeat.
const IdempotencyHeader = "Idempotency-Key"

// UntilHeader is the header with the end of a new pin: an RFC 3339 time or a duration.
const UntilHeader = "X-Holdfast-Until"

// corsMaxAge is how long a browser may cache a preflight answer, in seconds.
const corsMaxAge = "600"

// Allow lets scripts of the given origins, or of all with AnyOrigin, use the surface from a browser. It
// never allows cookies: a script has to send its token. Without origins it changes nothing.
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
