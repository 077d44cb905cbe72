package console

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// The page of an object counts the nodes that have its content, and those that should.
func TestThePageOfAnObjectCountsItsCopies(t *testing.T) {
	w := newWorld(t)
	w.photos("cat.txt")
	b := w.browser()
	b.signIn("alice")
	o, err := w.objects.Object(t.Context(), w.account("alice"), "photos", "cat.txt", "")
	if err != nil {
		t.Fatal(err)
	}
	held, wanted, err := w.objects.Copies(t.Context(), &o)
	if err != nil || held == 0 || wanted < held {
		t.Fatalf("%d of %d, %v", held, wanted, err)
	}
	if _, body := b.get("/buckets/photos/object?key=cat.txt"); !strings.Contains(body, fmt.Sprintf(`<dt>Copies</dt><dd class="number">%d of %d</dd>`, held, wanted)) {
		t.Errorf("the page is %s", body)
	}
}

// An administrator sees the keys and the sessions of an account, without a secret.
func TestAnAdministratorSeesKeysAndSessions(t *testing.T) {
	w, b := administrator(t)
	bob := w.browser()
	bob.signIn("bob")
	bob.post("/keys", "/keys", url.Values{"name": {"laptop of bob"}, "scope": {"read"}, "expiry": {"90d"}})
	keys, err := w.users.Keys(t.Context(), "bob@example.org")
	if err != nil || len(keys) == 0 {
		t.Fatal(keys, err)
	}
	shown, err := w.users.Show(t.Context(), keys[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	_, body := b.get("/users/" + string(w.account("bob")))
	for _, want := range []string{"laptop of bob", `data-label="Access"><span title="` + keys[0].Scope + `">read</span>`, "<h2>Sessions</h2>", "may store: 500 MiB"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not have %s: %s", want, body)
		}
	}
	for _, secret := range []string{shown.Token, shown.SecretAccessKey} {
		if secret == "" || strings.Contains(body, secret) {
			t.Errorf("the page has the secret %q", secret)
		}
	}
}
