package paid

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// shared is what scripts of other origins may use. Stock clients of x402 in a browser send
// Access-Control-Expose-Headers as a header of the request, so a preflight asks for it.
var shared = web.Cors{
	Methods: "GET, HEAD, PUT, POST, DELETE",
	Headers: "Content-Type, Range, If-None-Match, If-Match, X-PAYMENT, PAYMENT-SIGNATURE, X-Holdfast-TTL, X-TTL-Seconds, " +
		"X-Holdfast-Max-Bytes, X-Request-Id, Access-Control-Expose-Headers",
	Exposed: "PAYMENT-REQUIRED, PAYMENT-RESPONSE, X-PAYMENT-RESPONSE, Content-Range, ETag, Retry-After, X-Holdfast-Until, " +
		"X-Holdfast-Owner, X-Holdfast-Cid, X-Holdfast-Blake3, X-Request-Id",
}

// anyOrigin lets scripts of every origin use the gateway. No request has credentials that a browser
// adds by itself, as the payment is in a header, and everybody can read.
func anyOrigin(h http.Handler) http.Handler { return shared.Allow([]string{web.AnyOrigin}, h) }
