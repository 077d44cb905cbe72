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
	path := r.URL.EscapedPath()
	return (path == web.AlivePath || path == web.ReadyPath) && s.isPlain(r)
}

// asksAddresses reports whether a request asks for the addresses of the other APIs, which needs no
// credentials.
func (s *surface) asksAddresses(r *http.Request) bool {
	return s.addresses != nil && r.URL.EscapedPath() == web.AddressesPath && s.isPlain(r)
}

// isPlain reports whether a request is a GET or HEAD without a query and without credentials, to a
// host that names no bucket.
func (s *surface) isPlain(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.URL.RawQuery != "" {
		return false
	}
	if _, inBucket := s.bucketOfHost(r.Host); inBucket {
		return false // the path is an object
	}
	scheme, err := sigv4.SchemeOf(r)
	return err == nil && scheme == sigv4.SchemeNone
}
