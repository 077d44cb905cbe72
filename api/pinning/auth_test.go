package pinning

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const alicesPassword = `{"username":"alice@example.org","password":"password of alice@example.org"}`

func (w *world) signIn(t *testing.T) string {
	t.Helper()
	rec := w.do(request{method: "POST", path: "/auth/token", body: alicesPassword})
	var got struct{ Token string }
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || rec.Code != 200 || got.Token == "" {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	if rec.Body.String() != fmt.Sprintf(`{"token":%q}`, got.Token) {
		t.Errorf("answered %s", rec.Body)
	}
	return got.Token
}

// Each route names the scope that it needs: reads need storage:read, changes storage:write, and five named
// routes none.
func TestEveryRouteSaysWhoMayUseIt(t *testing.T) {
	open := []string{"GET /healthz", "GET /readyz", "GET /openapi.json", "POST /auth/token", "DELETE /auth/token"}
	w := newWorld(t)
	s := &surface{sessions: w.users}
	for _, op := range s.operations() {
		name := op.method + " " + op.path
		want := state.ScopeWrite
		switch {
		case slices.Contains(open, name):
			want = op.scope
			if op.scope != anybody && op.scope != unmetered {
				t.Errorf("%s asks for %q", name, op.scope)
			}
		case op.method == http.MethodGet:
			want = state.ScopeRead
		}
		if op.scope != want {
			t.Errorf("%s asks for %q, want %q", name, op.scope, want)
		}
	}
}

// Each metered route answers 401 without a token or with a revoked one, and 403 to a token without its scope.
func TestScopesByTheTableOfRoutes(t *testing.T) {
	w := newWorld(t)
	s := &surface{}
	for _, op := range s.operations() {
		if op.scope == unmetered {
			continue
		}
		path := strings.ReplaceAll(op.path, "{requestid}", "00000000-0000-4000-8000-999999999999")
		lacking := w.reader
		if op.scope == state.ScopeRead {
			lacking = w.writer
		}
		for token, want := range map[string]int{"": 401, w.revoked: 401, lacking: 403} {
			rec := w.do(request{method: op.method, path: path, token: token, body: "{"})
			reason := map[int]string{401: "UNAUTHORIZED", 403: "FORBIDDEN"}[want]
			if rec.Code != want || !strings.HasPrefix(rec.Body.String(), `{"error":{"reason":"`+reason+`","details":"`) {
				t.Errorf("%s %s: %d %s, want %d", op.method, path, rec.Code, rec.Body, want)
			}
		}
	}
}

// A session creates and lists pins until it is ended, and neither an API key nor a request without a token ends
// a session.
func TestSessionTokensOverHTTP(t *testing.T) {
	w := newWorld(t)
	token := w.signIn(t)
	rec := w.do(request{method: "POST", path: "/pins", token: token, body: `{"cid":"` + cidOne + `"}`})
	if rec.Code != 202 {
		t.Fatalf("a pin by a session: %d %s", rec.Code, rec.Body)
	}
	if rec := w.do(request{method: "GET", path: "/pins?status=queued", token: token}); rec.Code != 200 || !strings.Contains(rec.Body.String(), cidOne) {
		t.Errorf("a list by a session: %d %s", rec.Code, rec.Body)
	}
	for i, want := range []int{200, 401} {
		rec := w.do(request{method: "DELETE", path: "/auth/token", token: token})
		if rec.Code != want || want == 200 && rec.Body.String() != "{}" {
			t.Errorf("end %d: %d %s", i, rec.Code, rec.Body)
		}
	}
	for _, r := range []request{
		{method: "GET", path: "/pins", token: token},
		{method: "POST", path: "/pins", token: token, body: `{"cid":"` + cidTwo + `"}`},
		{method: "DELETE", path: "/auth/token", token: w.alice}, // an API key ends no session
		{method: "DELETE", path: "/auth/token"},
	} {
		if rec := w.do(r); rec.Code != 401 {
			t.Errorf("%s %s: %d %s", r.method, r.path, rec.Code, rec.Body)
		}
	}
	if rec := w.do(request{method: "GET", path: "/pins", token: w.alice}); rec.Code != 200 {
		t.Errorf("the key that tried to end itself: %d", rec.Code)
	}
}

// A wrong name and a wrong password get the same 401, a bad body 4xx, no such sign-in writes anything, and the
// sixth wrong password of an account gets 429.
func TestBadSignIns(t *testing.T) {
	w := newWorld(t)
	before := w.index()
	var refused string
	for _, tc := range []struct {
		body string
		want int
	}{
		{`{"username":"alice@example.org","password":"wrong"}`, 401},
		{`{"username":"nobody@example.org","password":"wrong"}`, 401},
		{`{"username":"\u0000","password":"wrong"}`, 401},
		{`{"username":"alice@example.org"}`, 400},
		{`{"password":"x"}`, 400},
		{`{"username":"","password":"x"}`, 400},
		{`{"username":1,"password":"x"}`, 400},
		{`{"username":"alice@example.org","password":null}`, 400},
		{`{"username":"a","username":"b","password":"x"}`, 400},
		{`[]`, 400},
		{``, 400},
		{`{"username":"` + strings.Repeat("x", 1<<20) + `","password":"x"}`, 413},
	} {
		// A header that says who is not looked at.
		rec := w.do(request{method: "POST", path: "/auth/token", body: tc.body, token: w.alice})
		if rec.Code != tc.want {
			t.Errorf("%.60s: %d %s, want %d", tc.body, rec.Code, rec.Body, tc.want)
		}
		if tc.want == 401 {
			if refused == "" {
				refused = rec.Body.String()
			}
			if rec.Body.String() != refused || rec.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s tells %s", tc.body, rec.Body)
			}
		}
	}
	if w.index() != before {
		t.Error("something was written")
	}
	for i := range 8 {
		rec := w.do(request{method: "POST", path: "/auth/token", body: `{"username":"bob@example.org","password":"wrong"}`})
		want := 401
		if i >= 5 {
			want = 429
		}
		if rec.Code != want || want == 429 && (rec.Body.String() != `{"error":"RATE_LIMITED","retry_after":60}` || rec.Header().Get("Retry-After") != "60") {
			t.Errorf("try %d: %d %s", i+1, rec.Code, rec.Body)
		}
	}
}

// Requests of one account with the same Idempotency-Key and body create one pin, whichever credential they use;
// another body gets 422.
func TestRepeatedRequestsMakeOnePin(t *testing.T) {
	w := newWorld(t)
	post := func(token, name, body string) (int, string) {
		header := http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
		if name != "" {
			header["Idempotency-Key"] = []string{name}
		}
		rec := w.do(request{method: "POST", path: "/pins", body: body, header: header})
		return rec.Code, rec.Body.String()
	}
	one, two := `{"cid":"`+cidOne+`","name":"n"}`, `{"cid":"`+cidTwo+`","name":"n"}`
	code, first := post(w.alice, "upload-1", one)
	if code != 202 {
		t.Fatal(code, first)
	}
	session := w.signIn(t)
	for _, token := range []string{w.alice, w.writer, session} {
		if code, got := post(token, "upload-1", one); code != 202 || got != first {
			t.Errorf("a repeat: %d %s, want %s", code, got, first)
		}
	}
	if code, got := post(w.alice, "upload-1", two); code != 422 || !strings.Contains(got, "IDEMPOTENCY_KEY_REUSED") {
		t.Errorf("another pin: %d %s", code, got)
	}
	if code, got := post(w.bob, "upload-1", one); code != 202 || got == first {
		t.Errorf("another account: %d %s", code, got)
	}
	if code, got := post(w.revoked, "upload-1", one); code != 401 {
		t.Errorf("a revoked key: %d %s", code, got)
	}
	for _, name := range []string{" ", "two words", "ä", strings.Repeat("x", 256), "a\x7f"} {
		if code, got := post(w.alice, name, two); code != 400 {
			t.Errorf("named %q: %d %s", name, code, got)
		}
	}
	if n := strings.Count(w.all(), `"requestid"`); n != 2 {
		t.Errorf("%d pins", n)
	}
}

// An account, on all its addresses, and an address without a good token, also behind a trusted proxy, get 429
// above their rates; others do not, and health is free.
func TestRatesOfAccountsAndAddresses(t *testing.T) {
	w := newWorld(t)
	now := time.Unix(1000, 0)
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	o := w.options
	o.Limits = web.NewLimits(web.Rate{PerSecond: 1, Burst: 3}, web.Rate{PerSecond: 2, Burst: 10}, trusted, func() time.Time { return now })
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	send := func(token, from, forwarded, path string) int {
		header := http.Header{"Authorization": {"Bearer " + token}}
		if forwarded != "" {
			header["X-Forwarded-For"] = []string{forwarded}
		}
		rec := doFrom(h, request{method: "GET", path: path, header: header}, from)
		if rec.Code == 429 {
			retry := rec.Header().Get("Retry-After")
			if want := fmt.Sprintf(`{"error":"RATE_LIMITED","retry_after":%s}`, retry); rec.Body.String() != want || retry == "" || retry == "0" {
				t.Errorf("answered %s with Retry-After %q", rec.Body, retry)
			}
			if rec.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Error("no origin asked")
			}
		}
		return rec.Code
	}
	for i, want := range []int{200, 200, 200, 429, 429} {
		if got := send(w.alice, fmt.Sprintf("192.0.2.%d:1", i+1), "", "/pins"); got != want {
			t.Errorf("Alice's request %d: %d, want %d", i+1, got, want)
		}
	}
	if got := send(w.bob, "192.0.2.1:1", "", "/pins"); got != 200 {
		t.Errorf("another account: %d", got)
	}
	now = now.Add(time.Second)
	if a, b := send(w.alice, "192.0.2.9:1", "", "/pins"), send(w.alice, "192.0.2.9:1", "", "/pins"); a != 200 || b != 429 {
		t.Errorf("a second later: %d, %d", a, b)
	}
	for i := range 12 {
		want := 401
		if i >= 10 {
			want = 429
		}
		if got := send("no.good.token", "10.1.1.1:1", "evil, 198.51.100.7, 10.2.2.2", "/pins"); got != want {
			t.Errorf("request %d of an address: %d, want %d", i+1, got, want)
		}
	}
	for name, got := range map[string]int{
		"another client of the proxy":    send("no.good.token", "10.1.1.1:1", "198.51.100.8", "/pins"),
		"the client, who forges another": send("no.good.token", "198.51.100.9:1", "198.51.100.7", "/pins"),
		"the proxy itself":               send("no.good.token", "10.1.1.1:1", "", "/pins"),
	} {
		if got != 401 {
			t.Errorf("%s: %d", name, got)
		}
	}
	if got := send("", "10.1.1.1:1", "198.51.100.7", "/healthz"); got != 200 {
		t.Errorf("health: %d", got)
	}
}

// A script of an allowed origin may call the API with a token and read its errors, and one of another origin may
// not.
func TestBrowsersMayUseTheAPIWithAToken(t *testing.T) {
	w := newWorld(t)
	preflight := http.Header{
		"Origin": {"https://app.example.org"}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"authorization,content-type"},
	}
	rec := w.do(request{method: "OPTIONS", path: "/pins", header: preflight})
	h := rec.Header()
	if rec.Code != 204 || h.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(h.Get("Access-Control-Allow-Methods"), "DELETE") ||
		!strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") || h.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("preflight: %d %v", rec.Code, h)
	}
	// An error can be read too, with what tells how to go on.
	rec = w.do(request{method: "GET", path: "/pins", header: http.Header{"Origin": {"https://app.example.org"}}})
	if rec.Code != 401 || rec.Header().Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(rec.Header().Get("Access-Control-Expose-Headers"), "Retry-After") {
		t.Errorf("refusal: %d %v", rec.Code, rec.Header())
	}
	o := w.options
	o.Origins = []string{"https://app.example.org"}
	listed, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for origin, want := range map[string]string{"https://app.example.org": "https://app.example.org", "https://evil.example": "", "null": "", "": ""} {
		header := http.Header{"Access-Control-Request-Method": {"GET"}}
		if origin != "" {
			header["Origin"] = []string{origin}
		}
		rec := do(listed, request{method: "OPTIONS", path: "/pins", header: header})
		if got := rec.Header().Get("Access-Control-Allow-Origin"); got != want || rec.Header().Get("Vary") != "Origin" {
			t.Errorf("origin %q: allowed %q", origin, got)
		}
	}
	o.Origins = nil
	off, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if rec := do(off, request{method: "OPTIONS", path: "/pins", header: preflight}); rec.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Error("allowed without a setting")
	}
}

// hook is a body that does something before it is read.
type hook struct {
	io.Reader
	before func()
}

func (h *hook) Read(p []byte) (int, error) {
	if h.before != nil {
		h.before()
		h.before = nil
	}
	return h.Reader.Read(p)
}

// A token that ends while the body is on its way changes nothing, whether or not
// this node asks the cluster before it reads the body.
func TestATokenThatEndsBeforeItsBodyIsHereChangesNothing(t *testing.T) {
	for name, recognizes := range map[string]bool{"recognized": true, "authenticated": false} {
		w := newWorld(t)
		o := w.options
		if !recognizes {
			o.Recognize = nil
		}
		h, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		key, err := w.users.CreateKey(t.Context(), "alice@example.org", "", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		session := w.signIn(t)
		for token, end := range map[string]func() error{
			key.Token: func() error { return w.users.Revoke(t.Context(), key.ID) },
			session:   func() error { return w.users.SignOut(t.Context(), session) },
		} {
			body := &hook{strings.NewReader(`{"cid":"` + cidOne + `"}`), func() {
				if err := end(); err != nil {
					t.Error(err)
				}
			}}
			r := httptest.NewRequest(http.MethodPost, "/pins", body)
			r.Header.Set("Authorization", "Bearer "+token)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			if rec.Code != 401 || body.before != nil || strings.Contains(w.all(), "requestid") {
				t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
			}
		}
	}
}
