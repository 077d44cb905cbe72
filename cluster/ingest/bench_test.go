package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// discarding is a store that keeps nothing, and says that it has everything.
type discarding struct{}

func (discarding) Verify(context.Context, []block.Block) (bool, error) { return true, nil }

func (discarding) Put(context.Context, string, []block.Block) error { return nil }

func (discarding) PutAndSeal(context.Context, string, []block.Block, uint64, uint64) (bool, error) {
	return false, nil
}

func (discarding) Reference(context.Context, string) (bool, uint64, uint64, bool, error) {
	return false, 0, 0, false, nil
}

func (discarding) References(context.Context, string, func(string, bool) (bool, error)) error {
	return nil
}

func (discarding) Seal(context.Context, string, uint64, uint64) (bool, error) { return false, nil }
func (discarding) Drop(context.Context, string) error                         { return nil }

func (discarding) Fetch(context.Context, cid.Cid, string, []state.NodeID) (uint64, uint64, error) {
	return 1, 1, nil
}

// real is a block store on the disk.
type real struct {
	*blocks.Store
	here bool // Fetch is told so
}

func (r real) PutAndSeal(ctx context.Context, reference string, blks []block.Block, n, count uint64) (bool, error) {
	return false, r.Store.PutAndSeal(ctx, reference, blks, blocks.Sealed{Bytes: n, Blocks: count})
}

func (r real) Seal(ctx context.Context, reference string, n, count uint64) (bool, error) {
	return true, r.Store.Seal(ctx, reference, blocks.Sealed{Bytes: n, Blocks: count, Hidden: true})
}

func (r real) Reference(ctx context.Context, reference string) (bool, uint64, uint64, bool, error) {
	o, ok, err := r.Store.Reference(ctx, reference)
	return o.Sealed, o.Bytes, o.Blocks, ok, err
}

func (r real) References(ctx context.Context, prefix string, fn func(string, bool) (bool, error)) error {
	return r.Store.References(ctx, prefix, func(o blocks.ReferenceInfo) (bool, error) { return fn(o.Reference, o.Sealed) })
}

func (r real) Drop(ctx context.Context, reference string) error {
	_, err := r.Store.Drop(ctx, reference)
	return err
}

// taking is a store that takes over in large steps what will be hidden.
type taking struct{ *blocks.Store }

func (t taking) TakeOver(ctx context.Context, reference string, cids []cid.Cid) (bytes uint64, missing []cid.Cid, err error) {
	return t.Store.TakeOver(ctx, reference, cids, true)
}

func (r real) Fetch(ctx context.Context, root cid.Cid, reference string, _ []state.NodeID) (uint64, uint64, error) {
	got, err := dag.Fetch(ctx, dag.FetchRequest{Root: root, Reference: reference, Store: taking{r.Store}, Here: r.here})
	return got.Bytes, got.Blocks, err
}

// BenchmarkStore stores bodies on one node, and on three that pipes connect; what a
// node does for another is in the figures.
func BenchmarkStore(b *testing.B) {
	stores := map[string]func(tb testing.TB) (Blocks, Fetcher){
		"discarding": func(testing.TB) (Blocks, Fetcher) { return discarding{}, discarding{} },
		"disk": func(tb testing.TB) (Blocks, Fetcher) {
			s, err := blocks.Open(tb.TempDir(), blocks.Options{})
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(func() {
				if err := s.Close(); err != nil {
					tb.Error(err)
				}
			})
			return real{s, true}, real{s, true}
		},
	}
	for _, kind := range slices.Sorted(maps.Keys(stores)) {
		for _, nodes := range []int{1, 3} {
			for _, size := range []int{64 << 10, 64 << 20} {
				b.Run(fmt.Sprintf("%s/nodes=%d/KiB=%d", kind, nodes, size>>10), func(b *testing.B) {
					benchmark(b, stores[kind], nodes, size)
				})
			}
		}
	}
}

func benchmark(b *testing.B, open func(testing.TB) (Blocks, Fetcher), nodes, size int) {
	w := &world{TB: b, nodes: map[state.NodeID]*node{}}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, nodes)
	for k := range nodes {
		id := state.NodeID(rune('a' + k))
		n := &node{w: w, id: id, leases: &leases{roots: map[state.RootKey]int{}}, fences: &fences{}}
		store, fetch := open(b)
		buffers := new(dag.Buffers)
		n.Ingest = New(Options{
			Self: id, Blocks: store, Fetcher: fetch, DAGs: builder{buffers}, Buffers: buffers, Leases: n.leases, Fences: n.fences, Network: n,
			Reference: func(k state.RootKey) string { return "root/" + string(k) }, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		})
		w.all, w.nodes[id] = append(w.all, id), n
		go func() { ended <- n.Run(ctx) }()
		<-n.keeper.ready
	}
	defer func() {
		cancel()
		for range nodes {
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				b.Error(err)
			}
		}
	}()
	data := bytesOf(1, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		data[0], data[1], data[2], data[3] = byte(i), byte(i>>8), byte(i>>16), byte(i>>24)
		for at := ChunkSize; at < size; at += ChunkSize { // every chunk is new
			copy(data[at:], data[:4])
		}
		s, err := w.node("a").Store(ctx, bytes.NewReader(data), Placement{Nodes: w.all, Copies: nodes})
		if err != nil {
			b.Fatal(err)
		}
		s.Done(true)
	}
}

// BenchmarkJoin10000 makes a root of the most parts on one node, which has them: parts
// of one block, and of six.
func BenchmarkJoin10000(b *testing.B) {
	for _, tc := range []struct {
		name   string
		leaves int
		here   bool
	}{{"parts=leaf", 1, true}, {"parts=leaf/small steps", 1, false}, {"parts=5 leaves", 5, true}} {
		b.Run(tc.name, func(b *testing.B) {
			s, err := blocks.Open(b.TempDir(), blocks.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			store := real{s, tc.here}
			var parts []dag.Part
			for n := range 10_000 {
				var leaves []dag.Part
				var blks []block.Block
				for l := range tc.leaves {
					leaf, err := dag.Leaf(fmt.Appendf(nil, "%d-%d", n, l))
					if err != nil {
						b.Fatal(err)
					}
					blks, leaves = append(blks, leaf), append(leaves, dag.Part{Root: leaf.Cid(), Size: uint64(len(leaf.RawData()))})
				}
				root, above, err := dag.Join(leaves)
				if err != nil {
					b.Fatal(err)
				}
				if err := store.Put(b.Context(), "parts", append(blks, above...)); err != nil {
					b.Fatal(err)
				}
				parts = append(parts, dag.Part{Root: root, Size: leaves[0].Size * uint64(tc.leaves)})
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				parts[0], parts[1+n] = parts[1+n], parts[0] // another root each time
				root, nodes, err := dag.Join(parts)
				if err != nil {
					b.Fatal(err)
				}
				if err := store.Put(b.Context(), "put", nodes); err != nil {
					b.Fatal(err)
				}
				reference := fmt.Sprint("root/", n)
				bytes, count, err := store.Fetch(b.Context(), root, reference, nil)
				if err != nil || count < uint64(10_000*tc.leaves) {
					b.Fatal(count, err)
				}
				if _, err := store.Seal(b.Context(), reference, bytes, count); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
