package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A browser keeps the colours that the person chose, on every page, and has those of the system again
// when the person wants that.
func TestColoursAreChosen(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	for _, step := range []struct{ scheme, html, meta string }{
		{"dark", `<html lang="en" data-colours="dark">`, `name="color-scheme" content="dark"`},
		{"light", `<html lang="en" data-colours="light">`, `name="color-scheme" content="light"`},
		{"", `<html lang="en">`, `name="color-scheme" content="light dark"`},
	} {
		if answer := b.post("/account", "/account/colours", url.Values{"scheme": {step.scheme}}); answer.Code != http.StatusSeeOther {
			t.Fatalf("%q is answered with %d", step.scheme, answer.Code)
		}
		for _, page := range []string{"/", "/nowhere"} {
			if _, body := b.get(page); !strings.Contains(body, step.html) || !strings.Contains(body, step.meta) {
				t.Errorf("with %q %s is %s", step.scheme, page, body)
			}
		}
	}
	if answer := b.post("/account", "/account/colours", url.Values{"scheme": {"pink"}}); answer.Code != http.StatusBadRequest {
		t.Errorf("an unknown scheme is answered with %d", answer.Code)
	}
}

// The scopes of a key are told in words.
func TestScopesInWords(t *testing.T) {
	for scopes, want := range map[string]string{
		"storage:read": "read", "storage:read storage:write": "read and write",
		"storage:read storage:write storage:delete": "read, write and delete", "other": "other", "": "",
	} {
		if got := mayText(scopes); got != want {
			t.Errorf("%q is %q, not %q", scopes, got, want)
		}
	}
}
