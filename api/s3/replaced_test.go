package s3

import (
	"net/http"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A key that has an object all the time is never said to have none, however often the object
// is replaced while its content is looked for on other members.
func TestAnObjectThatIsReplacedWhileItIsReadIsThere(t *testing.T) {
	for _, query := range []string{"", "?bao"} {
		w := newWorld(t)
		w.put(t, "/bkt/k", "old")
		replace := func() {
			w.put(t, "/bkt/k", "new")
		}
		w.fake.going = func() {
			w.fake.going = nil
			replace()
		}
		rec := w.must(t, http.StatusOK, call{method: "GET", path: "/bkt/k" + query})
		if now := w.must(t, http.StatusOK, call{method: "HEAD", path: "/bkt/k"}); rec.Header().Get("ETag") != now.Header().Get("ETag") {
			t.Errorf("%q: the answer is of %s, and the object is %s", query, rec.Header().Get("ETag"), now.Header().Get("ETag"))
		}
		w.fake.going = replace
		w.must(t, http.StatusServiceUnavailable, call{method: "GET", path: "/bkt/k" + query})
		w.fake.going = func() {
			if _, err := w.fake.Delete(t.Context(), w.who.Account, "bkt", "k", "", state.Condition{}); err != nil {
				t.Error(err)
			}
		}
		w.must(t, http.StatusNotFound, call{method: "GET", path: "/bkt/k" + query})
	}
}
