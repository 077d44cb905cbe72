package tracker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/prometheus/client_golang/prometheus"
)

// harmed is a world in which self and other hold root 1, and self's copy has
// just been found damaged.
func harmed(w *world) {
	w.Helper()
	w.pin(1, self, other)
	w.says(other, 1, state.Held)
	w.start()
	w.pass(moment)
	w.wantPhase(1, state.Held)
	w.store.harm(Reference(key(1)))
}

// Damaged content is reported, fetched from a member that holds it, and held again, and the repair is counted.
func TestDamagedContentIsReportedAndMadeWhole(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		harmed(w)
		defer w.stop()
		w.net.set(key(1), slow(3))
		if err := w.tracker.Repair(context.Background(), Reference(key(1))); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		w.wantPhase(1, state.Fetching)
		w.pass(5 * time.Second)
		w.wantPhase(1, state.Held)
		w.wantSealed(1, true)
		jobs := w.net.fetched(key(1))
		if len(jobs) != 2 || !slices.Contains(jobs[1].Members, other) {
			t.Errorf("fetched by %+v", jobs)
		}
		r := prometheus.NewRegistry()
		r.MustRegister(w.tracker.metrics.repairs)
		if got, err := r.Gather(); err != nil || got[0].Metric[0].Counter.GetValue() != 1 {
			t.Errorf("repairs are counted as %v, %v, want 1", got, err)
		}
		w.wantIdle()
	})
}

// A repair goes on after a restart: the node does not take the earlier seal for the end of the repair.
func TestRepairOutlivesARestart(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		harmed(w)
		w.net.set(key(1), slow(60))
		if err := w.tracker.Repair(context.Background(), Reference(key(1))); err != nil {
			t.Fatal(err)
		}
		w.pass(2 * time.Second)
		w.stop()
		w.store.put(Reference(key(1)), owned{sealed: true, bytes: 100, blocks: 10})
		w.start()
		defer w.stop()
		w.pass(moment)
		w.wantPhase(1, state.Fetching)
		w.net.set(key(1), good)
		w.pass(2 * time.Minute)
		w.wantPhase(1, state.Held)
	})
}

// The rest of a damaged copy is not thrown away when nobody has what it lacks.
func TestTheLastCopyIsNeverGivenUp(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		id := w.pin(1)
		w.start()
		defer w.stop()
		w.pass(moment)
		w.store.harm(Reference(key(1)))
		w.net.set(key(1), absent)
		if err := w.tracker.Repair(context.Background(), Reference(key(1))); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Hour)
		if s, _ := w.status(id); s == state.Failed {
			t.Errorf("the pin is %s", s)
		}
		if c := w.root(1).Copies[0]; c.Phase == state.Held || !strings.Contains(c.Reason, "nobody") {
			t.Errorf("reported %+v", c)
		}
		if dropped := w.store.dropped(); len(dropped) != 0 {
			t.Errorf("dropped %v", dropped)
		}
		w.net.set(key(1), good)
		w.pass(2 * time.Minute)
		w.wantPhase(1, state.Held)
	})
}

// A damaged copy that is wanted on other nodes alone stays until one of them holds the content. The content was
// placed on them while this node was down, and they get what is left of it from here.
func TestWhatIsLeftOfTheLastCopyStaysForOthers(t *testing.T) {
	const audit = time.Minute
	bubble(t, Limits{Audit: audit}, func(w *world) {
		w.pin(1, other, third)
		w.seal(1)
		w.store.harm(Reference(key(1)))
		w.start()
		defer w.stop()
		w.pass(10 * audit)
		if dropped := w.store.dropped(); len(dropped) != 0 {
			t.Errorf("dropped %v", dropped)
		}
		w.says(other, 1, state.Held)
		w.pass(2 * audit)
		w.wantNothingHere(1)
	})
}

// Repair does nothing for the reference of a lease, and returns an error for a malformed root.
func TestRepairOfWhatIsNoRoot(t *testing.T) {
	bubble(t, Limits{}, func(w *world) {
		w.start()
		defer w.stop()
		if err := w.tracker.Repair(context.Background(), "lease/1"); err != nil {
			t.Errorf("a lease: %v", err)
		}
		if err := w.tracker.Repair(context.Background(), RootPrefix+"nonsense"); err == nil {
			t.Error("nonsense is a root")
		}
	})
}
