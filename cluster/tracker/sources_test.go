package tracker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Every member is asked at some time for content of which no other holder is known. It may be left on any.
func TestEveryMemberIsAskedSomeTime(t *testing.T) {
	const members = 3*maxSources + 5
	bubble(t, Limits{}, func(w *world) {
		for n := range members {
			w.state.Apply(w, &state.JoinNode{Node: clustertest.Members(state.NodeID(fmt.Sprint("n", n)))[0], At: 1})
		}
		b := w.bucket()
		w.state.Apply(w, &state.RaiseLevel{FeatureLevel: LeaseFeatureLevel})
		w.object(b, 1, self)
		w.net.rest = absent
		w.start()
		defer w.stop()
		w.pass(10 * time.Minute)
		asked := map[state.NodeID]bool{}
		for _, job := range w.net.fetched(key(1)) {
			if len(job.Members) != maxSources {
				t.Fatalf("%d members are asked, want %d", len(job.Members), maxSources)
			}
			for _, id := range job.Members {
				asked[id] = true
			}
		}
		if want := members + 2; len(asked) != want { // other and third too
			t.Errorf("%d of %d members were asked", len(asked), want)
		}
	})
}

// A fetch to which nothing comes is begun again with a holder that has come since. The provider may be one that
// others reach.
func TestAHolderEndsTheWaitForAnother(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.net.set(key(1), func(ctx context.Context, f *network, job Job, progress func(uint64, uint64)) error {
			if job.Held {
				return nil
			}
			return silent(ctx, f, job, progress)
		})
		w.start()
		defer w.stop()
		w.pin(1, self, other)
		w.pass(10 * time.Second)
		w.says(other, 1, state.Held)
		w.pass(2 * stuckAfter)
		w.wantPhase(1, state.Held)
		if tried := len(w.net.fetched(key(1))); tried != 2 {
			t.Errorf("%d attempts, want 2", tried)
		}
	})
}

// Another holder that has come since ends the wait of a fetch, or its pause, although the holder on record is down.
func TestAHolderThatIsDownDoesNotHideAnother(t *testing.T) {
	for name, first := range map[string]behaviour{"stuck": silent, "between attempts": absent} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Limits{Backoff: time.Hour, MaxBackoff: time.Hour}, func(w *world) {
				var there atomic.Bool
				w.down = other
				w.net.set(key(1), func(ctx context.Context, f *network, job Job, progress func(uint64, uint64)) error {
					if there.Load() && slices.Contains(job.Members, third) {
						return nil
					}
					return first(ctx, f, job, progress)
				})
				w.pin(1, other, self, third)
				w.says(other, 1, state.Held)
				w.start()
				defer w.stop()
				w.pass(10 * time.Second)
				there.Store(true)
				w.says(third, 1, state.Held)
				w.pass(2 * stuckAfter)
				w.wantPhase(1, state.Held)
			})
		})
	}
}

// Content that this node cannot fetch for a fault of its own is not given up while others are to keep it. A pin does
// not fail before the repairer has placed it on them.
func TestWhatOthersAreToKeepIsNotGivenUp(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		full := errors.New("no space left")
		w.net.set(key(1), func(context.Context, *network, Job, func(uint64, uint64)) error { return full })
		w.moves = full
		w.start()
		defer w.stop()
		id := w.pin(1, self, other)
		w.says(other, 1, state.GaveUp)
		w.pass(time.Hour)
		if s, detail := w.status(id); s == state.Failed {
			w.Fatalf("status %s, %q", s, detail)
		}
		w.net.set(key(1), absent) // the fault is elsewhere now
		w.pass(DefaultMaxBackoff)
		if s, _ := w.status(id); s != state.Failed {
			w.Fatalf("status %s", s)
		}
	})
}

// A holder that answers again ends the wait of a fetch for others. All holders were down when the fetch began, and it
// goes on for as long as nobody says that it has nothing.
func TestAHolderThatIsBackEndsTheWaitForOthers(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.down = other
		w.net.set(key(1), func(ctx context.Context, f *network, job Job, progress func(uint64, uint64)) error {
			if slices.Contains(job.Members, other) {
				return nil
			}
			return silent(ctx, f, job, progress)
		})
		w.pin(1, other, self)
		w.says(other, 1, state.Held)
		w.start()
		defer w.stop()
		w.pass(time.Minute)
		if tried := len(w.net.fetched(key(1))); tried != 1 {
			t.Errorf("%d attempts while it is down", tried)
		}
		w.back.Store(true)
		w.pass(seekEvery + 2*stuckAfter)
		w.wantPhase(1, state.Held)
		if tried := len(w.net.fetched(key(1))); tried != 2 {
			t.Errorf("%d attempts, want 2", tried)
		}
	})
}
