package tracker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maker is a put as ingest makes one, a step at a time.
type maker struct {
	root   int
	step   int
	fails  bool // while it seals
	hidden bool // as it is sealed
}

// chaos is a node on which puts, pins, deletions and changes of buckets happen at any
// moment: between the steps of the test, and while the tracker has read the state, or
// changes the block store, and has not gone on.
type chaos struct {
	*world
	leases  *Leases
	buckets [2]state.Bucket

	// mu guards the fields below. Who cannot have it at once lets the moment pass.
	mu      sync.Mutex
	rng     *rand.Rand
	makers  []*maker
	objects []string // root and bucket of each
	pinned  []state.RequestID
	stale   map[int]bool // roots that were sealed by an older state: only the end of the lease tells
	left    int          // of what may happen: what happens makes moments for more
}

const chaosRoots = 2

// moment is one at which something may happen.
func (c *chaos) moment() {
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	for range min(c.rng.IntN(7), c.left) {
		c.left--
		c.act()
	}
}

func (c *chaos) act() {
	n := c.rng.IntN(chaosRoots)
	switch c.rng.IntN(16) {
	case 0:
		c.pinned = append(c.pinned, c.pin(n))
	case 1, 2:
		if len(c.pinned) > 0 {
			c.unpin(c.pinned[0])
			c.pinned = c.pinned[1:]
		}
	case 3, 4:
		if len(c.objects) > 0 {
			var of, in int
			if _, err := fmt.Sscanf(c.objects[0], "%d %d", &of, &in); err != nil {
				c.Fatal(err)
			}
			c.deleteObject(c.buckets[in], of)
			c.objects = c.objects[1:]
		}
	case 5:
		b := &c.buckets[1]
		b.Public = !b.Public
		c.state.Apply(c, &state.SetBucketPublic{Account: b.Account, Name: b.Name, Born: b.Born, Public: b.Public})
	case 6:
		token(c.tracker.audits)
	case 7:
		if len(c.makers) < 3 {
			c.makers = append(c.makers, &maker{root: n, fails: c.rng.IntN(8) == 0})
		}
	default:
		if len(c.makers) > 0 {
			c.make(c.rng.IntN(len(c.makers)), c.rng.IntN(4) > 0)
		}
	}
}

// judge tells whether what is sealed now is hidden.
func (c *chaos) judge(reference string) bool {
	root, ok := RootOf(reference)
	view, release := c.state.State.LocalView()
	defer release()
	r, err := view.Root(state.RootOf(root))
	return !ok || err != nil || r.Private()
}

// make does the next step of a put.
func (c *chaos) make(at int, commits bool) {
	m := c.makers[at]
	k, reference := key(m.root), Reference(key(m.root))
	o, _ := c.store.get(reference)
	m.step++
	switch m.step {
	case 1:
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if c.leases.Begin(ended, k) != nil { // it is dropped just now
			m.step = 0
		}
	case 2:
		if o.sealed {
			c.leases.Found(k)
			m.step = 5
		}
	case 3:
		m.hidden = c.judge(reference)
	case 4:
		c.store.put(reference, owned{sealed: true, bytes: 100, blocks: 10, hidden: m.hidden})
		c.stale[m.root] = c.stale[m.root] || m.hidden != c.judge(reference)
		if m.fails {
			m.step = 6 // somebody asks in vain
		}
	case 5:
		c.leases.Sealed(k, m.hidden)
	case 6:
		if in := c.rng.IntN(2); commits {
			c.object(c.buckets[in], m.root, self)
			c.objects = append(c.objects, fmt.Sprint(m.root, " ", in))
		}
	case 7:
		c.leases.End(k)
		c.makers = append(c.makers[:at], c.makers[at+1:]...)
	}
}

// check compares the block store with the state; rested: all leases have ended a while
// ago.
func (c *chaos) check(rested bool) {
	c.Helper()
	view, release := c.state.State.LocalView()
	defer release()
	for n := range chaosRoots {
		root, own, err := wanted(view, key(n), self)
		if err != nil {
			c.Fatal(err)
		}
		o, here := c.store.get(Reference(key(n)))
		switch {
		case rested && own == nil && here:
			c.Fatalf("root %d is not wanted, and here: %+v", n, o)
		case own == nil || c.stale[n] && !rested:
		case rested && (!o.sealed || own.Phase != state.Held):
			c.Fatalf("root %d: %+v, %s", n, o, own.Phase)
		case o.sealed && o.hidden != root.Private():
			c.Fatalf("root %d: hidden %t, private %t; rested %t", n, o.hidden, root.Private(), rested)
		}
	}
}

// In any history the block store has, at rest and without an audit, what the state wants, hidden as the state says.
// This is the model of ADR 24. At every moment, as soon as the tracker has nothing more to do, what is sealed is
// hidden as the state says, unless it was sealed by an older one a moment ago.
func TestUnknownPeersSeeWhatTheStateSaysInAnyHistory(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			shelf(t, Limits{Audit: 1000 * time.Hour}, func(w *world, b state.Bucket) {
				w.leases = NewLeases()
				w.leases.Fenced()
				c := &chaos{world: w, leases: w.leases, rng: rand.New(rand.NewPCG(seed, 1)), stale: map[int]bool{}}
				c.buckets[0], c.buckets[1] = b, w.state.NewBucket(w, b.Account, "other", false)
				w.state.viewed = c.moment
				w.store.judge, w.store.onHide, w.store.dropping = c.judge, func() error { c.moment(); return nil }, c.dropping
				w.start()
				defer w.stop()
				w.pass(time.Second) // the first audit
				for range 8 {
					for range 40 {
						c.let(20)
						c.moment()
						if c.draw(8) == 0 {
							w.pass(time.Duration(c.draw(700)) * time.Millisecond)
						}
						c.let(0)
						synctest.Wait()
						c.check(false)
					}
					c.finish()
					w.pass(30 * time.Second)
					c.check(true)
					clear(c.stale)
				}
			})
		})
	}
}

// let has so many things happen.
func (c *chaos) let(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = n
}

func (c *chaos) draw(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

// finish ends all puts.
func (c *chaos) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.makers) > 0 {
		c.make(0, true)
	}
}

// dropping is asked before each drop.
func (c *chaos) dropping(reference string) {
	c.leases.mu.Lock()
	defer c.leases.mu.Unlock()
	for k, e := range c.leases.roots {
		if Reference(k) == reference && e.holders > 0 {
			c.Errorf("%s is dropped, and has a lease", reference)
		}
	}
}
