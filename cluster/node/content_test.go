package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/peer/peertest"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

// none is a store without blocks.
type none struct{}

func (none) Get(_ context.Context, c cid.Cid) (block.Block, error) {
	return nil, ipld.ErrNotFound{Cid: c}
}

func TestAReaderAsksLastWhoFailed(t *testing.T) {
	leaf, err := dag.Leaf([]byte("some"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1, 0)
	var asked []state.NodeID
	has := map[state.NodeID]bool{"c": true}
	broken := map[state.NodeID]bool{"a": true}
	down := map[state.NodeID]bool{}
	r := &reader{
		here: none{}, order: []state.NodeID{"a", "b", "c"}, now: func() time.Time { return now },
		down: func(id state.NodeID) bool { return down[id] },
		ask: func(_ context.Context, id state.NodeID, c cid.Cid, lend func(int) []byte) ([]byte, error) {
			asked = append(asked, id)
			switch {
			case broken[id]:
				return nil, errors.New("no answer")
			case has[id]:
				data := lend(len(leaf.RawData()))
				copy(data, leaf.RawData())
				return data, nil
			default:
				return nil, ipld.ErrNotFound{Cid: c}
			}
		},
	}
	want := func(what string, found bool, order ...state.NodeID) {
		t.Helper()
		asked = nil
		b, err := r.Get(t.Context(), leaf.Cid())
		if found && (err != nil || !bytes.Equal(b.RawData(), leaf.RawData())) || !found && !ipld.IsNotFound(err) || !slices.Equal(asked, order) {
			t.Errorf("%s: asked %v, want %v; block %v, %v", what, asked, order, b, err)
		}
	}
	want("at first, in order", true, "a", "b", "c")
	want("then who gave it", true, "c")
	broken["c"], has["b"] = true, true
	want("c fails, and a has failed", true, "c", "b")
	want("b gave it", true, "b")
	has["b"] = false
	want("all are asked before it is not found", false, "b", "c", "a")
	now = now.Add(avoidFor)
	down["b"] = true
	want("after a while in order again, but for who is down", false, "c", "a", "b")
}

// Read implements dag.Lender.
func (none) Read(_ context.Context, c cid.Cid, _ func(int) []byte) ([]byte, error) {
	return nil, ipld.ErrNotFound{Cid: c}
}

// A fetch that is half done has the root of a file and not its leaves. While nobody who has
// them can be reached that is no mistake of this node's, for the gateway answers with what
// comes before the first byte.
func TestAFileWithoutItsLeavesIsUnavailable(t *testing.T) {
	open := func() *blocks.Store {
		t.Helper()
		store, err := blocks.Open(t.TempDir(), blocks.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return store
	}
	whole, half := open(), open()
	root, _, err := (&files{blocks: whole}).Import(t.Context(), "file", bytes.NewReader(peertest.Bytes(1, 3<<20)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := whole.Get(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if err := half.Put(t.Context(), "file", []block.Block{b}); err != nil {
		t.Fatal(err)
	}
	f := &files{
		peer: new(peer.Peer), blocks: half, members: func() []state.Node { return nil }, now: time.Now,
		buffers: dag.NewBuffers(maxAhead), reading: func(state.RootKey) func() { return func() {} },
	}
	for _, read := range []func(io.Reader) error{
		func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err },
		func(r io.Reader) error { _, err := r.Read(make([]byte, 1)); return err },
	} {
		file, _, err := f.Open(t.Context(), root, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := read(file); !errors.Is(err, state.ErrUnavailable) || !ipld.IsNotFound(err) {
			t.Errorf("reading ends in %v", err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkReadFile reads a file of 64 MiB that is here, as the gateway sends it.
func BenchmarkReadFile(b *testing.B) {
	store, err := blocks.Open(b.TempDir(), blocks.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	f := &files{blocks: store, buffers: dag.NewBuffers(maxAhead)}
	root, size, err := f.Import(b.Context(), "file", bytes.NewReader(peertest.Bytes(1, 64<<20)))
	if err != nil {
		b.Fatal(err)
	}
	buffer := make([]byte, 256<<10)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		file, err := f.buffers.Open(b.Context(), &reader{here: store}, root)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{file}, buffer)
		if err != nil || uint64(n) != size {
			b.Fatal(n, err)
		}
		if err := file.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
