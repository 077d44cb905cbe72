package webapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// TestSharesAreMadeListedAndRevoked promises that a share opens the content of its objects and no other route,
// until it is revoked.
func TestSharesAreMadeListedAndRevoked(t *testing.T) {
	w := newWorld(t)
	w.Store("e/1", "text/plain", "purr")
	alice := w.signIn("alice")
	var made web.Share
	w.into(alice.do("POST", "/shares", `{"bucket":"photos","prefixes":["x/","e/"],"read":true,"expires_at":"2100-01-01T00:00:00Z","name":"for Ann"}`), http.StatusCreated, &made)
	if !state.ValidShareID(made.ID) || made.Token == "" || made.AccessKey == "" || len(made.SecretKey) != 40 || made.Expires != "2100-01-01T00:00:00.000Z" || strings.Join(made.Prefixes, " ") != "e/ x/" || !made.Read || made.Write || made.Delete {
		t.Errorf("%+v", made)
	}
	var page sharesBody
	w.into(alice.do("GET", "/shares?bucket=photos", ""), http.StatusOK, &page)
	if len(page.Results) != 3 || page.Next != "" {
		t.Errorf("%+v", page)
	}
	for _, s := range page.Results {
		if s.Token != "" || s.SecretKey != "" || s.AccessKey != "" {
			t.Errorf("a list has the secrets of %+v", s)
		}
	}
	guest := w.with(made.Token)
	if got := guest.do("GET", "/shared/photos/e/1", ""); got.Code != http.StatusOK || got.Body.String() != "purr" {
		t.Errorf("the content of a share is answered with %d %s", got.Code, got.Body)
	}
	w.refused("an object outside of the share", guest.do("GET", "/shared/photos/cat.txt", ""), http.StatusForbidden)
	w.refused("an object of another bucket", guest.do("GET", "/shared/other/e/1", ""), http.StatusForbidden)
	w.refused("a key that is like one of the share", guest.do("GET", "/shared/photos/e", ""), http.StatusForbidden)
	restore := w.Unchanged("a share")
	for _, c := range guardedOnly(w.calls(nil)) {
		if !c.access.byTokenOnly() {
			w.refused(c.name+" with a share", guest.do(c.method, c.to, c.sent), http.StatusUnauthorized)
		}
	}
	restore()
	w.into(alice.do("DELETE", "/shares/photos/"+string(made.ID), ""), http.StatusNoContent, nil)
	elsewhere := guest
	elsewhere.handler = w.node(w.Elsewhere())
	for _, g := range []client{guest, elsewhere} {
		w.refused("a revoked share", g.do("GET", "/shared/photos/e/1", ""), http.StatusUnauthorized)
	}
	w.refused("a share that is gone", alice.do("DELETE", "/shares/photos/"+string(made.ID), ""), http.StatusNotFound)
	w.refused("the share of another account", w.signIn("bob").do("DELETE", "/shares/photos/"+w.ids["share"], ""), http.StatusNotFound)
}

// TestABadShareIsRefused promises that a share with a bad member is refused and changes nothing.
func TestABadShareIsRefused(t *testing.T) {
	w := newWorld(t)
	alice, writer := w.signIn("alice"), w.with(w.Key("alice", state.ScopeWrite).Token)
	key, err := w.Users.CreateKey(t.Context(), "alice@example.org", "", nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	short := w.with(key.Token)
	defer w.Unchanged("a bad share")()
	for body, want := range map[string]int{
		`{}`:                                    400,
		`{"bucket":"photos"}`:                   400,
		`{"bucket":"photos","prefixes":["e/"]}`: 400,
		`{"bucket":"photos","prefixes":[""],"read":true}`:                                        400,
		`{"bucket":"photos","prefixes":["e/"],"read":"yes"}`:                                     400,
		`{"bucket":"photos","prefixes":["e/"],"read":true,"share_id":"x"}`:                       400,
		`{"bucket":"photos","prefixes":["e/"],"read":true,"share_id":7}`:                         400,
		`{"bucket":"photos","prefixes":["e/"],"read":true,"expires_at":"soon"}`:                  400,
		`{"bucket":"photos","prefixes":["e/"],"read":true,"expires_at":"2001-01-01T00:00:00Z"}`:  400,
		`{"bucket":"photos","prefixes":["e/"],"read":true,"expires_in":5}`:                       400,
		`{"bucket":"absent","prefixes":["e/"],"read":true}`:                                      404,
		`{"bucket":"photos","prefixes":["e/"],"write":true,"share_id":"` + w.ids["share"] + `"}`: 409,
	} {
		if got := alice.do("POST", "/shares", body); got.Code != want {
			t.Errorf("%s is answered with %d %s", body, got.Code, got.Body)
		}
	}
	w.refused("a share that reads, by a key that does not", writer.do("POST", "/shares", `{"bucket":"photos","prefixes":["e/"],"read":true}`), http.StatusForbidden)
	for _, end := range []string{"", `,"expires_at":"2100-01-01T00:00:00Z"`} {
		w.refused("a share that outlives the key that makes it", short.do("POST", "/shares", `{"bucket":"photos","prefixes":["e/"],"read":true`+end+`}`), http.StatusForbidden)
	}
	for _, cursor := range []string{"x", cursorOf("1"), cursorOf("1/2"), cursorOf("/" + w.ids["share"]), cursorOf("-1/" + w.ids["share"])} {
		if got := alice.do("GET", "/shares?cursor="+cursor, ""); got.Code != http.StatusBadRequest {
			t.Errorf("the cursor %q is answered with %d %s", cursor, got.Code, got.Body)
		}
	}
}
