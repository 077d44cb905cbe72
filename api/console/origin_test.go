package console

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/internal/web"
)

// Over plain HTTP to another machine a browser says nothing of where a form comes from but an origin
// "null", because of the policy no-referrer. There the form token decides, and nowhere else.
// TestTheConsoleFromAnotherMachine in test/console has it with a real browser.
func TestAFormWithoutAnOriginNeedsItsToken(t *testing.T) {
	w := newWorld(t).another(func(o *Options) {
		o.Limits = web.NewLimits(web.Rate{}, web.Rate{}, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, time.Now)
	})
	b := w.browser()
	masked := func(path string, form url.Values, header ...string) *httptest.ResponseRecorder {
		r := formRequest(path, form)
		r.Header.Set("Origin", "null")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return b.do(r)
	}
	credentials := url.Values{"email": {"alice@example.org"}, "password": {"password of alice"}}
	if got := masked("/sign-in", credentials); got.Code != http.StatusForbidden || b.cookies[sessionCookie] != "" {
		t.Errorf("without a token the sign-in is answered with %d", got.Code)
	}
	credentials.Set(tokenField, b.formToken())
	for name, header := range map[string][2]string{
		"another site": {"Sec-Fetch-Site", "cross-site"}, "a site beside": {"Sec-Fetch-Site", "same-site"}, "another origin": {"Origin", "https://evil.example"},
	} {
		if got := masked("/sign-in", credentials, header[0], header[1]); got.Code != http.StatusForbidden || b.cookies[sessionCookie] != "" {
			t.Errorf("%s is answered with %d", name, got.Code)
		}
	}
	if got := masked("/sign-in", credentials); got.Code != http.StatusSeeOther || b.cookies[sessionCookie] == "" {
		t.Fatalf("the sign-in is answered with %d: %s", got.Code, got.Body)
	}
	if got := masked("/keys", url.Values{"name": {"laptop"}, "scope": {"read"}, "expiry": {"never"}, tokenField: {b.formToken()}}); got.Code != http.StatusOK {
		t.Errorf("a form of a session is answered with %d: %s", got.Code, got.Body)
	}
	// A script names its origin over plain HTTP too.
	r := httptest.NewRequest(http.MethodPost, "/buckets/photos/uploads?key=cat.txt", nil)
	r.Header.Set("Origin", "null")
	r.Header.Set(formHeader, b.formToken())
	if got := b.do(r); got.Code != http.StatusForbidden {
		t.Errorf("a script without an origin is answered with %d", got.Code)
	}
	// Over HTTPS browsers say of every form where it comes from.
	b.cookies["__Host-"+sessionCookie] = b.cookies[sessionCookie]
	r = formRequest("/sign-out", url.Values{tokenField: {b.formToken()}})
	r.RemoteAddr = "10.0.0.1:5"
	r.Header.Set("X-Forwarded-Proto", "https")
	r.Header.Set("Origin", "null")
	if got := b.do(r); got.Code != http.StatusForbidden {
		t.Errorf("over HTTPS it is answered with %d", got.Code)
	}
}
