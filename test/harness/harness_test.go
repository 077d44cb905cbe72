package harness

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Poll returns the last reason and the error of its context when that ends, and nil as soon as its condition holds.
func TestPollEndsWithTheLastReason(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	reason := errors.New("not yet")
	err := Poll(ctx, time.Millisecond, func() (bool, error) { return false, reason })
	if !errors.Is(err, reason) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	calls := 0
	err = Poll(t.Context(), time.Millisecond, func() (bool, error) { calls++; return calls == 3, nil })
	if err != nil || calls != 3 {
		t.Fatalf("%d calls, %v", calls, err)
	}
}

// A process that is ended is gone, and its end is known.
func TestAProcessIsKilledAndReaped(t *testing.T) {
	p, err := startProcess(exec.Command("tail", "-f", os.DevNull), nil) // never ends by itself
	if err != nil {
		t.Fatal(err)
	}
	if p.ended() {
		t.Fatal("ended at once")
	}
	p.end(t)
	if code, err := p.wait(t.Context()); code != -1 || err != nil || !p.ended() {
		t.Fatalf("after SIGTERM: exit code %d, %v", code, err)
	}
}

// A tail keeps the last logBytes bytes of what is written.
func TestTailKeepsTheEnd(t *testing.T) {
	var l tail
	for range 3 {
		if _, err := l.Write([]byte(strings.Repeat("x", logBytes/2) + "end")); err != nil {
			t.Fatal(err)
		}
	}
	if s := l.String(); len(s) != logBytes || !strings.HasSuffix(s, "end") {
		t.Fatalf("kept %d bytes", len(s))
	}
}

// No port is given twice to one process.
func TestPortsAreNotGivenTwice(t *testing.T) {
	var g given
	seen := map[int]bool{}
	for range 200 {
		port, err := g.free()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d twice", port)
		}
		seen[port] = true
	}
}

// The pinning client returns an error for an answer with another status, an unknown field, a wrong type or further
// bytes.
func TestTheClientRefusesAnswersThatTheSpecificationDoesNotHave(t *testing.T) {
	good := `{"requestid":"1","status":"queued","created":"2026-01-02T03:04:05.678Z","pin":{"cid":"x"},"delegates":[]}`
	for _, tc := range []struct {
		name   string
		status int
		body   string
		ok     bool
	}{
		{"as specified", 202, good, true},
		{"another status", 200, good, false},
		{"an unknown field", 202, good[:len(good)-1] + `,"extra":1}`, false},
		{"bytes after the value", 202, good + "x", false},
		{"info that is not text", 202, good[:len(good)-1] + `,"info":{"dag_size":1}}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.body))
			}))
			defer srv.Close()
			c := PinsClient{Base: srv.URL, HTTP: srv.Client()}
			s, err := c.Post(t.Context(), Pin{CID: "x"})
			if (err == nil) != tc.ok || (tc.ok && s.RequestID != "1") {
				t.Fatalf("%+v, %v", s, err)
			}
		})
	}
}

// An error of the pinning client has the reason and the pause of the answer, and says whether a retry can help.
func TestAnErrorTellsReasonAndRetry(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"error":{"reason":"SERVICE_UNAVAILABLE","details":"no leader"}}`))
	}))
	c := PinsClient{Base: srv.URL, HTTP: srv.Client()}
	_, err := c.Get(t.Context(), "1")
	var api *APIError
	if !errors.As(err, &api) || api.Reason != "SERVICE_UNAVAILABLE" || api.RetryAfter != 2*time.Second || !Retryable(err) {
		t.Fatalf("got %v", err)
	}
	srv.Close()
	if _, err := c.Get(t.Context(), "1"); !Retryable(err) {
		t.Fatalf("a closed server gives %v, which should be retryable", err)
	}
	if Retryable(&APIError{Status: http.StatusBadRequest}) {
		t.Fatal("a bad request is retryable")
	}
}

// ListAll returns every pin, also if a page has fewer rows than its limit. The service ends a page by its bytes too,
// so a short one need not be the last.
func TestEveryPinIsListedFromPagesThatAreShort(t *testing.T) {
	const pins, most = 7, 3
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left := pins
		if before := r.URL.Query().Get("before"); before != "" {
			left, _ = strconv.Atoi(before)
		}
		page := PinResults{Count: left}
		for i := left - 1; i >= max(0, left-most); i-- {
			page.Results = append(page.Results, PinStatus{Created: strconv.Itoa(i)})
		}
		_ = json.NewEncoder(w).Encode(page)
	}))
	defer srv.Close()
	c := PinsClient{Base: srv.URL, HTTP: srv.Client()}
	all, err := c.ListAll(t.Context(), nil, 1000)
	if err != nil || len(all) != pins {
		t.Errorf("%d pins of %d, %v", len(all), pins, err)
	}
}

// A running member waits for a vote only if the cluster is to give it one: not as the fourth of four, beside five
// voters, or in quarantine.
func TestWhoWaitsForAVote(t *testing.T) {
	members := func(roles ...string) (s Status) {
		for i, role := range roles {
			s.Peers = append(s.Peers, PeerRow{ID: string(rune('a' + i)), Role: role})
		}
		return s
	}
	for _, tc := range []struct {
		name string
		in   Status
		runs string // ids
		want string
	}{
		{"alone", members("voter"), "a", ""},
		{"one of three", members("voter", "voter", "nonvoter"), "abc", "c"},
		{"three", members("voter", "voter", "voter"), "abc", ""},
		{"the fourth follows only", members("voter", "nonvoter", "voter", "voter"), "abcd", ""},
		{"the fifth makes the fourth due", members("voter", "voter", "voter", "nonvoter", "voter"), "abcde", "d"},
		{"five are all", members("voter", "voter", "voter", "voter", "voter", "nonvoter", "nonvoter"), "abcdefg", ""},
		{"a dead one waits for ever", members("voter", "voter", "nonvoter"), "ab", ""},
	} {
		runs := map[string][]string{}
		for _, id := range tc.runs {
			runs[string(id)] = nil
		}
		if got := unvoiced(tc.in, runs); got != tc.want {
			t.Errorf("%s: %q waits, want %q", tc.name, got, tc.want)
		}
	}
	out := members("voter", "voter", "nonvoter")
	out.Peers[2].Quarantine = "its state differs"
	if got := unvoiced(out, map[string][]string{"a": nil, "b": nil, "c": nil}); got != "" {
		t.Errorf("%q is in quarantine and waits for a vote", got)
	}
}

// S3 of a node changes nothing of a path, follows no redirect, and sends the length of a body or sends it in chunks.
func TestARequestForAnObjectGoesOutAsItIs(t *testing.T) {
	var uri, auth, pair string
	var length int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uri, auth, pair, length = r.RequestURI, r.Header.Get("Authorization"), r.Header.Get("X-One"), r.ContentLength
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer server.Close()
	n := &Node{s3: strings.TrimPrefix(server.URL, "http://"), http: &http.Client{Transport: (*namespace)(nil).transport()}}
	defer n.http.CloseIdleConnections()
	for _, size := range []int64{4, -1} {
		r, err := n.S3(t.Context(), "token", http.MethodPut, "/b/%2e%2e//k?x=%20y", io.LimitReader(strings.NewReader("body and more"), 4), size, "X-One", "1")
		if err != nil || r.Status != http.StatusFound || r.Header.Get("Location") != "/elsewhere" {
			t.Fatalf("%+v, %v", r, err)
		}
		if uri != "/b/%2e%2e//k?x=%20y" || auth != "Bearer token" || pair != "1" || length != size {
			t.Errorf("%s with %q, %q and %d bytes", uri, auth, pair, length)
		}
	}
	if _, err := n.S3(t.Context(), "", http.MethodGet, "/b", nil, -1); err != nil || auth != "" {
		t.Errorf("without a token %q is sent: %v", auth, err)
	}
}

// CompletionOf returns the body of CompleteMultipartUpload for one part, and PartsETag the ETag that S3 gives to
// the object.
func TestAnUploadIsCompletedByItsParts(t *testing.T) {
	const a = "0cc175b9c0f1b6a831c399e269772661" // MD5 of "a"
	want := `<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"` + a + `"</ETag></Part></CompleteMultipartUpload>`
	if got := string(CompletionOf([]byte("a"))); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := PartsETag([]byte("a")); got != `"b6ff9a06b7e20bcb2858c5b8ff744aea-1"` {
		t.Errorf("the ETag of one part is %s", got)
	}
}

// Resident memory and processor time of a process are those in /proc, and a process that is gone is an error.
func TestAProcessIsMeasured(t *testing.T) {
	held := make([]byte, 64<<20)
	for i := range held {
		held[i] = byte(i) // each page is there then
	}
	bytes, err := ResidentBytes(os.Getpid())
	if err != nil || bytes < int64(len(held)) {
		t.Errorf("%d bytes, %v, and %d are held", bytes, err, len(held))
	}
	anonymous, err := AnonymousBytes(os.Getpid())
	if err != nil || anonymous < int64(len(held)) || anonymous >= bytes+int64(len(held)) {
		t.Errorf("%d of %d bytes are anonymous, %v, and %d are held", anonymous, bytes, err, len(held))
	}
	mapped := mapFile(t, 64<<20)
	bytes, err = ResidentBytes(os.Getpid())
	if err != nil || bytes < int64(len(held)+len(mapped)) {
		t.Errorf("%d bytes, %v, and %d and a file of %d are held", bytes, err, len(held), len(mapped))
	}
	if anonymous, err = AnonymousBytes(os.Getpid()); err != nil || anonymous > bytes-int64(len(mapped)) {
		t.Errorf("%d of %d bytes are anonymous, %v, and %d are of a file", anonymous, bytes, err, len(mapped))
	}
	runtime.KeepAlive(held)
	err = Poll(t.Context(), time.Millisecond, func() (bool, error) {
		used, err := ProcessorTime(os.Getpid())
		return used > 0, err
	})
	if err != nil {
		t.Error(err)
	}
	p, err := startProcess(exec.Command("true"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = ProcessorTime(p.cmd.Process.Pid)
	_, rerr := ResidentBytes(p.cmd.Process.Pid)
	if _, aerr := AnonymousBytes(p.cmd.Process.Pid); err == nil || rerr == nil || aerr == nil {
		t.Errorf("a process that is gone: %v, %v, %v", err, rerr, aerr)
	}
}

// mapFile returns the content of a file of zeroes that is mapped, with each page resident.
func mapFile(t *testing.T, bytes int) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "mapped"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(int64(bytes)); err != nil {
		t.Fatal(err)
	}
	content, err := syscall.Mmap(int(f.Fd()), 0, bytes, syscall.PROT_READ, syscall.MAP_SHARED|syscall.MAP_POPULATE)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(content); err != nil {
			t.Error(err)
		}
	})
	for i := 0; i < bytes; i += os.Getpagesize() {
		if content[i] != 0 {
			t.Fatal("a new file is not of zeroes")
		}
	}
	return content
}

// Quantile returns the duration below which a share of the durations lies, in whatever order they are, and the
// longest for 1.
func TestQuantilesAreOfAnyOrder(t *testing.T) {
	all := []time.Duration{4, 1, 3, 2}
	for share, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 4, 1: 4} {
		if got := Quantile(all, share); got != want {
			t.Errorf("%v: %d, want %d", share, got, want)
		}
	}
	if Quantile(nil, 0.5) != 0 {
		t.Error("of none there is one")
	}
}

// A cluster gives the nodes without one, a status gives a member by its id, and LogLines counts the lines that have
// all of the words.
func TestNodesOfAClusterAreTold(t *testing.T) {
	a, b := &Node{log: &tail{}}, &Node{log: &tail{}}
	c := &Cluster{Nodes: []*Node{a, b}}
	if rest := Without(c.Nodes, a); len(rest) != 1 || rest[0] != b || c.Nodes[0] != a {
		t.Errorf("without the first: %v of %v", rest, c.Nodes)
	}
	_, _ = a.log.Write([]byte("leader changed here=true\nleader changed here=false\n"))
	_, _ = b.log.Write([]byte("here=true\nleader changed here=true\n"))
	if all, here := c.LogLines("leader changed"), c.LogLines("leader changed", "here=true"); all != 3 || here != 2 {
		t.Errorf("%d lines, %d of them here", all, here)
	}
	s := Status{Peers: []PeerRow{{ID: "a"}, {ID: "b", Pins: 2}}}
	if p, ok := s.Member("b"); !ok || p.Pins != 2 {
		t.Errorf("%+v, %t", p, ok)
	}
	if _, ok := s.Member("c"); ok {
		t.Error("nobody is found")
	}
}

// Pause returns whether all of its time passed, and ends with its context.
func TestAPauseEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if !Pause(ctx, time.Nanosecond) {
		t.Error("it ended early")
	}
	cancel()
	if Pause(ctx, time.Hour) {
		t.Error("an hour has passed")
	}
}
