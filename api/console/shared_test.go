package console

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// The page of share links is the same for everybody, needs no session and no state of the cluster,
// leaves no cookie, and allows no script but the files of this origin.
func TestThePageOfShareLinksIsTheSameForEverybody(t *testing.T) {
	w := newWorld(t)
	signedIn := w.browser()
	signedIn.signIn("alice")
	page := signedIn.do(httptest.NewRequest(http.MethodGet, "/shared", nil))
	text := page.Body.String()
	if other := w.browser().do(httptest.NewRequest(http.MethodGet, "/shared?k=x", nil)); other.Body.String() != text || other.Code != http.StatusOK {
		t.Errorf("without a session it is answered with %d: %s", other.Code, other.Body)
	}
	h := page.Header()
	if h.Get("Content-Security-Policy") != sharedPolicy || len(h["Set-Cookie"]) > 0 || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("it has the header %v", h)
	}
	for _, refused := range []string{"unsafe-", "script-src 'self' blob:", "https:", "*"} {
		if strings.Contains(sharedPolicy, refused) {
			t.Errorf("the policy has %s", refused)
		}
	}
	if inline := regexp.MustCompile(`<script(?: type="module")?>|<style|\son[a-z]+=|\sstyle=`).FindString(text); inline != "" {
		t.Errorf("the page has %q", inline)
	}
	for _, loaded := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(loaded[1], "/") && loaded[1] != "#main" || strings.HasPrefix(loaded[1], "//") {
			t.Errorf("the page loads %s", loaded[1])
		}
	}
	if !strings.Contains(text, "shared.js") || strings.Contains(text, "live.js") || strings.Contains(text, "alice") {
		t.Errorf("the page is %s", text)
	}
}
