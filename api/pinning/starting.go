package pinning

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// Starting returns what answers until the use cases are there for New: health, and
// 503 for everything else. Of o it needs Health, Origins, Version and Logger, and
// takes Metrics.
func Starting(o Options) http.Handler {
	serve := web.Starting(o.Health, web.HealthRoutes(o.Health, o.Version))
	wrapped := web.Wrap(web.Options{Name: "pinning", Server: serverOf(o.Version), Answer: answer, Logger: o.Logger, Metrics: o.Metrics}, serve)
	return web.CrossOrigin(o.Origins, wrapped)
}

// serverOf is the Server header of a version.
func serverOf(version string) string {
	if version == "" {
		return "holdfast"
	}
	return "holdfast/" + version
}
