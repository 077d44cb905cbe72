package s3

import (
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// What browsers are told about cross-origin requests.
const (
	corsMethods = "GET, HEAD, PUT, POST, DELETE"
	corsExposed = "ETag, Content-Length, Content-Range, Last-Modified, Accept-Ranges, Location, Retry-After, " +
		"X-Amz-Request-Id, X-Amz-Version-Id, X-Amz-Delete-Marker, X-Amz-Bucket-Region, X-Amz-Tagging-Count, X-Amz-Mp-Parts-Count, " +
		"X-Amz-Checksum-Crc32, X-Amz-Checksum-Crc32c, X-Amz-Checksum-Crc64nvme, X-Amz-Checksum-Sha1, X-Amz-Checksum-Sha256, " +
		"X-Amz-Checksum-Type, X-Holdfast-Cid, X-Holdfast-Blake3"
	corsMaxAge = "600" // seconds

	// maxAskedHeaders bounds the headers that a browser asks for, in bytes. They are
	// said again: metadata has any name, and "*" does not stand for Authorization.
	maxAskedHeaders = 4 << 10
)

// crossOrigin lets scripts of the given origins, or of all with web.AnyOrigin, use
// the surface from a browser. Cookies are never allowed to go along. Without
// origins it changes nothing.
func crossOrigin(origins []string, h http.Handler) http.Handler {
	if len(origins) == 0 {
		return h
	}
	all := slices.Contains(origins, web.AnyOrigin)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		origin := r.Header.Get("Origin")
		allowed := ""
		switch {
		case all:
			allowed = web.AnyOrigin
		case slices.Contains(origins, origin):
			allowed = origin
		}
		if !all {
			header.Set("Vary", "Origin")
		}
		if allowed == "" || origin == "" {
			h.ServeHTTP(w, r)
			return
		}
		header.Set("Access-Control-Allow-Origin", allowed)
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			header.Set("Access-Control-Expose-Headers", corsExposed)
			h.ServeHTTP(w, r)
			return
		}
		header.Set("Access-Control-Allow-Methods", corsMethods)
		if asked := strings.Join(r.Header["Access-Control-Request-Headers"], ", "); len(asked) <= maxAskedHeaders {
			header.Set("Access-Control-Allow-Headers", asked)
		}
		header.Set("Access-Control-Max-Age", corsMaxAge)
		header.Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
	})
}
