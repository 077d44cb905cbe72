package tracker

import (
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Content that nobody wants any more is hidden, and stays until its last reader has ended.
func TestWhatIsReadIsNotDropped(t *testing.T) {
	shelf(t, Limits{Audit: time.Minute}, func(w *world, b state.Bucket) {
		w.leases = NewLeases()
		w.leases.Fenced()
		for n := range 2 {
			w.store.sealed(n, false)
			w.object(b, n, self)
		}
		w.start()
		defer w.stop()
		w.pass(time.Minute)
		first, second := w.leases.Read(key(1)), w.leases.Read(key(1))
		w.deleteObject(b, 0)
		w.deleteObject(b, 1)
		w.pass(10 * time.Minute) // audits find it, and nobody wants it
		w.wantNothingHere(0)
		w.wantHidden(1, true)
		first()
		first() // counts once
		w.pass(10 * time.Minute)
		w.wantSealed(1, true)
		second()
		w.pass(2 * leaseLinger)
		w.wantNothingHere(1)
		w.wantForgotten()
	})
}

// Content that is deleted and pinned again while it is read is shown, and held without a fetch.
func TestWhatIsReadAndWantedAgainStays(t *testing.T) {
	shelf(t, Limits{Audit: time.Hour}, func(w *world, b state.Bucket) {
		w.leases = NewLeases()
		w.leases.Fenced()
		w.store.sealed(1, true)
		w.object(b, 1, self)
		w.start()
		defer w.stop()
		w.pass(time.Minute)
		done := w.leases.Read(key(1))
		w.deleteObject(b, 1)
		w.pass(time.Minute)
		w.wantSealed(1, true)
		w.pin(1)
		w.pass(time.Minute)
		w.wantHidden(1, false) // a pin is public
		done()
		w.pass(time.Minute)
		w.wantHidden(1, false)
		w.wantPhase(1, state.Held)
		if len(w.net.fetched(key(1))) > 0 {
			t.Error("it was fetched, though it was here")
		}
		w.wantForgotten()
	})
}

// wantForgotten checks that nothing is remembered of roots that are neither leased nor read.
func (w *world) wantForgotten() {
	w.Helper()
	g := w.leases
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.roots) != 0 || g.reading != 0 {
		w.Fatalf("%d roots are remembered, and %d bytes that are read", len(g.roots), g.reading)
	}
}

// Content that nobody wants stays for its readers up to maxRead bytes in all, and more than that is dropped.
func TestWhatIsReadIsBounded(t *testing.T) {
	g := NewLeases()
	var ends []func()
	drop := func(n int, bytes uint64) bool {
		if !g.requestDrop(key(n)) {
			t.Fatalf("root %d has a lease", n)
		}
		return g.drop(key(n), bytes)
	}
	for n := range 4 {
		ends = append(ends, g.Read(key(n)))
	}
	for _, c := range []struct {
		root  int
		bytes uint64
		drops bool
	}{
		{0, maxRead + 1, true}, // larger than all that may stay
		{1, 0, true},           // parts
		{2, maxRead - 1, false},
		{2, maxRead - 1, false}, // counts once
		{3, 2, true},            // no room beside it
	} {
		if got := drop(c.root, c.bytes); got != c.drops {
			t.Errorf("root %d of %d bytes: dropped %t, want %t", c.root, c.bytes, got, c.drops)
		} else if got {
			g.dropped(key(c.root))
		}
	}
	ends[2]()
	if drop(3, 2) {
		t.Error("there is room again, and it was dropped")
	}
	for _, end := range ends {
		end()
	}
	if looks, _ := g.take(); len(looks) != 2 || len(g.roots) != 0 || g.reading != 0 {
		t.Errorf("%d looks, %d roots, %d bytes, want 2 looks and nothing else", len(looks), len(g.roots), g.reading)
	}
}
