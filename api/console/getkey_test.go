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

// The page of consent is in no frame, and an answer to it counts only from the tab of the person who
// agrees: not from another site, and not from a tab that was left open while somebody else signed in.
func TestNobodyElseAgreesForAPerson(t *testing.T) {
	w := newWorld(t)
	if _, err := w.users.AddApp(t.Context(), "photos", []string{"https://photos.example/done"}, []string{"storage:read"}); err != nil {
		t.Fatal(err)
	}
	page := "/get-key?" + url.Values{"redirect": {"https://photos.example/done"}, "state": {"s"}}.Encode()
	b := w.browser()
	b.signIn("alice")
	shown := b.do(httptest.NewRequest(http.MethodGet, page, nil))
	for _, part := range []string{"frame-ancestors 'none'", "default-src 'none'", "form-action 'self' https://photos.example;"} {
		if got := shown.Header().Get("Content-Security-Policy"); !strings.Contains(got, part) {
			t.Errorf("the policy of the page has no %q: %s", part, got)
		}
	}
	if shown.Header().Get("Referrer-Policy") != "no-referrer" || shown.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("the headers of the page are %v", shown.Header())
	}
	agreed := url.Values{"redirect": {"https://photos.example/done"}, "state": {"s"}, "app": {"photos"}, "scope": {"storage:read"}, "choice": {"new"}}
	refused := func(what string, change func(r *http.Request), token string) {
		t.Helper()
		agreed.Set(tokenField, token)
		r := formRequest("/get-key", agreed)
		change(r)
		if got := b.do(r); got.Code != http.StatusForbidden || got.Header().Get("Location") != "" || !strings.Contains(got.Body.String(), "<h1>") {
			t.Errorf("%s: %d and %q: %s", what, got.Code, got.Header().Get("Location"), got.Body)
		}
	}
	as := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	own := b.formToken()
	refused("a form without a token", func(*http.Request) {}, "")
	refused("a form of another site", as("Origin", "https://photos.example"), own)
	refused("a form of another site, as browsers mark it", as("Sec-Fetch-Site", "cross-site"), own)
	refused("a simple type of content", as("Content-Type", "text/plain"), own)
	// In a second tab Alice signs out and Bob signs in; the first one has Alice's form still.
	b.post("/account", "/sign-out", nil)
	b.signIn("bob")
	refused("the tab from before", func(*http.Request) {}, own)
	for _, name := range []string{"alice", "bob"} {
		if keys, err := w.users.Keys(t.Context(), name+"@example.org"); err != nil || len(keys) != 0 {
			t.Errorf("%s has %d keys, %v", name, len(keys), err)
		}
	}
}

// What is no app's address is answered with a page, which nothing of the address is read from: no
// Location, and no policy that lets a form leave.
func TestTheAnswerToABadAddressIsAPage(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	for _, redirect := range []string{"https://evil.example/done", "javascript:alert(1)", "https://evil.example/done\r\nSet-Cookie: a=b"} {
		got := b.do(httptest.NewRequest(http.MethodGet, "/get-key?"+url.Values{"redirect": {redirect}}.Encode(), nil))
		header := got.Header()
		if got.Code != http.StatusBadRequest || header.Get("Location") != "" || header.Get("Content-Security-Policy") != policy || header.Get("Cache-Control") != "no-store" ||
			!strings.HasPrefix(header.Get("Content-Type"), "text/html") || !strings.Contains(got.Body.String(), "<h1>") || strings.Contains(got.Body.String(), "evil.example") {
			t.Errorf("%q is answered with %d, %v: %s", redirect, got.Code, header, got.Body)
		}
	}
}
