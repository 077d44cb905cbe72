package pinning

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// rounds counts what a surface asks the cluster.
type rounds struct {
	*clustertest.State
	views, proposals atomic.Int64
}

func (r *rounds) View(ctx context.Context) (state.View, func(), error) {
	r.views.Add(1)
	return r.State.View(ctx)
}

func (r *rounds) Propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	r.proposals.Add(1)
	return r.State.Propose(ctx, cmd)
}

// lagging returns the world's surface on a node whose own state is old: it takes one
// key for living that was revoked, and knows no other. It returns the account of
// the keys, and a token for each.
func lagging(t *testing.T) (w *world, r *rounds, h http.Handler, revoked, living string) {
	w = newWorld(t)
	r = &rounds{State: w.state}
	secret := []byte("a secret of the cluster, 32 byte")
	users := accounts.New(accounts.Options{State: r, Secret: secret, Now: w.now})
	living = w.alice
	gone, err := users.CreateKey(t.Context(), "alice@example.org", "", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	old, err := users.Recognize(gone.Token)
	if err != nil {
		t.Fatal(err)
	}
	if err := users.Revoke(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	h, err = New(Options{
		Pins: pins.New(pins.Options{State: r, Nodes: w, Now: w.now}), Authenticate: web.Tokens(users),
		Recognize: func(_ context.Context, r *http.Request) (accounts.Principal, error) {
			token, err := web.Bearer(r)
			if err == nil && token == gone.Token {
				return old, nil
			}
			return accounts.Principal{}, state.ErrUnauthorized
		},
		Health: w, DefaultStatus: []string{"pinned"}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return w, r, h, gone.Token, living
}

// A revoked key gets 401 and changes nothing on a node that has not applied the revocation, whether the request
// is valid or not and its pin is there or not.
func TestRevokedKeyOnANodeThatLagsIsRefused(t *testing.T) {
	w, r, h, revoked, living := lagging(t)
	before := w.all()
	for name, tc := range map[string]struct {
		method, path, body string
		living             int // how a living key is answered
	}{
		"create":                      {"POST", "/pins", `{"cid":"` + cidOne + `"}`, 202},
		"create without a body":       {"POST", "/pins", ``, 400},
		"create with a bad cid":       {"POST", "/pins", `{"cid":"x"}`, 400},
		"replace what is not there":   {"POST", "/pins/absent", `{"cid":"` + cidOne + `"}`, 404},
		"replace with a bad body":     {"POST", "/pins/absent", `[]`, 400},
		"delete what is not there":    {"DELETE", "/pins/absent", ``, 404},
		"delete what can be no id":    {"DELETE", "/pins/a%20b", ``, 404},
		"read, which asks in any way": {"GET", "/pins/absent", ``, 404},
	} {
		proposed := r.proposals.Load()
		if got := do(h, request{method: tc.method, path: tc.path, body: tc.body, token: revoked}); got.Code != 401 {
			t.Errorf("%s with the revoked key: %d %s", name, got.Code, got.Body)
		}
		if tc.living == 400 && r.proposals.Load() != proposed {
			t.Errorf("%s was proposed", name)
		}
		if now := w.all(); now != before {
			t.Fatalf("%s with the revoked key has changed the pins: %s", name, now)
		}
		if got := do(h, request{method: tc.method, path: tc.path, body: tc.body, token: living}); got.Code != tc.living {
			t.Errorf("%s with a key that is new here: %d, want %d: %s", name, got.Code, tc.living, got.Body)
		}
		before = w.all()
	}
}

// A change of a recognized token costs one proposal and no linearizable read, and without a majority every
// change is 503.
func TestChangeIsOneRoundOfTheCluster(t *testing.T) {
	w := newWorld(t)
	r := &rounds{State: w.state}
	users := accounts.New(accounts.Options{State: r, Secret: []byte("a secret of the cluster, 32 byte"), Now: w.now})
	h, err := New(Options{
		Pins:         pins.New(pins.Options{State: r, Nodes: w, Now: w.now, NewID: func() state.RequestID { return "request" }}),
		Authenticate: web.Tokens(users), Recognize: web.Recognized(users), Health: w, DefaultStatus: []string{"pinned"},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ method, path, body string }{
		{"POST", "/pins", `{"cid":"` + cidOne + `"}`},
		{"DELETE", "/pins/request", ``},
	} {
		views, proposals := r.views.Load(), r.proposals.Load()
		if got := do(h, request{method: tc.method, path: tc.path, body: tc.body, token: w.writer}); got.Code != 202 {
			t.Fatalf("%s: %d %s", tc.method, got.Code, got.Body)
		}
		if v, p := r.views.Load()-views, r.proposals.Load()-proposals; v != 0 || p != 1 {
			t.Errorf("%s: %d reads of the cluster and %d proposals, want 0 and 1", tc.method, v, p)
		}
	}
	// Without a majority nobody's permission is believed.
	w.state.Fail(state.Errorf(state.CodeUnavailable, "no majority"))
	// Who is recognized by nobody here, as an operator, is told what became of the change.
	local, err := New(Options{
		Pins:         pins.New(pins.Options{State: r, Nodes: w, Now: w.now, NewID: func() state.RequestID { return "request" }}),
		Authenticate: web.Tokens(users), Health: w, DefaultStatus: []string{"pinned"},
		Logger: slog.New(slog.DiscardHandler), Unavailable: func() string { return "1 of 2 votes" },
	})
	if err != nil {
		t.Fatal(err)
	}
	for method, says := range map[string]string{
		"POST": "the cluster does not answer, nothing was written: 1 of 2 votes", "GET": "no majority: 1 of 2 votes",
	} {
		got := do(local, request{method: method, path: "/pins", body: map[string]string{"POST": `{"cid":"` + cidOne + `"}`}[method], token: w.writer})
		if got.Code != 503 || !strings.Contains(got.Body.String(), `"`+says+`"`) {
			t.Errorf("%s without a majority: %d %s, want %q", method, got.Code, got.Body, says)
		}
	}
	for _, token := range []string{w.writer, w.revoked} {
		got := do(h, request{method: "POST", path: "/pins", body: `{"cid":"` + cidOne + `"}`, token: token})
		if got.Code != 503 {
			t.Errorf("without a majority: %d %s", got.Code, got.Body)
		}
	}
}
