package tracker

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

var restartSeeds = flag.Uint64("restart-seeds", 3, "histories of pins among trackers that are restarted")

// crew is three nodes that share a state, each with its tracker, store, network
// and node-local metadata.
type crew struct {
	*world
	nodes []*world
	live  map[state.RequestID]int // pins that were not deleted, with their roots
}

func newCrew(t *testing.T, limits Limits, rest func(node state.NodeID, k state.RootKey) behaviour) *crew {
	st := clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members(self, other, third), Replication: 2, WriteCopies: 2})
	c := &crew{live: map[state.RequestID]int{}}
	for _, id := range []state.NodeID{self, other, third} {
		s := newStore()
		w := &world{
			TB: t, id: id, limits: limits, store: s, nodeMeta: &nodeMeta{kept: map[string][]byte{}}, state: &consensus{State: st},
			net: &network{store: s, roots: map[state.RootKey]behaviour{}},
		}
		w.net.rest = func(ctx context.Context, f *network, job Job, progress func(uint64, uint64)) error {
			return rest(id, state.RootOf(job.Root))(ctx, f, job, progress)
		}
		c.nodes = append(c.nodes, w)
	}
	c.world = c.nodes[0]
	return c
}

// stallsFor is stalls, with a fetcher that loses its patience.
func stallsFor(n uint64, idle time.Duration) behaviour {
	return func(ctx context.Context, f *network, job Job, progress func(uint64, uint64)) error {
		ctx, cancel := context.WithTimeout(ctx, idle)
		defer cancel()
		return stalls(n)(ctx, f, job, progress)
	}
}

// shapes returns what content can be like for a node. What is not there at the end
// of an attempt may be there for the next.
func shapes(rng *rand.Rand) []behaviour {
	flaky := func(first, then behaviour, times int) func() behaviour {
		return func() behaviour {
			left := times
			return func(ctx context.Context, f *network, job Job, progress func(uint64, uint64)) error {
				if left--; left >= 0 {
					return first(ctx, f, job, progress)
				}
				return then(ctx, f, job, progress)
			}
		}
	}
	kinds := []func() behaviour{
		func() behaviour { return good },
		func() behaviour { return slow(3) },
		func() behaviour { return slow(30) },
		flaky(vanishes(4), slow(6), 1),
		flaky(absent, good, 2),
		flaky(stallsFor(2, time.Minute), good, 1),
	}
	all := make([]behaviour, 600)
	for i := range all {
		all[i] = kinds[rng.IntN(len(kinds))]()
	}
	return all
}

// After restarts at random every pin is pinned, or failed if nobody has its content, and nodes hold what the state
// wants. 2,000 pins of 600 roots come, are replaced and deleted while trackers are stopped and started, some of them
// by a crash that loses the news that was on its way. In the end nodes hold what the state wants on them whole, and
// nothing else.
func TestNoPinIsLostDoubledOrStuckWhateverRestarts(t *testing.T) {
	const pins, roots, dead = 2000, 600, 40 // the first roots are nowhere
	for seed := range *restartSeeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				does := map[state.NodeID][]behaviour{self: shapes(rng), other: shapes(rng), third: shapes(rng)}
				numbers := map[state.RootKey]int{}
				for n := range roots {
					numbers[key(n)] = n
				}
				limits := Limits{
					Moving: 16, Waiting: 32, Account: 24, Known: 256, Attempts: 4, Patience: 30 * time.Second,
					RotateAfter: 5 * time.Second, Backoff: time.Second, MaxBackoff: 10 * time.Second, Audit: 5 * time.Minute,
				}
				c := newCrew(t, limits, func(node state.NodeID, k state.RootKey) behaviour {
					if n := numbers[k]; n >= dead {
						return does[node][n]
					}
					return absent
				})
				for _, w := range c.nodes {
					w.start()
				}
				for n := range pins {
					c.change(rng, n, roots)
					if rng.IntN(20) == 0 {
						w := c.nodes[rng.IntN(len(c.nodes))]
						if rng.IntN(2) == 0 {
							w.state.cutOff(true) // what it would have reported is lost
						}
						w.stop()
						w.state.cutOff(false)
						w.start()
					}
					c.pass(time.Duration(rng.IntN(400)) * time.Millisecond)
				}
				c.pass(time.Hour)
				c.check(dead)
				for _, w := range c.nodes {
					w.wantIdle()
					w.stop()
				}
			})
		})
	}
}

// change adds a pin, or replaces or deletes one.
func (c *crew) change(rng *rand.Rand, n, roots int) {
	c.Helper()
	id, root := state.RequestID(fmt.Sprint("pin-", n)), rng.IntN(roots)
	ids := []state.NodeID{self, other, third}
	skip := rng.IntN(len(ids))
	nodes := append(append([]state.NodeID{}, ids[:skip]...), ids[skip+1:]...)
	var old state.RequestID
	for old = range c.live {
		break
	}
	switch k := rng.IntN(10); {
	case old != "" && k == 0:
		c.state.Apply(c, &state.DeletePin{Account: clustertest.Operator, ID: old})
		delete(c.live, old)
		return
	case old != "" && k <= 2:
		c.state.Apply(c, &state.ReplacePin{Old: old, Pin: c.newPin(id, root), Nodes: nodes})
		delete(c.live, old)
	default:
		c.state.Apply(c, &state.CreatePin{Pin: c.newPin(id, root), Nodes: nodes})
	}
	c.live[id] = root
}

func (c *crew) check(dead int) {
	c.Helper()
	failed := 0
	for id, root := range c.live {
		status, detail := c.status(id)
		want := state.Pinned
		if root < dead {
			want = state.Failed
			failed++
		}
		if status != want {
			c.Errorf("%s of root %d is %s (%s), want %s", id, root, status, detail, want)
		}
	}
	if failed == 0 || len(c.live) < 1000 {
		c.Errorf("%d pins, %d of them failed: too few to show anything", len(c.live), failed)
	}
	if n := c.totals(); n[state.Pinned]+n[state.Failed] != uint64(len(c.live)) {
		c.Errorf("the state counts %v, there are %d pins", n, len(c.live))
	}
	for _, w := range c.nodes {
		c.checkNode(w)
	}
}

// checkNode compares what a node has with what the state wants there.
func (c *crew) checkNode(w *world) {
	c.Helper()
	view, release := w.state.State.LocalView()
	defer release()
	wanted := map[string]bool{}
	err := view.WantedOn(w.id, "", func(k state.RootKey, p state.Phase) (bool, error) {
		wanted[Reference(k)] = true
		o, _ := w.store.get(Reference(k))
		if p != state.Held || !o.sealed {
			c.Errorf("%s: %s is %s, sealed %t", w.id, k, p, o.sealed)
		}
		return true, nil
	})
	if err != nil {
		c.Error(err)
	}
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	for reference := range w.store.references {
		if !wanted[reference] {
			c.Errorf("%s keeps %s, which nobody wants there", w.id, reference)
		}
	}
	if n := len(w.nodeMeta.kept); n > 0 {
		c.Errorf("%s keeps %d records of attempts", w.id, n)
	}
	w.Logf("%s holds %d roots, fetched %d times, %d drops", w.id, len(wanted), len(w.net.jobs), len(w.store.drops))
}
