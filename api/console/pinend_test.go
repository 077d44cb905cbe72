package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A pin is given an end by the form. The list and the page of the pin show it, and the form that
// replaces the pin has it, so that another name does not make the content stay for ever.
func TestThePagesShowTheEndOfAPin(t *testing.T) {
	w := newWorld(t)
	b := w.browser()
	b.signIn("alice")
	plain := w.pin("alice", "cat", nil)
	refused := b.post("/pins", "/pins", url.Values{"cid": {testCID(t, "dog")}, "name": {"dog"}, "until": {"yesterday"}})
	if refused.Code != http.StatusBadRequest || !strings.Contains(refused.Body.String(), `value="yesterday"`) || !strings.Contains(refused.Body.String(), "RFC 3339") {
		t.Errorf("a wrong end: %d %s", refused.Code, refused.Body)
	}
	created := b.post("/pins", "/pins", url.Values{"cid": {testCID(t, "dog")}, "name": {"dog"}, "until": {"720h"}})
	if created.Code != http.StatusSeeOther {
		t.Fatalf("%d %s", created.Code, created.Body)
	}
	path := created.Header().Get("Location")
	pin := func(path string) pins.Record {
		t.Helper()
		r, err := w.pins.Get(t.Context(), w.account("alice"), state.RequestID(strings.TrimPrefix(path, "/pins/")))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	until := pin(path).Until
	if until == 0 {
		t.Fatal("the pin has no end")
	}
	shown := `<time datetime="` + until.Time().UTC().Format(time.RFC3339) + `">`
	_, list := b.get("/pins")
	_, page := b.get(path)
	if strings.Count(list, shown) != 1 || strings.Count(page, shown) != 1 || !strings.Contains(page, `value="`+pins.EndText(until)+`"`) {
		t.Errorf("the end %s is not shown once: %s\n%s", shown, list, page)
	}
	if _, page := b.get(pathOf(plain)); strings.Contains(page, "Kept until") {
		t.Error("a pin without an end shows one")
	}
	retried := b.post(path, path+"/retry", nil)
	if retried.Code != http.StatusSeeOther || pin(retried.Header().Get("Location")).Until != until {
		t.Errorf("retry: %d, the end is another one", retried.Code)
	}
	path = retried.Header().Get("Location")
	replaced := b.post(path, path+"/replace", url.Values{"cid": {testCID(t, "dog")}, "name": {"hound"}, "until": {""}})
	if replaced.Code != http.StatusSeeOther || pin(replaced.Header().Get("Location")).Until != 0 {
		t.Errorf("replaced without an end: %d", replaced.Code)
	}
}
