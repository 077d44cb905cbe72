package console

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// The page of the status says whether the service answers, and nothing else: no version, no node, no
// reason, and nothing of the one who asks.
func TestTheStatusSaysUpOrNot(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct {
		down   error
		status int
		says   string
	}{{nil, http.StatusOK, "Available"}, {errors.New("waiting for a leader"), http.StatusServiceUnavailable, "Not available"}} {
		w.Down = tc.down
		b := w.browser()
		status, body := b.get("/status")
		if status != tc.status || !strings.Contains(body, "> "+tc.says+"</h1>") || len(b.cookies) != 0 {
			t.Errorf("it is answered with %d and the cookies %v: %s", status, b.cookies, body)
		}
		for _, secret := range []string{w.options.Version, "leader", "n1", "n2", "n3", "@example.org"} {
			if strings.Contains(body, secret) {
				t.Errorf("the page has %q: %s", secret, body)
			}
		}
	}
}

// Search engines stay out, and an address that is none leads on.
func TestSearchEnginesStayOutAndAWrongAddressLeadsOn(t *testing.T) {
	b := newWorld(t).browser()
	if status, body := b.get("/robots.txt"); status != http.StatusOK || body != "User-agent: *\nDisallow: /\n" {
		t.Errorf("robots.txt is answered with %d: %s", status, body)
	}
	status, body := b.get("/nowhere/at/all")
	if status != http.StatusNotFound || !strings.Contains(body, "There is no such page") || !strings.Contains(body, `<a href="/">`) {
		t.Errorf("another address is answered with %d: %s", status, body)
	}
}
