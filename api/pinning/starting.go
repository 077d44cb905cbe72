package pinning

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// shared has the CORS header values of this API.
var shared = web.Cors{
	Methods: "GET, HEAD, POST, DELETE",
	Headers: "Authorization, Content-Type, " + web.IdempotencyHeader + ", " + web.UntilHeader + ", " + web.RequestIDHeader,
	Exposed: "Retry-After, WWW-Authenticate, " + web.RequestIDHeader,
}

// Starting returns the handler of a node that is starting, in place of New, whose dependencies do
// not exist yet. It answers health checks, and rejects all other requests with 503. It needs the
// options Health, Origins, Version and Logger, and uses Metrics.
func Starting(o Options) http.Handler {
	serve := web.Starting(o.Health, web.HealthRoutes(o.Health, o.Version))
	wrapped := web.Wrap(web.Options{Name: "pinning", Server: serverOf(o.Version), Answer: answer, Logger: o.Logger, Metrics: o.Metrics}, serve)
	return shared.Allow(o.Origins, wrapped)
}

// serverOf returns the value of the Server header for a version of the program.
func serverOf(version string) string {
	if version == "" {
		return "holdfast"
	}
	return "holdfast/" + version
}
