package s3

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// world is the surface over the real accounts and the fake of objects.
type world struct {
	fake       *fake
	state      *clustertest.State
	watch      state.Watch
	users      *accounts.Accounts
	handler    http.Handler
	options    Options
	alice, bob accounts.Key // that may do all
	reader     accounts.Key // Alice's, that may only read
	writer     accounts.Key // Alice's, that may only write
	revoked    accounts.Key // Alice's, that was revoked
	who        accounts.Principal
	mu         sync.Mutex
	passed     time.Duration
	marker     state.VersionID // of versions
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return start.Add(w.passed)
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed += d
}

func newWorld(t testing.TB) *world {
	t.Helper()
	secret := []byte("a secret of the cluster, 32 byte")
	sealed, err := accounts.NewSigningKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{fake: newFake(), state: clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members("n1"), SealedSigningKey: sealed})}
	n := 0
	w.users = accounts.New(accounts.Options{State: w.state, Secret: secret, Now: w.now, Watch: &w.watch, NewID: func() string {
		n++
		return "abcdefghijklmnopqrstuvw" + string(rune('a'+n/26)) + string(rune('a'+n%26))
	}})
	key := func(email string, scopes ...string) accounts.Key {
		k, err := w.users.CreateKey(t.Context(), email, "test", scopes, 0)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for _, email := range []string{"alice@example.org", "bob@example.org"} {
		if _, err := w.users.CreateAccount(t.Context(), email, ""); err != nil {
			t.Fatal(err)
		}
	}
	w.alice, w.bob = key("alice@example.org"), key("bob@example.org")
	w.reader, w.writer = key("alice@example.org", state.ScopeRead), key("alice@example.org", state.ScopeWrite)
	w.revoked = key("alice@example.org")
	if err := w.users.Revoke(t.Context(), w.revoked.ID); err != nil {
		t.Fatal(err)
	}
	if w.who, err = w.users.Authenticate(t.Context(), w.alice.Token); err != nil {
		t.Fatal(err)
	}
	w.options = Options{
		Objects: w.fake, Accounts: w.users, Domain: "s3.test", MaxObject: 1 << 20, MinPart: 5, Version: "1.2.3",
		Now: w.now, Logger: slog.New(slog.DiscardHandler),
	}
	w.rebuild(t)
	return w
}

func (w *world) rebuild(t testing.TB) {
	t.Helper()
	var err error
	if w.handler, err = New(w.options); err != nil {
		t.Fatal(err)
	}
}

// call is one request.
type call struct {
	method, path, body string
	header             []string // name: value
	token              string   // "" is Alice's, "-" none
}

// request makes a request as a server would get it.
func (w *world) request(t testing.TB, c call) *http.Request {
	t.Helper()
	var body io.Reader = strings.NewReader(c.body)
	if c.body == "" {
		body = http.NoBody
	}
	r := httptest.NewRequest(c.method, c.path, body)
	if c.method == "PUT" || c.body != "" {
		r.Header.Set("Content-Length", "set")
	}
	r.Header.Set("X-Request-Id", "golden")
	switch c.token {
	case "":
		r.Header.Set("Authorization", "Bearer "+w.alice.Token)
	case "-":
	default:
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	for _, line := range c.header {
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case strings.EqualFold(name, "Host"):
			r.Host = value
		case value == "-":
			r.Header.Del(name)
		default:
			r.Header.Add(name, value)
		}
	}
	return r
}

func (w *world) do(t testing.TB, c call) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, w.request(t, c))
	for name, values := range rec.Header() { // as a client of net/http reads them
		delete(rec.Header(), name)
		rec.Header()[http.CanonicalHeaderKey(name)] = values
	}
	return rec
}

// must sends a request that has to end in a status.
func (w *world) must(t testing.TB, status int, c call) *httptest.ResponseRecorder {
	t.Helper()
	rec := w.do(t, c)
	if rec.Code != status {
		t.Fatalf("%s %s: %d, want %d: %s", c.method, c.path, rec.Code, status, rec.Body)
	}
	return rec
}

// put makes the bucket of a path, should it not be there, and an object.
func (w *world) put(t testing.TB, path, body string, header ...string) {
	t.Helper()
	bucket, _, _ := strings.Cut(path[1:], "/")
	_ = w.fake.CreateBucket(context.Background(), w.who.Account, bucket, false) // it may be there
	w.must(t, http.StatusOK, call{method: "PUT", path: path, body: body, header: header})
}

// shown makes a public bucket with an object.
func (w *world) shown(t testing.TB) {
	t.Helper()
	w.must(t, http.StatusOK, call{method: "PUT", path: "/shown", header: []string{"x-amz-acl: public-read"}})
	w.must(t, http.StatusOK, call{method: "PUT", path: "/shown/k"})
}
