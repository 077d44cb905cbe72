package webapi

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/apitest"
	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// The audit log is listed newest first by pages and filters, with actor, target and address, and its
// verification names the newest row.
func TestAuditIsListedAndVerified(t *testing.T) {
	w := newWorld(t)
	if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	alice := w.signIn("alice")
	for i := range 5 {
		alice.must(t, "PUT", "/users/"+w.ids["user"]+"/allowance", fmt.Sprintf(`{"bytes":%d}`, i+1))
	}
	list := func(query string) (page web.AuditPage) {
		t.Helper()
		w.into(alice.do("GET", "/audit?"+query, ""), http.StatusOK, &page)
		return page
	}
	var seen []string
	for query := "action=user.quota&limit=2"; ; {
		page := list(query)
		for _, row := range page.Results {
			if row.Actor.Email != apitest.Email("alice") || row.Actor.Kind != "session" || row.Actor.Address != "192.0.2.1" || row.Target != w.ids["user"] || row.Outcome != "done" {
				t.Errorf("%+v", row)
			}
			_, text, _ := strings.Cut(row.Detail, ", ")
			seen = append(seen, text)
		}
		if page.Next == "" {
			break
		}
		query = "action=user.quota&limit=2&cursor=" + url.QueryEscape(page.Next)
	}
	if got := strings.Join(seen, "; "); got != "5 bytes; 4 bytes; 3 bytes; 2 bytes; 1 bytes" {
		t.Errorf("pages have %s", got)
	}
	if rows := list("actor=nobody@").Results; len(rows) != 0 {
		t.Errorf("%+v", rows)
	}
	if rows := list("since=2020-01-01&until=2020-01-02").Results; len(rows) != 0 {
		t.Errorf("%+v", rows)
	}
	for _, bad := range []string{"action=none", "since=yesterday", "cursor=MTIz!", "limit=0", "limit=1001", "since=2020-01-02&until=2020-01-01", "other=1"} {
		w.refusedBadly(alice, bad)
	}
	var v web.AuditCheck
	w.into(alice.do("GET", "/audit/verify", ""), http.StatusOK, &v)
	newest := list("limit=1").Results
	if !v.Intact || len(newest) != 1 || v.Head != newest[0].Hash || v.Last != newest[0].Seq || v.Count != v.Last-v.First+1 {
		t.Errorf("%+v, and the newest row is %+v", v, newest)
	}
}

func (w *world) refusedBadly(c client, query string) {
	w.T.Helper()
	if got := c.do("GET", "/audit?"+query, ""); got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), "BAD_REQUEST") {
		w.T.Errorf("%s is answered with %d: %s", query, got.Code, got.Body)
	}
}

// must sends a change that succeeds.
func (c client) must(t *testing.T, method, path, body string) {
	t.Helper()
	if got := c.do(method, path, body); got.Code >= 300 {
		t.Fatalf("%s %s is answered with %d: %s", method, path, got.Code, got.Body)
	}
}

// A51: neither passwords nor tokens nor the secrets of keys are in the audit log.
func TestTheAuditLogHasNoSecret(t *testing.T) {
	w := newWorld(t)
	if err := w.Users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	alice := w.signIn("alice")
	shown, err := w.Users.Show(t.Context(), w.key.ID)
	if err != nil {
		t.Fatal(err)
	}
	const canary = "canary-password-7"
	link, err := w.Users.CreateLink(t.Context(), apitest.Email("bob"))
	if err != nil {
		t.Fatal(err)
	}
	session, err := w.Users.UseLink(t.Context(), link.Token, canary)
	if err != nil {
		t.Fatal(err)
	}
	from := netip.MustParseAddr("192.0.2.9")
	w.AheadToMinute()
	for _, name := range []string{apitest.Email("bob"), canary, canary + "@example.org"} { // people type passwords there
		if _, err := w.Users.SignIn(t.Context(), name, "wrong-"+canary, from); err == nil {
			t.Fatal("a wrong password opens an account")
		}
	}
	alice.must(t, "DELETE", "/keys/"+string(w.key.ID), "")
	w.Ahead(3 * time.Minute) // so that the minute of the wrong passwords is over
	if err := w.Audit.RecordRefusals(t.Context()); err != nil {
		t.Fatal(err)
	}
	body := alice.do("GET", "/audit?limit=1000", "").Body.String()
	for _, secret := range []string{canary, alice.cookie, session, link.Token, shown.Token, shown.SecretAccessKey, apitest.Password("alice")} {
		if strings.Contains(body, secret) {
			t.Errorf("%.12s… is in %s", secret, body)
		}
	}
	if !strings.Contains(body, `"outcome":"refused","count":1`) || !strings.Contains(body, `"outcome":"refused","count":2`) {
		t.Errorf("wrong passwords are not summed in %s", body)
	}
	for _, action := range []string{"key.show", "key.revoke", "user.link", "user.password", "session.create"} {
		if !strings.Contains(body, `"`+action+`"`) {
			t.Errorf("%s is not in %s", action, body)
		}
	}
}
