package dag_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/peer/peertest"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// joined joins parts of some sizes in a store, and returns what they are together.
func joined(t *testing.T, store peertest.DAGStore, sizes ...int) (root cid.Cid, nodes int, all []byte) {
	t.Helper()
	parts := make([]dag.Part, len(sizes))
	put := func(b []blocks.Block) error { return store.Put(t.Context(), "reference", b) }
	for i, n := range sizes {
		data := peertest.Bytes(uint64(i), n)
		all = append(all, data...)
		part, size, err := dag.Import(t.Context(), bytes.NewReader(data), put)
		if err != nil {
			t.Fatal(err)
		}
		parts[i] = dag.Part{Root: part, Size: size}
	}
	root, above, err := dag.Join(parts)
	if err != nil {
		t.Fatal(err)
	}
	if err := put(above); err != nil {
		t.Fatal(err)
	}
	return root, len(above), all
}

// The file that Join makes of parts has their bytes in order, from any position, and no more nodes than needed.
func TestJoinedPartsReadAsOneFile(t *testing.T) {
	many := make([]int, 2*dag.LinksPerNode+1)
	for i := range many {
		many[i] = 1 + i%7
	}
	for _, tc := range []struct {
		name  string
		sizes []int
		nodes int
	}{
		{"one", []int{3 << 20}, 0},
		{"one block", []int{10}, 0},
		{"two", []int{10, 20}, 1},
		{"large and small", []int{3 << 20, 5<<20 + 1, 7}, 1},
		{"with nothing between", []int{10, 0, 20, 0}, 1},
		{"one and nothing", []int{10, 0}, 0},
		{"nothing", []int{0, 0}, 0},
		{"three levels", many, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := peertest.NewStore().DAGStore()
			root, nodes, all := joined(t, store, tc.sizes...)
			if nodes != tc.nodes {
				t.Errorf("%d nodes, want %d", nodes, tc.nodes)
			}
			f, err := dag.Open(t.Context(), store, root)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}()
			if f.Size() != uint64(len(all)) {
				t.Errorf("size %d, want %d", f.Size(), len(all))
			}
			got, err := io.ReadAll(f)
			if err != nil || !bytes.Equal(got, all) {
				t.Fatalf("%d other bytes: %v", len(got), err)
			}
			for _, at := range []int{0, len(all) / 3, len(all) / 2, max(0, len(all)-1)} {
				if _, err := f.Seek(int64(at), io.SeekStart); err != nil {
					t.Fatal(err)
				}
				rest, err := io.ReadAll(f)
				if err != nil || !bytes.Equal(rest, all[at:]) {
					t.Fatalf("from %d: %d other bytes: %v", at, len(rest), err)
				}
			}
		})
	}
}

// Join makes 11 nodes of 10,000 parts, the last of them the root, and each within LinksPerNode and MaxBlock.
func TestTheMostPartsAreElevenNodes(t *testing.T) {
	parts := make([]dag.Part, 10_000)
	for i := range parts {
		leaf, err := dag.Leaf(fmt.Append(nil, i))
		if err != nil {
			t.Fatal(err)
		}
		parts[i] = dag.Part{Root: leaf.Cid(), Size: 5 << 30}
	}
	root, nodes, err := dag.Join(parts)
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 11 || !nodes[10].Cid().Equals(root) {
		t.Errorf("%d nodes", len(nodes))
	}
	for _, n := range nodes {
		if links, err := dag.Links(n); err != nil || len(links) > dag.LinksPerNode || len(n.RawData()) > dag.MaxBlock {
			t.Errorf("a node of %d links and %d bytes: %v", len(links), len(n.RawData()), err)
		}
	}
}

// Join refuses no parts, a part without a CID and a total size above 64 bits.
func TestWhatCannotBeJoinedIsRefused(t *testing.T) {
	leaf, err := dag.Leaf([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for name, parts := range map[string][]dag.Part{
		"no parts":  nil,
		"no CID":    {{Size: 1}, {Root: leaf.Cid(), Size: 1}},
		"too large": {{Root: leaf.Cid(), Size: math.MaxUint64}, {Root: leaf.Cid(), Size: 1}},
	} {
		if root, nodes, err := dag.Join(parts); err == nil {
			t.Errorf("%s: joined as %s with %d nodes", name, root, len(nodes))
		}
	}
}

// Leaf and LeafOf make the same block of up to ChunkSize bytes as Import, and LeafOf refuses a short hash.
func TestALeafIsWhatImportMakes(t *testing.T) {
	for _, n := range []int{0, 1, dag.ChunkSize} {
		data := peertest.Bytes(1, n)
		leaf, err := dag.Leaf(data)
		if err != nil {
			t.Fatal(err)
		}
		root, _, err := dag.Import(t.Context(), bytes.NewReader(data), func([]blocks.Block) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if !leaf.Cid().Equals(root) {
			t.Errorf("%d bytes: %s and %s", n, leaf.Cid(), root)
		}
		hash, err := multihash.Decode(root.Hash())
		if err != nil {
			t.Fatal(err)
		}
		known, err := dag.LeafOf(data, hash.Digest)
		if err != nil || !known.Cid().Equals(root) || !bytes.Equal(known.RawData(), data) {
			t.Errorf("%d bytes of a known hash: %v, %v", n, known, err)
		}
		if _, err := dag.LeafOf(data, hash.Digest[1:]); err == nil {
			t.Error("a short hash is taken")
		}
	}
}

// Join gives the same parts the same root in every version. The roots are a format.
func TestJoinedPartsKeepTheirRoots(t *testing.T) {
	for want, sizes := range map[string][]int{
		"bafyb4ig2dl3nps3aoy4ouzo7dknwmn66uelyrcpc5wc64csh6zqj3zlbmi": {10, 20},
		"bafyb4icuoykylyqg6ajxfb4vnjexbqtcl7neeqwau532gjfdifvf3vitp4": {3 << 20, 5<<20 + 1, 7},
	} {
		if root, _, _ := joined(t, peertest.NewStore().DAGStore(), sizes...); root.String() != want {
			t.Errorf("parts of %v bytes are joined as %s, want %s", sizes, root, want)
		}
	}
}
