package tracker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// leased is a world whose tracker has leases of an earlier process to wait for.
func leased(t *testing.T, fn func(w *world, g *Leases)) {
	t.Helper()
	bubble(t, Limits{Audit: time.Minute}, func(w *world) {
		w.state.Apply(w, &state.RaiseLevel{FeatureLevel: LeaseFeatureLevel})
		w.leases = NewLeases()
		fn(w, w.leases)
	})
}

func (w *world) seal(n int) {
	w.store.put(Reference(key(n)), owned{sealed: true, bytes: 100, blocks: 10})
}

// A root that nobody wants stays until the last of its leases has ended.
func TestALeasedRootIsNotDropped(t *testing.T) {
	leased(t, func(w *world, g *Leases) {
		g.Fenced()
		if err := g.Begin(t.Context(), key(1)); err != nil {
			t.Fatal(err)
		}
		if err := g.Begin(t.Context(), key(1)); err != nil { // by two puts
			t.Fatal(err)
		}
		w.seal(1)
		w.start()
		defer w.stop()
		w.pass(10 * time.Minute) // audits find it, and nobody wants it
		w.wantSealed(1, true)
		g.End(key(1))
		w.pass(10 * time.Minute)
		w.wantSealed(1, true)
		g.End(key(1))
		w.pass(2 * leaseLinger)
		w.wantNothingHere(1)
	})
}

// Content that is pinned during its lease stays after it, and is held without a fetch.
func TestTheEndOfALeaseLeavesWantedContent(t *testing.T) {
	leased(t, func(w *world, g *Leases) {
		g.Fenced()
		w.start()
		defer w.stop()
		if err := g.Begin(t.Context(), key(1)); err != nil {
			t.Fatal(err)
		}
		w.seal(1)
		w.pin(1)
		g.End(key(1))
		w.pass(time.Hour)
		w.wantSealed(1, true)
		w.wantPhase(1, state.Held)
		if len(w.net.fetched(key(1))) > 0 {
			t.Error("it was fetched, though it was here")
		}
	})
}

// A lease that began and ended since the view of a drop saves its root from that drop. The put may have named the
// root after that view.
func TestALeaseSinceTheViewSavesItsRoot(t *testing.T) {
	leased(t, func(w *world, g *Leases) {
		g.Fenced()
		w.seal(1)
		tr := w.build()
		if batch := tr.doomed(t.Context(), []sweep{{root: key(1)}}); len(batch) != 1 {
			t.Fatal("it is not to be dropped")
		}
		if err := g.Begin(t.Context(), key(1)); err != nil {
			t.Fatal(err)
		}
		g.End(key(1))
		if g.drop(key(1), 100) {
			t.Error("it is dropped by a view of before the lease")
		}
	})
}

// A root whose lease began and ended while its drop waited for a majority is dropped when there is one. The scan at
// the end of the lease comes while the drop that the lease stopped waits.
func TestAScanIsNotLostWhileADropWaits(t *testing.T) {
	leased(t, func(w *world, g *Leases) {
		w.limits.Audit = 1000 * time.Hour
		g.Fenced()
		w.seal(1)
		w.state.Fail(state.ErrUnavailable)
		w.start() // which begins with an audit
		defer w.stop()
		w.pass(time.Second)
		if err := g.Begin(t.Context(), key(1)); err != nil {
			t.Fatal(err)
		}
		g.End(key(1))
		w.pass(time.Minute)
		w.wantSealed(1, true)
		w.state.Fail(nil)
		w.pass(time.Minute)
		w.wantNothingHere(1)
	})
}

// stray is a world in which a root is here that nobody wants, as a start finds it by its
// audit. What before prepares leaves nothing of it in the end, and no other audit helps.
func stray(t *testing.T, before func(w *world, g *Leases)) {
	t.Helper()
	leased(t, func(w *world, g *Leases) {
		w.limits.Audit = 1000 * time.Hour
		g.Fenced()
		w.seal(1)
		before(w, g)
		w.start()
		defer w.stop()
		w.pass(time.Hour)
		w.wantNothingHere(1)
	})
}

// A root that is named and deleted again while its drop waits for a view is dropped. It is found in order when its
// lease has ended, before the drop that the lease stopped is over.
func TestADeletionIsNotLostWhileADropWaits(t *testing.T) {
	stray(t, func(w *world, g *Leases) {
		w.state.whenAsked(func() {
			if err := g.Begin(t.Context(), key(1)); err != nil {
				t.Error(err)
			}
			id := w.pin(1)
			w.says(self, 1, state.Held)
			g.End(key(1))
			w.pass(time.Minute)
			w.unpin(id)
			synctest.Wait()
		})
	})
}

// A root that is pinned in the view of a drop, and not any more when the dispatcher hears of it, is dropped.
func TestADeletionIsNotLostBehindTheViewOfADrop(t *testing.T) {
	stray(t, func(w *world, _ *Leases) {
		w.state.lag(true)
		id := w.pin(1)
		w.state.whenAsked(func() {
			w.state.lag(false)
			w.unpin(id)
			synctest.Wait()
		})
	})
}

// A lease of a root that is being dropped begins after the drop, or fails with its context.
func TestALeaseWaitsForADrop(t *testing.T) {
	leased(t, func(w *world, g *Leases) {
		g.Fenced()
		w.seal(1)
		began, end := make(chan error, 1), make(chan struct{})
		w.store.onDrop = func() {
			go func() { began <- g.Begin(context.Background(), key(1)) }()
			synctest.Wait()
			select {
			case <-began:
				t.Error("a lease begins while its root is dropped")
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if err := g.Begin(ctx, key(1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a lease that waits too long: %v", err)
			}
			close(end)
		}
		w.start()
		defer w.stop()
		w.pass(time.Minute)
		<-end
		if err := <-began; err != nil {
			t.Fatal(err)
		}
		w.wantNothingHere(1)
		w.seal(1)
		w.pass(time.Hour)
		w.wantSealed(1, true)
	})
}

// Complete content that nobody wants is dropped only after the first fence of this process.
func TestNothingCompleteIsDroppedBeforeTheFirstFence(t *testing.T) {
	leased(t, func(w *world, g *Leases) {
		w.seal(1)
		w.start()
		defer w.stop()
		w.pass(time.Hour)
		w.wantSealed(1, true)
		g.Fenced()
		w.pass(2 * leaseLinger)
		w.wantNothingHere(1)
	})
}

// Content that was named before the first fence is not dropped by a view from before both. The fence may be applied
// while such a view is on its way.
func TestAViewFromBeforeTheFirstFenceDropsNothing(t *testing.T) {
	for _, named := range []bool{true, false} {
		t.Run(fmt.Sprint("named ", named), func(t *testing.T) {
			shelf(t, Limits{Audit: 1000 * time.Hour}, func(w *world, b state.Bucket) {
				w.leases = NewLeases()
				w.seal(1)
				w.state.whenAsked(func() {
					if named {
						w.object(b, 1, self)
					}
					w.leases.Fenced()
				})
				w.start() // which begins with an audit
				defer w.stop()
				w.pass(time.Minute)
				w.wantSealed(1, named)
				if drops := len(w.store.dropped()); (drops == 0) != named {
					t.Errorf("%d drops", drops)
				}
			})
		})
	}
}

// Content that could not be fetched is held, and not given up, if a put with a lease completes it.
func TestAPutCompletesWhatWasToBeGivenUp(t *testing.T) {
	leased(t, func(w *world, g *Leases) {
		g.Fenced()
		w.net.set(key(1), vanishes(3))
		if err := g.Begin(t.Context(), key(1)); err != nil {
			t.Fatal(err)
		}
		w.pin(1)
		w.start()
		defer w.stop()
		w.pass(time.Hour) // long after the last attempt
		w.seal(1)
		w.pass(time.Minute)
		g.End(key(1))
		w.pass(time.Minute)
		w.wantSealed(1, true)
		w.wantPhase(1, state.Held)
	})
}

// Parts that wait for their drop are not dropped once a put has completed them and an object names them. The fetch
// was given up before the put came, and the lease of the put is over when the sweeper gets to the parts.
func TestPartsThatAPutMadeWholeAreNotDropped(t *testing.T) {
	for _, tc := range []struct {
		name   string
		object bool // an object names it after the put
		fail   bool // the block store does not tell what there is at first
	}{
		{"an object names it", true, false},
		{"the block store fails", true, true},
		{"nobody wants it then", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			shelf(t, Limits{Audit: 1000 * time.Hour}, func(w *world, b state.Bucket) {
				w.leases = NewLeases()
				w.leases.Fenced()
				slow := make(chan struct{})
				w.store.dropping = func(reference string) {
					if reference != Reference(key(1)) {
						<-slow
					}
				}
				for n := range 2 * dropsAtOnce { // what the first audit finds takes all slots
					w.seal(10 + n)
				}
				w.net.set(key(1), vanishes(3))
				w.start()
				defer w.stop()
				w.pass(time.Second)
				pin := w.pin(1, self, other)
				w.pass(time.Minute) // three attempts fail
				if err := w.leases.Begin(t.Context(), key(1)); err != nil {
					t.Fatal(err)
				}
				w.seal(1)
				w.leases.Sealed(key(1), false)
				if tc.object {
					w.object(b, 1, self)
				} else {
					w.unpin(pin)
				}
				w.pass(time.Second)
				w.leases.End(key(1))
				w.pass(2 * leaseLinger)
				w.wantSealed(1, true)
				if tc.fail {
					w.store.setFail(errors.New("disk"))
				}
				close(slow)
				w.pass(time.Second)
				w.store.setFail(nil)
				w.pass(10 * time.Minute)
				w.wantSealed(1, tc.object)
				if tc.object {
					w.wantPhase(1, state.Held)
				}
				w.wantIdle()
			})
		})
	}
}

// A lease agrees with the state only if its root was sealed as the state says and nothing changed it beside the
// lease. Where a seal, a change or a drop leaves doubt, the root is scanned when the lease has ended.
func TestLeasesOfUnknownOutcomeAreNotCertain(t *testing.T) {
	k := key(1)
	for _, tc := range []struct {
		name   string
		do     func(g *Leases, begin func())
		agrees bool // that it is hidden, as the state says
		look   bool // at the end
	}{
		{"sealed and seen", func(g *Leases, begin func()) { begin(); g.Sealed(k, true) }, true, false},
		{"sealed twice, the same", func(g *Leases, begin func()) { begin(); begin(); g.Sealed(k, true); g.Sealed(k, true) }, true, false},
		{"found", func(g *Leases, begin func()) { begin(); g.Found(k) }, false, false},
		{"sealed by one and found by another", func(g *Leases, begin func()) { begin(); g.Sealed(k, true); begin(); g.Found(k) }, true, false},
		{"sealed by one after it was found", func(g *Leases, begin func()) { begin(); g.Found(k); begin(); g.Sealed(k, true) }, true, false},
		{"nothing is told", func(_ *Leases, begin func()) { begin() }, false, true},
		{"another has yet to tell", func(g *Leases, begin func()) { begin(); begin(); g.Sealed(k, true) }, false, true},
		{"sealed as public", func(g *Leases, begin func()) { begin(); g.Sealed(k, false) }, false, true},
		{"sealed as one and as the other", func(g *Leases, begin func()) { begin(); begin(); g.Sealed(k, false); g.Sealed(k, true) }, false, true},
		{"changed since", func(g *Leases, begin func()) { begin(); g.Sealed(k, true); g.sealChanging(k); g.sealChanged(k) }, false, true},
		{"being changed when it began", func(g *Leases, begin func()) { g.sealChanging(k); begin(); g.sealChanged(k); g.Sealed(k, true) }, false, true},
		{"being changed by another still", func(g *Leases, begin func()) {
			g.sealChanging(k)
			g.sealChanging(k)
			g.sealChanged(k)
			begin()
			g.Sealed(k, true)
		}, false, true},
		{"changed before it began", func(g *Leases, begin func()) { g.sealChanging(k); g.sealChanged(k); begin(); g.Sealed(k, true) }, true, false},
		{"a drop is refused", func(g *Leases, begin func()) { begin(); g.Sealed(k, true); g.requestDrop(k) }, false, true},
		{"a drop is refused that was to come", func(g *Leases, begin func()) { g.requestDrop(k); begin(); g.Sealed(k, true); g.drop(k, 100) }, false, true},
		{"a drop was not to be", func(g *Leases, begin func()) { g.requestDrop(k); g.cancelDrop(k); begin(); g.Sealed(k, true) }, true, false},
		{"a drop before", func(g *Leases, begin func()) {
			g.requestDrop(k)
			g.drop(k, 100)
			g.dropped(k)
			begin()
			g.Sealed(k, true)
		}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewLeases()
			held := 0
			tc.do(g, func() {
				if err := g.Begin(t.Context(), k); err != nil {
					t.Fatal(err)
				}
				held++
			})
			if got := g.agrees(k, true); got != tc.agrees {
				t.Errorf("agrees: %t, want %t", got, tc.agrees)
			}
			for range held {
				g.End(k)
			}
			if looks, _ := g.take(); (len(looks) > 0) != tc.look {
				t.Errorf("%d looks, want any: %t", len(looks), tc.look)
			}
			if len(g.roots)+len(g.changing) > 0 != (tc.name == "being changed by another still") {
				t.Errorf("%d roots are remembered, and %d", len(g.roots), len(g.changing))
			}
		})
	}
}

// Leases know how a root was sealed until it is scanned after the last of them, unless it is dropped before. Between
// its end and the scan, a root may be seen, dropped, and leased again.
func TestLeasesKnowTheirRootsUntilTheScan(t *testing.T) {
	k := key(1)
	begin := func(g *Leases) {
		if err := g.Begin(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	want := func(g *Leases, agrees bool, looks, left int) {
		t.Helper()
		if got := g.agrees(k, true); got != agrees {
			t.Errorf("agrees: %t, want %t", got, agrees)
		}
		if got, _ := g.take(); len(got) != looks || len(g.roots) != left {
			t.Errorf("%d looks, want %d; %d roots are remembered, want %d", len(got), looks, len(g.roots), left)
		}
	}
	ended := func() *Leases {
		g := NewLeases()
		begin(g)
		g.Sealed(k, true)
		g.End(k)
		return g
	}
	want(ended(), true, 0, 0)

	g := ended() // dropped: nothing is sealed that anybody could know
	if !g.requestDrop(k) || !g.drop(k, 100) {
		t.Fatal("it has a lease")
	}
	g.dropped(k)
	want(g, false, 1, 0)

	g = ended() // to be dropped, and then not
	g.requestDrop(k)
	g.cancelDrop(k)
	want(g, true, 0, 0)

	g = ended() // looked at while it is being dropped
	g.requestDrop(k)
	g.drop(k, 100)
	if got, _ := g.take(); len(got) != 1 || len(g.roots) != 1 {
		t.Errorf("%d looks, %d roots", len(got), len(g.roots))
	}
	g.dropped(k)
	want(g, false, 0, 0)

	g = ended() // seen, and looked at while it is to be dropped
	g.agrees(k, true)
	g.requestDrop(k)
	if got, _ := g.take(); len(got) != 0 || !g.drop(k, 100) {
		t.Errorf("%d looks; a drop is refused for a lease that is gone", len(got))
	}
	g.dropped(k)
	want(g, false, 0, 0)

	g = ended() // by two, one after the other
	begin(g)
	want(g, false, 1, 1)
	g.Sealed(k, true)
	want(g, true, 0, 1)
	g.End(k)
	want(g, true, 0, 0)
}

// At most maxEndedLeases ended leases are remembered, and none after their scan, which learns that there were more.
func TestEndedLeasesAreForgotten(t *testing.T) {
	g := NewLeases()
	for n := range 2 * maxEndedLeases {
		if err := g.Begin(t.Context(), key(n)); err != nil {
			t.Fatal(err)
		}
		g.End(key(n))
	}
	if len(g.roots) > maxEndedLeases {
		t.Errorf("%d roots are remembered", len(g.roots))
	}
	if roots, more := g.take(); len(roots) != maxEndedLeases || !more {
		t.Errorf("%d roots are to be looked at, more %t", len(roots), more)
	}
	if len(g.roots)+len(g.ended) > 0 {
		t.Errorf("%d roots are remembered, %d of them to be looked at", len(g.roots), len(g.ended))
	}
}

// A cluster below LeaseFeatureLevel drops content that nobody wants without a fence.
func TestClustersWithoutLeasesWaitForNoFence(t *testing.T) {
	bubble(t, Limits{Audit: time.Minute}, func(w *world) {
		w.state.Apply(w, &state.RaiseLevel{FeatureLevel: LeaseFeatureLevel - 1})
		w.leases = NewLeases()
		w.seal(1)
		w.start()
		defer w.stop()
		w.pass(time.Hour)
		w.wantNothingHere(1)
	})
}

// A lease that saves its root from a drop has the root scanned at its end, also if that comes before the drop.
func TestALeaseThatSavesARootFromADropHasItScanned(t *testing.T) {
	g := NewLeases()
	if !g.requestDrop(key(1)) {
		t.Fatal("it has no lease")
	}
	if err := g.Begin(t.Context(), key(1)); err != nil {
		t.Fatal(err)
	}
	g.Found(key(1))
	g.End(key(1))
	if roots, _ := g.take(); !slices.Equal(roots, []state.RootKey{key(1)}) {
		t.Errorf("there is a look at %v", roots)
	}
	if g.drop(key(1), 1) {
		t.Error("it is dropped by what was asked for before the lease")
	}
}

// A root whose drop is cancelled is forgotten: a node keeps nothing in memory of each root that it once scanned.
func TestASparedRootIsForgotten(t *testing.T) {
	g, k := NewLeases(), state.RootKey("root")
	if !g.requestDrop(k) || len(g.roots) != 1 {
		t.Fatalf("doomed: %d known", len(g.roots))
	}
	g.cancelDrop(k)
	if len(g.roots) != 0 {
		t.Errorf("%d roots known", len(g.roots))
	}
}

// Content that stays for its readers counts once, however often its drop is tried, and no more when the last reader
// ends.
func TestWhatStaysForReadersCountsOnce(t *testing.T) {
	for _, size := range []uint64{1, 2} {
		g, k := NewLeases(), state.RootKey("root")
		done := g.Read(k)
		for range 2 {
			if !g.requestDrop(k) || g.drop(k, size) {
				t.Fatalf("%d bytes were dropped under their reader", size)
			}
			if g.reading != size {
				t.Errorf("%d bytes stay, want %d", g.reading, size)
			}
		}
		done()
		if g.reading != 0 {
			t.Errorf("nobody reads, and %d bytes stay", g.reading)
		}
	}
}
