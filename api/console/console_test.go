package console

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/apitest"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const cat = apitest.CatCID

// route is a row of the table with a value for each name.
type route struct {
	method, path string
	absent       string // the same path with an id that nobody has; empty: there is none in it
}

// absentID is an id that nobody has.
const absentID = "7f3c1c1e-0000-4000-8000-000000000000"

// paths returns the routes with an access: ids of keys, pins and sessions are Alice's, and of users
// Bob's.
func (w *world) paths(of access) (gets, posts []route) {
	key, err := w.users.CreateKey(w.t.Context(), "alice@example.org", "test", nil, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	b := w.browser()
	b.signIn("alice")
	answer := b.post("/pins", "/pins", url.Values{"cid": {cat}})
	pin := strings.TrimPrefix(answer.Header().Get("Location"), "/pins/")
	who, err := w.users.Authenticate(w.t.Context(), b.cookies[sessionCookie])
	if err != nil {
		w.t.Fatal(err)
	}
	session := string(who.Session)
	for _, row := range (&surface{}).table() {
		if row.access != of || strings.HasPrefix(row.path, "/buckets/") { // see objectRoutes
			continue
		}
		id := pin
		switch {
		case strings.HasPrefix(row.path, "/keys/"):
			id = string(key.ID)
		case strings.HasPrefix(row.path, "/account/identities/"):
			id = string(w.linked("alice"))
		case strings.HasPrefix(row.path, "/account/sessions/"):
			id = session
		case strings.HasPrefix(row.path, "/cluster/nodes/"):
			id = "n2"
		case strings.HasPrefix(row.path, "/users/"):
			id = string(w.account("bob"))
		}
		to := route{method: row.method, path: strings.ReplaceAll(row.path, "{id}", id)}
		if to.path != row.path {
			to.absent = strings.ReplaceAll(row.path, "{id}", absentID)
		}
		if row.method == http.MethodPost {
			posts = append(posts, to)
		} else {
			gets = append(gets, to)
		}
	}
	return gets, posts
}

// allPaths returns the paths of signedIn and admins.
func (w *world) allPaths() (gets, posts []string) {
	for _, of := range []access{signedIn, admins} {
		g, p := w.paths(of)
		for _, to := range g {
			gets = append(gets, to.path)
		}
		for _, to := range p {
			posts = append(posts, to.path)
		}
	}
	return gets, posts
}

// Every page opens for an administrator who is signed in, and names the account.
func TestEveryPageOpensForItsAccount(t *testing.T) {
	w := newWorld(t)
	gets, _ := w.allPaths()
	if err := w.users.SetAdmin(t.Context(), "alice@example.org", true); err != nil {
		t.Fatal(err)
	}
	b := w.browser()
	b.signIn("alice")
	for _, path := range gets {
		isPage := path != "/pins/export" && path != "/audit/export" && !strings.HasSuffix(path, ".csv") && !strings.HasSuffix(path, "/download")
		if status, body := b.get(path); status != http.StatusOK || isPage && !strings.Contains(body, "alice@example.org") {
			t.Errorf("GET %s is answered with %d: %.300s", path, status, body)
		}
	}
}

// Nobody without a session sees a page or makes a change; the page that was asked for is kept.
func TestWithoutASessionThereIsNothingButSignIn(t *testing.T) {
	w := newWorld(t)
	gets, posts := w.allPaths()
	for _, path := range gets {
		answer := w.browser().do(httptest.NewRequest(http.MethodGet, path+"?a=b", nil))
		want := "/sign-in?to=" + url.QueryEscape(path+"?a=b")
		if got := answer.Header().Get("Location"); answer.Code != http.StatusSeeOther || got != want {
			t.Errorf("GET %s is answered with %d and %q, not %q", path, answer.Code, got, want)
		}
	}
	for _, path := range posts {
		answer := w.browser().do(formRequest(path, nil))
		if answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != "/sign-in" {
			t.Errorf("POST %s is answered with %d", path, answer.Code)
		}
	}
}

// The ids of another account are answered as ids that nobody has.
func TestIDsOfAnotherAccountAreAbsent(t *testing.T) {
	w := newWorld(t)
	gets, posts := w.paths(signedIn)
	b := w.browser()
	b.signIn("bob")
	for _, to := range append(gets, posts...) {
		if to.absent == "" {
			continue
		}
		ask := func(path string) (int, string) {
			if to.method == http.MethodGet {
				return b.get(path)
			}
			answer := b.post("/pins", path, url.Values{"password": {"password of bob"}})
			return answer.Code, tokenOf.ReplaceAllString(answer.Body.String(), "")
		}
		got, body := ask(to.path)
		want, same := ask(to.absent)
		if got != http.StatusNotFound || got != want || body != same {
			t.Errorf("%s %s is answered with %d and %s with %d", to.method, to.path, got, to.absent, want)
		}
	}
	if _, rows, err := w.pins.List(t.Context(), w.account("alice"), state.PinQuery{Limit: 10}); err != nil || len(rows) != 1 {
		t.Errorf("Alice has %d pins, %v", len(rows), err)
	}
	keys, err := w.users.Keys(t.Context(), "alice@example.org")
	if err != nil || len(keys) != 1 {
		t.Errorf("Alice has %d keys, %v", len(keys), err)
	}
}

// Pages of administrators are refused to others, and change nothing.
func TestPagesOfAdministrators(t *testing.T) {
	w := newWorld(t)
	gets, posts := w.paths(admins)
	b := w.browser()
	b.signIn("alice")
	for _, to := range gets {
		path := to.path
		if status, body := b.get(path); status != http.StatusForbidden || strings.Contains(body, "bob@example.org") {
			t.Errorf("GET %s is answered with %d", path, status)
		}
	}
	form := url.Values{"email": {"bob@example.org"}, "password": {"another password"}, "allowance": {"1"}, "admin": {"yes"}}
	for _, to := range posts {
		path := to.path
		if answer := b.post("/pins", path, form); answer.Code != http.StatusForbidden {
			t.Errorf("POST %s is answered with %d", path, answer.Code)
		}
	}
	if has, err := w.users.Holdings(t.Context(), "bob@example.org"); err != nil || has.Admin || has.Quota.Allowance == 1 {
		t.Errorf("Bob has %+v, %v", has, err)
	}
	w.browser().signIn("bob")
}

// An administrator adds a person, who signs in, changes what the account may store, its rights, which
// the list of users shows, and its password, and removes it after typing its address.
func TestAnAdministratorChangesAccounts(t *testing.T) {
	w := newWorld(t)
	token, err := w.users.SetupToken()
	if err != nil {
		t.Fatal(err)
	}
	b := w.browser()
	setup := "/setup?t=" + token
	form := url.Values{"setup": {token}, "email": {"root@example.org"}, "password": {"password of root"}, "again": {"another one"}}
	if answer := b.post(setup, "/setup", form); answer.Code != http.StatusBadRequest {
		t.Errorf("two passwords are answered with %d", answer.Code)
	}
	form.Set("again", "password of root")
	if answer := b.post(setup, "/setup", form); answer.Code != http.StatusSeeOther {
		t.Fatalf("setup is answered with %d: %s", answer.Code, answer.Body)
	}
	if status, _ := w.browser().get(setup); status != http.StatusNotFound {
		t.Errorf("the link is answered with %d afterwards", status)
	}
	answer := b.post("/users", "/users", url.Values{"email": {"carol@example.org"}, "password": {"password of carol"}})
	page := answer.Header().Get("Location")
	w.browser().signIn("carol")
	for _, tc := range []struct {
		action, name, value, says string
		status                    int
	}{
		{"allowance", "allowance", "much", "is not a size", http.StatusBadRequest},
		{"allowance", "allowance", "2 GiB", "2 GiB", http.StatusOK},
		{"password", "password", "x", "password", http.StatusBadRequest},
		{"password", "password", "password of bob", "sessions ended", http.StatusOK},
		{"admin", "admin", "yes", "The account is an administrator now.", http.StatusOK},
		{"admin", "admin", "no", "The account is no administrator any more.", http.StatusOK},
		{"remove", "email", "bob@example.org", "Nothing was removed", http.StatusBadRequest},
		{"remove", "email", "carol@example.org", "", http.StatusSeeOther},
	} {
		answer := b.post("/users", page+"/"+tc.action, url.Values{tc.name: {tc.value}})
		if answer.Code != tc.status || !strings.Contains(answer.Body.String(), tc.says) {
			t.Errorf("%s with %q is answered with %d: %s", tc.action, tc.value, answer.Code, answer.Body)
		}
		if _, users := b.get("/users"); tc.action == "admin" && strings.Contains(users, `carol@example.org</a> <span class="muted">administrator</span>`) != (tc.value == "yes") {
			t.Errorf("after %s %s the list of users is %s", tc.action, tc.value, users)
		}
	}
	if status, _ := b.get(page); status != http.StatusNotFound {
		t.Errorf("the account is still there: %d", status)
	}
}

// A size has a number and a binary unit, with and without an i; everything else is refused.
func TestSizesThatPeopleWrite(t *testing.T) {
	for text, want := range map[string]uint64{"1": 1, "500 MiB": 500 << 20, "2g": 2 << 30, "1.5 KB": 1536, "1EiB": 0, "": 0, "-1": 0, "0": 0, "1 XB": 0, "1 GiBB": 0, "9999999 PiB": 0, "NaN": 0} {
		got, err := parseSize(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q is %d, %v, not %d", text, got, err, want)
		}
	}
}

// After signing in a browser goes to a page of this host, wherever the link came from.
func TestTheReturnPathIsOfThisHost(t *testing.T) {
	for _, path := range []string{
		"https://evil.example", "//evil.example", `/\evil.example`, `\\evil.example`, "https:evil.example", "javascript:alert(1)",
		"/\t/evil.example", "/ok\r\nSet-Cookie: a=b", "evil", "", "http://console.test@evil.example/", "///evil.example",
	} {
		b := newWorld(t).browser()
		form := url.Values{"email": {"alice@example.org"}, "password": {"password of alice"}, "to": {path}}
		answer := b.post("/sign-in?to="+url.QueryEscape(path), "/sign-in", form)
		if got := answer.Header().Get("Location"); answer.Code != http.StatusSeeOther || got != "/" {
			t.Errorf("with %q the browser goes to %q", path, got)
		}
	}
	b := newWorld(t).browser()
	answer := b.post("/sign-in", "/sign-in", url.Values{"email": {"alice@example.org"}, "password": {"password of alice"}, "to": {"/pins?status=failed"}})
	if got := answer.Header().Get("Location"); got != "/pins?status=failed" {
		t.Errorf("the browser goes to %q", got)
	}
}

// The answer does not tell whether an account exists, and a name can be tried five times a minute.
func TestWrongPasswordsAreCountedAndAlike(t *testing.T) {
	w := newWorld(t)
	bodies := map[string]string{}
	for _, name := range []string{"alice", "nobody"} {
		b := w.browser()
		for try := 1; try <= 6; try++ {
			answer := b.post("/sign-in", "/sign-in", url.Values{"email": {name + "@example.org"}, "password": {"wrong"}})
			want := http.StatusUnauthorized
			if try == 6 {
				want = http.StatusTooManyRequests
			}
			body := strings.ReplaceAll(tokenOf.ReplaceAllString(answer.Body.String(), ""), name, "")
			if answer.Code != want {
				t.Errorf("try %d of %s is answered with %d, not %d", try, name, answer.Code, want)
			}
			if try == 1 {
				bodies[name] = body
			}
		}
	}
	if bodies["alice"] != bodies["nobody"] {
		t.Errorf("the answers differ:\n%s\n%s", bodies["alice"], bodies["nobody"])
	}
}

// The session cookie is for this host, for HTTP alone, and over HTTPS alone where that is used: over
// TLS, or behind a trusted proxy that says so. What anybody else says of HTTPS counts nothing.
func TestTheSessionCookie(t *testing.T) {
	w := newWorld(t)
	node := w.another(func(o *Options) {
		o.Limits = web.NewLimits(web.Rate{}, web.Rate{}, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, time.Now)
	})
	const plain, secure = "holdfast-session=T; Path=/; HttpOnly; SameSite=Lax", "__Host-holdfast-session=T; Path=/; HttpOnly; Secure; SameSite=Lax"
	for _, tc := range []struct{ name, url, remote, said, want string }{
		{"plain HTTP", "/sign-in", "10.0.0.1:5", "", plain},
		{"TLS", "https://" + host + "/sign-in", "192.0.2.1:5", "", secure},
		{"a trusted proxy with TLS", "/sign-in", "10.0.0.1:5", "https", secure},
		{"a trusted proxy without", "/sign-in", "10.0.0.1:5", "http", plain},
		{"somebody else who says so", "/sign-in", "192.0.2.1:5", "https", plain},
	} {
		b := node.browser()
		send := func(r *http.Request) *httptest.ResponseRecorder {
			r.RemoteAddr = tc.remote
			if tc.said != "" {
				r.Header.Set("X-Forwarded-Proto", tc.said)
			}
			return b.do(r)
		}
		page := send(httptest.NewRequest(http.MethodGet, tc.url, nil))
		token := tokenOf.FindStringSubmatch(page.Body.String())
		if token == nil {
			t.Fatalf("%s: the page has no form: %s", tc.name, page.Body)
		}
		answer := send(formRequest(tc.url, url.Values{"email": {"alice@example.org"}, "password": {"password of alice"}, tokenField: {token[1]}}))
		name, _, _ := strings.Cut(tc.want, "=")
		got := strings.Join(answer.Header().Values("Set-Cookie"), "\n")
		if b.cookies[name] == "" || !strings.Contains("\n"+strings.ReplaceAll(got, "="+b.cookies[name]+";", "=T;")+"\n", "\n"+tc.want+"\n") {
			t.Errorf("%s: %d with the cookies %s", tc.name, answer.Code, got)
		}
	}
	// An API key is no session.
	key, err := w.users.CreateKey(t.Context(), "alice@example.org", "test", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	thief := w.browser()
	thief.cookies[sessionCookie] = key.Token
	if status, _ := thief.get("/"); status != http.StatusSeeOther {
		t.Errorf("an API key as the cookie is answered with %d", status)
	}
}

// Every answer has the headers that keep other sites and scripts out.
func TestHeadersOfEveryAnswer(t *testing.T) {
	b := newWorld(t).browser()
	for _, path := range []string{"/", "/sign-in", "/status", "/robots.txt", "/favicon.ico", "/buckets", "/nowhere", "/healthz", "/readyz", "/get-key", "/get-key?redirect=https%3A%2F%2Fevil.example%2Fdone"} {
		answer := b.do(httptest.NewRequest(http.MethodGet, path, nil))
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			if got := answer.Header().Get(name); got != want {
				t.Errorf("GET %s has %s: %s", path, name, got)
			}
		}
	}
}

// Pages have no script or style of their own, which the policy would refuse, and fit a budget.
func TestPagesHaveNoCodeOfTheirOwnAndFitABudget(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	_, body := b.get("/")
	total := len(body)
	for _, bad := range []string{"<script>", "<style", " style=", " onclick=", "javascript:"} {
		if strings.Contains(body, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	for _, part := range strings.Split(body, `"/static/`)[1:] {
		path, _, _ := strings.Cut(part, `"`)
		answer := b.do(httptest.NewRequest(http.MethodGet, "/static/"+path, nil))
		if answer.Code != http.StatusOK || !strings.Contains(answer.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s is answered with %d", path, answer.Code)
		}
		total += len(answer.Body.String())
	}
	if total > 100<<10 {
		t.Errorf("the first page has %d bytes", total)
	}
}

// Before the node is ready there is health, and a page that says so.
func TestANodeThatStarts(t *testing.T) {
	w := newWorld(t)
	w.Down = errors.New("waiting for a leader")
	h, err := Starting(Options{Health: w, Version: "1", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w.handler = h
	if status, body := w.browser().get("/pins"); status != http.StatusServiceUnavailable || !strings.Contains(body, "Waiting for a leader") {
		t.Errorf("a page is answered with %d: %s", status, body)
	}
	if status, _ := w.browser().get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz is answered with %d", status)
	}
}
