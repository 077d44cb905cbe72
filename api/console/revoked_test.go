package console

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// The page after a revoke, and later the page of keys, say since when every node refuses the key. No
// other account sees that.
func TestARevokedKeyIsRefusedSinceATime(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.browser(), w.browser()
	alice.signIn("alice")
	bob.signIn("bob")
	if _, body := alice.get("/keys"); strings.Contains(body, "Revoked in the last") {
		t.Errorf("before: %s", body)
	}
	key, err := w.users.CreateKey(t.Context(), "alice@example.org", "<b>laptop</b>, old", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	page := "/keys/" + string(key.ID)
	done := alice.post(page, page+"/revoke", url.Values{})
	since := regexp.MustCompile(`has been refused on every node since <time datetime="20[^"]+Z">20[0-9: -]+ UTC</time>`)
	if done.Code != http.StatusOK || !since.MatchString(done.Body.String()) {
		t.Errorf("revoke is answered with %d: %s", done.Code, done.Body)
	}
	_, body := alice.get("/keys")
	for _, want := range []string{"</svg>&lt;b&gt;laptop&lt;/b&gt;, old</span>", `data-label="Refused on every node since"><time datetime="20`, string(key.ID), "alice@example.org</td>"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page of keys does not have %s: %s", want, body)
		}
	}
	if _, body := bob.get("/keys"); strings.Contains(body, "laptop&lt;") || strings.Contains(body, "Revoked in the last") {
		t.Errorf("Bob sees %s", body)
	}
}
