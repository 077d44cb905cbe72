package tracker

import (
	"context"
	"testing"
	"time"
)

// Look returns the progress of a fetch, the position of a root that waits, and nothing for a root that nobody wants.
func TestProgressReportsFetchesUnderWay(t *testing.T) {
	bubble(t, Limits{Moving: 1, Waiting: 1, Attempts: 5}, func(w *world) {
		w.net.set(key(0), stalls(5))
		w.net.rest = slow(50)
		look := func(n int) (Seen, bool) {
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			defer cancel()
			return w.tracker.Look(ctx, key(n))
		}
		w.start()
		defer w.stop()
		w.pin(0)
		w.pass(time.Second)
		for n := 1; n < 5; n++ {
			w.pin(n)
		}
		w.pass(time.Second)
		if seen, ok := look(0); !ok || !seen.Fetching || seen.Bytes != 50 || seen.Blocks != 5 || seen.Position != 0 {
			w.Errorf("a fetch that stalls: %+v, %t", seen, ok)
		}
		for n := 1; n < 5; n++ {
			if seen, ok := look(n); !ok || seen != (Seen{Position: n}) {
				w.Errorf("root %d waits as %+v, %t", n, seen, ok)
			}
		}
		if seen, ok := look(9); ok {
			w.Errorf("a root that nobody wants: %+v", seen)
		}
	})
}

// Look returns the number of failed attempts of a root that waits for its next one.
func TestProgressCountsFailedAttempts(t *testing.T) {
	bubble(t, Limits{Attempts: 3, Backoff: time.Minute, MaxBackoff: time.Minute}, func(w *world) {
		w.net.set(key(1), absent)
		w.start()
		defer w.stop()
		w.pin(1)
		w.pass(time.Second)
		if seen, ok := w.tracker.Look(w.Context(), key(1)); !ok || seen.Fetching || seen.Attempts != 1 || seen.Position != 0 {
			w.Errorf("after one attempt: %+v, %t", seen, ok)
		}
	})
}
