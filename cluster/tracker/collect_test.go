package tracker

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Collect drops at once what audits would find later, and returns when it is dropped. It keeps content with a
// lease, content that is open, and the last copy of content that others should have, and counts them.
func TestCollectDropsAtOnceWhatNothingProtects(t *testing.T) {
	leased(t, func(w *world, g *Leases) {
		w.limits.Audit = 1000 * time.Hour
		g.Fenced()
		w.net.set(key(1), good)
		id := w.pin(1, self, other)
		w.pin(5, other, third) // which nobody has fetched yet
		w.start()
		defer w.stop()
		w.pass(time.Minute)
		w.wantSealed(1, true)
		for n := 2; n <= 5; n++ {
			w.seal(n)
		}
		if err := g.Begin(context.Background(), key(3)); err != nil {
			t.Fatal(err)
		}
		done := g.Read(key(4))
		w.store.put(Reference(key(6)), owned{bytes: 7}) // of a fetch that nobody continues
		began := time.Now()
		c, err := w.tracker.Collect(context.Background())
		one := Kept{Roots: 1, Bytes: 100}
		if err != nil || c != (Collected{Dropped: 2, Leased: one, Read: one, Last: one}) {
			t.Errorf("%+v, %v", c, err)
		}
		if took := time.Since(began); took > collectLeases+time.Second {
			t.Errorf("it took %s", took)
		}
		w.wantNothingHere(2)
		w.wantNothingHere(6)
		for _, n := range []int{1, 3, 4, 5} {
			w.wantSealed(n, true)
		}
		done()
		g.End(key(3))
		w.unpin(id)
		if c, err = w.tracker.Collect(context.Background()); err != nil || c.Leased.Roots+c.Read.Roots+c.Waiting.Roots > 0 || c.Last != one {
			t.Errorf("then %+v, %v", c, err)
		}
		for _, n := range []int{1, 3, 4} {
			w.wantNothingHere(n)
		}
	})
}

// Collect waits for a lease that is about to end, as that of a put whose outcome has not been told yet.
func TestCollectWaitsForALeaseThatEnds(t *testing.T) {
	leased(t, func(w *world, g *Leases) {
		w.limits.Audit = 1000 * time.Hour
		g.Fenced()
		w.start()
		defer w.stop()
		w.pass(time.Minute)
		if err := g.Begin(context.Background(), key(1)); err != nil {
			t.Fatal(err)
		}
		w.seal(1)
		time.AfterFunc(collectLeases/4, func() { g.End(key(1)) })
		if c, err := w.tracker.Collect(context.Background()); err != nil || c != (Collected{Dropped: 1}) {
			t.Errorf("%+v, %v", c, err)
		}
		w.wantNothingHere(1)
	})
}

// Collect does not wait for ever for a drop that cannot be confirmed, and says that it waits.
func TestCollectSaysWhatWaits(t *testing.T) {
	leased(t, func(w *world, _ *Leases) { // before the first fence
		for n := range 5 {
			w.seal(n)
		}
		w.start()
		defer w.stop()
		w.pass(time.Minute)
		began := time.Now()
		c, err := w.tracker.Collect(context.Background())
		if err != nil || c != (Collected{Waiting: Kept{Roots: 5, Bytes: 500}}) {
			t.Errorf("%+v, %v", c, err)
		}
		if took := time.Since(began); took < collectPatience || took > 2*collectPatience {
			t.Errorf("it took %s", took)
		}
	})
}

// Collect ends with its caller, and with errors of the store and of the state.
func TestCollectEndsWithItsCaller(t *testing.T) {
	leased(t, func(w *world, g *Leases) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := w.build().Collect(ctx); !errors.Is(err, context.Canceled) { // no audit runs
			t.Error(err)
		}
		g.Fenced()
		w.start()
		defer w.stop()
		w.pass(time.Minute)
		w.seal(1)
		gone := errors.New("the disk is gone")
		w.store.setFail(gone)
		if _, err := w.tracker.Collect(context.Background()); !errors.Is(err, gone) {
			t.Error(err)
		}
		w.store.setFail(nil)
	})
}
