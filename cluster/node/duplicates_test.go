package node

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ipfs/boxo/ipld/merkledag"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	format "github.com/ipfs/go-ipld-format"
	mh "github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/cluster/integrity"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
)

// fromMap is content that another node has.
type fromMap map[cid.Cid]block.Block

func (fromMap) Name() string { return "map" }

func (m fromMap) Blocks(_ context.Context, cids []cid.Cid, fn func(block.Block) error) (missing []cid.Cid, err error) {
	for _, c := range cids {
		b, ok := m[c]
		if !ok {
			missing = append(missing, c)
			continue
		}
		if err := fn(b); err != nil {
			return missing, err
		}
	}
	return missing, nil
}

type noRepairs struct{}

func (noRepairs) Repair(context.Context, string) error { return nil }

// openHeld opens the blocks of a folder, of which nothing is hidden and nobody is told.
func openHeld(t *testing.T, dir string) held {
	t.Helper()
	s, err := blocks.Open(dir, blocks.Options{MinFreeBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	sc, err := integrity.New(integrity.Options{Store: scrubbed{s}, Repairs: noRepairs{}, Now: time.Now})
	if err == nil {
		err = sc.Load(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return held{Store: s, scrubber: sc, provides: announced{}, hidden: func(string) bool { return false }}
}

// A folder that names one block by its CIDv0 and its CIDv1 is sealed, and is sealed again after the index was lost.
func TestContentWithTwoCIDsOfOneBlockIsSealedAgain(t *testing.T) {
	file := merkledag.NodeWithData([]byte("\x08\x02\x12\x01x\x18\x01")) // v0
	v1 := cid.NewCidV1(cid.DagProtobuf, file.Cid().Hash())
	second, err := block.NewBlockWithCid(file.RawData(), v1)
	if err != nil {
		t.Fatal(err)
	}
	folder := merkledag.NodeWithData([]byte("\x08\x01"))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(folder.AddNodeLink("a", file))
	must(folder.AddRawLink("b", &format.Link{Size: uint64(len(file.RawData())), Cid: v1}))
	inlined, err := mh.Sum([]byte("here"), mh.IDENTITY, -1)
	must(err)
	must(folder.AddRawLink("c", &format.Link{Size: 4, Cid: cid.NewCidV1(cid.Raw, inlined)}))
	source := fromMap{folder.Cid(): folder, file.Cid(): file, v1: second}
	dir := t.TempDir()
	reference := "root/" + folder.Cid().String()
	open := func() (*blocks.Store, held) {
		t.Helper()
		h := openHeld(t, dir)
		return h.Store, h
	}
	attempt := func(h held) { // as the tracker does
		t.Helper()
		got, err := dag.Fetch(t.Context(), dag.FetchRequest{Root: folder.Cid(), Reference: reference, Store: h.Store, Sources: []dag.Source{source}})
		must(err)
		must(h.Seal(t.Context(), reference, got.Bytes, got.Blocks))
	}
	s, h := open()
	attempt(h)
	if sealed, _, _, _, err := h.Reference(t.Context(), reference); !sealed || err != nil {
		t.Fatalf("after the first fetch: %v, %v", sealed, err)
	}
	must(s.Close())
	must(os.RemoveAll(filepath.Join(dir, "index"))) // an index that is damaged goes like this
	s, h = open()
	defer func() { must(s.Close()) }()
	for range 2 { // the second has nothing to do
		attempt(h)
		sealed, _, _, _, err := h.Reference(t.Context(), reference)
		must(err)
		doubted, err := s.Doubted(reference)
		must(err)
		visible, err := s.Visible(t.Context(), folder.Cid())
		must(err)
		if !sealed || doubted || !visible {
			t.Errorf("it is whole: sealed %t, doubted %t, visible %t", sealed, doubted, visible)
		}
	}
}
