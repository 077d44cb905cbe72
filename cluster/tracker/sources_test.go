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

// Of many members each is asked some time for what nobody is known to hold: it may be left
// on any.
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

// A fetch to which nothing comes asks a holder that there is since it began: the provider
// may be one that others reach.
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

// Who holds it by its record may be down, and the fetch asks others. Somebody else who has
// it ends the wait all the same, of a fetch as of what waits for its next attempt.
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

// What this node cannot fetch for something that is wrong here is for others to keep: while
// there are such, a pin does not fail before the repairer has had them told.
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

// All who hold it are down when a fetch begins. One that answers again ends its wait for
// others, which goes on for as long as nobody says that it has nothing.
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
