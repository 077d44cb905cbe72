package webapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/apitest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Each error code of the state has an entry in the table of this API, with a status other than 500 and a text.
func TestEveryCodeHasAnAnswer(t *testing.T) {
	for _, code := range state.Codes() {
		if a := answer(state.Errorf(code, "why")); errorTable[code].Status == 0 || a.Status == http.StatusInternalServerError || a.Detail == "" {
			t.Errorf("code %d is answered with %+v", code, a)
		}
	}
}

// pages returns the names on all pages of a list and how many pages there are.
func (c client) pages(path string) (names []string, pages int) {
	c.T.Helper()
	for next := ""; ; pages++ {
		to := path
		if next != "" {
			to += "&cursor=" + url.QueryEscape(next)
		}
		var page struct {
			Results []struct{ Name, Key, Email string }
			Next    string
		}
		c.into(c.do("GET", to, ""), http.StatusOK, &page)
		for _, row := range page.Results {
			names = append(names, row.Name+row.Key+row.Email)
		}
		if next = page.Next; next == "" {
			return names, pages + 1
		}
		if len(page.Results) == 0 || pages > 100 {
			c.T.Fatalf("%s has an empty page or no end", path)
		}
	}
}

// Pages of a list have every row once, in order, and the last page has no cursor.
func TestPagesHaveEveryRowOnce(t *testing.T) {
	w := newWorld(t)
	if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	alice := w.signIn("alice")
	pinned, keys, emails := []string{"cat"}, []string{"cat.txt"}, []string{apitest.Email("alice"), apitest.Email("bob")}
	for i := range 7 {
		name := fmt.Sprintf("n%d", i)
		w.into(alice.do("POST", "/pins", `{"cid":"`+apitest.CatCID+`","name":"`+name+`"}`), http.StatusCreated, nil)
		w.into(alice.do("POST", "/users", `{"email":"`+apitest.Email(name)+`","password":"password of `+name+`"}`), http.StatusCreated, nil)
		w.Store(name, "text/plain", "x")
		pinned, keys, emails = append([]string{name}, pinned...), append(keys, name), append(emails, apitest.Email(name))
	}
	for _, tc := range []struct {
		path string
		want []string
	}{{"/pins?", pinned}, {"/buckets/photos/objects?", keys}, {"/users?", append(emails, "operator@localhost")}} {
		for _, limit := range []int{1, 2, 3, len(tc.want) - 1, len(tc.want), 1000} {
			got, pages := alice.pages(fmt.Sprintf("%slimit=%d", tc.path, limit))
			if want := (len(tc.want) + limit - 1) / limit; !slices.Equal(got, tc.want) || pages != want {
				t.Errorf("%s with %d rows a page has %q on %d pages, not %q on %d", tc.path, limit, got, pages, tc.want, want)
			}
		}
		for _, limit := range []string{"0", "-1", "1001", "1e3", "", "x", "99999999999999999999"} {
			if got := alice.do("GET", tc.path+"limit="+limit, ""); got.Code != http.StatusBadRequest {
				t.Errorf("%s with the limit %q is answered with %d", tc.path, limit, got.Code)
			}
		}
	}
}

// A page of pins that ends early because its rows are long leads to the rest.
func TestLongPinsAreOnFurtherPages(t *testing.T) {
	w := newWorld(t)
	alice := w.signIn("alice")
	const many = 70 // of 64 KiB each: more than state.MaxListBytes
	long := strings.Repeat("x", state.MaxMetaBytes-4)
	for range many {
		w.into(alice.do("POST", "/pins", `{"cid":"`+apitest.CatCID+`","name":"long","meta":{"text":"`+long+`"}}`), http.StatusCreated, nil)
	}
	if names, pages := alice.pages("/pins?limit=1000&name=long"); len(names) != many || pages < 2 {
		t.Errorf("%d pins are on %d pages", len(names), pages)
	}
}

// The list of pins is filtered by name, match and status, and a bad filter is refused.
func TestPinsAreFiltered(t *testing.T) {
	w := newWorld(t)
	alice := w.signIn("alice")
	for _, name := range []string{"dog", "Catalogue"} {
		w.into(alice.do("POST", "/pins", `{"cid":"`+apitest.CatCID+`","name":"`+name+`"}`), http.StatusCreated, nil)
	}
	for query, want := range map[string][]string{
		"": {"Catalogue", "dog", "cat"}, "name=cat": {"cat"}, "name=cat&match=exact": {"cat"}, "name=CAT&match=iexact": {"cat"},
		"name=at&match=partial": {"Catalogue", "cat"}, "name=CAT&match=ipartial": {"Catalogue", "cat"}, "status=queued": {"Catalogue", "dog", "cat"}, "status=failed": nil,
	} {
		if got, _ := alice.pages("/pins?" + query); !slices.Equal(got, want) {
			t.Errorf("%q is answered with %q", query, got)
		}
	}
	for _, query := range []string{"status=", "status=gone", "match=x", "status=queued&status=failed", "before=1", "name=%ff", "name=" + strings.Repeat("a", 256)} {
		if got := alice.do("GET", "/pins?"+query, ""); got.Code != http.StatusBadRequest {
			t.Errorf("%.20q is answered with %d", query, got.Code)
		}
	}
}

// A list of a bucket has the keys with its prefix, and one entry for all keys that go on behind its delimiter.
func TestObjectsAreListedByPrefix(t *testing.T) {
	w := newWorld(t)
	for _, key := range []string{"trip/day 1/map", "trip/plan", "zoo"} {
		w.Store(key, "text/plain", "x")
	}
	alice := w.signIn("alice")
	for query, want := range map[string]string{
		"":                             `cat.txt trip/day 1/map trip/plan zoo|`,
		"delimiter=%2F":                `cat.txt zoo|trip/`,
		"prefix=trip%2F&delimiter=%2F": `trip/plan|trip/day 1/`,
		"prefix=z":                     `zoo|`,
	} {
		var page struct {
			Results  []struct{ Key string }
			Prefixes []string
		}
		w.into(alice.do("GET", "/buckets/photos/objects?"+query, ""), http.StatusOK, &page)
		var keys []string
		for _, row := range page.Results {
			keys = append(keys, row.Key)
		}
		if got := strings.Join(keys, " ") + "|" + strings.Join(page.Prefixes, " "); got != want {
			t.Errorf("%q is answered with %q", query, got)
		}
	}
}

// A key that the API creates works until it is revoked; reading the key hides its token and the password shows
// it again.
func TestKeysAreMadeShownAndRevoked(t *testing.T) {
	w := newWorld(t)
	alice := w.signIn("alice")
	var made, listed, shown keyBody
	w.into(alice.do("POST", "/keys", `{"name":" laptop ","scope":"storage:read","expires_in":60}`), http.StatusCreated, &made)
	if made.Name != "laptop" || made.Scope != state.ScopeRead || made.Expires == "" {
		t.Errorf("the key is %+v", made)
	}
	w.into(w.with(made.Token).do("GET", "/usage", ""), http.StatusOK, nil)
	path := "/keys/" + string(made.ID)
	w.into(alice.do("GET", path, ""), http.StatusOK, &listed)
	if listed.Token != "" || listed.SecretAccessKey != "" {
		t.Errorf("the key is listed as %+v", listed)
	}
	w.into(alice.do("POST", path+"/show", `{"password":"password of alice"}`), http.StatusOK, &shown)
	if shown.Token != made.Token || shown.SecretAccessKey != made.SecretAccessKey {
		t.Errorf("the key is shown as %+v", shown)
	}
	w.into(alice.do("DELETE", path, ""), http.StatusNoContent, nil)
	w.refused("the revoked key", w.with(made.Token).do("GET", "/usage", ""), http.StatusUnauthorized)
	w.refused("the revoked key's page", alice.do("GET", path, ""), http.StatusNotFound)
}

// An administrator changes, disables and removes other accounts, and gets 403 for changes that would lock out
// its own.
func TestAccountsAreChanged(t *testing.T) {
	w := newWorld(t)
	if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	alice := w.signIn("alice")
	bob := "/users/" + string(w.Account("bob"))
	for body, want := range map[string]string{`{"bytes":1024}`: "1024", `{"bytes":null}`: "null"} {
		w.into(alice.do("PUT", bob+"/allowance", body), http.StatusNoContent, nil)
		got := alice.do("GET", bob, "")
		if !strings.Contains(got.Body.String(), `"allowance_bytes":`+want) {
			t.Errorf("after %s: %s", body, got.Body)
		}
	}
	w.into(alice.do("PUT", bob+"/admin", `{"admin":true}`), http.StatusNoContent, nil)
	w.into(w.signIn("bob").do("GET", "/users", ""), http.StatusOK, nil)
	w.into(alice.do("PUT", bob+"/admin", `{"admin":false}`), http.StatusNoContent, nil)
	w.refused("who is no administrator any more", w.signIn("bob").do("GET", "/users", ""), http.StatusForbidden)
	self := "/users/" + string(w.Account("alice"))
	w.refused("the own rights", alice.do("PUT", self+"/admin", `{"admin":false}`), http.StatusForbidden)
	w.refused("the own account", alice.do("DELETE", self, ""), http.StatusForbidden)
	key, before := w.Key("bob"), w.signIn("bob")
	w.into(alice.do("PUT", bob+"/disabled", `{"disabled":true}`), http.StatusNoContent, nil)
	for what, by := range map[string]client{"a key": w.with(key.Token), "a session": before} {
		w.refused(what+" of a disabled account", by.do("GET", "/session", ""), http.StatusUnauthorized)
	}
	if got := alice.do("GET", "/users?email=bob", ""); !strings.Contains(got.Body.String(), `"disabled":"20`) {
		t.Errorf("the list: %s", got.Body)
	}
	w.into(alice.do("PUT", bob+"/disabled", `{"disabled":false}`), http.StatusNoContent, nil)
	w.into(w.with(key.Token).do("GET", "/usage", ""), http.StatusOK, nil)
	if got := alice.do("GET", bob, ""); strings.Contains(got.Body.String(), "disabled") {
		t.Errorf("after it is enabled: %s", got.Body)
	}
	w.refused("the own account", alice.do("PUT", self+"/disabled", `{"disabled":true}`), http.StatusForbidden)
	w.into(alice.do("DELETE", bob, ""), http.StatusNoContent, nil)
	if _, err := w.Users.ByEmail(t.Context(), apitest.Email("bob")); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("after it is removed: %v", err)
	}
}

// A bad body is refused with 400 and changes nothing.
func TestBadBodiesChangeNothing(t *testing.T) {
	w := newWorld(t)
	if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	alice := w.signIn("alice")
	defer w.Unchanged("bad bodies")()
	for _, c := range w.calls(nil) {
		if c.fields == nil {
			continue
		}
		bad := []string{"", "null", "[]", `""`, "{", "{}", `{"unknown":1}`, strings.Replace(c.sent, "{", `{"unknown":1,`, 1), c.sent + "{}", strings.Repeat("[", 1000)}
		for _, field := range c.fields {
			bad = append(bad, `{"`+field+`":{"a":1}}`, `{"`+field+`":1,"`+field+`":2}`, `{"`+strings.ToUpper(field)+`":1}`)
		}
		for _, body := range bad {
			got := alice.send(alice.request(c.method, c.to, body))
			if got.Code != http.StatusBadRequest || !strings.HasPrefix(got.Body.String(), `{"error":{"reason":"BAD_REQUEST"`) {
				t.Errorf("%s with %.40q is answered with %d: %s", c.name, body, got.Code, got.Body)
			}
		}
	}
	for path, bodies := range map[string][]string{
		"POST /keys":    {`{"name":"x","expires_in":0}`, `{"name":"x","expires_in":1.5}`, `{"name":"x","expires_in":"1"}`, `{"name":"x","expires_in":99999999999}`, `{"name":"x","scope":""}`, `{"name":"x","scope":"all"}`, `{"name":"  "}`},
		"POST /buckets": {`{"name":"ab"}`, `{"name":"Photos"}`, `{"name":"192.168.5.4"}`, `{"name":"holidays","public":"yes"}`, `{"name":"holidays","public":null}`},
		"POST /pins":    {`{"cid":"nonsense"}`, `{"cid":"` + apitest.CatCID + `","meta":{"a":1}}`, `{"cid":"` + apitest.CatCID + `","origins":"x"}`, `{"cid":"` + apitest.CatCID + `","until":"yesterday"}`},
		"POST /users":   {`{"email":"x","password":"password of x"}`, `{"email":"x@example.org","password":"x"}`},
		"POST /buckets/photos/object/link?key=cat.txt": {`{"key_id":"` + w.ids["key"] + `","expires_in":604801}`},
	} {
		method, to, _ := strings.Cut(path, " ")
		for _, body := range bodies {
			if got := alice.do(method, to, body); got.Code != http.StatusBadRequest {
				t.Errorf("%s with %s is answered with %d: %s", path, body, got.Code, got.Body)
			}
		}
	}
	for _, query := range []string{"", "?key=", "?key=a&key=b", "?key=%zz", "?kee=a"} {
		if got := alice.do("GET", "/buckets/photos/object"+query, ""); got.Code != http.StatusBadRequest {
			t.Errorf("an object with %q is answered with %d", query, got.Code)
		}
	}
}

// A request to create a bucket or account that exists, or to remove a bucket with objects, gets 409 and changes
// nothing.
func TestConflicts(t *testing.T) {
	w := newWorld(t)
	if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	alice := w.signIn("alice")
	defer w.Unchanged("conflicts")()
	for request, body := range map[string]string{"POST /buckets": `{"name":"photos"}`, "POST /users": `{"email":"bob@example.org","password":"password of bob"}`, "DELETE /buckets/photos": ""} {
		method, to, _ := strings.Cut(request, " ")
		if got := alice.do(method, to, body); got.Code != http.StatusConflict || !strings.Contains(got.Body.String(), `"reason":"CONFLICT"`) {
			t.Errorf("%s is answered with %d: %s", request, got.Code, got.Body)
		}
	}
}

// Before the node is ready, the API answers with 503, the reason and Retry-After.
func TestANodeThatStarts(t *testing.T) {
	w := newWorld(t)
	w.Down = errors.New("waiting for a leader")
	c := w.with("")
	c.handler = Starting(Options{Health: w, Logger: slog.New(slog.DiscardHandler)})
	if got := c.do("GET", "/session", ""); got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), "waiting for a leader") || got.Header().Get("Retry-After") == "" {
		t.Errorf("it is answered with %d: %s", got.Code, got.Body)
	}
}

// A path or a method that is not in the table is refused in the API's own form.
func TestWhatIsNotInTheTable(t *testing.T) {
	alice := newWorld(t).signIn("alice")
	for request, want := range map[string]int{"GET /nowhere": 404, "GET ": 404, "GET /": 404, "PUT /pins": 405, "PATCH /session": 405, "OPTIONS /pins": 204, "HEAD /pins": 200} {
		method, path, _ := strings.Cut(request, " ")
		if got := alice.do(method, path, ""); got.Code != want || want >= 400 && !strings.HasPrefix(got.Body.String(), `{"error":{"reason":`) {
			t.Errorf("%s is answered with %d: %s", request, got.Code, got.Body)
		}
	}
}
