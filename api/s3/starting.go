package s3

import (
	"net/http"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// Starting returns the handler of a node that is starting, in place of New, whose dependencies do
// not exist yet. It answers health checks, and rejects all other requests with 503 and the
// reason. It needs the options Version and Logger, and uses Domain and Metrics.
func Starting(o Options, h web.Health) http.Handler {
	s, otherwise := &surface{stall: web.StallTimeout, probes: probes(h, o.Version)}, web.Starting(h, nil)
	if o.Domain != "" {
		s.domain = "." + strings.ToLower(strings.Trim(o.Domain, "."))
	}
	server := "holdfast"
	if o.Version != "" {
		server += "/" + o.Version
	}
	return web.Attended(s.stall, web.Wrap(web.Options{Name: "s3", Server: server, Fail: s.fail, Path: s.logged, Logger: o.Logger, Metrics: o.Metrics},
		func(w http.ResponseWriter, r *http.Request) error {
			if s.isProbe(r) {
				return s.probes(w, r)
			}
			return otherwise(w, r)
		}))
}
