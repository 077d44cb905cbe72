package console

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// wire counts the bytes that a client receives.
type wire struct {
	net.Conn
	received *atomic.Int64
}

func (c wire) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err //nolint:wrapcheck // as the connection has it
}

// named are the files that a page or a script names.
var named = regexp.MustCompile(`"(/static/[^"]+)"|from '\./([^']+)'`)

// onTheWire returns the bytes of all answers, headers included, that a page and its files take on one
// connection of a client that accepts gzip.
func (b *browser) onTheWire(page string) (received int64, files []string) {
	b.t.Helper()
	server := httptest.NewServer(b.handler)
	defer server.Close()
	var count atomic.Int64
	transport := &http.Transport{DisableCompression: true, MaxConnsPerHost: 1, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		return wire{conn, &count}, err
	}}
	defer transport.CloseIdleConnections()
	base := ""
	for queue := []string{page}; len(queue) > 0; queue = queue[1:] {
		r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, server.URL+queue[0], nil)
		if err != nil {
			b.t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
		for name, value := range b.cookies {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			b.t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			b.t.Fatalf("%s is answered with %d, %v", queue[0], answer.StatusCode, err)
		}
		_ = answer.Body.Close()
		zipped := answer.Header.Get("Content-Encoding") == "gzip"
		if zipped {
			body = unzipped(b.t, body)
		}
		if queue[0] != page {
			files = append(files, queue[0])
		}
		for _, m := range named.FindAllStringSubmatch(string(body), -1) {
			path := m[1]
			if path == "" {
				path = base + m[2]
			}
			base = path[:strings.LastIndex(path, "/")+1]
			if !slices.Contains(queue, path) && !slices.Contains(files, path) {
				queue = append(queue, path)
			}
		}
	}
	return count.Load(), files
}

func unzipped(t testing.TB, body []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// The first page, and the page that opens a share, take less than 32 KB on the wire with all their files.
func TestTheFirstPagesAreSmallOnTheWire(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	for page, script := range map[string]string{"/": "live.js", "/shared": "hpke.js"} {
		received, files := b.onTheWire(page)
		if received > 32_000 {
			t.Errorf("%s takes %d bytes with %v", page, received, files)
		}
		if !slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, "/"+script) }) {
			t.Errorf("%s does not load %s: %v", page, script, files)
		}
		t.Logf("%s: %d bytes", page, received)
	}
}

// Each file has two forms with tags of their own. A cache learns from Vary that they differ, and Range is
// ignored in both.
func TestFilesAreServedCompressed(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	_, body := b.get("/sign-in")
	path := "/static/" + textBetween(body, `href="/static/`, `console.css"`) + "console.css"
	get := func(header http.Header) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		for name, values := range header {
			r.Header[name] = values
		}
		return b.do(r)
	}
	plain, zipped := get(nil), get(http.Header{"Accept-Encoding": {"gzip"}})
	if !bytes.Equal(unzipped(t, zipped.Body.Bytes()), plain.Body.Bytes()) || zipped.Body.Len() > plain.Body.Len()/2 {
		t.Errorf("%d bytes of %d", zipped.Body.Len(), plain.Body.Len())
	}
	tags := map[string]bool{}
	for _, answer := range []*httptest.ResponseRecorder{plain, zipped} {
		tag := answer.Header().Get("ETag")
		encoding := answer.Header().Get("Content-Encoding")
		if tags[tag] || tag == "" || !slices.Contains(answer.Header().Values("Vary"), "Accept-Encoding") || answer.Header().Get("Content-Type") != "text/css; charset=utf-8" {
			t.Errorf("%q is answered with %v", encoding, answer.Header())
		}
		tags[tag] = true
		accepts := http.Header{"Accept-Encoding": {encoding}, "If-None-Match": {`"x", W/` + tag}}
		again := get(accepts)
		if again.Code != http.StatusNotModified || again.Body.Len() > 0 || again.Header().Get("ETag") != tag || again.Header().Get("Content-Encoding") != "" {
			t.Errorf("%q again is answered with %d, %v", encoding, again.Code, again.Header())
		}
		part := get(http.Header{"Accept-Encoding": {encoding}, "Range": {"bytes=1-2"}})
		if part.Code != http.StatusOK || part.Body.Len() != answer.Body.Len() {
			t.Errorf("a range of %q is answered with %d, %d bytes", encoding, part.Code, part.Body.Len())
		}
	}
	if other := get(http.Header{"If-None-Match": {zipped.Header().Get("ETag")}}); other.Code != http.StatusOK {
		t.Errorf("the tag of the other form is answered with %d", other.Code)
	}
	head := httptest.NewRequest(http.MethodHead, path, nil)
	if answer := b.do(head); answer.Code != http.StatusOK || answer.Body.Len() > 0 || answer.Header().Get("Content-Length") == "0" {
		t.Errorf("HEAD is answered with %d, %d bytes", answer.Code, answer.Body.Len())
	}
	icon := b.do(httptest.NewRequest(http.MethodGet, "/favicon.ico", nil))
	if icon.Code != http.StatusOK || icon.Header().Get("Content-Type") != "image/svg+xml" || icon.Header().Get("Cache-Control") != forADay {
		t.Errorf("the icon is answered with %d, %v", icon.Code, icon.Header())
	}
	pages, err := LoadPages()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, a := range pages.assets {
		total += len(a.zipped.bytes)
		if a.zipped.bytes != nil && cap(a.zipped.bytes) > len(a.zipped.bytes)*5/4 {
			t.Errorf("%d bytes take %d", len(a.zipped.bytes), cap(a.zipped.bytes))
		}
	}
	if total > 64<<10 {
		t.Errorf("the compressed files take %d bytes", total)
	}
}

// A client gets gzip only if its Accept-Encoding names gzip or * with a weight above 0 (RFC 9110, section 12.5.3).
func TestWhoAcceptsGzip(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "x-gzip": true, "br": false, "deflate, gzip;q=1.0, *;q=0.5": true, "gzip;q=0": false,
		"gzip ; q=0.0": false, "gzip;q=0.001": true, "*": true, "*;q=0": false, "identity": false, "gzip;q=0, *": false, "*, gzip;q=0": false,
		"br;q=1, *;q=0.1": true, "gzip;q=x": false, "gzip;": false, "gzips": false,
	} {
		if acceptsGzip([]string{value}) != want {
			t.Errorf("%q: %t", value, !want)
		}
	}
	if !acceptsGzip([]string{"br", "gzip"}) || acceptsGzip(nil) {
		t.Error("two headers, or none")
	}
}
