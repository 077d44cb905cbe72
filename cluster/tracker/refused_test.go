package tracker

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Content whose origins are all refused is given up after one attempt, unless another node holds it or two pins want
// it.
func TestContentThatNobodyMayBeAskedForFailsAtTheFirstAttempt(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.net.set(key(1), unasked)
		w.net.set(key(2), unasked)
		w.start()
		defer w.stop()
		id := w.pin(1, self, other)
		w.pass(moment)
		w.wantPhase(1, state.GaveUp)
		w.says(other, 1, state.GaveUp)
		if s, detail := w.status(id); s != state.Failed || !strings.Contains(detail, "all origins refused") {
			w.Errorf("status %s, %q", s, detail)
		}
		if n := len(w.net.fetched(key(1))); n != 1 {
			w.Errorf("%d attempts, want 1", n)
		}
		// While another node holds it there is somebody to ask again.
		w.pin(2, self, other)
		w.says(other, 2, state.Held)
		w.pass(moment)
		w.wantPhase(2, state.Assigned)
		w.pass(time.Hour)
		if n := len(w.net.fetched(key(2))); n <= DefaultAttempts {
			w.Errorf("%d attempts of what another node holds", n)
		}
	})
	// Of two pins one may have named the origins, and the other counts on whoever comes by. Both are there
	// before the first attempt.
	bubble(t, Limits{}, func(w *world) {
		w.net.set(key(3), unasked)
		w.pin(3, self, other)
		w.pin(3, self, other)
		w.start()
		defer w.stop()
		w.pass(time.Hour)
		if n := len(w.net.fetched(key(3))); n != DefaultAttempts {
			w.Errorf("%d attempts of what two pins want, want %d", n, DefaultAttempts)
		}
	})
}
