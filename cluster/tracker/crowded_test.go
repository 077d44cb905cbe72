package tracker

import (
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// An attempt that fails for want of memory on this node does not count. The content is tried until there is some, and
// then has all its attempts.
func TestWantOfMemoryIsNoAttempt(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.net.set(key(1), crowded)
		w.start()
		defer w.stop()
		w.pin(1, self, other)
		w.pass(24 * time.Hour)
		tried := len(w.net.fetched(key(1)))
		root := w.root(1)
		if c := root.Copy(self); c.Phase != state.Assigned || tried <= DefaultAttempts {
			w.Fatalf("after %d attempts without room: %+v", tried, c)
		}
		w.net.set(key(1), absent)
		w.pass(24 * time.Hour)
		w.wantPhase(1, state.GaveUp)
		if n := len(w.net.fetched(key(1))) - tried; n != DefaultAttempts {
			w.Fatalf("%d attempts with room, want %d", n, DefaultAttempts)
		}
	})
}
