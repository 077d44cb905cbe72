//go:build conformance

package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

const userPassword = "a password of some length" // of harness.UserKey

// do sends one request to a node.
func do(t *testing.T, n *harness.Node, token, method, path, body string, header http.Header) harness.Response {
	t.Helper()
	r, err := n.Pins(token).Do(t.Context(), method, path, header, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// signIn begins a session on a node.
func signIn(t *testing.T, n *harness.Node, email string) string {
	t.Helper()
	body, err := json.Marshal(map[string]string{"username": email, "password": userPassword})
	if err != nil {
		t.Fatal(err)
	}
	r := do(t, n, "", http.MethodPost, "/auth/token", string(body), nil)
	var got struct{ Token string }
	if err := harness.DecodeStrict(r.Body, &got); err != nil || r.Status != http.StatusOK || got.Token == "" {
		t.Fatalf("sign in: %d %s", r.Status, r.Body)
	}
	return got.Token
}

// wantEverywhere wants a status of a list on every node with a token.
func wantEverywhere(t *testing.T, c *harness.Cluster, token string, want int, why string) {
	t.Helper()
	for _, n := range c.Nodes {
		if r := do(t, n, token, http.MethodGet, "/pins", "", nil); r.Status != want {
			t.Errorf("%s: %s answers %d %s, want %d", why, n.Name, r.Status, r.Body, want)
		}
	}
}

// shortIdle is after how long without use a session of the second node ends.
const shortIdle = 10 * time.Second

// TestAccess promises the acceptance rows of sessions, keys, limits and repeats on three nodes, which have the same
// state at the end. The third has low limits and short sessions; sessions of the second end when they are not used.
func TestAccess(t *testing.T) {
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{Env: someFetch})
	for i, settings := range map[int][]string{
		1: {"HOLDFAST_SESSION_IDLE=" + shortIdle.String()},
		2: {"HOLDFAST_API_ACCOUNT_RATE=1", "HOLDFAST_API_ACCOUNT_BURST=40", "HOLDFAST_SESSION_LIFETIME=3s"},
	} {
		c.Nodes[i].Stop()
		c.Nodes[i].SetEnv(settings...)
		c.Nodes[i].Restart()
		c.Settle()
	}
	for _, sub := range []struct {
		name string
		test func(*testing.T, *harness.Cluster)
	}{
		{"sessions 77-82 85 A44", testSessions},
		{"bad sign-ins 79 A50", testBadSignIns},
		{"an API key ends no session 83", testKeyEndsNothing},
		{"sessions end by themselves 72 84", testSessionsEnd},
		{"sessions that nobody uses end 72 84", testIdleSessionsEnd},
		{"keys 75 76 A42", testKeys},
		{"browsers", testBrowsers},
		{"rates 101 107", testRates},
		{"repeats 110", testRepeats},
	} {
		t.Run(sub.name, func(t *testing.T) { sub.test(t, c.As(t)) })
	}
	if err := c.SameState(t.Context()); err != nil {
		t.Error(err)
	}
}

func testSessions(t *testing.T, c *harness.Cluster) {
	c.Nodes[0].UserKey("session@example.org")
	first, second := signIn(t, c.Nodes[0], " Session@Example.org"), signIn(t, c.Nodes[1], "session@example.org")
	if first == second {
		t.Fatal("the same token twice")
	}
	// 80: who signs in needs no Authorization, and a wrong one does not matter.
	if r := do(t, c.Nodes[2], "not.a.token", http.MethodPost, "/auth/token", `{"username":"session@example.org","password":"`+userPassword+`"}`, nil); r.Status != http.StatusOK {
		t.Errorf("80: a sign-in with a wrong token: %d %s", r.Status, r.Body)
	}
	pin, err := c.Nodes[1].Pins(first).Post(t.Context(), harness.Pin{CID: nowhere().String()})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{first, second} {
		for _, n := range c.Nodes {
			if _, err := n.Pins(token).Get(t.Context(), pin.RequestID); err != nil {
				t.Errorf("%s: %v", n.Name, err)
			}
		}
	}
	r := do(t, c.Nodes[1], first, http.MethodDelete, "/auth/token", "", nil)
	if r.Status != http.StatusOK || string(r.Body) != "{}" {
		t.Errorf("the end: %d %s", r.Status, r.Body)
	}
	wantEverywhere(t, c, first, http.StatusUnauthorized, "after its end")
	wantEverywhere(t, c, second, http.StatusOK, "the other session")
	for _, n := range c.Nodes {
		if r := do(t, n, first, http.MethodDelete, "/auth/token", "", nil); r.Status != http.StatusUnauthorized || r.Reason() != "UNAUTHORIZED" {
			t.Errorf("the second end: %d %s", r.Status, r.Body)
		}
		if r := do(t, n, first, http.MethodDelete, "/pins/"+pin.RequestID, "", nil); r.Status != http.StatusUnauthorized {
			t.Errorf("%s: a change after the end: %d %s", n.Name, r.Status, r.Body)
		}
	}
}

func testBadSignIns(t *testing.T, c *harness.Cluster) {
	c.Nodes[0].UserKey("guessed@example.org")
	var answers []string
	for i, email := range []string{"guessed@example.org", "nobody@example.org"} {
		for try := range 6 {
			r := do(t, c.Nodes[i], "not.a.token", http.MethodPost, "/auth/token", fmt.Sprintf(`{"username":%q,"password":"wrong"}`, email), nil)
			if try < 5 {
				if r.Status != http.StatusUnauthorized || r.Reason() != "UNAUTHORIZED" {
					t.Errorf("%s, try %d: %d %s", email, try+1, r.Status, r.Body)
				}
				answers = append(answers, string(r.Body))
				continue
			}
			wantLimited(t, r)
		}
	}
	for _, a := range answers {
		if a != answers[0] {
			t.Errorf("answers %s and %s", a, answers[0])
		}
	}
	for _, body := range []string{`{}`, `{"username":"guessed@example.org"}`, `{"password":"x"}`, `{"username":[],"password":"x"}`, `{`, ``} {
		if r := do(t, c.Nodes[0], "", http.MethodPost, "/auth/token", body, nil); r.Status != http.StatusBadRequest || r.Reason() != "BAD_REQUEST" {
			t.Errorf("%s: %d %s", body, r.Status, r.Body)
		}
	}
}

// wantLimited wants the flat answer to too many requests.
func wantLimited(t *testing.T, r harness.Response) {
	t.Helper()
	seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if want := fmt.Sprintf(`{"error":"RATE_LIMITED","retry_after":%d}`, seconds); r.Status != http.StatusTooManyRequests || err != nil || seconds < 1 || string(r.Body) != want {
		t.Errorf("too many: %d %s, Retry-After %q", r.Status, r.Body, r.Header.Get("Retry-After"))
	}
}

func testKeyEndsNothing(t *testing.T, c *harness.Cluster) {
	key := c.Nodes[0].UserKey("keyonly@example.org").Token
	for _, n := range c.Nodes {
		for _, token := range []string{key, ""} {
			if r := do(t, n, token, http.MethodDelete, "/auth/token", "", nil); r.Status != http.StatusUnauthorized || r.Reason() != "UNAUTHORIZED" {
				t.Errorf("%s: %d %s", n.Name, r.Status, r.Body)
			}
		}
	}
	wantEverywhere(t, c, key, http.StatusOK, "the key")
}

func testSessionsEnd(t *testing.T, c *harness.Cluster) {
	c.Nodes[0].UserKey("ends@example.org")
	short, long := signIn(t, c.Nodes[2], "ends@example.org"), signIn(t, c.Nodes[0], "ends@example.org")
	harness.Eventually(t, time.Minute, "a session of 3 s is over", func() (bool, error) {
		r, err := c.Nodes[0].Pins(short).Do(t.Context(), http.MethodGet, "/pins", nil, nil)
		return r.Status == http.StatusUnauthorized, err
	})
	wantEverywhere(t, c, short, http.StatusUnauthorized, "after its time")
	wantEverywhere(t, c, long, http.StatusOK, "another session")
	if r := do(t, c.Nodes[1], short, http.MethodDelete, "/auth/token", "", nil); r.Status != http.StatusUnauthorized {
		t.Errorf("the end of what is over: %d %s", r.Status, r.Body)
	}
}

// testIdleSessionsEnd leaves two sessions alone for longer than they last so, and
// keeps another one in use meanwhile: to look at one is to use it.
func testIdleSessionsEnd(t *testing.T, c *harness.Cluster) {
	c.Nodes[0].UserKey("idle@example.org")
	at := c.Nodes[1]
	left, alone, used := signIn(t, at, "idle@example.org"), signIn(t, at, "idle@example.org"), signIn(t, at, "idle@example.org")
	if r := do(t, at, alone, http.MethodGet, "/pins", "", nil); r.Status != http.StatusOK { // a use once does not keep it
		t.Fatalf("a new session: %d %s", r.Status, r.Body)
	}
	begun := time.Now()
	harness.Eventually(t, 6*shortIdle, "twice the time of an idle session passes", func() (bool, error) {
		if r := do(t, at, used, http.MethodGet, "/pins", "", nil); r.Status != http.StatusOK {
			t.Fatalf("a session in use: %d %s after %s", r.Status, r.Body, time.Since(begun))
		}
		return time.Since(begun) > 2*shortIdle, nil
	})
	wantEverywhere(t, c, left, http.StatusUnauthorized, "a session that was never used")
	wantEverywhere(t, c, alone, http.StatusUnauthorized, "a session that was left alone")
	wantEverywhere(t, c, used, http.StatusOK, "a session in use")
	if r := do(t, at, left, http.MethodDelete, "/auth/token", "", nil); r.Status != http.StatusUnauthorized {
		t.Errorf("the end of what is over: %d %s", r.Status, r.Body)
	}
}

func testKeys(t *testing.T, c *harness.Cluster) {
	old := c.Nodes[0].UserKey("keys@example.org", "--name", "laptop")
	before := c.Nodes[2].CLI("key", "show", old.ID, "--json")
	c.Nodes[1].CLI("key", "rotate")
	fresh := c.Nodes[2].Key("keys@example.org", "--name", "server")
	read, write := c.Nodes[0].Key("keys@example.org", "--scope", "storage:read"), c.Nodes[0].Key("keys@example.org", "--scope", "storage:write")
	for _, k := range []harness.Key{old, fresh} {
		wantEverywhere(t, c, k.Token, http.StatusOK, "a key before or after a new signing key")
	}
	if after := c.Nodes[0].CLI("key", "show", old.ID, "--json"); after != before || !strings.Contains(after, old.Token) || !strings.Contains(after, old.SecretAccessKey) {
		t.Error("a live key is shown as another after the rotation")
	}
	if header, _, _ := strings.Cut(old.Token, "."); strings.HasPrefix(fresh.Token, header+".") {
		t.Error("the new signing key was not used")
	}
	for _, n := range c.Nodes {
		for _, route := range []struct {
			method, path string
			token        string
		}{
			{http.MethodPost, "/pins", read.Token},
			{http.MethodPost, "/pins/x", read.Token},
			{http.MethodDelete, "/pins/x", read.Token},
			{http.MethodGet, "/pins", write.Token},
			{http.MethodGet, "/pins/x", write.Token},
		} {
			if r := do(t, n, route.token, route.method, route.path, "", nil); r.Status != http.StatusForbidden || r.Reason() != "FORBIDDEN" {
				t.Errorf("75: %s %s %s: %d %s", n.Name, route.method, route.path, r.Status, r.Body)
			}
		}
	}
	refuseForgeries(t, c, old, fresh)
	harness.Eventually(t, 2*time.Minute, "the last use of a key is told", func() (bool, error) {
		var rows []struct{ ID, Name, Used string }
		if err := json.Unmarshal([]byte(c.Nodes[1].CLI("key", "ls", "--user", "keys@example.org", "--json")), &rows); err != nil {
			return false, err
		}
		used, names := map[string]bool{}, map[string]bool{}
		for _, row := range rows {
			used[row.ID], names[row.Name] = row.Used != "", true
		}
		return len(rows) == 4 && names["laptop"] && names["server"] && used[old.ID] && used[fresh.ID], fmt.Errorf("%v", rows)
	})
}

// refuseForgeries sends tokens that name living keys and that the cluster did not
// sign as they are: A42.
func refuseForgeries(t *testing.T, c *harness.Cluster, old, fresh harness.Key) {
	t.Helper()
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	parts, other := strings.Split(old.Token, "."), strings.Split(fresh.Token, ".")
	bodies := map[string]bool{}
	for name, token := range map[string]string{
		"alg none":             part(`{"alg":"none","typ":"JWT"}`) + "." + parts[1] + ".",
		"alg None":             part(`{"alg":"None","typ":"JWT"}`) + "." + parts[1] + "." + parts[2],
		"HS256":                part(`{"alg":"HS256","typ":"JWT"}`) + "." + parts[1] + "." + parts[2],
		"RS256":                part(`{"alg":"RS256","typ":"JWT"}`) + "." + parts[1] + "." + parts[2],
		"ES256":                part(`{"alg":"ES256","typ":"JWT"}`) + "." + parts[1] + "." + parts[2],
		"no alg":               part(`{"typ":"JWT"}`) + "." + parts[1] + "." + parts[2],
		"two dots":             "..",
		"bad base64":           parts[0] + "." + parts[1] + ".!!!",
		"kid with a path":      part(`{"alg":"EdDSA","kid":"../../../dev/null","typ":"JWT"}`) + "." + parts[1] + "." + parts[2],
		"jku":                  part(`{"alg":"EdDSA","jku":"http://127.0.0.1:1/","typ":"JWT"}`) + "." + parts[1] + "." + parts[2],
		"kid of another":       other[0] + "." + parts[1] + "." + parts[2],
		"claims of another":    other[0] + "." + parts[1] + "." + other[2],
		"without its kid":      parts[0] + "." + other[1] + "." + other[2],
		"scope a list":         parts[0] + "." + part(`{"sub":"keys@example.org","scope":["storage:read"],"jti":"`+old.ID+`","iat":1}`) + "." + parts[2],
		"a session's prefix":   "hfs_" + parts[2],
		"a session not ours":   "hfs_" + strings.Repeat("A", 64),
		"an unknown kid":       part(`{"alg":"EdDSA","kid":"77","typ":"JWT"}`) + "." + parts[1] + "." + parts[2],
		"the access key's own": old.SecretAccessKey,
	} {
		for _, n := range c.Nodes {
			r := do(t, n, token, http.MethodGet, "/pins", "", nil)
			bodies[string(r.Body)] = true
			if r.Status != http.StatusUnauthorized {
				t.Errorf("%s: %s answers %d %s", name, n.Name, r.Status, r.Body)
			}
		}
	}
	if len(bodies) != 1 {
		t.Errorf("forgeries are told apart: %v", bodies)
	}
}

func testBrowsers(t *testing.T, c *harness.Cluster) {
	for _, path := range []string{"/pins", "/pins/x", "/auth/token"} {
		r := do(t, c.Nodes[0], "", http.MethodOptions, path, "", http.Header{
			"Origin": {"https://app.example.org"}, "Access-Control-Request-Method": {"DELETE"}, "Access-Control-Request-Headers": {"authorization"},
		})
		allowed := r.Header.Get("Access-Control-Allow-Headers")
		if r.Status != http.StatusNoContent || r.Header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(allowed, "Authorization") ||
			!strings.Contains(r.Header.Get("Access-Control-Allow-Methods"), "DELETE") {
			t.Errorf("preflight of %s: %d %v", path, r.Status, r.Header)
		}
	}
	r := do(t, c.Nodes[1], "", http.MethodGet, "/pins", "", http.Header{"Origin": {"https://app.example.org"}})
	if r.Status != http.StatusUnauthorized || r.Header.Get("Access-Control-Allow-Origin") != "*" ||
		!strings.Contains(r.Header.Get("Access-Control-Expose-Headers"), "Retry-After") {
		t.Errorf("an error for a browser: %d %v", r.Status, r.Header)
	}
}

func testRates(t *testing.T, c *harness.Cluster) {
	busy, calm := c.Nodes[0].UserKey("busy@example.org").Token, c.Nodes[0].UserKey("calm@example.org").Token
	strict := c.Nodes[2]
	var last harness.Response
	harness.Eventually(t, time.Minute, "an account sends too much", func() (bool, error) {
		g, ctx := errgroup.WithContext(t.Context())
		var limited atomic.Pointer[harness.Response]
		for range 60 {
			g.Go(func() error {
				r, err := strict.Pins(busy).Do(ctx, http.MethodGet, "/pins?limit=1", nil, nil)
				if r.Status == http.StatusTooManyRequests {
					limited.Store(&r)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil || limited.Load() == nil {
			return false, err
		}
		last = *limited.Load()
		return true, nil
	})
	wantLimited(t, last)
	if r := do(t, strict, calm, http.MethodGet, "/pins", "", nil); r.Status != http.StatusOK {
		t.Errorf("another account: %d %s", r.Status, r.Body)
	}
	if r := do(t, c.Nodes[0], busy, http.MethodGet, "/pins", "", nil); r.Status != http.StatusOK {
		t.Errorf("another node, without a limit: %d %s", r.Status, r.Body)
	}
	if r := do(t, strict, calm, http.MethodPost, "/pins", `{"cid":"`+strings.Repeat("x", 1<<20)+`"}`, nil); r.Status != http.StatusRequestEntityTooLarge ||
		!strings.HasPrefix(string(r.Body), `{"error":"PAYLOAD_TOO_LARGE"`) {
		t.Errorf("100, 108: %d %s", r.Status, r.Body)
	}
}

// testRepeats ends with the leader killed, and brings it back.
func testRepeats(t *testing.T, c *harness.Cluster) {
	token := c.Nodes[0].UserKey("repeats@example.org").Token
	other := c.Nodes[0].UserKey("other@example.org").Token
	body, another := `{"cid":"`+nowhere().String()+`","meta":{"a":"b"}}`, `{"cid":"`+nowhere().String()+`"}`
	named := http.Header{"Idempotency-Key": {"4f1c7a3e-upload"}}
	var answers [30]harness.Response
	g, ctx := errgroup.WithContext(t.Context())
	for i := range answers {
		g.Go(func() (err error) {
			answers[i], err = c.Nodes[i%2].Pins(token).Do(ctx, http.MethodPost, "/pins", named, []byte(body))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	same := func(r harness.Response, why string) {
		t.Helper()
		var got, first harness.PinStatus
		if err := json.Unmarshal(r.Body, &got); err != nil || r.Status != http.StatusAccepted {
			t.Errorf("%s: %d %s", why, r.Status, r.Body)
			return
		}
		_ = json.Unmarshal(answers[0].Body, &first) // checked as every other
		if got.RequestID == "" || got.RequestID != first.RequestID || got.Created != first.Created || got.Status != "queued" || got.Pin.CID != first.Pin.CID {
			t.Errorf("%s: %s, the first was %s", why, r.Body, answers[0].Body)
		}
	}
	for _, r := range answers {
		same(r, "at the same time")
	}
	if r := do(t, c.Nodes[2], token, http.MethodPost, "/pins", another, named); r.Status != http.StatusUnprocessableEntity {
		t.Errorf("another pin under the same name: %d %s", r.Status, r.Body)
	}
	if r := do(t, c.Nodes[0], other, http.MethodPost, "/pins", another, named); r.Status != http.StatusAccepted {
		t.Errorf("another account: %d %s", r.Status, r.Body)
	}
	if r := do(t, c.Nodes[0], token, http.MethodPost, "/pins", body, http.Header{"Idempotency-Key": {""}}); r.Status != http.StatusBadRequest {
		t.Errorf("no name: %d %s", r.Status, r.Body)
	}
	leader := c.Leader()
	leader.Kill()
	for _, n := range c.Live() {
		harness.Eventually(t, time.Minute, n.Name+" answers the repeat", func() (bool, error) {
			r, err := n.Pins(token).Do(t.Context(), http.MethodPost, "/pins", named, []byte(body))
			if err != nil || r.Status == http.StatusServiceUnavailable {
				return false, fmt.Errorf("%d %s, %w", r.Status, r.Body, err)
			}
			same(r, "after the leader died, on "+n.Name)
			return true, nil
		})
	}
	leader.Restart()
	c.Settle()
	for _, n := range c.Nodes {
		if list, err := n.Pins(token).ListAll(t.Context(), nil, 100); err != nil || len(list) != 1 {
			t.Errorf("%s has %d pins, %v", n.Name, len(list), err)
		}
	}
}
