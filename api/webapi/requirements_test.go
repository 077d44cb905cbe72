package webapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/apitest"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// The requirements of docs/reliability.md for every route of the table. Each test calls every
// route by its sample, so a route without one fails TestEveryRouteHasASample.
//
//	A43  TestARevokedKeyOpensNoRoute
//	A44  TestAnEndedSessionOpensNoRoute
//	A45  TestScopesOpenRoutes
//	A46  TestIDsOfAnotherAccountAreAbsent, TestACursorLeadsToOwnRowsOnly
//	A47  TestTokensInAnotherFormOpenNoRoute
//	A48  TestNoAnswerLeadsElsewhere
//	A49  TestRequestsOfOtherSitesChangeNothing
//	A50  TestWrongPasswordsAreCounted
//	A51  TestSecretsAreNotTold

// TestEveryRouteHasASample promises that each route has a sample and each sample its route. The tests below call
// every route by its sample.
func TestEveryRouteHasASample(t *testing.T) {
	served := map[string]bool{}
	for _, op := range (&surface{}).operations() {
		name := op.method + " " + op.path
		served[name] = true
		if samples[name].good == 0 {
			t.Errorf("%s has no sample", name)
		}
		if s := samples[name]; strings.Contains(op.path, "{id}") != (s.id != "") || (op.fields != nil) != (s.body != "") {
			t.Errorf("the sample of %s has the id %q and the body %q", name, s.id, s.body)
		}
	}
	for name := range samples {
		if !served[name] {
			t.Errorf("%s has a sample and is not served", name)
		}
	}
}

// TestEveryRouteAnswers promises that each route serves a caller who may use it, with a cookie and with a Bearer
// token.
func TestEveryRouteAnswers(t *testing.T) {
	for name, client := range map[string]func(w *world) client{
		"cookie": func(w *world) client { return w.signIn("alice") },
		"bearer": func(w *world) client { return w.with(w.token("alice")) },
	} {
		w := newWorld(t)
		if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
			t.Fatal(err)
		}
		alice := client(w)
		for _, c := range w.calls(nil) {
			if got := alice.at(c).do(c.method, c.to, c.sent); got.Code != c.good {
				t.Errorf("%s with a %s is answered with %d: %s", c.name, name, got.Code, got.Body)
			}
		}
	}
}

// refused fails the test unless an answer has a status and the reason that belongs to it.
func (w *world) refused(what string, got *httptest.ResponseRecorder, status int) {
	w.T.Helper()
	reason := map[int]string{http.StatusUnauthorized: "UNAUTHORIZED", http.StatusForbidden: "FORBIDDEN", http.StatusNotFound: "NOT_FOUND"}[status]
	if got.Code != status || !strings.HasPrefix(got.Body.String(), `{"error":{"reason":"`+reason+`","details":"`) {
		w.T.Errorf("%s is answered with %d and not %d: %s", what, got.Code, status, got.Body)
	}
}

// A43: from the answer to the revocation on, no route of any node takes the key.
func TestARevokedKeyOpensNoRoute(t *testing.T) {
	w := newWorld(t)
	doomed := w.Key("alice", state.Scopes()...)
	nodes := []http.Handler{w.handler, w.node(w.Elsewhere()), w.node(w.Elsewhere())}
	for _, h := range nodes {
		c := w.with(doomed.Token)
		c.handler = h
		w.into(c.do("GET", "/pins", ""), http.StatusOK, nil)
	}
	w.into(w.signIn("alice").do("DELETE", "/keys/"+string(doomed.ID), ""), http.StatusNoContent, nil)
	defer w.Unchanged("a revoked key")()
	for _, h := range nodes {
		for _, c := range guardedOnly(w.calls(nil)) {
			by := w.with(doomed.Token)
			by.handler = h
			w.refused(c.name, by.do(c.method, c.to, c.sent), http.StatusUnauthorized)
		}
	}
}

// A44: a session that was ended in any way opens no route of any node, by cookie or token; another
// session of the account goes on where that is promised.
func TestAnEndedSessionOpensNoRoute(t *testing.T) {
	for name, end := range map[string]func(w *world, ended, other client) error{
		"sign-out": func(w *world, ended, _ client) error {
			w.into(ended.do("DELETE", "/session", ""), http.StatusNoContent, nil)
			return nil
		},
		"another session ends it": func(w *world, ended, other client) error {
			who, err := w.Users.Authenticate(t.Context(), other.cookie)
			if err != nil {
				return err
			}
			return w.Users.EndSessions(t.Context(), who.Account, who.Session)
		},
		"new password": func(w *world, _, _ client) error {
			return w.Users.SetPassword(t.Context(), apitest.Email("alice"), "another password")
		},
		"account disabled": func(w *world, _, _ client) error {
			return w.Users.SetDisabled(t.Context(), apitest.Email("alice"), true)
		},
		"account removed": func(w *world, _, _ client) error {
			return w.Users.RemoveAccount(t.Context(), apitest.Email("alice"))
		},
		"expiry": func(w *world, _, _ client) error {
			w.Ahead(100 * 24 * time.Hour)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ended, other := w.signIn("alice"), w.signIn("alice")
			nodes := []http.Handler{w.handler, w.node(w.Elsewhere())}
			for _, h := range nodes {
				ended.handler = h
				w.into(ended.do("GET", "/session", ""), http.StatusOK, nil)
			}
			if err := end(w, ended, other); err != nil {
				t.Fatal(err)
			}
			for _, h := range nodes {
				bearer := w.with(ended.cookie)
				ended.handler, bearer.handler = h, h
				unchanged := w.Unchanged(name)
				for _, c := range guardedOnly(w.calls(nil)) {
					w.refused(c.name+" with the cookie", ended.do(c.method, c.to, c.sent), http.StatusUnauthorized)
					w.refused(c.name+" with the token", bearer.do(c.method, c.to, c.sent), http.StatusUnauthorized)
				}
				unchanged()
			}
			want := map[string]int{"sign-out": http.StatusOK, "another session ends it": http.StatusOK}[name]
			if want == 0 {
				want = http.StatusUnauthorized
			}
			if got := other.do("GET", "/session", ""); got.Code != want {
				t.Errorf("the other session is answered with %d", got.Code)
			}
		})
	}
}

// A45: a key opens what its scope covers and nothing else, and no key manages keys or accounts.
func TestScopesOpenRoutes(t *testing.T) {
	w := newWorld(t)
	if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	for scope, opens := range map[string][]access{
		state.ScopeRead: {mayRead, byToken, listsByToken}, state.ScopeWrite: {mayWrite, writesByToken, mayDelete}, state.ScopeDelete: {mayDelete},
	} {
		by := w.with(w.Key("alice", scope).Token)
		for _, c := range guardedOnly(w.calls(nil)) {
			open := false
			for _, a := range opens {
				open = open || c.access == a
			}
			if c.change() && open { // else nothing would be left for the next
				if scope == state.ScopeRead {
					t.Errorf("%s changes something and is open to %s", c.name, scope)
				}
				continue
			}
			unchanged := w.Unchanged(c.name + " with " + scope)
			got := by.do(c.method, c.to, c.sent)
			unchanged()
			switch {
			case open && got.Code != c.good:
				t.Errorf("%s with %s is answered with %d: %s", c.name, scope, got.Code, got.Body)
			case !open:
				w.refused(c.name+" with "+scope, got, http.StatusForbidden)
			}
		}
	}
	for _, c := range w.calls(nil) { // what a scope does open
		if c.access == mayWrite || c.access == writesByToken {
			got := w.with(w.Key("alice", state.ScopeWrite).Token).do(c.method, c.to, c.sent)
			if got.Code != c.good {
				t.Errorf("%s with %s is answered with %d: %s", c.name, state.ScopeWrite, got.Code, got.Body)
			}
		}
	}
	for i, scope := range []string{state.ScopeDelete, state.ScopeWrite} {
		w.Store("old.txt", "text/plain", "x")
		if got := w.with(w.Key("alice", scope).Token).do("DELETE", "/buckets/photos/object?key=old.txt", ""); got.Code != http.StatusNoContent {
			t.Errorf("%d: DELETE with %s is answered with %d", i, scope, got.Code)
		}
	}
}

// absentIDs are ids that nobody has.
var absentIDs = map[string]string{
	"key": "7f3c1c1e-0000-4000-8000-000000000000", "pin": "7f3c1c1e-0000-4000-8000-000000000000",
	"user": "7f3c1c1e-0000-4000-8000-000000000000", "bucket": "nothing", "link": "7f3c1c1e-0000-4000-8000-000000000000",
}

// A46: an id of another account is answered as one that nobody has, byte for byte.
func TestIDsOfAnotherAccountAreAbsent(t *testing.T) {
	w := newWorld(t)
	bob := w.signIn("bob")
	absent := w.calls(absentIDs)
	seen := 0
	defer w.Unchanged("Bob")()
	for i, c := range w.calls(nil) {
		if c.to == absent[i].to {
			continue
		}
		seen++
		sent := strings.ReplaceAll(c.sent, "alice", "bob")
		by := bob.at(c)
		got, want := by.do(c.method, c.to, sent), by.do(c.method, absent[i].to, strings.ReplaceAll(absent[i].sent, "alice", "bob"))
		status := http.StatusNotFound
		if c.access == admins {
			status = http.StatusForbidden
		}
		w.refused(c.name, got, status)
		if got.Body.String() != want.Body.String() || got.Code != want.Code {
			t.Errorf("%s is answered with %s, and one that nobody has with %s", c.name, got.Body, want.Body)
		}
	}
	if seen < 12 {
		t.Errorf("%d routes have an id", seen)
	}
}

// A46: a key of another account signs no link to an own object.
func TestAKeyOfAnotherAccountSignsNoLink(t *testing.T) {
	w := newWorld(t)
	alice := w.signIn("alice")
	link := "/buckets/photos/object/link?key=cat.txt"
	for _, id := range []string{string(w.Key("bob").ID), absentIDs["key"]} {
		w.refused("the key "+id, alice.do("POST", link, `{"key_id":"`+id+`"}`), http.StatusNotFound)
	}
	for _, name := range []string{"", "&version=" + absentIDs["key"]} {
		other := w.signIn("bob").do("POST", link+name, `{"key_id":"`+string(w.key.ID)+`"}`)
		w.refused("the object of another"+name, other, http.StatusNotFound)
	}
}

// A46: a list with a cursor of another account has own rows only, and a malformed cursor gets 400.
func TestACursorLeadsToOwnRowsOnly(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.signIn("alice"), w.signIn("bob")
	alice.do("POST", "/pins", `{"cid":"`+apitest.CatCID+`","name":"secret of alice"}`)
	w.Store("secret of alice", "text/plain", "x")
	for _, note := range []string{"secret of alice", "another secret of alice"} {
		if _, err := w.Ledger.Post(t.Context(), apitest.Email("alice"), credits.Request{Kind: state.Grant, Credits: 1, Note: note}); err != nil {
			t.Fatal(err)
		}
	}
	lists := 0
	for _, c := range w.calls(nil) {
		if c.access == admins || !strings.Contains(strings.Join(c.operation.query, " "), "cursor") {
			continue
		}
		lists++
		path, _, _ := strings.Cut(c.to, "?")
		var page struct{ Next string }
		w.into(alice.at(c).do("GET", path+"?limit=1", ""), http.StatusOK, &page)
		if page.Next == "" {
			t.Fatalf("%s has one page", c.name)
		}
		for _, at := range []string{page.Next, cursorOf("0"), cursorOf("99999999999999")} {
			got := bob.at(c).do("GET", path+"?cursor="+url.QueryEscape(at), "")
			if strings.Contains(got.Body.String(), "alice") || got.Code != http.StatusOK && got.Code != http.StatusNotFound && got.Code != http.StatusBadRequest {
				t.Errorf("%s with the cursor %q is answered to Bob with %d: %s", c.name, at, got.Code, got.Body)
			}
		}
		for _, at := range []string{"", "!", "====", "\x00", strings.Repeat("A", 3000)} {
			if got := alice.at(c).do("GET", path+"?cursor="+url.QueryEscape(at), ""); got.Code != http.StatusBadRequest {
				t.Errorf("%s with the cursor %.20q is answered with %d", c.name, at, got.Code)
			}
		}
	}
	if lists != 5 {
		t.Errorf("%d lists have cursors", lists)
	}
}

// A47: a token in another form than one header "Bearer TOKEN" opens no route, even beside a good
// cookie.
func TestTokensInAnotherFormOpenNoRoute(t *testing.T) {
	w := newWorld(t)
	token := w.token("alice")
	alice := w.signIn("alice")
	defer w.Unchanged("tokens in another form")()
	for _, form := range [][]string{
		{""},
		{token},
		{"bearer " + token},
		{"Bearer  " + token},
		{"Bearer " + token + " "},
		{"Bearer\t" + token},
		{"Bearer " + token, "Bearer " + token},
		{"Basic " + token},
		{"Bearer " + strings.Repeat("x", accounts.MaxToken+1)},
	} {
		for _, c := range guardedOnly(w.calls(nil)) {
			for _, by := range []client{w.with(""), alice} {
				r := by.request(c.method, c.to, c.sent)
				r.Header["Authorization"] = form
				w.refused(c.name, by.send(r), http.StatusUnauthorized)
			}
		}
	}
	for _, c := range guardedOnly(w.calls(nil)) {
		for _, name := range []string{"token", "access_token", "key"} {
			path, _, _ := strings.Cut(c.to, "?")
			w.refused(c.name, w.with("").do(c.method, path+"?"+name+"="+token, c.sent), http.StatusUnauthorized)
		}
		// An API key in the cookie is no session.
		by := client{world: w, handler: w.handler, cookie: w.key.Token, form: web.FormToken(w.key.Token)}
		w.refused(c.name, by.do(c.method, c.to, c.sent), http.StatusUnauthorized)
	}
}

// A48: no answer has a Location, whatever address a request brings.
func TestNoAnswerLeadsElsewhere(t *testing.T) {
	w := newWorld(t)
	if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	alice := w.signIn("alice")
	for _, c := range w.calls(nil) {
		for _, to := range apitest.HostileAddresses {
			for _, by := range []client{w.with(""), alice} {
				for _, name := range apitest.AddressParameters {
					path, _, _ := strings.Cut(c.to, "?")
					got := by.do(c.method, path+"?"+url.Values{name: {to}}.Encode(), c.sent)
					if got.Header().Get("Location") != "" || got.Code < 400 && c.access != anybody {
						t.Errorf("%s with %s=%q is answered with %d and %q", c.name, name, to, got.Code, got.Header().Get("Location"))
					}
				}
			}
		}
		if got := alice.do(c.method, c.to, c.sent); got.Header().Get("Location") != "" || got.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s is answered with %v", c.name, got.Header())
		}
	}
}

// A49: a change with a cookie needs the form token of its session and comes from this origin, as
// JSON.
func TestRequestsOfOtherSitesChangeNothing(t *testing.T) {
	w := newWorld(t)
	if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	alice, other := w.signIn("alice"), w.signIn("alice")
	defer w.Unchanged("requests of other sites")()
	for _, c := range w.calls(nil) {
		if !c.change() {
			continue
		}
		for _, tc := range []struct{ name, token, header, value string }{
			{"no token", "", "", ""},
			{"a token of another session", other.form, "", ""},
			{"the session as its token", alice.cookie, "", ""},
			{"another origin", alice.form, "Origin", "https://evil.example"},
			{"no origin", alice.form, "Origin", "null"},
			{"another site", alice.form, "Sec-Fetch-Site", "cross-site"},
			{"a site beside", alice.form, "Sec-Fetch-Site", "same-site"},
			{"a form", alice.form, "Content-Type", "application/x-www-form-urlencoded"},
			{"a form with files", alice.form, "Content-Type", "multipart/form-data; boundary=x"},
			{"text", alice.form, "Content-Type", "text/plain"},
		} {
			by := alice
			by.form = tc.token
			r := by.request(c.method, c.to, c.sent)
			if tc.header != "" {
				r.Header.Set(tc.header, tc.value)
			}
			status := http.StatusForbidden
			if c.access.byTokenOnly() { // the cookie counts for nothing
				status = http.StatusUnauthorized
			}
			w.refused(c.name+" with "+tc.name, by.send(r), status)
		}
	}
}

// A50: wrong passwords are answered alike and the sixth within a minute is refused, also a right
// one, at every route that takes a password of the caller.
func TestWrongPasswordsAreCounted(t *testing.T) {
	routes := 0
	for _, of := range newWorld(t).calls(nil) {
		if !of.tries {
			continue
		}
		routes++
		w := newWorld(t)
		alice := w.signIn("alice")
		var first string
		for try := 1; try <= 6; try++ {
			c := w.calls(nil)[indexOf(w.calls(nil), of.name)]
			sent := strings.ReplaceAll(c.sent, "password of alice", "wrong")
			if try == 6 {
				sent = c.sent
			}
			got := alice.do(c.method, c.to, sent)
			if try == 6 {
				if got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") == "" {
					t.Errorf("try 6 of %s is answered with %d: %s", c.name, got.Code, got.Body)
				}
				continue
			}
			w.refused(c.name, got, http.StatusForbidden)
			if first == "" {
				first = got.Body.String()
			}
			if got.Body.String() != first {
				t.Errorf("try %d of %s differs: %s", try, c.name, got.Body)
			}
		}
	}
	if routes == 0 {
		t.Error("no route takes a password")
	}
	for name, s := range samples {
		if method, path, _ := strings.Cut(name, " "); strings.Contains(s.body, `"password of alice"`) != s.tries {
			t.Errorf("%s %s has a password, and its sample does not say so", method, path)
		}
	}
}

func indexOf(all []sampled, name string) int {
	for i, c := range all {
		if c.name == name {
			return i
		}
	}
	return -1
}

// A51: no log line, no metric and no error of any route has a token, a password or a secret.
func TestSecretsAreNotTold(t *testing.T) {
	w := newWorld(t)
	if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	alice := w.signIn("alice")
	secrets := map[string]string{
		"session": alice.cookie, "form token": alice.form, "key": w.key.Token, "secret key": w.key.SecretAccessKey, "password": "password of alice", "first password": "password of carol",
	}
	for _, c := range w.calls(nil) {
		for _, by := range []client{alice, w.with(w.key.Token), w.with(alice.cookie + "x")} {
			for _, query := range []string{"", "token=" + alice.cookie} {
				path := c.to
				if query != "" {
					path, _, _ = strings.Cut(path, "?")
					path += "?" + query
				}
				for _, sent := range []string{c.sent, strings.Replace(c.sent, "{", `{"no":"password of alice",`, 1), c.sent + "password of alice"} {
					if by.cookie != "" && c.name == "DELETE /session" && query == "" && sent == c.sent {
						continue // it is the last
					}
					got := by.do(c.method, path, sent)
					if c.shows && got.Code < 300 {
						continue
					}
					for name, secret := range secrets {
						if strings.Contains(got.Body.String(), secret) {
							t.Errorf("%s answers %d with the %s: %s", c.name, got.Code, name, got.Body)
						}
					}
				}
			}
		}
	}
	families, err := w.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	metrics := fmt.Sprint(families)
	if !strings.Contains(w.log.String(), "DELETE") || !strings.Contains(metrics, "webapi") {
		t.Fatal("nothing was logged or counted")
	}
	for name, secret := range secrets {
		if strings.Contains(w.log.String(), secret) || strings.Contains(metrics, secret) {
			t.Errorf("the log or a metric has the %s", name)
		}
	}
}
