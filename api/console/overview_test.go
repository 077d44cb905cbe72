package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// The overview shows the newest changes of objects: what was stored with a link, and what was deleted
// without one. Another account sees none of them.
func TestTheOverviewShowsChangesOfObjects(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.browser(), w.browser()
	alice.signIn("alice")
	bob.signIn("bob")
	if _, body := alice.get("/"); !strings.Contains(body, "No object is stored yet.") {
		t.Errorf("without an object the page is %s", body)
	}
	w.bucket()
	w.store("trip/map <1>.txt", "text/plain", "north")
	w.store("old.txt", "text/plain", "old")
	if _, err := w.objects.Delete(t.Context(), w.account("alice"), "photos", "old.txt", "", state.Condition{}); err != nil {
		t.Fatal(err)
	}
	_, body := alice.get("/")
	_, list, _ := strings.Cut(body, `id="objects"`)
	list, _, _ = strings.Cut(list, "</section>")
	for _, want := range []string{
		`<a href="/buckets/photos/object?key=trip%2Fmap&#43;%3C1%3E.txt"><bdi>trip/map &lt;1&gt;.txt</bdi></a>`, "<td><bdi>old.txt</bdi></td>", "</svg>deleted</span>", "</svg>stored</span>", `<a href="/buckets/photos">photos</a>`, "just now",
	} {
		if !strings.Contains(list, want) {
			t.Errorf("the list has no %s: %s", want, list)
		}
	}
	if strings.Index(list, "old.txt") > strings.Index(list, "trip/map") {
		t.Errorf("the newest change is not the first: %s", list)
	}
	if _, body := bob.get("/"); strings.Contains(body, "trip/map") || strings.Contains(body, "old.txt") {
		t.Errorf("Bob sees changes of Alice: %s", body)
	}
	w.State.Watch.Replace(1) // as after a start
	if status, body := alice.get("/"); status != http.StatusOK || !strings.Contains(body, "No object has changed since this node started.") {
		t.Errorf("without changes the page is %s", body)
	}
}
