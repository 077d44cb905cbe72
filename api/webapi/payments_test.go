package webapi

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/apitest"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// TestPaymentsAreListedForAdministrators promises that an administrator gets every payment once, in order, by
// pages, and that another account gets 403.
func TestPaymentsAreListedForAdministrators(t *testing.T) {
	w := newWorld(t)
	if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	alice, bob := w.signIn("alice"), w.signIn("bob")
	if got := bob.do("GET", "/payments", ""); got.Code != http.StatusForbidden {
		t.Errorf("Bob gets %d: %s", got.Code, got.Body)
	}
	var all []web.Payment
	for query := "?limit=50"; query != ""; {
		var page web.PaymentPage
		w.into(alice.do("GET", "/payments"+query, ""), http.StatusOK, &page)
		all = append(all, page.Results...)
		if query = ""; page.Next != "" {
			query = "?limit=50&cursor=" + url.QueryEscape(page.Next)
		}
	}
	if len(all) != 120 || all[0].Object != "photos/0" || all[119].Object != "photos/119" || all[2].State != "refundable" || all[2].Reason == "" || all[2].Until != "" || all[2].ValidBefore != "2023-11-14T22:18:20.000Z" {
		t.Errorf("%d payments, the third is %+v", len(all), all[2])
	}
}
