package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/peer/peertest"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	mh "github.com/multiformats/go-multihash"
)

// none is a store without blocks.
type none struct{}

func (none) Get(_ context.Context, c cid.Cid) (block.Block, error) {
	return nil, ipld.ErrNotFound{Cid: c}
}

// A reader asks first the member that gave the last block, and last those that failed or are down, until avoidFor is
// over.
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

// A reader asks the next member after askNextAfter if one hangs, and waits for the slow one only if no other has the
// block.
func TestAMemberThatHangsDoesNotHoldUpAReader(t *testing.T) {
	leaf, err := dag.Leaf([]byte("some"))
	if err != nil {
		t.Fatal(err)
	}
	const slow = 10 * time.Second
	for _, tc := range []struct {
		name   string
		has    state.NodeID
		asked  []state.NodeID
		within time.Duration
	}{
		{"another has it", "b", []state.NodeID{"a", "b"}, askNextAfter},
		{"it alone has it, and is only slow", "a", []state.NodeID{"a", "b", "c", "a"}, askNextAfter + slow},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []state.NodeID
				r := &reader{
					here: none{}, order: []state.NodeID{"a", "b", "c"}, now: time.Now,
					down: func(state.NodeID) bool { return false },
					ask: func(ctx context.Context, id state.NodeID, c cid.Cid, lend func(int) []byte) ([]byte, error) {
						asked = append(asked, id)
						if id == "a" {
							select {
							case <-time.After(slow):
							case <-ctx.Done():
								return nil, ctx.Err()
							}
						}
						if id != tc.has {
							return nil, ipld.ErrNotFound{Cid: c}
						}
						data := lend(len(leaf.RawData()))
						copy(data, leaf.RawData())
						return data, nil
					},
				}
				began := time.Now()
				b, err := r.Get(t.Context(), leaf.Cid())
				if err != nil || !bytes.Equal(b.RawData(), leaf.RawData()) {
					t.Fatalf("block %v, %v", b, err)
				}
				if took := time.Since(began); !slices.Equal(asked, tc.asked) || took > tc.within {
					t.Errorf("asked %v in %v, want %v in %v", asked, took, tc.asked, tc.within)
				}
			})
		})
	}
}

// A read of a file's first block gives up after searchFor, however many members hang; a read of a later block may
// take longer (P13). The client has no answer until one member has given a block.
func TestMembersThatAllHangAreNotWaitedForOneByOne(t *testing.T) {
	leaf, err := dag.Leaf([]byte("some"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		hangs := map[state.NodeID]time.Duration{}
		r := &reader{
			here: none{}, order: []state.NodeID{"a", "b", "c", "d"}, now: time.Now, down: func(state.NodeID) bool { return false },
			ask: func(ctx context.Context, id state.NodeID, c cid.Cid, lend func(int) []byte) ([]byte, error) {
				select {
				case <-time.After(hangs[id]):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				if id == "d" {
					return nil, ipld.ErrNotFound{Cid: c}
				}
				data := lend(len(leaf.RawData()))
				copy(data, leaf.RawData())
				return data, nil
			},
		}
		look := func() (time.Duration, error) {
			began := time.Now()
			_, err := r.Get(t.Context(), leaf.Cid())
			return time.Since(began), err
		}
		for _, id := range []state.NodeID{"a", "b", "c"} {
			hangs[id] = 10 * time.Second
		}
		if took, err := look(); !ipld.IsNotFound(err) || took != searchFor {
			t.Errorf("%v after %v", err, took)
		}
		clear(hangs)
		if took, err := look(); err != nil || took != 0 {
			t.Errorf("they answer: %v after %v", err, took)
		}
		for _, id := range []state.NodeID{"a", "b", "c"} {
			hangs[id] = 10 * time.Second
		}
		if took, err := look(); err != nil || took <= searchFor { // the client has the beginning
			t.Errorf("further on in the file: %v after %v", err, took)
		}
	})
}

// A member whose answer has begun may take longer than askNextAfter, because a large block may be long on its way.
func TestAnAnswerThatHasBegunHasItsTime(t *testing.T) {
	leaf, err := dag.Leaf([]byte("some"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := &reader{
			here: none{}, order: []state.NodeID{"a", "b"}, now: time.Now, down: func(state.NodeID) bool { return false },
			ask: func(ctx context.Context, id state.NodeID, c cid.Cid, lend func(int) []byte) ([]byte, error) {
				if id != "a" {
					return nil, ipld.ErrNotFound{Cid: c}
				}
				data := lend(len(leaf.RawData()))
				select {
				case <-time.After(2 * askNextAfter):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				copy(data, leaf.RawData())
				return data, nil
			},
		}
		began := time.Now()
		if b, err := r.Get(t.Context(), leaf.Cid()); err != nil || !bytes.Equal(b.RawData(), leaf.RawData()) || time.Since(began) != 2*askNextAfter {
			t.Errorf("block %v, %v, after %v", b, err, time.Since(began))
		}
	})
}

// Read implements dag.Lender.
func (none) Read(_ context.Context, c cid.Cid, _ func(int) []byte) ([]byte, error) {
	return nil, ipld.ErrNotFound{Cid: c}
}

// If this node has only the root of a file, as after half of a fetch, and no reachable member has the leaves, reading the
// file fails with ErrUnavailable, because this node is not at fault. The first Read already fails, so the gateway can
// answer with the error before the first byte.
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
	imported, err := (&files{blocks: whole}).Import(t.Context(), "file", bytes.NewReader(peertest.Bytes(1, 3<<20)), content.Layout{})
	root := imported.Root
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

// Open of a CID that names no file fails with CodeInvalid and says what the CID is.
func TestWhatIsNoFileIsToldSo(t *testing.T) {
	store, err := blocks.Open(t.TempDir(), blocks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	f := &files{
		peer: new(peer.Peer), blocks: store, members: func() []state.Node { return nil }, now: time.Now,
		buffers: dag.NewBuffers(maxAhead), reading: func(state.RootKey) func() { return func() {} },
	}
	for _, tc := range []struct {
		name  string
		codec uint64
		bytes string
		says  string
	}{
		{"an empty folder", cid.DagProtobuf, "\x0a\x02\x08\x01", "is a folder"},
		{"a sharded folder", cid.DagProtobuf, "\x0a\x02\x08\x05", "is a folder"},
		{"a symbolic link", cid.DagProtobuf, "\x0a\x05\x08\x04\x12\x01x", "is no file"},
		{"dag-pb that is not UnixFS", cid.DagProtobuf, "\x0a\x02xy", "is no file"},
		{"what is not dag-pb", cid.DagProtobuf, "\xff\xff", "is no file"},
		{"dag-cbor", cid.DagCBOR, "\xa0", "is no file"},
		{"a codec that is not known here", cid.GitRaw, "x", "is no file"},
	} {
		sum, err := mh.Sum([]byte(tc.bytes), mh.SHA2_256, -1)
		if err != nil {
			t.Fatal(err)
		}
		b, err := block.NewBlockWithCid([]byte(tc.bytes), cid.NewCidV1(tc.codec, sum))
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Put(t.Context(), "it", []block.Block{b}); err != nil {
			t.Fatal(err)
		}
		_, _, err = f.Open(t.Context(), b.Cid(), nil)
		var coded *state.Error
		if !errors.As(err, &coded) || coded.Code != state.CodeInvalid || !strings.Contains(coded.Detail, b.Cid().String()+" "+tc.says) {
			t.Errorf("%s: %v", tc.name, err)
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
	imported, err := f.Import(b.Context(), "file", bytes.NewReader(peertest.Bytes(1, 64<<20)), content.Layout{})
	root, size := imported.Root, imported.Size
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
