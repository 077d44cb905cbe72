package paid

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// shared has the CORS header values of the gateway. Standard x402 clients in a browser send
// Access-Control-Expose-Headers as a request header, so the list of allowed headers has that name
// too.
var shared = web.Cors{
	Methods: "GET, HEAD, PUT, POST, DELETE",
	Headers: "Content-Type, Range, If-None-Match, If-Match, X-PAYMENT, PAYMENT-SIGNATURE, X-Holdfast-TTL, X-TTL-Seconds, " +
		"X-Holdfast-Max-Bytes, X-Request-Id, Access-Control-Expose-Headers",
	Exposed: "PAYMENT-REQUIRED, PAYMENT-RESPONSE, X-PAYMENT-RESPONSE, Content-Range, ETag, Retry-After, X-Holdfast-Until, " +
		"X-Holdfast-Owner, X-Holdfast-Cid, X-Holdfast-Blake3, X-Request-Id",
}

// anyOrigin returns a handler that allows scripts of every origin to use h. That is safe because
// a browser adds no credentials by itself: the payment is in a header that the script sets, and
// reading needs no credentials.
func anyOrigin(h http.Handler) http.Handler { return shared.Allow([]string{web.AnyOrigin}, h) }
