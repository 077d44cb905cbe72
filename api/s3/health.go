package s3

import (
	"net/http"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/api/s3/sigv4"
)

// probes answers about health. Without h it is nil.
func probes(h web.Health, version string) web.Handler {
	if h == nil {
		return nil
	}
	return web.Routes(web.HealthRoutes(h, version))
}

// isProbe tells whether a request asks for the health of the node: a GET or HEAD of one of
// the paths without a query and without credentials. With credentials it asks for a bucket
// of that name.
func (s *surface) isProbe(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	if path := r.URL.EscapedPath(); path != web.AlivePath && path != web.ReadyPath || r.URL.RawQuery != "" {
		return false
	}
	if t, err := s.targetOf(r); err != nil || t.level != levelBucket {
		return false // an object of a bucket that the host names
	}
	scheme, err := sigv4.SchemeOf(r)
	return err == nil && scheme == sigv4.SchemeNone
}
