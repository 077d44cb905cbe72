//go:build conformance

package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestTroubleOfAPageIsNoticed promises that a tab of these tests sees what must not happen on a page: errors of scripts,
// thrown or reported, what the policy refuses, and requests to another host.
func TestTroubleOfAPageIsNoticed(t *testing.T) {
	t.Parallel()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "script-src 'self'; img-src 'self'; style-src 'self'")
		_, _ = w.Write([]byte("<!doctype html><title>page</title>"))
	}))
	t.Cleanup(page.Close)
	b := startBrowser(t)
	for _, tc := range []struct{ name, script, says string }{
		{"a script throws", `setTimeout(() => { throw new Error('thrown') }) > 0`, "script: "},
		{"a promise is rejected", `!!setTimeout(() => Promise.reject(new Error('rejected')))`, "script: "},
		{"a script reports an error", `!console.error('reported')`, "console.error"},
		{"the policy refuses a style", `!document.head.append(Object.assign(document.createElement('style'), { textContent: 'p { color: red }' }))`, "Content Security Policy"},
		{"a picture of another host", `!document.body.append(Object.assign(document.createElement('img'), { src: 'http://evil.test/x' }))`, "Content Security Policy"},
		{"a request to another host", `!!fetch('http://evil.test/').catch(() => 0)`, "request to another host: http://evil.test/"},
	} {
		p := b.open(t, page.URL)
		p.visit("/")
		ask(p, chromedp.Evaluate[bool](tc.script))
		harness.Eventually(t, stepTimeout, tc.name, func() (bool, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if !slices.ContainsFunc(p.trouble, func(what string) bool { return strings.Contains(what, tc.says) }) {
				return false, fmt.Errorf("the tab has noticed %q", p.trouble)
			}
			p.trouble, p.allowed = nil, []string{""} // what comes later is of the same
			return true, nil
		})
	}
}
