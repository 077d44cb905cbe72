package node

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	block "github.com/ipfs/go-block-format"
)

// carFiles returns files of a node without other members.
func carFiles(t *testing.T) *files {
	t.Helper()
	store, err := blocks.Open(t.TempDir(), blocks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &files{
		peer: new(peer.Peer), blocks: store, members: func() []state.Node { return nil }, now: time.Now, walks: dag.NewWalks(),
		buffers: dag.NewBuffers(maxAhead), reading: func(state.RootKey) func() { return func() {} },
	}
}

// A CAR is stored under its reference and comes out again with the same bytes. Dropping the reference frees all blocks.
// A bad CAR, and one without a block of a root, are invalid for the caller. If the missing block is on this node for
// another reason, the CAR is imported.
func TestACARIsStoredWholeOrInvalid(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "peer", "dag", "testdata", "car", "v1.car"))
	if err != nil {
		t.Fatal(err)
	}
	const half = 700 // bytes, between the beginning and the end of a block
	f := carFiles(t)
	if _, err := f.ImportCAR(t.Context(), "half", bytes.NewReader(data[:half])); !errors.Is(err, state.ErrInvalid) || !strings.Contains(err.Error(), "at byte ") {
		t.Errorf("half a CAR: %v", err)
	}
	if err := f.Drop(t.Context(), "half"); err != nil {
		t.Fatal(err)
	}
	car, err := f.ImportCAR(t.Context(), "whole", bytes.NewReader(data))
	if err != nil || len(car.Roots) != 1 || car.Blocks != 8 {
		t.Fatalf("%+v, %v", car, err)
	}
	root := car.Roots[0]
	var out bytes.Buffer
	if err := f.ExportCAR(t.Context(), &out, root, nil); err != nil || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("%d bytes, want %d, %v", out.Len(), len(data), err)
	}
	first, err := f.blocks.Get(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	links, err := dag.Links(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := f.blocks.Get(t.Context(), links[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Drop(t.Context(), "whole"); err != nil {
		t.Fatal(err)
	}
	if has, err := f.blocks.Has(t.Context(), root); err != nil || has {
		t.Errorf("after the drop of the reference: %v, %v", has, err)
	}
	testWithoutABlock(t, f, data, second)
}

// testWithoutABlock imports a CAR without the block b below the root, which becomes raw bytes of a CAR here.
func testWithoutABlock(t *testing.T, f *files, data []byte, b block.Block) {
	t.Helper()
	section := append(b.Cid().Bytes(), b.RawData()...)
	at := bytes.Index(data, section)
	const length = 2 // bytes of the length of this block
	without := append(bytes.Clone(data[:at-length]), data[at+len(section):]...)
	if _, err := f.ImportCAR(t.Context(), "without", bytes.NewReader(without)); !errors.Is(err, state.ErrInvalid) || !strings.Contains(err.Error(), b.Cid().String()) {
		t.Errorf("without a block: %v", err)
	}
	var out bytes.Buffer
	car, err := dag.ImportCAR(t.Context(), bytes.NewReader(without), func([]block.Block) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := f.ExportCAR(t.Context(), &out, car.Roots[0], nil); !errors.Is(err, state.ErrUnavailable) || !strings.Contains(err.Error(), b.Cid().String()) {
		t.Errorf("export without a block: %v", err)
	}
	if err := f.ExportCAR(t.Context(), &out, b.Cid(), nil); !errors.Is(err, state.ErrNotFound) || out.Len() > 0 {
		t.Errorf("export without the root: %d bytes, %v", out.Len(), err)
	}
	if err := f.blocks.Put(t.Context(), "other", []block.Block{b}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ImportCAR(t.Context(), "again", bytes.NewReader(without)); err != nil {
		t.Errorf("with the block of another reference: %v", err)
	}
	if err := f.ExportCAR(t.Context(), &out, car.Roots[0], nil); err != nil || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("then %d bytes are exported, want %d: %v", out.Len(), len(data), err)
	}
}
