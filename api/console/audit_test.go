package console

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// administrator is a browser in which Alice, an administrator, has signed in.
func (w *world) administrator() *browser {
	w.t.Helper()
	if err := w.users.SetAdmin(w.t.Context(), "alice@example.org", true); err != nil {
		w.t.Fatal(err)
	}
	b := w.browser()
	b.signIn("alice")
	return b
}

// The page has who did what, from where; its address has the filter; it says what it verified.
func TestTheAuditLogIsShown(t *testing.T) {
	w := newWorld(t)
	b := w.administrator()
	bob := "/users/" + string(w.Account("bob"))
	b.post(bob, bob+"/allowance", url.Values{"allowance": {"3 GiB"}})
	from := netip.MustParseAddr("192.0.2.77")
	w.AheadToMinute()
	for range 3 {
		if _, err := w.users.SignIn(t.Context(), "bob@example.org", "not this one", from); err == nil {
			t.Fatal("a wrong password opens an account")
		}
	}
	w.Ahead(3 * time.Minute)
	if err := w.Audit.RecordRefusals(t.Context()); err != nil {
		t.Fatal(err)
	}
	page := func(path string, has, not []string) {
		t.Helper()
		status, body := b.get(path)
		_, list, _ := strings.Cut(body, `id="list"`)
		for _, text := range has {
			if status != http.StatusOK || !strings.Contains(list, text) {
				t.Errorf("%s has no %q: %d %s", path, text, status, list)
			}
		}
		for _, text := range not {
			if strings.Contains(list, text) {
				t.Errorf("%s has %q", path, text)
			}
		}
	}
	page("/audit", []string{"user.quota", "bob@example.org, 3 GiB", `href="/users/`, "from 192.0.2.1", "refused 3 times", "from 192.0.2.77"}, nil)
	page("/audit?action=user&actor=ALICE", []string{"user.quota"}, []string{"session.create", "refused 3"})
	page("/audit?target=bob@&action=session.create", []string{"refused 3 times"}, []string{"user.quota"})
	page("/audit?since=2020-01-01&until=2020-01-02", []string{"No row matches", `href="/audit"`}, []string{"<table"})
	_, body := b.get("/audit?action=user.quota&actor=%3Cb%3E&since=2026-01-02")
	for _, field := range []string{`value="user.quota" selected`, `value="&lt;b&gt;"`, `name="since" value="2026-01-02"`} {
		if !strings.Contains(body, field) {
			t.Errorf("the form has no %s: %s", field, body)
		}
	}
	answer := b.post("/audit", "/audit/verify?action=user", nil)
	newest, err := w.Audit.Verify(t.Context())
	if err != nil || !strings.Contains(answer.Body.String(), "The log is intact") || !strings.Contains(answer.Body.String(), newest.Head.String()) {
		t.Errorf("%v: %s", err, answer.Body)
	}
	if !strings.Contains(answer.Body.String(), `value="user" selected`) {
		t.Error("verifying forgets the filter")
	}
	for _, bad := range []string{"action=none", "since=2026-13-01", "cursor=x", "cursor=0"} {
		if status, _ := b.get("/audit?" + bad); status != http.StatusBadRequest {
			t.Errorf("%s is answered with %d", bad, status)
		}
	}
	if _, body := b.get("/cluster"); !strings.Contains(body, `href="/audit"`) {
		t.Error("the cluster's page does not lead to the audit log")
	}
}

// Pages follow one another without a gap, and the file has all of them.
func TestTheAuditLogIsPagedAndExported(t *testing.T) {
	w := newWorld(t)
	b := w.administrator()
	for i := range 3*auditRows - 7 {
		w.State.Apply(t, &state.SetQuota{Account: w.Account("bob"), Allowance: uint64(i + 1)})
	}
	rows, pages := 0, 0
	for path := "/audit?action=user.quota"; path != ""; pages++ {
		_, body := b.get(path)
		rows += strings.Count(body, "<tr>") - 1
		path = ""
		if _, rest, more := strings.Cut(body, `<a href="/audit?`); more && strings.Contains(rest, `rel="next"`) {
			path, _, _ = strings.Cut("/audit?"+rest, `"`)
			path = strings.ReplaceAll(path, "&amp;", "&")
		}
	}
	if rows != 3*auditRows-7 || pages != 3 {
		t.Errorf("%d pages have %d rows", pages, rows)
	}
	status, file := b.get("/audit/export?action=user.quota")
	lines := strings.Split(strings.TrimSpace(file), "\n")
	if status != http.StatusOK || len(lines) != rows {
		t.Fatalf("%d, and %d lines", status, len(lines))
	}
	var row web.AuditRow
	if err := json.Unmarshal([]byte(lines[0]), &row); err != nil || row.Action != "user.quota" || len(row.Hash) != 64 {
		t.Errorf("%v: %s", err, lines[0])
	}
}

// Who is no administrator sees nothing of it.
func TestTheAuditLogIsForAdministrators(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("bob")
	for _, path := range []string{"/audit", "/audit/export"} {
		if status, body := b.get(path); status != http.StatusForbidden || strings.Contains(body, "session.create") {
			t.Errorf("%s is answered with %d", path, status)
		}
	}
	if answer := b.post("/keys", "/audit/verify", nil); answer.Code != http.StatusForbidden {
		t.Errorf("verify is answered with %d", answer.Code)
	}
}
