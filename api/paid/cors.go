package paid

import "net/http"

// Values of the CORS headers. Stock clients of x402 in a browser send Access-Control-Expose-Headers
// as a header of the request, so a preflight asks for it.
const (
	corsMethods = "GET, HEAD, PUT, POST, DELETE"
	corsHeaders = "Content-Type, Range, If-None-Match, If-Match, X-PAYMENT, PAYMENT-SIGNATURE, X-Holdfast-TTL, X-TTL-Seconds, " +
		"X-Holdfast-Max-Bytes, X-Request-Id, Access-Control-Expose-Headers"
	corsExposed = "PAYMENT-REQUIRED, PAYMENT-RESPONSE, X-PAYMENT-RESPONSE, Content-Range, ETag, Retry-After, X-Holdfast-Until, " +
		"X-Holdfast-Owner, X-Holdfast-Cid, X-Holdfast-Blake3, X-Request-Id"
	corsMaxAge = "600" // seconds
)

// crossOrigin lets scripts of every origin use the gateway. No request has credentials that a browser
// adds by itself, as the payment is in a header, and everybody can read.
func crossOrigin(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" {
			header := w.Header()
			header.Set("Access-Control-Allow-Origin", "*")
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
