package pinning

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// shared is what scripts of other origins may use.
var shared = web.Cors{
	Methods: "GET, HEAD, POST, DELETE",
	Headers: "Authorization, Content-Type, " + web.IdempotencyHeader + ", " + web.UntilHeader + ", " + web.RequestIDHeader,
	Exposed: "Retry-After, WWW-Authenticate, " + web.RequestIDHeader,
}

// Starting returns a handler for a node that is starting, until the use cases that New needs exist.
// The handler answers requests for health, and every other request with 503. Starting needs the
// options Health, Origins, Version and Logger, and uses Metrics.
func Starting(o Options) http.Handler {
	serve := web.Starting(o.Health, web.HealthRoutes(o.Health, o.Version))
	wrapped := web.Wrap(web.Options{Name: "pinning", Server: serverOf(o.Version), Answer: answer, Logger: o.Logger, Metrics: o.Metrics}, serve)
	return shared.Allow(o.Origins, wrapped)
}

// serverOf returns the value of the Server header for a version.
func serverOf(version string) string {
	if version == "" {
		return "holdfast"
	}
	return "holdfast/" + version
}
