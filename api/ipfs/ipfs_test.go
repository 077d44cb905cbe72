package ipfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	mh "github.com/multiformats/go-multihash"
	"github.com/prometheus/client_golang/prometheus"
)

// host is a host of the gateway of tests.
const host = "dweb.example.org"

// library is public content in memory. Its files are raw blocks.
type library struct {
	// mu guards the fields below.
	mu      sync.Mutex
	blocks  map[cid.Cid][]byte
	refuses map[cid.Cid]error // of Public
	missing map[cid.Cid]error // of blocks
	asked   []cid.Cid         // of Public
	read    int               // blocks
}

func (l *library) Public(_ context.Context, root cid.Cid) (content.DAG, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, root)
	if err := l.refuses[root]; err != nil {
		return nil, err
	}
	if l.blocks[root] == nil && l.missing[root] == nil && root.Prefix().MhType != mh.IDENTITY {
		return nil, state.Errorf(state.CodeNotFound, "%s is not here", root)
	}
	return l, nil
}

func (l *library) Block(_ context.Context, c cid.Cid) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read++
	if err := l.missing[c]; err != nil {
		return nil, err
	}
	if c.Prefix().MhType == mh.IDENTITY {
		d, err := mh.Decode(c.Hash())
		return d.Digest, err
	}
	data, ok := l.blocks[c]
	if !ok {
		return nil, state.Errorf(state.CodeNotFound, "%s is not here", c)
	}
	return data, nil
}

type file struct{ *bytes.Reader }

func (file) Close() error { return nil }

func (l *library) File(ctx context.Context, c cid.Cid) (io.ReadSeekCloser, uint64, error) {
	data, err := l.Block(ctx, c)
	if err != nil {
		return nil, 0, err
	}
	return file{bytes.NewReader(data)}, uint64(len(data)), nil
}

// raw adds a raw block.
func (l *library) raw(data []byte) cid.Cid {
	sum, err := mh.Sum(data, mh.SHA2_256, -1)
	if err != nil {
		panic(err)
	}
	c := cid.NewCidV1(cid.Raw, sum)
	l.blocks[c] = data
	return c
}

// folder adds a folder of entries.
func (l *library) folder(entries map[string]cid.Cid) cid.Cid {
	n := unixfs.EmptyDirNode()
	if err := n.SetCidBuilder(merkledag.V1CidPrefix()); err != nil {
		panic(err)
	}
	for name, c := range entries {
		if err := n.AddRawLink(name, &ipld.Link{Cid: c, Size: uint64(len(l.blocks[c]))}); err != nil {
			panic(err)
		}
	}
	l.blocks[n.Cid()] = n.RawData()
	return n.Cid()
}

// ready implements web.Health.
type ready struct{}

func (ready) Ready(context.Context) error { return nil }

type world struct {
	*library

	t   *testing.T
	log *bytes.Buffer
	h   http.Handler
}

func newWorld(t *testing.T, change func(*Options)) *world {
	t.Helper()
	w := &world{t: t, library: &library{blocks: map[cid.Cid][]byte{}, refuses: map[cid.Cid]error{}, missing: map[cid.Cid]error{}}, log: new(bytes.Buffer)}
	o := Options{Content: w.library, Hosts: []string{host}, Health: ready{}, Logger: slog.New(slog.NewTextHandler(w.log, nil)), Version: "1"}
	if change != nil {
		change(&o)
	}
	var err error
	if w.h, err = New(o); err != nil {
		t.Fatal(err)
	}
	return w
}

// do sends a request for a URL.
func (w *world) do(method, url string, headers ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, url, http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	w.h.ServeHTTP(answer, r)
	return answer
}

// Content that everybody may read is served at a path and at a host of its own, and each request is checked once.
func TestPublicContentIsServed(t *testing.T) {
	w := newWorld(t, nil)
	small := w.raw([]byte("text"))
	page := w.raw([]byte("<p>page</p>"))
	sub := w.folder(map[string]cid.Cid{"index.html": page})
	root := w.folder(map[string]cid.Cid{"a.txt": small, "sub": sub, "_redirects": w.raw([]byte("/gone /sub/ 302\n/all/* /a.txt 200\n"))})
	at, below := "http://127.0.0.1:8080/ipfs/"+root.String(), "http://"+root.String()+".ipfs."+host
	for _, tc := range []struct {
		url      string
		headers  []string
		status   int
		body     string // "" is any
		location string
	}{
		{at + "/a.txt", nil, 200, "text", ""},
		{at + "/a.txt", []string{"Range", "bytes=1-2"}, 206, "ex", ""},
		{at + "/a.txt", []string{"Range", "bytes=-2"}, 206, "xt", ""},
		{at + "/a.txt", []string{"Range", "bytes=-20"}, 206, "text", ""},
		{at + "/a.txt", []string{"Range", "bytes=9-"}, 416, "", ""},
		{at + "/sub/", nil, 200, "<p>page</p>", ""},
		{at + "/sub", nil, 301, "", "/ipfs/" + root.String() + "/sub/"},
		{at + "?format=raw", nil, 200, string(w.blocks[root]), ""},
		{"http://127.0.0.1/ipfs/" + small.String(), nil, 200, "text", ""},
		{at + "/gone", nil, 404, "", ""}, // redirects need a host of their own
		{below + "/a.txt", nil, 200, "text", ""},
		{below + "/gone", nil, 302, "", "/sub/"},
		{below + "/all/x/y", nil, 200, "text", ""},
		{below + "/healthz", nil, 404, "", ""},
		{"http://" + strings.ToUpper(root.String()) + ".IPFS.DWEB.example.org/a.txt", nil, 200, "text", ""},
		{"http://" + host + "/ipfs/" + root.String() + "/a.txt", nil, 301, "", below + "/a.txt"},
		{"http://localhost:1/ipfs/" + root.String() + "/a.txt", nil, 301, "", "http://" + root.String() + ".ipfs.localhost:1/a.txt"},
		{"http://127.0.0.1/ipfs/ipfs/" + root.String(), nil, 301, "", "/ipfs/" + root.String()},
		{"http://127.0.0.1/healthz", nil, 200, "", ""},
		{"http://127.0.0.1/readyz", nil, 200, "", ""},
	} {
		w.asked = nil
		r := w.do(http.MethodGet, tc.url, tc.headers...)
		if r.Code != tc.status || tc.body != "" && r.Body.String() != tc.body || r.Header().Get("Location") != tc.location {
			t.Errorf("%s %v: %d %.100q to %q, want %d %q to %q", tc.url, tc.headers, r.Code, r.Body, r.Header().Get("Location"), tc.status, tc.body, tc.location)
		}
		if r.Header().Get("Access-Control-Allow-Origin") != "*" || r.Header().Get("X-Content-Type-Options") != "nosniff" || r.Header().Get("Content-Security-Policy") != "" && r.Code < 300 && strings.Contains(tc.url, "ipfs") {
			t.Errorf("%s: headers %v", tc.url, r.Header())
		}
		if len(w.asked) > 1 {
			t.Errorf("%s: it was checked %d times", tc.url, len(w.asked))
		}
	}
	if r := w.do(http.MethodHead, at+"/a.txt"); r.Code != 200 || r.Header().Get("Content-Length") != "4" || r.Body.Len() > 0 {
		t.Errorf("HEAD: %d %v", r.Code, r.Header())
	}
	list := w.do(http.MethodGet, at+"/")
	if !strings.Contains(list.Body.String(), "a.txt") {
		t.Errorf("list: %d %s", list.Code, list.Body)
	}
	if r := w.do(http.MethodGet, at+"/", "If-None-Match", list.Header().Get("Etag")); r.Code != http.StatusNotModified {
		t.Errorf("with its Etag: %d", r.Code)
	}
	for _, format := range []string{"car", "tar"} {
		if r := w.do(http.MethodHead, at+"?format="+format); r.Code != 200 || r.Body.Len() > 0 || r.Header().Get("Content-Type") == "" {
			t.Errorf("HEAD of %s: %d %v", format, r.Code, r.Header())
		}
		if r := w.do(http.MethodGet, at+"?format="+format); r.Code != 200 || !strings.Contains(r.Body.String(), "<p>page</p>") {
			t.Errorf("%s: %d %q", format, r.Code, r.Body)
		}
	}
	if r := w.do(http.MethodOptions, at, "Origin", "https://example.org", "Access-Control-Request-Method", "GET"); r.Code != http.StatusNoContent || r.Header().Get("Allow") != "GET, HEAD, OPTIONS" {
		t.Errorf("OPTIONS: %d %v", r.Code, r.Header())
	}
}

// What is not served reads no block, says why in plain text, and may not be cached.
func TestRequestsAreRefused(t *testing.T) {
	w := newWorld(t, nil)
	root := w.raw([]byte("text"))
	private, fetching, silent, slow, odd := w.raw([]byte("1")), w.raw([]byte("2")), w.raw([]byte("3")), w.raw([]byte("4")), w.raw([]byte("5"))
	w.refuses[private] = state.Errorf(state.CodeNotFound, "it is not public")
	w.refuses[fetching] = fmt.Errorf("%w: %w", state.Errorf(state.CodeNotFound, "try later"), content.ErrFetching)
	w.refuses[silent] = state.Errorf(state.CodeUnavailable, "2 members are silent")
	w.refuses[slow] = context.DeadlineExceeded
	w.refuses[odd] = errors.New("disk: a secret path")
	below := func(c cid.Cid) string { return "http://" + c.String() + ".ipfs." + host + "/" }
	for _, tc := range []struct {
		method, url string
		headers     []string
		status      int
		text        string
	}{
		{"GET", "http://x/ipfs/" + private.String(), nil, 404, "it is not public"},
		{"GET", below(private), nil, 404, "it is not public"},
		{"GET", "http://x/ipfs/" + private.String() + "/a/b?format=car", nil, 404, "it is not public"},
		{"HEAD", "http://x/ipfs/" + private.String(), nil, 404, ""},
		{"GET", "http://x/ipfs/" + private.String(), []string{"Cache-Control", "only-if-cached"}, 412, "it is not public"},
		{"GET", "http://x/ipfs/" + fetching.String(), nil, 404, "try later"},
		{"GET", "http://x/ipfs/" + silent.String(), nil, 504, "2 members are silent"},
		{"GET", "http://x/ipfs/" + slow.String(), nil, 504, "in time"},
		{"GET", "http://x/ipfs/" + odd.String(), nil, 500, "internal error"},
		{"GET", "http://x/ipfs/hello", nil, 400, "invalid"},
		{"GET", "http://x/ipfs/", nil, 400, ""},
		{"GET", "http://x/ipns/example.org/a", nil, 501, "IPNS"},
		{"GET", "http://example-org.ipns." + host + "/a", nil, 501, "IPNS"},
		{"GET", "http://" + host + "/ipns/example.org", nil, 501, "IPNS"},
		{"GET", "http://x/ipfs/" + root.String() + "?format=ipns-record", nil, 501, "IPNS"},
		{"GET", "http://x/ipfs/" + root.String(), []string{"Accept", "application/vnd.ipld.unknown"}, 400, "application/vnd.ipld.unknown"},
		{"GET", "http://x/ipfs/" + root.String(), []string{"Accept", "text/html, application/vnd.ipfs.ipns-record"}, 400, "ipns-record"},
		{"GET", "http://x/ipfs/" + root.String() + strings.Repeat("/a", maxSegments+1), nil, 400, "257 names"},
		{"GET", "http://x/", nil, 404, "IPFS gateway"},
		{"GET", "http://x/ipld/" + root.String(), nil, 404, ""},
		{"GET", "http://x//ipfs/" + root.String(), nil, 404, ""},
		{"POST", "http://x/ipfs/" + root.String(), nil, 405, "GET, HEAD, OPTIONS"},
		{"PUT", below(root), nil, 405, ""},
	} {
		w.read = 0
		r := w.do(tc.method, tc.url, tc.headers...)
		if r.Code != tc.status || !strings.Contains(r.Body.String(), tc.text) {
			t.Errorf("%s %s %v: %d %.200q, want %d %q", tc.method, tc.url, tc.headers, r.Code, r.Body, tc.status, tc.text)
		}
		if r.Header().Get("Cache-Control") != "no-store" || !strings.HasPrefix(r.Header().Get("Content-Type"), "text/plain") || r.Header().Get("Etag") != "" {
			t.Errorf("%s %s: headers %v", tc.method, tc.url, r.Header())
		}
		if w.read > 0 || strings.Contains(r.Body.String(), "secret") {
			t.Errorf("%s %s: %d blocks were read: %s", tc.method, tc.url, w.read, r.Body)
		}
	}
	if r := w.do("GET", "http://x/ipfs/"+fetching.String()); r.Header().Get("Retry-After") != "5" {
		t.Errorf("of content that is still fetched: %v", r.Header())
	}
}

// A block that no member sends is 504 before the answer has begun, and cuts the answer after that. A block that is not
// public is 404, or cuts the answer too. Both are no failures of the node, as everybody can ask for such content.
func TestContentThatCannotBeReadIsCut(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
	}{{state.Errorf(state.CodeUnavailable, "members are away"), 504}, {state.Errorf(state.CodeNotFound, "not public"), 404}} {
		t.Run(tc.err.Error(), func(t *testing.T) {
			w := newWorld(t, nil)
			lost := w.raw([]byte("lost"))
			small := w.folder(map[string]cid.Cid{"a": w.raw([]byte("here")), "lost": lost})
			large := w.folder(map[string]cid.Cid{"a": w.raw(make([]byte, 2*maxEarly)), "lost": lost})
			delete(w.blocks, lost)
			w.missing[lost] = tc.err
			for _, path := range []string{"/lost", "/lost?format=raw", "?format=car", "?format=tar"} {
				r := w.do("GET", "http://x/ipfs/"+small.String()+path)
				if r.Code != tc.status || r.Header().Get("Cache-Control") != "no-store" || r.Header().Get("Etag") != "" || r.Header().Get("X-Stream-Error") != "" || strings.Contains(r.Body.String(), "here") {
					t.Errorf("%s: %d %v %q", path, r.Code, r.Header(), r.Body)
				}
			}
			for _, format := range []string{"car", "tar"} {
				if !w.isCut("http://x/ipfs/" + large.String() + "?format=" + format) {
					t.Errorf("%s was not cut", format)
				}
			}
			if strings.Contains(w.log.String(), "level=ERROR") {
				t.Errorf("logged: %s", w.log)
			}
			w.missing[lost] = errors.New("disk is gone")
			if !w.isCut("http://x/ipfs/"+large.String()+"?format=car") || !strings.Contains(w.log.String(), "level=ERROR") {
				t.Errorf("a failure of the node is not logged: %s", w.log)
			}
		})
	}
}

// isCut returns whether the answer to GET of a URL is cut.
func (w *world) isCut(url string) (cut bool) {
	w.t.Helper()
	defer func() { cut = recover() == http.ErrAbortHandler }() //nolint:errorlint // as net/http compares it
	w.do("GET", url)
	return false
}

// Content that boxo cannot serve is an error with its text, and no failure of the node. A failure of the node is logged and
// keeps its text to itself.
func TestFailuresOfContentAreNotThoseOfTheNode(t *testing.T) {
	w := newWorld(t, nil)
	page := w.raw([]byte("text"))
	bad := w.folder(map[string]cid.Cid{"_redirects": w.raw([]byte("/a /b /c /d nonsense\n")), "..": page})
	for url, want := range map[string]int{
		"http://" + bad.String() + ".ipfs." + host + "/none": 500, "http://x/ipfs/" + bad.String() + "?format=tar": 422,
	} {
		if r := w.do("GET", url); r.Code != want || r.Body.Len() < 20 || r.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %s", url, r.Code, r.Body)
		}
	}
	if w.log.Len() > 0 {
		t.Errorf("logged: %s", w.log)
	}
	w.missing[page] = errors.New("disk: a secret path")
	r := w.do("GET", "http://x/ipfs/"+page.String())
	if r.Code != 500 || strings.Contains(r.Body.String(), "secret") || !strings.Contains(w.log.String(), "level=ERROR") || !strings.Contains(w.log.String(), "secret") {
		t.Errorf("%d %s, logged: %s", r.Code, r.Body, w.log)
	}
}

// A request cannot make the node read more memory than its network may use, and a folder with too many entries has no
// page.
func TestTheMemoryOfRequestsIsBounded(t *testing.T) {
	limits := web.NewLimits(web.Rate{}, web.Rate{}, nil, nil)
	w := newWorld(t, func(o *Options) { o.Limits = limits })
	small := w.raw([]byte("text"))
	many := map[string]cid.Cid{}
	for i := range maxListed + 1 {
		many[fmt.Sprintf("%05d", i)] = small
	}
	long := w.folder(many)
	delete(many, "00000")
	fits := w.folder(many)
	if r := w.do("GET", "http://x/ipfs/"+long.String()+"/"); r.Code != http.StatusNotImplemented || !strings.Contains(r.Body.String(), "too long for a page") {
		t.Errorf("%d entries: %d %.200s", maxListed+1, r.Code, r.Body)
	}
	if r := w.do("GET", "http://x/ipfs/"+long.String()+"/00001"); r.Code != 200 || r.Body.String() != "text" {
		t.Errorf("an entry: %d %s", r.Code, r.Body)
	}
	if r := w.do("GET", "http://x/ipfs/"+fits.String()+"/"); r.Code != 200 || strings.Count(r.Body.String(), small.String()) < maxListed {
		t.Errorf("%d entries: %d", maxListed, r.Code)
	}
	other := httptest.NewRequestWithContext(t.Context(), "GET", "/", http.NoBody)
	held := limits.HoldFor(other)
	for held.Grow(fileMemory) == nil {
	}
	r := w.do("GET", "http://x/ipfs/"+small.String())
	if r.Code != http.StatusTooManyRequests || r.Header().Get("Retry-After") == "" {
		t.Errorf("without memory: %d %v", r.Code, r.Header())
	}
	held.Release()
	if r := w.do("GET", "http://x/ipfs/"+small.String()); r.Code != 200 {
		t.Errorf("with memory again: %d", r.Code)
	}
}

// Each block of a CAR counts against the memory of the client, and is free after the request.
func TestACARCountsItsBlocks(t *testing.T) {
	limits := web.NewLimits(web.Rate{}, web.Rate{}, nil, nil)
	w := newWorld(t, func(o *Options) { o.Limits = limits })
	entries := map[string]cid.Cid{"0": w.raw(make([]byte, 2*maxEarly))}
	const leaves = 100
	for i := range leaves {
		entries[fmt.Sprint(i+1)] = w.raw(fmt.Append(nil, "leaf ", i))
	}
	car := "http://x/ipfs/" + w.folder(entries).String() + "?format=car"
	other := limits.HoldFor(httptest.NewRequestWithContext(t.Context(), "GET", "/", http.NoBody))
	free := func() (n int64) {
		for other.Grow(carBlock) == nil {
			n += carBlock
		}
		other.Release()
		return n
	}
	all := free()
	if r := w.do("GET", car); r.Code != 200 || !strings.Contains(r.Body.String(), fmt.Sprint("leaf ", leaves-1)) {
		t.Fatalf("%d %d bytes", r.Code, r.Body.Len())
	}
	if now := free(); now != all {
		t.Errorf("%d bytes are free after a CAR, %d were before", now, all)
	}
	if err := other.Grow(all - fileMemory - leaves/2*carBlock); err != nil {
		t.Fatal(err)
	}
	if !w.isCut(car) {
		t.Error("a CAR above the memory was not cut")
	}
	if strings.Contains(w.log.String(), "level=ERROR") {
		t.Errorf("logged: %s", w.log)
	}
}

// HEAD of a CAR does not read the whole DAG.
func TestTheHeadOfACARReadsItsBeginning(t *testing.T) {
	w := newWorld(t, nil)
	entries := map[string]cid.Cid{}
	for i := range 100 {
		entries[fmt.Sprint(i)] = w.raw(bytes.Repeat([]byte{byte(i)}, maxEarly))
	}
	root := w.folder(entries)
	for _, format := range []string{"car", "tar"} {
		w.read = 0
		r := w.do(http.MethodHead, "http://x/ipfs/"+root.String()+"?format="+format)
		if r.Code != 200 || r.Body.Len() > 0 || w.read > 20 {
			t.Errorf("%s: %d, %d bytes, %d blocks were read", format, r.Code, r.Body.Len(), w.read)
		}
	}
}

// What a read that outlives its request would reserve is refused, because nobody would give it back.
func TestAnEndedRequestReservesNothing(t *testing.T) {
	limits := web.NewLimits(web.Rate{}, web.Rate{}, nil, nil)
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", http.NoBody)
	large := block.NewBlock(make([]byte, 2*maxCachedBytes)) // its CID is that of a node
	if err := (&request{held: limits.HoldFor(r)}).took(large); err != nil {
		t.Errorf("before the end: %v", err)
	}
	q := &request{held: limits.HoldFor(r)}
	q.end()
	if q.took(large) == nil || q.listed() == nil {
		t.Error("after the end memory was reserved")
	}
}

// Only a trusted proxy can tell the host and the scheme of a request.
func TestOnlyATrustedProxyTellsTheHost(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		w := newWorld(t, func(o *Options) {
			if trusted {
				o.Limits = web.NewLimits(web.Rate{}, web.Rate{}, prefixes("192.0.2.0/24"), nil) // that of httptest
			}
		})
		root := w.raw([]byte("text"))
		url := "http://x/ipfs/" + root.String()
		r := w.do("GET", url, "X-Forwarded-Host", host, "X-Forwarded-Proto", "https")
		if want := "https://" + root.String() + ".ipfs." + host + "/"; trusted && (r.Code != 301 || r.Header().Get("Location") != want) || !trusted && r.Code != 200 {
			t.Errorf("trusted %v: %d to %q", trusted, r.Code, r.Header().Get("Location"))
		}
		r = w.do("GET", "http://"+host+"/ipfs/"+root.String(), "X-Forwarded-Proto", "https")
		if got := r.Header().Get("Location"); strings.HasPrefix(got, "https://") != trusted {
			t.Errorf("trusted %v: to %q", trusted, got)
		}
	}
}

// The requests of one address have a rate.
func TestAnAddressHasARate(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Limits = web.NewLimits(web.Rate{}, web.Rate{PerSecond: 1, Burst: 2}, nil, nil) })
	root := w.raw([]byte("text"))
	last := 0
	for range 3 {
		last = w.do("GET", "http://x/ipfs/"+root.String()).Code
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the third request at once: %d", last)
	}
	if r := w.do("GET", "http://x/readyz"); r.Code != 200 {
		t.Errorf("a health check: %d", r.Code)
	}
}

// The gateway does not touch the default Prometheus registry, and requests with invented formats add no time series.
func TestMetricsAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics, err := web.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	before, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *Options) { o.Metrics = metrics })
	root := w.raw([]byte("text"))
	for i := range 50 {
		w.do("GET", "http://x/ipfs/"+root.String(), "Accept", fmt.Sprintf("application/vnd.ipld.x%d", i))
		w.do("GET", "http://x/ipfs/"+root.String()+fmt.Sprintf("?format=x%d", i))
	}
	after, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before) {
		t.Errorf("the default registry has %d families, had %d", len(after), len(before))
	}
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, f := range all {
		series += len(f.GetMetric())
	}
	if series > 10 {
		t.Errorf("%d time series: %v", series, all)
	}
}

// A node that starts answers health checks, and 503 to all else.
func TestAGatewayThatStartsIsUnavailable(t *testing.T) {
	h := Starting(Options{Health: notReady{}, Logger: slog.New(slog.DiscardHandler)})
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/ipfs/bafkqaaa": 503} {
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), "GET", path, http.NoBody))
		if r.Code != want {
			t.Errorf("%s: %d %s", path, r.Code, r.Body)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("New without its dependencies")
	}
}

type notReady struct{}

func (notReady) Ready(context.Context) error { return errors.New("it starts") }

// boxo reads nothing if a request was not checked.
func TestBlocksAreReadForCheckedRequestsOnly(t *testing.T) {
	c := block.NewBlock([]byte("x")).Cid()
	ctx := context.WithValue(t.Context(), requestKey{}, &request{})
	if _, err := (blocks{}).Get(ctx, c); err == nil {
		t.Error("a block was read")
	}
	if _, _, err := openFile(ctx, c); err == nil {
		t.Error("a file was opened")
	}
}

func prefixes(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
