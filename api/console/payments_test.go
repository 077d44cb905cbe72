package console

import (
	"net/http"
	"strings"
	"testing"
)

// TestPaymentsAreShownToAdministrators pages through the payments, says what is owed, and exports all.
func TestPaymentsAreShownToAdministrators(t *testing.T) {
	w := newWorld(t)
	if err := w.users.SetAdmin(t.Context(), "alice@example.org", true); err != nil {
		t.Fatal(err)
	}
	alice, bob := w.browser(), w.browser()
	alice.signIn("alice")
	bob.signIn("bob")
	if status, _ := bob.get("/payments"); status != http.StatusForbidden && status != http.StatusNotFound {
		t.Errorf("Bob gets %d", status)
	}
	_, body := alice.get("/payments")
	for _, want := range []string{"object photos/0", "photos/49", "refundable", "Nobody knows whether the payment was settled", "<dt>Valid before</dt>", "Only if the transfer was executed, pay it back", "the facilitator did not answer", `href="/payments?cursor=50"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(body, "photos/50<") {
		t.Error("the page has the first payment of the next")
	}
	if _, last := alice.get("/payments?cursor=100"); !strings.Contains(last, "photos/119") || strings.Contains(last, `rel="next"`) || !strings.Contains(last, ">Newest payments<") {
		t.Errorf("the last page: %s", last)
	}
	_, file := alice.get("/payments.csv")
	if lines := strings.Split(strings.TrimSpace(file), "\r\n"); len(lines) != 121 || !strings.HasPrefix(lines[0], "time,state,kind,payer,") || !strings.HasSuffix(lines[3], ",the facilitator did not answer,2023-11-14T22:18:20.000Z") {
		t.Errorf("the file has %d lines: %.300s", len(lines), file)
	}
}
