package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// An app gets a key only at an address that it registered, after a person signed in and agreed.
func TestAnAppGetsAKeyWhereItRegistered(t *testing.T) {
	w := newWorld(t)
	if _, err := w.users.AddApp(t.Context(), "photos", []string{"https://photos.example/done", "photos://done"}, []string{"storage:read"}); err != nil {
		t.Fatal(err)
	}
	for _, redirect := range []string{
		"", "https://evil.example/done", "//evil.example", `/\evil.example`, "javascript:alert(1)", "data:text/html,x", "https://photos.example@evil.example/done",
		"https://photos.example/done\r\nLocation: https://evil.example", "https://Photos.example/done", "https://photos.example.evil.example/done", "https://photos.example:444/done",
	} {
		for _, b := range []*browser{w.browser(), w.browser()} {
			answer := b.do(httptest.NewRequest(http.MethodGet, "/get-key?"+url.Values{"redirect": {redirect}}.Encode(), nil))
			if answer.Code != http.StatusBadRequest || answer.Header().Get("Location") != "" {
				t.Errorf("%q is answered with %d and %q", redirect, answer.Code, answer.Header().Get("Location"))
			}
			b.signIn("alice")
			answer = b.post("/pins", "/get-key", url.Values{"redirect": {redirect}, "choice": {"new"}})
			if answer.Code != http.StatusBadRequest || answer.Header().Get("Location") != "" {
				t.Errorf("agreed to, %q is answered with %d and %q", redirect, answer.Code, answer.Header().Get("Location"))
			}
		}
	}
	page := "/get-key?" + url.Values{"redirect": {"https://photos.example/done?a=b"}, "state": {"x&y"}}.Encode()
	b := w.browser()
	answer := b.do(httptest.NewRequest(http.MethodGet, page, nil))
	if got, want := answer.Header().Get("Location"), "/sign-in?to="+url.QueryEscape(page); answer.Code != http.StatusSeeOther || got != want {
		t.Errorf("without a session it is answered with %d and %q, not %q", answer.Code, got, want)
	}
	b.signIn("alice")
	if _, body := b.get(page); !strings.Contains(body, "photos asks for a key") || !strings.Contains(body, "https://photos.example/done") {
		t.Errorf("the page is %s", body)
	}
	form := url.Values{"redirect": {"https://photos.example/done?a=b"}, "state": {"x&y"}, "app": {"photos"}, "scope": {"storage:read"}, "choice": {"deny"}}
	if answer := b.post(page, "/get-key", form); answer.Code != http.StatusOK || answer.Header().Get("Location") != "" {
		t.Errorf("the denial is answered with %d", answer.Code)
	}
	form.Set("choice", "new")
	answer = b.post(page, "/get-key", form)
	to, err := url.Parse(answer.Header().Get("Location"))
	if err != nil || !strings.HasPrefix(to.String(), "https://photos.example/done?a=b&key=") || to.Query().Get("state") != "x&y" {
		t.Fatalf("the key goes to %s, %v", to, err)
	}
	if answer.Header().Get("Referrer-Policy") != "no-referrer" || answer.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("the headers are %v", answer.Header())
	}
	who, err := w.users.Authenticate(t.Context(), to.Query().Get("key"))
	if err != nil || who.Email != "alice@example.org" || !who.May("storage:read") || who.May("storage:write") {
		t.Errorf("the key is of %+v, %v", who, err)
	}
	// The same key again, by choice.
	form.Set("choice", string(who.KeyID))
	answer = b.post(page, "/get-key", form)
	if !strings.Contains(answer.Header().Get("Location"), "key="+url.QueryEscape(to.Query().Get("key"))) {
		t.Errorf("the existing key is answered with %q", answer.Header().Get("Location"))
	}
	bob := w.browser()
	bob.signIn("bob")
	if answer := bob.post(page, "/get-key", form); answer.Code != http.StatusBadRequest {
		t.Errorf("with another one's key it is answered with %d", answer.Code)
	}
	// The answer may leave for the scheme of the app, and for nothing else.
	answer = b.do(httptest.NewRequest(http.MethodGet, "/get-key?redirect=photos%3A%2F%2Fdone", nil))
	if got := answer.Header().Get("Content-Security-Policy"); !strings.Contains(got, "form-action 'self' photos:;") {
		t.Errorf("the policy is %s", got)
	}
}
