package pinning

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
)

// lagging serves the world on a node that hears of no change from now on, and holds
// accounts to a rate there.
func (w *world) lagging(t testing.TB, rate web.Rate, now func() time.Time) (*clustertest.Lagging, http.Handler) {
	t.Helper()
	behind := clustertest.NewLagging(t, w.state)
	users := accounts.New(accounts.Options{State: behind, Secret: []byte("a secret of the cluster, 32 byte"), Now: w.now})
	o := w.options
	o.Authenticate, o.Recognize, o.Sessions = web.Tokens(users), web.Recognized(users), users
	o.Limits = web.NewLimits(rate, web.Rate{}, nil, now)
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return behind, h
}

// While an account is above its rate, its requests get 429 without a read of the cluster, whichever of its
// credentials they use.
func TestARefusalForTheRateDoesNotAskTheCluster(t *testing.T) {
	w := newWorld(t)
	session := w.signIn(t)
	now := time.Unix(1000, 0)
	behind, h := w.lagging(t, web.Rate{PerSecond: 1, Burst: 2}, func() time.Time { return now })
	get := func(token string) int { return do(h, request{method: "GET", path: "/pins", token: token}).Code }
	for i, want := range []int{200, 200, 429} {
		if got := get(w.alice); got != want {
			t.Fatalf("request %d: %d, want %d", i+1, got, want)
		}
	}
	asked := behind.Asked()
	for name, token := range map[string]string{"the key": w.alice, "another key of the account": w.reader, "one without the scope": w.writer, "a session": session} {
		for _, r := range []request{{method: "GET", path: "/pins", token: token}, {method: "GET", path: "/pins/x?wait=1s", token: token}, {method: "POST", path: "/pins", token: token, body: "{"}} {
			rec := do(h, r)
			if rec.Code != 429 || rec.Body.String() != `{"error":"RATE_LIMITED","retry_after":1}` || rec.Header().Get("Retry-After") != "1" {
				t.Errorf("%s, %s: %d %s", name, r.method, rec.Code, rec.Body)
			}
		}
	}
	if n := behind.Asked() - asked; n != 0 {
		t.Errorf("refusals asked the cluster %d times", n)
	}
	for token, want := range map[string]int{w.bob: 200, w.revoked: 401, "no.good.token": 401, "": 401} {
		if got := get(token); got != want {
			t.Errorf("%.10q beside one who asks too often: %d, want %d", token, got, want)
		}
	}
	// A request is taken once from the rate, whether or not the node is in a hurry.
	now = now.Add(pressedNot)
	if a, b, c := get(w.alice), get(w.alice), get(w.alice); a != 200 || b != 200 || c != 429 {
		t.Errorf("after a while: %d, %d, %d", a, b, c)
	}
	now = now.Add(900 * time.Millisecond)
	if got := get(w.alice); got != 429 {
		t.Errorf("too early: %d", got)
	}
	now = now.Add(200 * time.Millisecond)
	if a, b := get(w.alice), get(w.alice); a != 200 || b != 429 {
		t.Errorf("a token: %d, %d", a, b)
	}
}

// Further pages of a list are served above the rate, and a list from its beginning is not. Kubo lists pins by
// tens, one page after the other, and gives up at a 429.
func TestPagesOfAListAreSlowedDownAndNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in real time the rate may have room again after 20 ms
		w := newWorld(t)
		_, h := w.lagging(t, web.Rate{PerSecond: 50, Burst: 2}, nil)
		get := func(query string) int {
			return do(h, request{method: "GET", path: "/pins" + query, token: w.alice}).Code
		}
		for i := range 10 {
			if got := get("?limit=10&before=2026-01-02T15:04:05Z"); got != 200 {
				t.Fatalf("page %d: %d", i+1, got)
			}
		}
		if got := get(""); got != 429 {
			t.Errorf("a list from its beginning: %d", got)
		}
	})
}

// pressedNot is longer than a refusal makes a node careful for.
const pressedNot = time.Minute

// A key or session that has ended elsewhere, which the node has not heard of, gets 401 or 429 and is never
// served.
func TestWhatEndedElsewhereIsNeverServed(t *testing.T) {
	w := newWorld(t)
	key, err := w.users.CreateKey(t.Context(), "alice@example.org", "", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	session := w.signIn(t)
	now := time.Unix(1000, 0)
	_, h := w.lagging(t, web.Rate{PerSecond: 1, Burst: 3}, func() time.Time { return now })
	if err := w.users.Revoke(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.users.SignOut(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	young, err := w.users.CreateKey(t.Context(), "alice@example.org", "", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	said := map[int]int{}
	for range 50 {
		for _, token := range []string{key.Token, session} {
			for _, r := range []request{
				{method: "GET", path: "/pins", token: token},
				{method: "POST", path: "/pins", token: token, body: `{"cid":"` + cidOne + `"}`},
				{method: "DELETE", path: "/pins/x", token: token},
			} {
				code := do(h, r).Code
				if code != 401 && code != 429 {
					t.Fatalf("%s: %d", r.method, code)
				}
				said[code]++
			}
		}
		// The account's living keys use up what there is.
		do(h, request{method: "GET", path: "/pins", token: w.alice})
		now = now.Add(300 * time.Millisecond)
	}
	if said[401] == 0 || said[429] == 0 {
		t.Errorf("answers: %v", said)
	}
	if strings.Contains(w.all(), "requestid") {
		t.Error("something was pinned")
	}
	// One that is too new to be known here is known to the cluster.
	for do(h, request{method: "GET", path: "/pins", token: w.alice}).Code == 200 {
	}
	if code := do(h, request{method: "GET", path: "/pins", token: young.Token}).Code; code != 429 {
		t.Errorf("a new key of the account: %d", code)
	}
	now = now.Add(pressedNot)
	if code := do(h, request{method: "GET", path: "/pins", token: young.Token}).Code; code != 200 {
		t.Errorf("a new key, later: %d", code)
	}
}

// A key that this node knows to be revoked gets 401 after 100 ms, also while its account is above its rate.
func TestAKeyThatEndedHereIsToldSo(t *testing.T) {
	w := newWorld(t)
	key, err := w.users.CreateKey(t.Context(), "alice@example.org", "", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	o := w.options
	o.Limits = web.NewLimits(web.Rate{PerSecond: 1, Burst: 1}, web.Rate{}, nil, func() time.Time { return now })
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{200, 429, 429} {
		if code := do(h, request{method: "GET", path: "/pins", token: key.Token}).Code; code != want {
			t.Errorf("request %d: %d", i+1, code)
		}
	}
	if err := w.users.Revoke(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	now = now.Add(100 * time.Millisecond)
	for _, method := range []string{"GET", "POST"} {
		if code := do(h, request{method: method, path: "/pins", token: key.Token}).Code; code != 401 {
			t.Errorf("%s: %d", method, code)
		}
	}
	if code := do(h, request{method: "GET", path: "/pins", token: w.alice}).Code; code != 429 {
		t.Errorf("another key of the account: %d", code)
	}
}

func BenchmarkRefusedForTheRate(b *testing.B) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		b.Run(method, func(b *testing.B) {
			w := newWorld(b)
			behind, h := w.lagging(b, web.Rate{PerSecond: 1, Burst: 1}, func() time.Time { return time.Unix(1000, 0) })
			r := httptest.NewRequest(method, "/pins", http.NoBody)
			r.Header.Set("Authorization", "Bearer "+w.alice)
			for range 2 {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			asked := behind.Asked()
			b.ReportAllocs()
			for b.Loop() {
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, r)
				if rec.Code != http.StatusTooManyRequests {
					b.Fatal(rec.Code)
				}
			}
			b.ReportMetric(float64(behind.Asked()-asked)/float64(b.N), "rounds/op")
		})
	}
}
