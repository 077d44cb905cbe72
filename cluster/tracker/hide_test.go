package tracker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

const bucket = "bucket"

// shelf is a world with a bucket, so that objects can name roots.
func shelf(t *testing.T, limits Limits, fn func(w *world, b state.Bucket)) {
	t.Helper()
	bubble(t, limits, func(w *world) {
		w.state.Apply(w, &state.RaiseLevel{FeatureLevel: LeaseFeatureLevel})
		fn(w, w.bucket())
	})
}

// bucket makes a bucket.
func (w *world) bucket() state.Bucket {
	w.Helper()
	return w.state.NewBucket(w, clustertest.Operator, bucket, false)
}

// object names root n, which some nodes hold and self is to keep.
func (w *world) object(b state.Bucket, n int, held ...state.NodeID) {
	w.Helper()
	w.pins++
	c := state.Content{Root: key(n), Bytes: 100, Blocks: 10, Nodes: []state.NodeID{self}}
	for _, h := range held {
		c.Held = append(c.Held, state.Holding{Node: h})
	}
	w.state.Apply(w, &state.PutObject{
		Account: b.Account, Bucket: b.Name, Born: b.Born, Content: c,
		Object: state.Object{
			ID: state.VersionID(fmt.Sprintf("version-%d", w.pins)), Key: fmt.Sprint("object ", n), Root: key(n), Size: 90, Created: 1, ETag: "e",
		},
	})
}

func (w *world) deleteObject(b state.Bucket, n int) {
	w.Helper()
	w.state.Apply(w, &state.DeleteObjects{Account: b.Account, Bucket: b.Name, Born: b.Born, Keys: []string{fmt.Sprint("object ", n)}})
}

// sealed puts content of root n here, hidden or not.
func (s *store) sealed(n int, hidden bool) {
	s.put(Reference(key(n)), owned{sealed: true, bytes: 100, blocks: 10, hidden: hidden})
}

func (w *world) wantHidden(n int, want bool) {
	w.Helper()
	if o, ok := w.store.get(Reference(key(n))); !ok || !o.sealed || o.hidden != want {
		w.Fatalf("root %d: %+v, there %t; want hidden %t", n, o, ok, want)
	}
}

// Content is hidden while only objects name it, and shown while a pin wants it.
func TestContentIsHiddenWhileObjectsAloneNameIt(t *testing.T) {
	shelf(t, Limits{}, func(w *world, b state.Bucket) {
		w.start()
		defer w.stop()
		w.pass(time.Second)     // the first audit would drop what has no name yet and no lease
		w.store.sealed(1, true) // as a put does
		w.object(b, 1, self)
		w.pass(time.Second)
		w.wantHidden(1, true)
		for range 2 {
			id := w.pin(1)
			w.pass(time.Second)
			w.wantHidden(1, false)
			w.unpin(id)
			w.pass(time.Second)
			w.wantHidden(1, true)
		}
		w.pin(1)
		w.deleteObject(b, 1)
		w.pass(time.Second)
		w.wantHidden(1, false)
		if w.store.hides != 5 {
			t.Errorf("%d changes of the store, want 5", w.store.hides)
		}
	})
}

// An audit hides private content that is shown, and shows pinned content that is hidden.
func TestAuditHidesAndShowsWhatWasMissed(t *testing.T) {
	shelf(t, Limits{Audit: time.Minute}, func(w *world, b state.Bucket) {
		w.store.sealed(1, false)
		w.store.sealed(2, true)
		w.object(b, 1, self)
		w.object(b, 2, self)
		w.pin(2)
		w.start() // which begins with an audit
		defer w.stop()
		w.pass(time.Second)
		for range 2 {
			w.wantHidden(1, true)
			w.wantHidden(2, false)
			w.store.sealed(1, false)
			w.store.sealed(2, true)
			w.pass(2 * time.Minute)
		}
	})
}

// A root that is pinned just before it is hidden is shown in the end. The state may change between its being read and
// what follows from it.
func TestWhatTheStateSaysLastCounts(t *testing.T) {
	shelf(t, Limits{}, func(w *world, b state.Bucket) {
		w.store.sealed(1, false)
		w.object(b, 1, self)
		w.store.onHide = func() error {
			w.store.mu.Lock()
			w.store.onHide = nil
			w.store.mu.Unlock()
			w.pin(1)
			return nil
		}
		w.start()
		defer w.stop()
		w.pass(time.Minute)
		w.wantHidden(1, false)
	})
}

// A root that the block store could not hide is tried again until it is hidden.
func TestWhatCouldNotBeHiddenIsTriedAgain(t *testing.T) {
	shelf(t, Limits{}, func(w *world, b state.Bucket) {
		w.start()
		defer w.stop()
		w.pass(time.Second)
		tries := 0
		w.store.sealed(1, false)
		w.store.mu.Lock()
		w.store.onHide = func() error {
			if tries++; tries < 3 {
				return errors.New("disk")
			}
			return nil
		}
		w.store.mu.Unlock()
		w.object(b, 1, self)
		w.pass(time.Second)
		w.wantHidden(1, false)
		w.pass(3 * auditRetry)
		w.wantHidden(1, true)
	})
}

// Pinned content that a put has sealed as hidden is shown after the end of the lease. A put judges its content before
// it seals it.
func TestTheEndOfALeaseShowsPinnedContent(t *testing.T) {
	leased(t, func(w *world, g *Leases) {
		g.Fenced()
		w.limits.Audit = time.Hour
		w.start()
		defer w.stop()
		w.pin(1)
		w.pass(time.Second)
		w.wantHidden(1, false)
		if err := g.Begin(t.Context(), key(1)); err != nil {
			t.Fatal(err)
		}
		w.store.sealed(1, true)
		g.End(key(1))
		w.pass(2 * leaseLinger)
		w.wantHidden(1, false)
	})
}

// gate blocks who comes to it, once it is shut, until it is opened.
type gate struct {
	mu   sync.Mutex
	wait chan struct{} // for the one who comes next
}

func (g *gate) pass() {
	g.mu.Lock()
	wait := g.wait
	g.wait = nil
	g.mu.Unlock()
	if wait != nil {
		<-wait
	}
}

func (g *gate) shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wait := make(chan struct{})
	g.wait = wait
	return func() { close(wait) }
}

// Private content is hidden in the end if a pin comes and goes while a change to its root is under way. The state is
// read for a change, changes, and is looked at by an event before the change is made: a lease that was certain till
// then is not any more.
func TestPrivateContentIsHiddenThoughAPinComesAndGoes(t *testing.T) {
	shelf(t, Limits{}, func(w *world, b state.Bucket) {
		w.leases = NewLeases()
		w.leases.Fenced()
		var views gate
		w.state.viewed = views.pass
		w.start()
		defer w.stop()
		w.pass(time.Second)
		if err := w.leases.Begin(t.Context(), key(1)); err != nil {
			t.Fatal(err)
		}
		w.store.sealed(1, true)
		w.leases.Sealed(key(1), true)
		w.object(b, 1, self)
		synctest.Wait()
		dispatcher := views.shut()
		id := w.pin(1)
		synctest.Wait()
		hides := views.shut()
		dispatcher()
		synctest.Wait() // a pin is what it has read
		w.unpin(id)
		synctest.Wait()
		hides()
		synctest.Wait()
		w.wantHidden(1, true)
	})
}

// Content that is put as private while an older change shows its root is hidden in the end. The state is read for a
// change, changes, and content is put and sealed as it says now, all before the dispatcher has a look and the change
// is made.
func TestContentPutAsPrivateWhileItsRootIsShownIsHidden(t *testing.T) {
	shelf(t, Limits{}, func(w *world, b state.Bucket) {
		w.leases = NewLeases()
		w.leases.Fenced()
		var views, changes gate
		w.state.viewed = views.pass
		w.store.onHide = func() error { changes.pass(); return nil }
		w.start()
		defer w.stop()
		w.pass(time.Second)
		show := func(public bool) {
			w.state.Apply(w, &state.SetBucketPublic{Account: b.Account, Name: b.Name, Born: b.Born, Public: public})
		}
		show(true)
		change := changes.shut()
		w.object(b, 1, self) // which is not here
		synctest.Wait()
		dispatcher := views.shut()
		w.pin(2)
		synctest.Wait()
		show(false)
		if err := w.leases.Begin(t.Context(), key(1)); err != nil {
			t.Fatal(err)
		}
		w.store.sealed(1, true)
		w.leases.Sealed(key(1), true)
		dispatcher()
		synctest.Wait()
		change()
		synctest.Wait()
		w.wantHidden(1, true)
	})
}

// A lease is not certain how its root is sealed while the root is fetched, and is certain after that. A fetch seals
// by what the state said some time ago.
func TestALeaseIsNotCertainWhileItsRootIsFetched(t *testing.T) {
	shelf(t, Limits{}, func(w *world, b state.Bucket) {
		w.leases = NewLeases()
		w.leases.Fenced()
		certain := func() bool {
			if err := w.leases.Begin(t.Context(), key(1)); err != nil {
				t.Error(err)
				return false
			}
			defer w.leases.End(key(1))
			w.leases.Sealed(key(1), false)
			return w.leases.agrees(key(1), false)
		}
		w.net.set(key(1), func(context.Context, *network, Job, func(uint64, uint64)) error {
			if certain() {
				t.Error("it is certain how content is sealed that is being fetched")
			}
			return nil
		})
		w.start()
		defer w.stop()
		w.pin(1)
		w.pass(time.Minute)
		w.wantPhase(1, state.Held)
		if !certain() {
			t.Error("it is not certain when the fetch has ended")
		}
	})
}

// Unknown peers are asked while a pin wants the content, and at no other time.
func TestPrivateContentIsFetchedFromMembers(t *testing.T) {
	shelf(t, Limits{}, func(w *world, b state.Bucket) {
		w.net.set(key(1), silent)
		w.start()
		defer w.stop()
		w.object(b, 1, other)
		w.pass(time.Second)
		w.pins++
		id := state.RequestID("with origins")
		p := w.newPin(id, 1)
		p.Origins = []string{"/ip4/198.51.100.9/tcp/4001"}
		w.state.Apply(w, &state.CreatePin{Pin: p, Nodes: []state.NodeID{self}})
		w.pass(time.Second)
		w.unpin(id)
		w.pass(time.Second)
		w.net.set(key(1), good)
		w.pin(1)
		w.pass(time.Second)
		jobs := w.net.fetched(key(1))
		if len(jobs) != 4 {
			t.Fatalf("%d jobs: %+v", len(jobs), jobs)
		}
		for i, j := range jobs {
			if private, named := i%2 == 0, i == 1; j.Private != private || (len(j.Origins) > 0) != named {
				t.Errorf("job %d: private %v, origins %v", i, j.Private, j.Origins)
			}
		}
		w.wantPhase(1, state.Held)
	})
}

// At most maxHides roots wait to be hidden or shown, pages have at most pageRoots of them, and a loss of more is
// told.
func TestWhatHidesWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHides()
		for n := range maxHides + 1 {
			h.add(key(n), key(n))
		}
		took := 0
		for more := false; !more; {
			select {
			case <-h.some:
			default:
				t.Fatalf("nothing is left after %d roots, and nobody is told that there were more", took)
			}
			var page []state.RootKey
			page, more = h.take()
			if took += len(page); len(page) > pageRoots {
				t.Fatalf("a page of %d roots", len(page))
			}
		}
		if took != maxHides {
			t.Errorf("%d roots, want %d", took, maxHides)
		}
		if page, more := h.take(); len(page) > 0 || more {
			t.Errorf("%d roots are left, more %v", len(page), more)
		}
	})
}
