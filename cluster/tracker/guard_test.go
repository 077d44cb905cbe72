package tracker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// guarded is a world whose tracker has guards of an earlier process to wait for.
func guarded(t *testing.T, fn func(w *world, g *Guards)) {
	t.Helper()
	bubble(t, Limits{Audit: time.Minute}, func(w *world) {
		w.state.Apply(w, &state.RaiseLevel{Level: GuardLevel})
		w.guards = NewGuards()
		fn(w, w.guards)
	})
}

func (w *world) seal(n int) { w.store.put(Owner(key(n)), owned{sealed: true, bytes: 100, blocks: 10}) }

func TestAGuardedRootIsNotDropped(t *testing.T) {
	guarded(t, func(w *world, g *Guards) {
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
		w.pass(2 * guardLinger)
		w.wantNothingHere(1)
	})
}

func TestAGuardThatEndsLeavesWhatIsWanted(t *testing.T) {
	guarded(t, func(w *world, g *Guards) {
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

// A put that is over before the drop begins may have named the root after the view
// that the drop is for.
func TestAGuardSinceTheViewSavesItsRoot(t *testing.T) {
	guarded(t, func(w *world, g *Guards) {
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
		if g.drop(key(1)) {
			t.Error("it is dropped by a view of before the guard")
		}
	})
}

func TestAGuardWaitsForADrop(t *testing.T) {
	guarded(t, func(w *world, g *Guards) {
		g.Fenced()
		w.seal(1)
		began, end := make(chan error, 1), make(chan struct{})
		w.store.onDrop = func() {
			go func() { began <- g.Begin(context.Background(), key(1)) }()
			synctest.Wait()
			select {
			case <-began:
				t.Error("a guard begins while its root is dropped")
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if err := g.Begin(ctx, key(1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a guard that waits too long: %v", err)
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

func TestNothingCompleteIsDroppedBeforeTheFirstFence(t *testing.T) {
	guarded(t, func(w *world, g *Guards) {
		w.seal(1)
		w.start()
		defer w.stop()
		w.pass(time.Hour)
		w.wantSealed(1, true)
		g.Fenced()
		w.pass(2 * guardLinger)
		w.wantNothingHere(1)
	})
}

// What could not be fetched may come by a put: then it is not given up.
func TestAPutCompletesWhatWasToBeGivenUp(t *testing.T) {
	guarded(t, func(w *world, g *Guards) {
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

func TestGuardsThatEndAreForgotten(t *testing.T) {
	g := NewGuards()
	for n := range 2 * maxUnguarded {
		if err := g.Begin(t.Context(), key(n)); err != nil {
			t.Fatal(err)
		}
		g.End(key(n))
	}
	if len(g.roots) > maxUnguarded {
		t.Errorf("%d roots are remembered", len(g.roots))
	}
	if roots, more := g.take(); len(roots) != maxUnguarded || !more {
		t.Errorf("%d roots are to be looked at, more %t", len(roots), more)
	}
	if len(g.roots)+len(g.ended) > 0 {
		t.Errorf("%d roots are remembered, %d of them to be looked at", len(g.roots), len(g.ended))
	}
}

func TestClustersWithoutGuardsWaitForNoFence(t *testing.T) {
	bubble(t, Limits{Audit: time.Minute}, func(w *world) {
		w.state.Apply(w, &state.RaiseLevel{Level: GuardLevel - 1})
		w.guards = NewGuards()
		w.seal(1)
		w.start()
		defer w.stop()
		w.pass(time.Hour)
		w.wantNothingHere(1)
	})
}
