package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// Cache-Control values of embedded files. The path of a static file changes with its content, so browsers
// may cache it without limit.
const (
	forGood = "public, max-age=31536000, immutable"
	forADay = "public, max-age=86400"
)

const gzipName = "gzip" // content coding, RFC 9110, section 8.4.1.3

// asset is an embedded file. It is compressed once, when the program starts. Pages are not
// compressed: they contain a form token next to text of other people, and the length of a
// compressed page would reveal something about the token (the BREACH attack).
type asset struct {
	kind string // its Content-Type
	body encoded
	// zipped is the file compressed with gzip. Its bytes are nil if that is not smaller.
	zipped encoded
}

// encoded is a file in one content encoding.
type encoded struct {
	bytes []byte
	tag   string // its ETag
}

func encodingOf(b []byte) encoded {
	sum := sha256.Sum256(b)
	return encoded{b, `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// readAsset reads an embedded file and compresses it.
func readAsset(name string) (a asset, err error) {
	body, err := fs.ReadFile(files, "static/"+name)
	if err != nil {
		return a, fmt.Errorf("console: %w", err)
	}
	if a.kind = mime.TypeByExtension(path.Ext(name)); a.kind == "" {
		return a, fmt.Errorf("console: the type of %s is not known", name)
	}
	a.body = encodingOf(body)
	var zipped bytes.Buffer
	z, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(body)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return a, fmt.Errorf("console: compress %s: %w", name, err)
	}
	if zipped.Len() < len(body) {
		a.zipped = encodingOf(bytes.Clone(zipped.Bytes())) // without the spare room of the buffer
	}
	return a, nil
}

// serve answers with the file, compressed if the request accepts gzip. cache is the
// Cache-Control. It ignores Range, as RFC 9110, section 14.2, permits, because the files are
// small.
func (a asset) serve(w http.ResponseWriter, r *http.Request, cache string) error {
	header := w.Header()
	header.Set("Cache-Control", cache)
	header.Add("Vary", "Accept-Encoding")
	send := a.body
	if a.zipped.bytes != nil && acceptsGzip(r.Header.Values("Accept-Encoding")) {
		send = a.zipped
		header.Set("Content-Encoding", gzipName)
	}
	header.Set("ETag", send.tag)
	if has(r.Header.Values("If-None-Match"), send.tag) {
		header.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	header.Set("Content-Type", a.kind)
	header.Set("Content-Length", strconv.Itoa(len(send.bytes)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := w.Write(send.bytes); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

// acceptsGzip reports whether the values of Accept-Encoding (RFC 9110, section 12.5.3) permit
// gzip.
func acceptsGzip(values []string) bool {
	others := false
	for _, value := range strings.Split(strings.Join(values, ","), ",") {
		coding, parameter, weighed := strings.Cut(value, ";")
		permits := true
		if name, weight, ok := strings.Cut(parameter, "="); weighed {
			q, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
			permits = ok && strings.EqualFold(strings.TrimSpace(name), "q") && err == nil && q > 0
		}
		switch coding = strings.TrimSpace(coding); {
		case strings.EqualFold(coding, gzipName), strings.EqualFold(coding, "x-gzip"):
			return permits
		case coding == "*":
			others = permits
		}
	}
	return others
}

// has reports whether the values of If-None-Match contain an entity tag (RFC 9110, section
// 13.1.2).
func has(values []string, tag string) bool {
	for _, value := range strings.Split(strings.Join(values, ","), ",") {
		if value = strings.TrimSpace(value); value == "*" || strings.TrimPrefix(value, "W/") == tag {
			return true
		}
	}
	return false
}

// static serves an embedded file.
func (s *surface) static(c *call) error {
	a, ok := s.Pages.assets[c.r.PathValue("name")]
	if !ok || c.r.PathValue("version") != s.Pages.version {
		return web.NoSuchRoute()
	}
	return a.serve(c.w, c.r, forGood)
}

// favicon serves the icon at /favicon.ico, which browsers request on their own.
func (s *surface) favicon(c *call) error { return s.Pages.assets["icon.svg"].serve(c.w, c.r, forADay) }
