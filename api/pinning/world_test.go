package pinning

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// world is the surface over the real use cases and the real state machine in
// memory, with two accounts.
type world struct {
	state       *clustertest.State
	handler     http.Handler
	alice, bob  string // tokens that may do all
	reader      string // Alice's, that may only read
	writer      string // Alice's, that may only write
	revoked     string // Alice's, that was revoked
	ticks, pins atomic.Int64
	users       *accounts.Accounts
	options     Options // of handler
}

// start is when the world's clock begins; it goes on by a millisecond each time
// it is read.
var start = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

func (w *world) now() time.Time { return start.Add(time.Duration(w.ticks.Add(1)) * time.Millisecond) }

// Candidates returns the members, all alike.
func (w *world) Candidates() []placement.Node {
	var nodes []placement.Node
	for _, n := range clustertest.Members("n1", "n2", "n3") {
		nodes = append(nodes, placement.Node{ID: n.ID, Free: 1 << 30, Alive: true})
	}
	return nodes
}

// Ready is always so.
func (w *world) Ready(context.Context) error { return nil }

func newWorld(t testing.TB, defaults ...string) *world {
	t.Helper()
	secret := []byte("a secret of the cluster, 32 byte")
	sealed, err := accounts.NewSigningKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{state: clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members("n1", "n2", "n3"), SealedSigningKey: sealed})}
	users := accounts.New(accounts.Options{State: w.state, Secret: secret, Now: w.now})
	key := func(email string, scopes ...string) accounts.Key {
		k, err := users.CreateKey(t.Context(), email, "test", scopes, 0)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for _, email := range []string{"alice@example.org", "bob@example.org"} {
		if _, err := users.CreateAccount(t.Context(), email, "password of "+email); err != nil {
			t.Fatal(err)
		}
	}
	w.alice, w.bob = key("alice@example.org").Token, key("bob@example.org").Token
	w.reader, w.writer = key("alice@example.org", state.ScopeRead).Token, key("alice@example.org", state.ScopeWrite).Token
	gone := key("alice@example.org")
	if err := users.Revoke(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	w.revoked = gone.Token
	if len(defaults) == 0 {
		defaults = []string{"pinned"}
	}
	w.users = users
	w.options = Options{
		Sessions: users, Origins: []string{web.AnyOrigin},
		Pins: pins.New(pins.Options{State: w.state, Nodes: w, Now: w.now, NewID: func() state.RequestID {
			return state.RequestID(fmt.Sprintf("00000000-0000-4000-8000-%012d", w.pins.Add(1)))
		}}),
		Authenticate: web.Tokens(users), Recognize: web.Recognized(users), Health: w, DefaultStatus: defaults, Version: "1.2.3",
		Logger: slog.New(slog.DiscardHandler),
	}
	if w.handler, err = New(w.options); err != nil {
		t.Fatal(err)
	}
	return w
}

// request is one call of the surface.
type request struct {
	method, path, body string
	token              string
	header             http.Header // in the place of what token and body would set
}

func (w *world) do(r request) *httptest.ResponseRecorder { return do(w.handler, r) }

func do(h http.Handler, r request) *httptest.ResponseRecorder { return doFrom(h, r, "") }

// doFrom sends a request from an address, host:port.
func doFrom(h http.Handler, r request, from string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(r.method, r.path, strings.NewReader(r.body))
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if from != "" {
		req.RemoteAddr = from
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec
}

// all returns the pins of both accounts.
func (w *world) all() string {
	list := request{method: "GET", path: "/pins?status=queued,pinning,pinned,failed&limit=1000"}
	var both string
	for _, token := range []string{w.alice, w.bob} {
		list.token = token
		both += w.do(list).Body.String()
	}
	return both
}

// index returns the log index of the state: it rises with every proposal.
func (w *world) index() uint64 {
	view, release := w.state.LocalView()
	defer release()
	return view.Index()
}

// Two CIDs of nothing in particular.
const (
	cidOne = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
	cidTwo = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"
	cidV0  = "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG"
)
