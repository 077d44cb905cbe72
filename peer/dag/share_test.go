package dag

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

// far is a source that takes a while for every block and counts them.
type far struct {
	from  *peertest.Store
	given atomic.Int64
}

func (f *far) Name() string { return "far away" }

func (f *far) Blocks(ctx context.Context, cids []cid.Cid, fn func(blocks.Block) error) ([]cid.Cid, error) {
	for i, c := range cids {
		select {
		case <-ctx.Done():
			return cids[i:], ctx.Err()
		case <-time.After(3 * time.Millisecond):
		}
		b, err := f.from.Get(ctx, c)
		if err != nil {
			return cids[i:], err
		}
		if err := fn(b); err != nil {
			return cids[i:], err
		}
		f.given.Add(1)
	}
	return nil, nil
}

// near is another node: it has what it has, and says at once what it lacks.
type near struct {
	from   *peertest.Store
	broken error
	asked  atomic.Int64 // blocks
}

func (n *near) Name() string { return "another node" }

func (n *near) Shares() bool { return true }

func (n *near) Blocks(ctx context.Context, cids []cid.Cid, fn func(blocks.Block) error) (missing []cid.Cid, err error) {
	n.asked.Add(int64(len(cids)))
	if n.broken != nil {
		return cids, n.broken
	}
	for i, c := range cids {
		b, err := n.from.Get(ctx, c)
		if err != nil {
			missing = append(missing, c)
			continue
		}
		if err := fn(b); err != nil {
			return append(missing, cids[i:]...), err
		}
	}
	return missing, nil
}

// together fetches a DAG on three nodes at the same time and returns how many
// blocks came from afar for each block of the DAG.
func together(t *testing.T, want tree, shares bool, adapt func(others [3][3]*near)) (times float64) {
	source := &far{from: want.store}
	var stores [3]*peertest.Store
	for i := range stores {
		stores[i] = peertest.NewStore()
	}
	var others [3][3]*near
	for i := range others {
		for j := range others {
			others[i][j] = &near{from: stores[j]}
		}
	}
	if adapt != nil {
		adapt(others)
	}
	var all sync.WaitGroup
	for i := range stores {
		req := FetchRequest{
			Root: want.root, Reference: "pin", Store: stores[i].DAGStore(),
			Sources: []Source{others[i][(i+1)%3], others[i][(i+2)%3], source},
		}
		if shares {
			req.Share = Share{Index: i, Of: len(stores)}
		}
		all.Go(func() {
			if got, err := Fetch(t.Context(), req); err != nil || got.Blocks != want.count {
				t.Errorf("node %d has %d of %d blocks: %v", i, got.Blocks, want.count, err)
			}
		})
	}
	all.Wait()
	return float64(source.given.Load()) / float64(want.count)
}

// Three nodes that fetch one DAG at the same time in shares receive it from afar at most 1.5 times in all. They
// exchange no message for it.
func TestADAGComesFromAfarOnceForAllNodes(t *testing.T) {
	for _, tc := range []struct {
		name         string
		width, depth int
		most         float64
	}{{"tree", 60, 2, 1.5}, {"wide node", 2000, 1, 1.1}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want := newTree(t, cid.DagProtobuf, tc.width, tc.depth, 30)
				alone := together(t, want, false, nil)
				shared := together(t, want, true, nil)
				t.Logf("from afar: %.2f times in one order, %.2f times in shares", alone, shared)
				if shared > tc.most || shared < 1 {
					t.Errorf("the DAG came %.2f times from afar, want about once", shared)
				}
			})
		})
	}
}

// A fetch in shares takes at most 2 s longer than one without while the other nodes fail or have nothing.
func TestSharesWaitForNobodyWhoFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := newTree(t, cid.DagProtobuf, 13, 3, 30)
		took := func(shares bool, adapt func([3][3]*near)) time.Duration {
			began := time.Now()
			together(t, want, shares, adapt)
			return time.Since(began)
		}
		plain := took(false, nil)
		for name, adapt := range map[string]func([3][3]*near){
			"others fail": func(others [3][3]*near) {
				for i := range others {
					for j := range others {
						others[i][j].broken = errors.New("not reachable")
					}
				}
			},
			"others have nothing": func(others [3][3]*near) {
				for i := range others {
					for j := range others {
						others[i][j].from = peertest.NewStore()
					}
				}
			},
		} {
			if late := took(true, adapt); late > plain+2*time.Second {
				t.Errorf("%s: %s, and %s without shares", name, late, plain)
			}
		}
	})
}

// Three nodes fetch a small DAG in shares in at most 1.25 times the time that they need without.
func TestSharesDoNotDelayWhatIsSmall(t *testing.T) {
	for _, tc := range []struct{ width, depth int }{{2, 1}, {3, 1}, {10, 1}, {40, 1}, {3, 2}, {6, 2}} {
		synctest.Test(t, func(t *testing.T) {
			want := newTree(t, cid.DagProtobuf, tc.width, tc.depth, 30)
			began := time.Now()
			together(t, want, false, nil)
			alone := time.Since(began)
			began = time.Now()
			together(t, want, true, nil)
			if shared := time.Since(began); shared > alone*5/4 {
				t.Errorf("%d blocks take %s in shares and %s without", want.count, shared, alone)
			}
		})
	}
}

// A fetch in shares asks a member that was not told to keep the content for at most a third of the blocks. Such
// members are many, and have nothing.
func TestWhoDoesNotShareIsNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := newTree(t, cid.DagProtobuf, 2000, 1, 30)
		bystander := &near{from: peertest.NewStore()}
		got, err := Fetch(t.Context(), FetchRequest{
			Root: want.root, Reference: "pin", Store: peertest.NewStore().DAGStore(), Share: Share{Index: 1, Of: 3},
			Sources: []Source{quiet{bystander}, &far{from: want.store}},
		})
		if err != nil || got.Blocks != want.count {
			t.Fatalf("%d of %d blocks: %v", got.Blocks, want.count, err)
		}
		if asked := bystander.asked.Load(); asked > int64(want.count)/3 {
			t.Errorf("asked for %d of %d blocks", asked, want.count)
		}
	})
}

// quiet is another node that was not told to keep the DAG.
type quiet struct{ *near }

func (quiet) Shares() bool { return false }

// A walk in shares visits all blocks of a DAG for any share. Each of three shares begins with a quarter to a half of
// the blocks.
func TestSharesVisitEveryBlockOnce(t *testing.T) {
	want := newTree(t, cid.DagProtobuf, 7, 3, 20)
	for _, share := range []Share{{}, {0, 1}, {0, 3}, {1, 3}, {2, 3}, {3, 3}, {-1, 3}, {6, 7}, {4, 50}} {
		f := newFrontier(Limits{}.withDefaults(), newSeenBytes())
		f.share = share
		seen := map[cid.Cid]int{}
		if _, err := f.first(want.root); err != nil {
			t.Fatal(err)
		}
		it, ok := item{cid: want.root}, true
		mine := 0
		for ok {
			if seen[it.cid]++; it.part == own {
				mine++
			}
			b, err := want.store.Get(t.Context(), it.cid)
			if err != nil {
				t.Fatal(err)
			}
			links, err := Links(b)
			if err == nil {
				err = f.push(it, links)
			}
			if err != nil {
				t.Fatal(err)
			}
			if it, ok, err = f.pop(nil); err != nil {
				t.Fatal(err)
			}
		}
		if len(seen) != int(want.count) {
			t.Errorf("share %v: %d of %d blocks", share, len(seen), want.count)
		}
		if share.Of == 3 && share.Index >= 0 && share.Index < 3 && (mine < len(seen)/4 || mine > len(seen)/2) {
			t.Errorf("share %v begins with %d of %d blocks", share, mine, len(seen))
		}
	}
}
