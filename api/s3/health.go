package s3

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
)

// probes returns the handler of health checks, or nil if h is nil.
func probes(h web.Health, version string) web.Handler {
	if h == nil {
		return nil
	}
	return web.Routes(web.HealthRoutes(h, version))
}

// isProbe reports whether a request is a health check: a GET or HEAD of one of the health paths
// without a query and without credentials. A request with credentials means a bucket of that
// name.
func (s *surface) isProbe(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	if path := r.URL.EscapedPath(); path != web.AlivePath && path != web.ReadyPath || r.URL.RawQuery != "" {
		return false
	}
	if t, err := s.targetOf(r); err != nil || t.level != levelBucket {
		return false // the host names a bucket, so this is an object in it
	}
	scheme, err := sigv4.SchemeOf(r)
	return err == nil && scheme == sigv4.SchemeNone
}
