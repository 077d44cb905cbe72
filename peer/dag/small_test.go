package dag

import (
	"context"
	"errors"
	"testing"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

// completing is a store that takes a small DAG in one call.
type completing struct {
	peertest.DAGStore
	calls         int
	bytes, blocks uint64
}

func (c *completing) Complete(ctx context.Context, reference string, blks []blocks.Block, bytes, count uint64) error {
	c.calls++
	c.bytes, c.blocks = bytes, count
	return c.Put(ctx, reference, blks)
}

// Fetch stores a DAG of at most smallBlocks blocks and smallBytes bytes with one call of Complete. It stores a larger
// one without that call.
func TestASmallDAGIsStoredInOneCall(t *testing.T) {
	for _, tc := range []struct {
		name               string
		width, depth, leaf int
		small              bool
	}{
		{"one block", 0, 0, 1 << 10, true},
		{"a file of some blocks", 5, 1, 8 << 10, true},
		{"as many blocks as there may be", smallBlocks - 1, 1, 100, true},
		{"one block more", smallBlocks, 1, 100, false},
		{"too many bytes", 3, 1, smallBytes / 3, false},
		{"a large block", 0, 0, smallBytes + 1, false},
		{"many", 8, 3, 1000, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := newTree(t, cid.DagProtobuf, tc.width, tc.depth, tc.leaf)
			here := peertest.NewStore()
			store := &completing{DAGStore: here.DAGStore()}
			got, err := Fetch(t.Context(), FetchRequest{
				Root: want.root, Reference: "pin", Store: store, Sources: []Source{&source{from: want.store}},
			})
			if err != nil || got != (Result{want.size, want.count}) {
				t.Fatalf("%+v, %v, want %d bytes in %d blocks", got, err, want.size, want.count)
			}
			if owned := here.BlocksOf("pin"); uint64(len(owned)) != want.count {
				t.Fatalf("%d blocks owned, want %d", len(owned), want.count)
			}
			if !tc.small {
				if store.calls != 0 {
					t.Fatal("completed in one call")
				}
				return
			}
			if _, batches := here.Puts(); store.calls != 1 || batches != 1 || store.bytes != want.size || store.blocks != want.count {
				t.Fatalf("%d calls and %d puts, of %d bytes in %d blocks", store.calls, batches, store.bytes, store.blocks)
			}
		})
	}
}

// A fetch of a new version of a file asks only for the blocks that differ, and completes the DAG in one call.
func TestWhatDiffersCompletesADAG(t *testing.T) {
	old := newTree(t, cid.DagProtobuf, 20, 1, 500)
	links, err := Links(must(t)(old.store.Get(t.Context(), old.root)))
	if err != nil {
		t.Fatal(err)
	}
	leaf := labelled(t, cid.Raw, []byte("another leaf"))
	links[7] = leaf.Cid()
	root := node(t, cid.DagProtobuf, nil, links...)
	from := peertest.NewStore()
	for _, b := range []blocks.Block{leaf, root} {
		if err := from.Blockstore.Put(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	store, src := &completing{DAGStore: old.store.DAGStore()}, &source{from: from}
	got, err := Fetch(t.Context(), FetchRequest{Root: root.Cid(), Reference: "new", Store: store, Sources: []Source{src}})
	if err != nil || got.Blocks != old.count || store.calls != 1 || store.blocks != old.count {
		t.Fatalf("%+v, %v, %+v", got, err, store)
	}
	if src.asked != 2 || len(old.store.BlocksOf("new")) != int(old.count) {
		t.Fatalf("asked for %d blocks, %d owned", src.asked, len(old.store.BlocksOf("new")))
	}
}

func must(t *testing.T) func(blocks.Block, error) blocks.Block {
	return func(b blocks.Block, err error) blocks.Block {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// A fetch of a small DAG that fails keeps the blocks that have come, and the next fetch asks for the rest alone.
func TestWhatCameOfASmallDAGIsKeptWhenTheFetchFails(t *testing.T) {
	want := newTree(t, cid.DagCBOR, 10, 1, 100)
	here := peertest.NewStore()
	store := &completing{DAGStore: here.DAGStore()}
	_, err := Fetch(t.Context(), FetchRequest{
		Root: want.root, Reference: "pin", Store: store, Sources: []Source{&source{from: want.store, after: 4}},
	})
	if !errors.Is(err, ErrNotFound) || store.calls != 0 {
		t.Fatalf("%v, %d calls", err, store.calls)
	}
	if owned := here.BlocksOf("pin"); len(owned) != 4 {
		t.Fatalf("%d blocks kept, want 4", len(owned))
	}
	src := &source{from: want.store}
	if _, err := Fetch(t.Context(), FetchRequest{Root: want.root, Reference: "pin", Store: store, Sources: []Source{src}}); err != nil {
		t.Fatal(err)
	}
	if src.asked != int(want.count)-4 || store.blocks != want.count {
		t.Fatalf("asked for %d blocks, completed %d", src.asked, store.blocks)
	}
}

// Fetch fails with ErrStore and the store's error if Complete fails.
func TestAStoreThatCannotCompleteFailsTheFetch(t *testing.T) {
	want := newTree(t, cid.DagCBOR, 2, 1, 100)
	here := peertest.NewStore()
	here.Fail(peertest.ErrDiskFull)
	_, err := Fetch(t.Context(), FetchRequest{
		Root: want.root, Reference: "pin", Store: &completing{DAGStore: here.DAGStore()}, Sources: []Source{&source{from: want.store}},
	})
	if !errors.Is(err, ErrStore) || !errors.Is(err, peertest.ErrDiskFull) {
		t.Fatal(err)
	}
}

// A fetch reads the links of a root again that it holds back from the store. A walk lets go of links that it can read
// again.
func TestLinksOfWhatIsHeldBackAreReadAgain(t *testing.T) {
	leaf := labelled(t, cid.Raw, []byte("leaf"))
	root := node(t, cid.DagProtobuf, nil, leaf.Cid())
	store := &completing{DAGStore: peertest.NewStore().DAGStore()}
	f := &fetch{req: FetchRequest{Store: store, Reference: "pin"}, ctx: t.Context(), whole: store}
	if took, err := f.gather(root); err != nil || !took {
		t.Fatal(took, err)
	}
	if links, err := f.reload(root.Cid()); err != nil || len(links) != 1 {
		t.Fatal(links, err)
	}
}
