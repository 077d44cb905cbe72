package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/api/internal/apitest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A person deletes the account after the page has said what goes with it: with the password, and the
// e-mail address typed. Keys and sessions of it open nothing on any node from then on.
func TestAPersonDeletesTheAccount(t *testing.T) {
	w := newWorld(t)
	w.pin("alice", "cat", nil)
	w.photos("cat.txt")
	key := w.Key("alice")
	b, other := w.browser(), w.browser()
	b.signIn("alice")
	other.signIn("alice")
	_, body := b.get("/account")
	for _, want := range []string{`<dt>Pins</dt><dd class="number">1</dd>`, `<dt>Objects</dt><dd class="number">1, 1 open uploads</dd>`, `<dt>Buckets</dt><dd class="number">1</dd>`, `<dt>API keys</dt><dd class="number">1</dd>`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not say %q: %s", want, body)
		}
	}
	unchanged := w.Unchanged("a refused deletion")
	for _, tc := range []struct {
		email, password string
		status          int
	}{
		{"alice@example.org", "", http.StatusForbidden},
		{"alice@example.org", "password of bob", http.StatusForbidden},
		{"", "password of alice", http.StatusBadRequest},
		{"bob@example.org", "password of alice", http.StatusBadRequest},
	} {
		answer := b.post("/account", "/account/delete", url.Values{"email": {tc.email}, "password": {tc.password}})
		if answer.Code != tc.status || !strings.Contains(answer.Body.String(), "Nothing was deleted") || !strings.Contains(answer.Body.String(), `value="`+tc.email+`"`) {
			t.Errorf("%+v is answered with %d: %s", tc, answer.Code, answer.Body)
		}
	}
	unchanged()
	answer := b.post("/account", "/account/delete", url.Values{"email": {" alice@example.org "}, "password": {"password of alice"}})
	if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "is deleted") || strings.Contains(answer.Body.String(), "Sign out") || b.cookies[sessionCookie] != "" {
		t.Fatalf("%d, the session is %q: %s", answer.Code, b.cookies[sessionCookie], answer.Body)
	}
	if status, _ := other.get("/account"); status != http.StatusSeeOther {
		t.Errorf("another session is answered with %d", status)
	}
	if _, err := w.Elsewhere().Authenticate(t.Context(), key.Token); !errors.Is(err, state.ErrUnauthorized) {
		t.Errorf("the key on another node: %v", err)
	}
	if _, err := w.users.ByEmail(t.Context(), apitest.Email("alice")); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("the account: %v", err)
	}
}

// The only administrator cannot delete the own account, and the page says so before.
func TestTheOnlyAdministratorStays(t *testing.T) {
	w := newWorld(t)
	if err := w.users.SetAdmin(t.Context(), apitest.Email("alice"), true); err != nil {
		t.Fatal(err)
	}
	b := w.browser()
	b.signIn("alice")
	form := url.Values{"email": {"alice@example.org"}, "password": {"password of alice"}}
	if _, body := b.get("/account"); !strings.Contains(body, "is the only administrator: make another one first") || strings.Contains(body, "Delete my account") {
		t.Errorf("the page is %s", body)
	}
	if answer := b.post("/account", "/account/delete", form); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "Nothing was deleted: alice@example.org is the only administrator") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	if err := w.users.SetAdmin(t.Context(), apitest.Email("bob"), true); err != nil {
		t.Fatal(err)
	}
	if answer := b.post("/account", "/account/delete", form); answer.Code != http.StatusOK {
		t.Errorf("with another administrator: %d %s", answer.Code, answer.Body)
	}
}

// A person without a password signs in at the provider anew to delete the account.
func TestAnAccountIsDeletedAfterAFreshSignIn(t *testing.T) {
	_, b, p := signedInBefore(t)
	form := url.Values{"email": {"carol@example.org"}}
	answer := b.post("/account", "/account/delete", form)
	if answer.Code != http.StatusForbidden || !strings.Contains(answer.Body.String(), `href="/sign-in/one?again=yes&amp;to=/account"`) {
		t.Errorf("after ten minutes it is answered with %d: %s", answer.Code, answer.Body)
	}
	b.open(b.through(p, "/sign-in/one?to=/account", carol))
	if answer := b.post("/account", "/account/delete", form); answer.Code != http.StatusOK {
		t.Errorf("after a sign-in it is answered with %d: %s", answer.Code, answer.Body)
	}
}
