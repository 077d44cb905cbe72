package tracker

import (
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// TestANewPinHasWhatIsStuckTriedAtOnce: who pins what nobody gives may have brought it, so
// a fetch of which nothing comes begins again, and one that waits for its next attempt does
// not wait any more. One that moves goes on.
func TestANewPinHasWhatIsStuckTriedAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		before  behaviour
		after   behaviour
		attempt int // that a new pin finds under way, or over
		soon    bool
	}{
		"nothing comes":  {silent, good, 1, true},
		"some has come":  {stalls(3), good, 1, true},
		"nobody has it":  {absent, good, 1, true},
		"it is coming":   {slow(60), good, 1, false},
		"still not here": {silent, silent, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Limits{Attempts: 3, Backoff: time.Minute, MaxBackoff: time.Minute, Patience: time.Hour}, func(w *world) {
				w.net.set(key(1), tc.before)
				w.pin(1)
				w.start()
				defer w.stop()
				w.pass(10 * time.Second)
				if jobs := w.net.fetched(key(1)); len(jobs) != tc.attempt {
					w.Fatalf("%d attempts", len(jobs))
				}
				w.net.set(key(1), tc.after)
				w.pin(1)
				w.pass(2 * time.Second)
				if phase := w.root(1).Copies[0].Phase; (phase == state.Held) != tc.soon {
					w.Errorf("2 s after another pin it is %v, in %d attempts", phase, len(w.net.fetched(key(1))))
				}
				// No change but a new pin has it begin again.
				tried := len(w.net.fetched(key(1)))
				w.pass(10 * time.Second)
				if jobs := w.net.fetched(key(1)); len(jobs) != tried {
					w.Errorf("%d attempts, %d of them without a reason", len(jobs), len(jobs)-tried)
				}
			})
		})
	}
}
