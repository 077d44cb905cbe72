package tracker

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// quotas brings a world to a level that has them.
func (w *world) quotas(allowance uint64) {
	w.Helper()
	w.state.Apply(w, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	w.state.Apply(w, &state.SetQuota{Account: clustertest.Operator, Allowance: allowance})
}

func (w *world) quota() state.Quota {
	w.Helper()
	view, release := w.state.State.LocalView()
	defer release()
	q, err := view.Quota(clustertest.Operator)
	if err != nil {
		w.Fatal(err)
	}
	return q
}

// endless is content that comes a MiB at a time and never ends.
func endless(come *atomic.Uint64) behaviour {
	return func(ctx context.Context, f *network, job Job, progress func(uint64, uint64)) error {
		f.store.put(job.Reference, owned{})
		for n := uint64(1); ; n++ {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
			progress(n<<20, n)
			come.Store(n << 20)
		}
	}
}

// Content is charged as it arrives, and a fetch that outgrows the allowance is stopped within two steps and its pin
// fails.
func TestContentThatOutgrowsTheAllowanceIsStoppedAsItArrives(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		const allowance = 100 << 20
		w.quotas(allowance)
		var come atomic.Uint64
		w.net.set(key(1), endless(&come))
		w.start()
		defer w.stop()
		id := w.pin(1)
		w.pass(6 * time.Second)
		if q := w.quota(); q.Coming < meterStep || q.Coming > come.Load() {
			t.Errorf("%d bytes have come, charged are %+v", come.Load(), q)
		}
		w.pass(time.Minute)
		if status, why := w.status(id); status != state.Failed || !strings.Contains(why, "free storage") {
			t.Errorf("the pin is %s: %s", status, why)
		}
		if n := come.Load(); n > allowance+2*meterStep {
			t.Errorf("%d bytes came", n)
		}
		w.wantNothingHere(1)
		if q := w.quota(); q.Used() != 0 {
			t.Errorf("charged afterwards: %+v", q)
		}
		w.wantIdle()
	})
}

// Content whose pin goes and comes again during its fetch is charged as it arrives, so it cannot outgrow the
// allowance. Both in one entry of the log are one change for the fetch: the root is wanted, as before, and is another
// one.
func TestContentThatIsPinnedAnewIsChargedAsItArrives(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		const allowance = 200 << 20
		w.quotas(allowance)
		var come atomic.Uint64
		w.net.set(key(1), endless(&come))
		w.start()
		defer w.stop()
		id := w.pin(1)
		w.pass(5 * time.Second)
		w.state.lag(true)
		w.unpin(id)
		w.pin(1)
		w.state.lag(false)
		id = w.pin(1)
		w.pass(5 * time.Minute)
		if status, why := w.status(id); status != state.Failed || !strings.Contains(why, "free storage") {
			t.Errorf("the pin is %s (%s) when %d bytes have come", status, why, come.Load())
		}
	})
}

// At most meterStep bytes arrive without a charge, and the fetch goes on when charges can be made again.
func TestNothingMoreArrivesWhileChargesCannotBeMade(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.quotas(state.Unlimited)
		var come atomic.Uint64
		w.net.set(key(1), endless(&come))
		w.start()
		defer w.stop()
		w.pin(1)
		w.pass(time.Second)
		w.state.cutOff(true)
		w.pass(5 * time.Second)
		if n := come.Load(); n > meterStep {
			t.Errorf("%d bytes came, and nobody was charged", n)
		}
		before := come.Load()
		w.state.cutOff(false)
		w.pass(time.Second)
		if come.Load() == before {
			t.Error("the fetch does not go on")
		}
	})
}

// The leader clears all pins of a closed account, also if one entry has no room for them.
func TestClosedAccountsAreClearedByTheLeader(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.quotas(state.Unlimited)
		w.state.Apply(w, &state.OpenAccount{Account: state.Account{ID: "ann", Email: "ann@example.org"}, Allowance: state.Unlimited})
		for range 2*state.MaxSettle + 10 {
			w.pins++
			p := w.newPin(state.RequestID("pin-"+string(rune('A'+w.pins))), 1)
			p.Account = "ann"
			w.state.Apply(w, &state.CreatePin{Pin: p, Nodes: []state.NodeID{self}})
		}
		s := &Reconciler{Self: self, State: w.state, Watch: w.state.Watch, Logger: slog.New(slog.DiscardHandler)}
		defer running(w, s.Run)()
		w.state.Apply(w, &state.CloseAccount{Account: "ann"})
		w.pass(reconcileEvery)
		if !w.gone(1) {
			t.Error("the content of a closed account is still kept")
		}
	})
}
