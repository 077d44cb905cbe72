package webapi

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/apitest"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// An administrator posts to a ledger, each account reads its own, and only administrators read another's.
func TestTheLedgerIsPostedAndListed(t *testing.T) {
	w := newWorld(t)
	if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	alice, bob := w.signIn("alice"), w.signIn("bob")
	to := "/users/" + w.ids["user"] + "/ledger"
	var posted web.Posting
	for range 2 {
		w.into(alice.do("POST", to, `{"credits":100,"posting":"g","note":"welcome"}`), http.StatusCreated, &posted)
	}
	if posted.Seq != 1 || posted.Kind != "grant" || posted.By.Email != apitest.Email("alice") || posted.By.Kind != "session" || posted.By.Address != "" {
		t.Errorf("posted was %+v", posted)
	}
	w.into(alice.do("POST", to, `{"kind":"refund","credits":5}`), http.StatusCreated, nil)
	w.into(alice.do("POST", to, `{"kind":"correction","credits":-90,"corrects":"g","posting":"c"}`), http.StatusCreated, &posted)
	if posted.Credits != "-90" || posted.Balance != 15 || posted.Corrects != "g" {
		t.Errorf("the correction is %+v", posted)
	}
	for body, status := range map[string]int{
		`{"kind":"correction","credits":-16,"corrects":"g"}`:    http.StatusConflict,
		`{"credits":7,"posting":"g"}`:                           http.StatusConflict,
		`{"kind":"correction","credits":1,"corrects":"no one"}`: http.StatusNotFound,
		`{"kind":"charge","credits":-1}`:                        http.StatusBadRequest,
		`{"credits":-1}`:                                        http.StatusBadRequest,
		`{"credits":1.5}`:                                       http.StatusBadRequest,
		`{"credits":"1"}`:                                       http.StatusBadRequest,
		`{"credits":1,"note":7}`:                                http.StatusBadRequest,
		`{}`:                                                    http.StatusBadRequest,
	} {
		if got := alice.do("POST", to, body); got.Code != status {
			t.Errorf("%s is answered with %d: %s", body, got.Code, got.Body)
		}
	}
	for name, read := range map[string]func(query string) (page web.LedgerPage){
		"own": func(query string) (page web.LedgerPage) {
			w.into(bob.do("GET", "/ledger?limit=2"+query, ""), http.StatusOK, &page)
			return page
		},
		"another's": func(query string) (page web.LedgerPage) {
			w.into(alice.do("GET", "/ledger?limit=2&account="+w.ids["user"]+query, ""), http.StatusOK, &page)
			return page
		},
	} {
		first := read("")
		second := read("&cursor=" + url.QueryEscape(first.Next))
		var got []string
		for _, p := range append(first.Results, second.Results...) {
			got = append(got, p.Kind+" "+p.Credits.String())
		}
		if want := []string{"correction -90", "refund 5", "grant 100"}; !slices.Equal(got, want) || first.Balance != 15 || second.Next != "" {
			t.Errorf("%s: %q, %+v, %+v", name, got, first, second)
		}
	}
	w.refused("the ledger of another", bob.do("GET", "/ledger?account="+string(w.Account("alice")), ""), http.StatusForbidden)
	w.refused("an account that nobody has", alice.do("GET", "/ledger?account=none", ""), http.StatusNotFound)
	w.into(bob.do("GET", "/ledger?account="+w.ids["user"], ""), http.StatusOK, nil)
}
