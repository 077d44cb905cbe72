package dag

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/ipfs/boxo/ipld/unixfs"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

func importBytes(tb testing.TB, data []byte) (*peertest.Store, cid.Cid) {
	tb.Helper()
	s := peertest.NewStore()
	root, n, err := Import(tb.Context(), bytes.NewReader(data), func(b []blocks.Block) error {
		return s.PutMany(tb.Context(), b)
	})
	if err != nil || n != uint64(len(data)) {
		tb.Fatalf("import: %d bytes, %v", n, err)
	}
	return s, root
}

// Import gives the same bytes the same root in every version, and Open reads these bytes back. The roots are a
// format.
func TestImportedFilesKeepTheirRoots(t *testing.T) {
	for _, tc := range []struct {
		name   string
		size   int
		root   string
		blocks uint64
	}{
		{"empty", 0, "bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi", 1},
		{"one byte", 1, "bafkr4ibrmjopncawvjkhudtvkhac2t6j43zcv53jzn3lnv3v6bjbkqkgbq", 1},
		{"one chunk", ChunkSize, "bafkr4igftblytay6kzg4xj2ufbtnqcmmhx4ud2ljem7yzyojcyqqiwus6a", 1},
		{"one byte more", ChunkSize + 1, "bafyb4iaxlhlkzugnmkc2tny3zkqmv7jgvt2vgjhhg4ebdvym3yi47nub3u", 3},
		{"some chunks", 5*ChunkSize + 12345, "bafyb4ieddbmoijrglxq6m2nxf3mta3if37sjsuz4ri2duccyat3cujegvu", 7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := peertest.Bytes(7, tc.size)
			s, root := importBytes(t, data)
			if root.String() != tc.root {
				t.Errorf("root %s, want %s", root, tc.root)
			}
			r, err := Verify(t.Context(), s, root, Limits{})
			if err != nil || r.Blocks != tc.blocks {
				t.Errorf("%+v, %v; want %d blocks", r, err, tc.blocks)
			}
			f, err := Open(t.Context(), s, root)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, err := io.ReadAll(f)
			if err != nil || !bytes.Equal(got, data) || f.Size() != uint64(tc.size) {
				t.Fatalf("%d bytes of %d, size %d, %v", len(got), tc.size, f.Size(), err)
			}
		})
	}
}

// A File returns the right bytes of any range after a Seek.
func TestOpenReadsAnyRange(t *testing.T) {
	data := peertest.Bytes(3, 4*ChunkSize+777)
	s, root := importBytes(t, data)
	f, err := Open(t.Context(), s, root)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		from := rng.IntN(len(data))
		n := rng.IntN(min(3<<20, len(data)-from)) + 1
		if _, err := f.Seek(int64(from), io.SeekStart); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, n)
		if _, err := io.ReadFull(f, got); err != nil || !bytes.Equal(got, data[from:from+n]) {
			t.Fatalf("%d bytes at %d: %v", n, from, err)
		}
	}
}

// Open reads a dag-pb file with a CIDv0, as other peers store it.
func TestOpenReadsFilesOfOthers(t *testing.T) {
	s := peertest.NewStore()
	data := []byte("hello")
	leaf := node(t, cid.DagProtobuf, unixfs.FilePBData(data, uint64(len(data))))
	v0 := cid.NewCidV0(leaf.Cid().Hash())
	b, err := blocks.NewBlockWithCid(leaf.RawData(), v0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Blockstore.Put(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	f, err := Open(t.Context(), s, v0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out bytes.Buffer
	if _, err := io.Copy(&out, f); err != nil || out.String() != "hello" {
		t.Fatalf("%q, %v", out.String(), err)
	}
}

// Open refuses a directory, a node that is no UnixFS file and a block that is not here, each with its own error.
func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	s := peertest.NewStore()
	put := func(b blocks.Block) cid.Cid {
		if err := s.Blockstore.Put(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		return b.Cid()
	}
	for _, tc := range []struct {
		name string
		root cid.Cid
		want error
	}{
		{"directory", put(node(t, cid.DagProtobuf, unixfs.FolderPBData())), ErrIsDirectory},
		{"dag-pb without UnixFS", put(node(t, cid.DagProtobuf, []byte{0xff, 0xff})), ErrNotFile},
		{"dag-cbor", put(node(t, cid.DagCBOR, nil)), ErrNotFile},
		{"not here", node(t, cid.Raw, []byte("absent")).Cid(), ipld.ErrNotFound{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Open(t.Context(), s, tc.root); !errors.Is(err, tc.want) {
				t.Fatalf("%v, want %v", err, tc.want)
			}
		})
	}
}

// Import ends with the error of its context and with that of its put function.
func TestImportEndsWithItsContextAndItsPut(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Import(ctx, bytes.NewReader([]byte("x")), func([]blocks.Block) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	full := func([]blocks.Block) error { return peertest.ErrDiskFull }
	if _, _, err := Import(t.Context(), bytes.NewReader([]byte("x")), full); !errors.Is(err, peertest.ErrDiskFull) {
		t.Fatal(err)
	}
}

func BenchmarkImport(b *testing.B) {
	data := peertest.Bytes(1, 64<<20)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Import(b.Context(), bytes.NewReader(data), func([]blocks.Block) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	data := peertest.Bytes(1, 64<<20)
	s, root := importBytes(b, data)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		f, err := Open(b.Context(), s, root)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, f); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
