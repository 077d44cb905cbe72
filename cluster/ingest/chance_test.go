package ingest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
)

var chanceSeeds = flag.Uint64("chance-seeds", 6, "histories of puts among nodes that are restarted")

// mover is a tracker's fetcher that gets what other nodes have.
type mover struct {
	nowhere
	n *node
}

func (m mover) Fetch(ctx context.Context, job tracker.Job, _ func(uint64, uint64)) (uint64, uint64, error) {
	return m.n.Fetch(ctx, job.Root, job.Reference, job.Members)
}

// dice may be thrown by several goroutines.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

func (d *dice) sleep(most time.Duration) {
	<-time.After(time.Duration(d.n(int(most/time.Microsecond)+1)) * time.Microsecond)
}

// slowly is a state whose linearizable views are asked for, and come, at their leisure.
type slowly struct {
	*clustertest.State
	dice  *dice
	leads bool
}

func (s slowly) View(ctx context.Context) (state.View, func(), error) {
	s.dice.sleep(300 * time.Millisecond)
	v, release, err := s.State.View(ctx)
	s.dice.sleep(2 * time.Second)
	return v, release, err
}

func (s slowly) IsLeader() bool { return s.leads }

// gamble is three nodes, two buckets, and a few contents that both have.
type gamble struct {
	*world
	*dice
	st       *clustertest.State
	born     map[string]state.Incarnation
	nodes    []*tracked
	contents [][]byte
	byRoot   map[state.RootKey][]byte
	mu       sync.Mutex
	acked    int
	work     sync.WaitGroup
	ids      int
}

func newGamble(t *testing.T, seed uint64) *gamble {
	d := &dice{rng: rand.New(rand.NewPCG(seed, 3))}
	g := &gamble{
		dice: d, born: map[string]state.Incarnation{}, byRoot: map[state.RootKey][]byte{},
		world: &world{TB: t, nodes: map[state.NodeID]*node{}, all: []state.NodeID{"a", "b", "c"}},
		st:    clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members("a", "b", "c"), Replication: 3, WriteCopies: 2}),
	}
	g.st.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	for _, name := range []string{"first", "second"} {
		g.born[name] = g.st.NewBucket(t, clustertest.Operator, name, false).Born
	}
	shared := bytesOf(9, ChunkSize) // a block that several roots have
	g.contents = [][]byte{
		bytesOf(1, 100), bytesOf(2, 200), bytesOf(3, 300),
		append(bytes.Clone(shared), bytesOf(4, 1000)...), append(bytes.Clone(shared), bytesOf(5, 1000)...),
	}
	for _, id := range g.all {
		n := &tracked{node: &node{w: g.world, id: id, store: newStore(), fences: &fences{}}, state: g.st}
		n.store.judge = func(reference string) bool { return private(g.st, reference) }
		n.store.before(func(context.Context, string, string) error {
			if g.n(4) == 0 {
				g.sleep(400 * time.Millisecond)
			}
			return nil
		})
		g.world.nodes[id] = n.node
		g.nodes = append(g.nodes, n)
	}
	for _, n := range g.nodes {
		g.run(n)
	}
	return g
}

func (g *gamble) run(n *tracked) {
	n.runWith(func(o *tracker.Options) {
		o.State, o.Fetcher = slowly{g.st, g.dice, n.id == "a"}, mover{n: n.node}
		o.Limits = tracker.Limits{Audit: time.Minute}
	})
}

func (g *gamble) put() {
	n, content, bucket, key := g.nodes[g.n(3)], g.contents[g.n(len(g.contents))], []string{"first", "second"}[g.n(2)], fmt.Sprint(g.n(3))
	g.ids++
	id, ing := state.VersionID(fmt.Sprintf("v%06d", g.ids)), n.Ingest
	nodes := append([]state.NodeID(nil), g.all...)
	for i := range nodes {
		j := g.n(i + 1)
		nodes[i], nodes[j] = nodes[j], nodes[i]
	}
	place := Placement{Nodes: nodes, Copies: 2}
	if g.n(3) == 0 {
		place.Nodes, place.Spare = nodes[:2], nodes[2:]
	}
	created := state.Millis(g.ids)
	g.work.Go(func() {
		ctx := context.Background()
		s, err := ing.Store(ctx, bytes.NewReader(content), place)
		if err != nil {
			return
		}
		g.mu.Lock()
		g.byRoot[s.Content.Root] = content
		g.mu.Unlock()
		if g.n(10) == 0 {
			g.sleep(3 * time.Minute)
		} else {
			g.sleep(2 * time.Second)
		}
		name := func() error {
			_, err := g.st.Propose(ctx, &state.PutObject{
				Account: clustertest.Operator, Bucket: bucket, Born: g.born[bucket], Content: s.Content,
				Object: state.Object{ID: id, Key: key, Root: s.Content.Root, Size: s.Size, Created: created, ETag: "d41d8cd98f00b204e9800998ecf8427e"},
			})
			if err == nil {
				g.mu.Lock()
				g.acked++
				g.mu.Unlock()
			}
			return err
		}
		switch g.n(8) {
		case 0:
			s.Done(false)
			return
		case 1:
			s.Unknown()
			g.sleep(2 * time.Minute)
			_ = name()
			return
		}
		for range 4 {
			err := name()
			if err == nil {
				g.sleep(500 * time.Millisecond)
				s.Done(true)
				return
			}
			if !errors.Is(err, state.ErrConflict) || s.Renew(ctx) != nil {
				break
			}
		}
		s.Done(false)
	})
}

// check looks at every copy that the state says is held.
func (g *gamble) check(least int) {
	g.Helper()
	synctest.Wait()
	view, release := g.st.LocalView()
	defer release()
	for bucket := range g.born {
		b, err := view.Bucket(clustertest.Operator, bucket)
		if err != nil {
			g.Fatal(err)
		}
		for k := range 3 {
			o, err := view.Object(&b, fmt.Sprint(k))
			if err != nil {
				continue
			}
			root, err := view.Root(o.Root)
			if err != nil {
				g.Fatalf("%s/%d names %v: %v", bucket, k, o.Root, err)
			}
			held := 0
			for _, c := range root.Copies {
				if c.Phase != state.Held {
					continue
				}
				held++
				st := g.node(c.Node).store
				st.mu.Lock()
				size, sealed := st.sealed[tracker.Reference(o.Root)]
				blocks := len(st.references[tracker.Reference(o.Root)])
				st.mu.Unlock()
				if !sealed || uint64(blocks) != size[1] {
					g.Fatalf("node %s does not have %v, which the state says it holds for %s/%d: sealed %t, %d blocks of %d", c.Node, o.Root, bucket, k, sealed, blocks, size[1])
				}
				if least > 0 {
					f, err := dag.Open(context.Background(), st, o.Root.Cid())
					if err != nil {
						g.Fatal(err)
					}
					got, err := io.ReadAll(f)
					if err := errors.Join(err, f.Close()); err != nil || !bytes.Equal(got, g.byRoot[o.Root]) {
						g.Fatalf("node %s: other bytes, %v", c.Node, err)
					}
				}
			}
			if held < max(least, 2) {
				g.Fatalf("%s/%d is held by %d nodes: %+v", bucket, k, held, root)
			}
		}
	}
}

// A node that the state names as holder has the content at every moment, and in the end no node has anything else.
// Three nodes store, replace and delete contents that share blocks and names, while streams break, fences fail and
// nodes restart at random.
func TestWhoIsSaidToHoldContentHasItWhateverRestarts(t *testing.T) {
	for seed := range *chanceSeeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGamble(t, seed)
				for range 400 {
					switch k := g.n(20); {
					case k < 10:
						g.put()
					case k < 15:
						bucket := []string{"first", "second"}[g.n(2)]
						_, err := g.st.Propose(context.Background(), &state.DeleteObjects{
							Account: clustertest.Operator, Bucket: bucket, Born: g.born[bucket], Keys: []string{fmt.Sprint(g.n(3))},
						})
						if err != nil {
							t.Fatal(err)
						}
					case k < 17:
						g.nodes[g.n(3)].cut()
					case k < 18:
						n := g.nodes[g.n(3)]
						n.none.Store(!n.none.Load())
					case k < 19:
						n := g.nodes[g.n(3)]
						n.halt()
						g.sleep(10 * time.Second)
						g.run(n)
					default:
						g.sleep(2 * time.Minute)
					}
					g.sleep(1500 * time.Millisecond)
					g.check(0)
				}
				g.work.Wait()
				for _, n := range g.nodes {
					n.none.Store(false)
				}
				<-time.After(3 * time.Hour)
				g.check(2)
				t.Logf("%d of %d puts named", g.acked, g.ids)
				if g.acked < 20 {
					t.Error("that shows little")
				}
				view, release := g.st.LocalView()
				for _, n := range g.nodes {
					for reference := range n.store.references {
						c, ok := tracker.RootOf(reference)
						if !ok {
							t.Errorf("node %s: %s is left", n.id, reference)
						} else if _, err := view.Root(state.RootOf(c)); err != nil {
							t.Errorf("node %s: %s is left, %v", n.id, reference, err)
						}
					}
				}
				release()
				for _, n := range g.nodes {
					n.halt()
				}
			})
		})
	}
}
