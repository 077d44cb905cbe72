package client

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// pinned is a pinning API and a web API in memory, which all nodes of a cluster serve below their gateways.
type pinned struct {
	mu      sync.Mutex
	pins    []PinStatus // newest first
	once    map[string]string
	bodies  []string // of uploads
	headers []http.Header
	lose    map[string]int // number of answers to lose by method and path
	refuse  func(r *http.Request) (status int, body string)
	queries []string
}

// serves makes each node of c serve the APIs.
func (p *pinned) serves(c *cluster) {
	p.once, p.lose = map[string]string{}, map[string]int{}
	for _, n := range c.nodes {
		n.breaks(p.answers(n.server.URL))
	}
}

func (p *pinned) answers(base string) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		path, pinning := strings.CutPrefix(r.URL.Path, "/pinning")
		path, web := strings.CutPrefix(path, "/api/v1")
		switch {
		case r.URL.Path == addressesPath:
			if r.Header.Get("Authorization") != "" {
				http.Error(w, "the token is for the gateway alone", http.StatusTeapot)
				return true
			}
			fmt.Fprintf(w, `{"pinning":%q,"web":%q}`, base+"/pinning", base+"/api/v1")
			return true
		case !pinning && !web:
			return false
		}
		p.mu.Lock()
		refuses := p.refuse != nil
		p.mu.Unlock()
		var body []byte
		if !refuses {
			var err error
			if body, err = io.ReadAll(r.Body); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.headers = append(p.headers, r.Header)
		p.queries = append(p.queries, r.URL.RawQuery)
		if p.refuse != nil {
			if status, text := p.refuse(r); status != 0 {
				w.WriteHeader(status)
				fmt.Fprint(w, text)
				return true
			}
			body, _ = io.ReadAll(r.Body)
		}
		answer, status := p.serve(r, path, body)
		if key := r.Method + " " + path; p.lose[key] > 0 {
			p.lose[key]--
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer)
		return true
	}
}

func (p *pinned) serve(r *http.Request, path string, body []byte) (any, int) {
	create := func(pin Pin) PinStatus {
		key := r.Header.Get("Idempotency-Key")
		if at := slices.IndexFunc(p.pins, func(s PinStatus) bool { return s.RequestID == p.once[key] }); at >= 0 {
			return p.pins[at]
		}
		id := fmt.Sprint("id", len(p.once)+1)
		p.once[key] = id
		p.pins = slices.Insert(p.pins, 0, PinStatus{RequestID: id, Status: "queued", Created: id, Pin: pin})
		return p.pins[0]
	}
	id := strings.TrimPrefix(path, "/pins/")
	at := slices.IndexFunc(p.pins, func(s PinStatus) bool { return s.RequestID == id })
	switch {
	case path == "/pins/upload":
		p.bodies = append(p.bodies, string(body))
		s := create(Pin{CID: "root", Name: r.URL.Query().Get("name")})
		return UploadedPins{Pins: []UploadedPin{{s.RequestID, "root", s.Pin.Name, "queued"}}, Size: uint64(len(body))}, http.StatusCreated
	case r.Method == http.MethodPost:
		var pin Pin
		_ = json.Unmarshal(body, &pin) // an empty CID fails the test
		return create(pin), http.StatusAccepted
	case path == "/pins":
		from := 1 + slices.IndexFunc(p.pins, func(s PinStatus) bool { return s.Created == r.URL.Query().Get("before") })
		rows := p.pins[from:]
		return map[string]any{"count": len(rows), "results": rows[:min(2, len(rows))]}, http.StatusOK
	case at < 0:
		return json.RawMessage(`{"error":{"reason":"NOT_FOUND","details":"there is no such pin"}}`), http.StatusNotFound
	case r.Method == http.MethodDelete:
		p.pins = slices.Delete(p.pins, at, at+1)
		return struct{}{}, http.StatusAccepted
	}
	if r.URL.Query().Has("wait") {
		p.pins[at].Status = "pinned"
	}
	return p.pins[at], http.StatusOK
}

// Pins are added, listed in pages, read, waited for and removed through the APIs that the gateways name. If a node fails
// after it has done what was asked, the next node is asked, and there is no second pin and no error.
func TestPinsThroughAnyNode(t *testing.T) {
	c, p := newCluster(t, 3), new(pinned)
	p.serves(c)
	client := c.client()
	p.lose = map[string]int{"POST /pins": 1, "DELETE /pins/id1": 1, "GET /pins": 1, "GET /pins/id2": 1, "POST /pins/upload": 1}
	for i := range 3 {
		s, err := client.AddPin(t.Context(), Pin{CID: fmt.Sprint("cid", i), Meta: map[string]string{"a": "b"}, Until: "720h"})
		if err != nil || s.RequestID != fmt.Sprint("id", i+1) || s.Pin.CID != fmt.Sprint("cid", i) {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if got := p.headers[0]; got.Get("X-Holdfast-Until") != "720h" || got.Get("Authorization") != "Bearer token" || len(got.Get("Idempotency-Key")) < 20 {
		t.Errorf("the headers are %v", got)
	}
	var ids []string
	for s, err := range client.Pins(t.Context(), PinFilter{Name: "n", Meta: map[string]string{"a": "b"}}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.RequestID)
	}
	if !slices.Equal(ids, []string{"id3", "id2", "id1"}) || !slices.ContainsFunc(p.queries, func(q string) bool {
		return strings.Contains(q, "status=queued%2Cpinning%2Cpinned%2Cfailed") && strings.Contains(q, "name=n") && strings.Contains(q, "meta=%7B%22a%22%3A%22b%22%7D")
	}) {
		t.Errorf("listed %q by %q", ids, p.queries)
	}
	var seen []string
	s, err := client.WaitPin(t.Context(), "id2", func(s PinStatus) { seen = append(seen, s.Status) })
	if err != nil || !slices.Equal(seen, []string{"queued", "pinned"}) || s.Status != "pinned" {
		t.Errorf("%+v, %v, seen %q", s, err, seen)
	}
	if err := client.RemovePin(t.Context(), "id1"); err != nil {
		t.Errorf("a removal whose answer was lost: %v", err)
	}
	err = client.RemovePin(t.Context(), "id1")
	if want := "pin rm: NOT_FOUND: there is no such pin (http://"; !errors.Is(err, ErrNotFound) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	done, err := client.UploadPin(t.Context(), PinUpload{Name: "n", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("bytes")), nil }})
	if err != nil || len(done.Pins) != 1 || done.Size != 5 || !slices.Equal(p.bodies, []string{"bytes", "bytes"}) {
		t.Errorf("%+v, %v, bodies %q", done, err, p.bodies)
	}
	if len(p.pins) != 3 { // two that remain, and that of the upload
		t.Errorf("pins: %+v", p.pins)
	}
}

// An upload from a source that can be read once is not repeated after a node has read from it, and the error says that it
// may be stored. A source that fails ends the upload with its own error. A refusal is not repeated, but if a node has
// no room, each other node is asked once.
func TestAnUploadThatCannotBeRepeated(t *testing.T) {
	c, p := newCluster(t, 2), new(pinned)
	p.serves(c)
	client := c.client()
	broken := errors.New("the disk is gone")
	for name, tc := range map[string]struct {
		upload PinUpload
		lose   int
		refuse string // an answer of status
		status int
		want   string
	}{
		"a pipe": {upload: PinUpload{Once: true}, lose: 1, want: "it may have been stored"},
		"a file that fails": {upload: PinUpload{Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("x"), failing{broken})), nil
		}}, want: broken.Error()},
		"no file": {upload: PinUpload{Open: func() (io.ReadCloser, error) { return nil, broken }}, want: broken.Error()},
		"a refusal": {
			upload: PinUpload{Type: TypeCAR}, status: http.StatusBadRequest,
			refuse: `{"error":{"reason":"BAD_REQUEST","details":"no CAR"}}`, want: "upload: BAD_REQUEST: no CAR (http",
		},
		"full nodes": {
			status: http.StatusInsufficientStorage,
			refuse: `{"error":{"reason":"INSUFFICIENT_STORAGE","details":"no room"}}`, want: "upload: INSUFFICIENT_STORAGE: no room (http",
		},
	} {
		opened := 0
		if open := tc.upload.Open; open == nil {
			tc.upload.Open = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("bytes")), nil }
		}
		open := tc.upload.Open
		tc.upload.Open = func() (io.ReadCloser, error) { opened++; return open() }
		p.mu.Lock()
		p.lose["POST /pins/upload"], p.refuse = tc.lose, nil
		if tc.refuse != "" {
			p.refuse = func(*http.Request) (int, string) { return tc.status, tc.refuse }
		}
		p.mu.Unlock()
		attempts := 1
		if tc.status == http.StatusInsufficientStorage {
			attempts = len(c.nodes)
		}
		if _, err := client.UploadPin(t.Context(), tc.upload); err == nil || !strings.Contains(err.Error(), tc.want) || opened != attempts {
			t.Errorf("%s: %v after %d attempts, want %q", name, err, opened, tc.want)
		}
	}
}

// failing is a reader with an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A refusal that comes before the body, as of a wrong token, leaves the content unread.
func TestARefusalComesBeforeTheBody(t *testing.T) {
	c, p := newCluster(t, 1), new(pinned)
	p.serves(c)
	p.refuse = func(*http.Request) (int, string) {
		return http.StatusUnauthorized, `{"error":{"reason":"UNAUTHORIZED","details":"no"}}`
	}
	count := &tally{from: tarOf(t, 1<<20)}
	_, err := c.client().UploadPin(t.Context(), PinUpload{Type: TypeTar, Open: func() (io.ReadCloser, error) { return io.NopCloser(count), nil }})
	if !errors.Is(err, ErrDenied) || count.n > 0 {
		t.Errorf("%v, and %d bytes were read", err, count.n)
	}
}

type tally struct {
	from io.Reader
	n    int
}

func (c *tally) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += n
	return n, err
}

func tarOf(t *testing.T, size int) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "a", Size: int64(size), Mode: 0o600}), errors.Join(func() error { _, err := w.Write(make([]byte, size)); return err }()), w.Close()); err != nil {
		t.Fatal(err)
	}
	return &b
}

// What a gateway tells of the other APIs is checked. A node that is down or does not serve an API is passed over. The
// addresses in the options come first, and then no gateway is asked.
func TestTheOtherAPIsAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		told, want string
	}{
		"another server": {"<html>", "this is not the gateway of a Holdfast node"},
		"no API":         {`{"pinning":"","web":""}`, "this node does not serve the pinning API to other machines"},
		"no URL":         {`{"pinning":"ftp://x","web":""}`, `the gateway names "ftp://x", which is no URL`},
	} {
		c := newCluster(t, 2)
		for _, n := range c.nodes {
			n.breaks(func(w http.ResponseWriter, r *http.Request) bool {
				fmt.Fprint(w, tc.told)
				return true
			})
		}
		if _, err := c.client().Pin(t.Context(), "id1"); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}

	c, p := newCluster(t, 4), new(pinned)
	p.serves(c)
	p.pins = []PinStatus{{RequestID: "id1"}}
	c.nodes[0].server.Close()
	c.nodes[1].breaks(func(w http.ResponseWriter, r *http.Request) bool { fmt.Fprint(w, `{}`); return true })
	c.nodes[3].breaks(func(w http.ResponseWriter, r *http.Request) bool { // of an older release
		refuse(w, http.StatusForbidden, "AccessDenied")
		return true
	})
	client := c.client()
	for range 3 {
		if s, err := client.Pin(t.Context(), "id1"); err != nil || s.RequestID != "id1" {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if n := c.number("GET 2 " + addressesPath); n != 1 {
		t.Errorf("the gateway of a node was asked %d times", n)
	}

	other := newCluster(t, 1)
	p.serves(other)
	direct, err := New(Options{Endpoints: []string{c.nodes[1].server.URL}, Console: []string{other.nodes[0].server.URL}, Token: "token", Patience: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	if _, err := direct.UploadPin(t.Context(), PinUpload{Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }}); err != nil {
		t.Error(err)
	}
	if _, err := New(Options{Endpoints: []string{"https://node:9000"}, Pinning: []string{"ftp://x"}}); !errors.Is(err, ErrOptions) {
		t.Errorf("a bad address of the pinning API: %v", err)
	}
}

// A gateway with TLS cannot send the token of the client to an address without TLS.
func TestNoAddressWithoutTLS(t *testing.T) {
	by := roundTrip(func(r *http.Request) (*http.Response, error) {
		body := io.NopCloser(strings.NewReader(`{"pinning":"http://node:9097","web":""}`))
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body, Request: r}, nil
	})
	client, err := New(Options{Endpoints: []string{"https://node:9000"}, Token: "token", Transport: by})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Pin(t.Context(), "id1"); err == nil || !strings.Contains(err.Error(), "has no TLS as the gateway has") {
		t.Error(err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A node that takes no more bytes of an upload is given up, and the next gets the content.
func TestAnUploadDoesNotHang(t *testing.T) {
	c, p := newCluster(t, 2), new(pinned)
	p.serves(c)
	ended := make(chan struct{})
	defer close(ended)
	hangs := p.answers(c.nodes[0].server.URL)
	c.nodes[0].breaks(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/api/v1/pins/upload" {
			return hangs(w, r)
		}
		_, _ = io.ReadFull(r.Body, make([]byte, 1<<10))
		select {
		case <-ended:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	})
	client := c.client()
	client.stall = 500 * time.Millisecond
	size := 16 << 20 // more than the buffers of a connection take
	done, err := client.UploadPin(t.Context(), PinUpload{Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.LimitReader(zeros{}, int64(size))), nil
	}})
	if err != nil || done.Size != uint64(size) || c.number("POST 0") != 1 {
		t.Errorf("%+v, %v", done, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
