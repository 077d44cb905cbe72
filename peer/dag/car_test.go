package dag

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"github.com/ipld/go-ipld-prime/codec/dagcbor"
	"github.com/ipld/go-ipld-prime/datamodel"
	"github.com/ipld/go-ipld-prime/fluent/qp"
	cidlink "github.com/ipld/go-ipld-prime/linking/cid"
	"github.com/ipld/go-ipld-prime/node/basicnode"
	mh "github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/peer/peertest"
)

// goldenCAR returns a file that go-car v2.17.0 made: v1.car by TraverseV1 without duplicate blocks, as
// `ipfs dag export` of Kubo calls it, and v2.car from that by WrapV1File. The DAG has nodes of dag-cbor,
// dag-json and dag-pb, a raw leaf that several link to, an identity CID, and one node under a CID of
// either version.
func goldenCAR(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "car", name))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

const goldenRoot = "bafyreiaplqva6ljkzqqfk25caroayt5qbpm6wz42jgf2ykgz553o27rwia"

// carPart returns a part of a CAR: the pieces with their length before them.
func carPart(pieces ...[]byte) []byte {
	whole := bytes.Join(pieces, nil)
	return append(binary.AppendUvarint(nil, uint64(len(whole))), whole...)
}

// headerOf returns the first part of a CAR.
func headerOf(tb testing.TB, version int64, roots ...cid.Cid) []byte {
	tb.Helper()
	n, err := qp.BuildMap(basicnode.Prototype.Map, 2, func(m datamodel.MapAssembler) {
		qp.MapEntry(m, "roots", qp.List(int64(len(roots)), func(l datamodel.ListAssembler) {
			for _, r := range roots {
				qp.ListEntry(l, qp.Link(cidlink.Link{Cid: r}))
			}
		}))
		qp.MapEntry(m, "version", qp.Int(version))
	})
	var data bytes.Buffer
	if err = errors.Join(err, dagcbor.Encode(n, &data)); err != nil {
		tb.Fatal(err)
	}
	return carPart(data.Bytes())
}

// inV2 returns a CARv2 with padding around the CARv1 v1.
func inV2(v1 []byte, begin, size uint64) []byte {
	out := append([]byte("\x0a\xa1gversion\x02"), make([]byte, 16)...)
	out = binary.LittleEndian.AppendUint64(out, begin)
	out = binary.LittleEndian.AppendUint64(out, size)
	out = binary.LittleEndian.AppendUint64(out, 0)
	for uint64(len(out)) < begin && begin < 1<<20 {
		out = append(out, 0)
	}
	return append(append(out, v1...), "something behind the blocks"...)
}

// imported reads a CAR into a store.
func imported(tb testing.TB, r io.Reader) (CAR, *peertest.Store, error) {
	tb.Helper()
	store := peertest.NewStore()
	car, err := ImportCAR(tb.Context(), r, func(blks []blocks.Block) error {
		for _, b := range blks {
			if len(b.RawData()) > MaxBlock {
				tb.Errorf("a block of %d bytes", len(b.RawData()))
			}
			if err := checkHash(b.Cid(), b); err != nil {
				tb.Error(err)
			}
			if err := store.Blockstore.Put(tb.Context(), b); err != nil {
				return err
			}
		}
		return nil
	})
	return car, store, err
}

// exported returns the DAG of root in the store as a CAR.
func exported(tb testing.TB, store *peertest.Store, root cid.Cid) ([]byte, error) {
	tb.Helper()
	var out bytes.Buffer
	w := NewWalks()
	err := w.Export(tb.Context(), &out, store, root)
	if free := w.free.Load(); free != maxSeenBytes {
		tb.Errorf("%d bytes of memory were not given back", maxSeenBytes-free)
	}
	return out.Bytes(), err
}

// A CAR of either version that go-car made is read with its root and all blocks, whatever the sizes of the reads. The
// DAG is complete then, and its export has exactly the bytes that go-car made.
func TestCARsOfGoCarAreReadAndWrittenAgain(t *testing.T) {
	v1 := goldenCAR(t, "v1.car")
	for _, name := range []string{"v1.car", "v2.car"} {
		data := goldenCAR(t, name)
		for _, r := range []io.Reader{bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data)), iotest.DataErrReader(bytes.NewReader(data))} {
			car, store, err := imported(t, r)
			if err != nil || len(car.Roots) != 1 || car.Roots[0].String() != goldenRoot || car.Blocks != 8 {
				t.Fatalf("%s: %+v, %v", name, car, err)
			}
			has := store.Blockstore.Has
			if err := NewWalks().Check(t.Context(), store, has, car.Roots); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got, err := exported(t, store, car.Roots[0]); err != nil || !bytes.Equal(got, v1) {
				t.Errorf("%s: %d bytes are written, want %d, %v", name, len(got), len(v1), err)
			}
		}
	}
}

// A CAR that is cut off, anywhere but behind a block, is refused, and so is a CARv2 that is cut off anywhere before the
// end of its blocks. Cut off behind a block, the DAG is not complete.
func TestACARThatIsCutOffIsRefused(t *testing.T) {
	whole := goldenCAR(t, "v1.car")
	roots := []cid.Cid{cid.MustParse(goldenRoot)}
	const last = 983 // the last block has the bytes of one before, under a CID of the other version
	for n := range len(whole) {
		if n == last {
			continue
		}
		_, store, err := imported(t, bytes.NewReader(whole[:n]))
		if err == nil {
			has := store.Blockstore.Has
			if err := NewWalks().Check(t.Context(), store, has, roots); !errors.Is(err, ErrNotFound) {
				t.Errorf("%d bytes: %v", n, err)
			}
		} else if !errors.Is(err, ErrInvalidCAR) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	v2 := goldenCAR(t, "v2.car")
	end := binary.LittleEndian.Uint64(v2[27:]) + binary.LittleEndian.Uint64(v2[35:])
	for n := range end {
		if _, _, err := imported(t, bytes.NewReader(v2[:n])); !errors.Is(err, ErrInvalidCAR) {
			t.Errorf("%d bytes of version 2: %v", n, err)
		}
	}
}

// carCase is a bad CAR, and words of the error.
type carCase struct {
	name string
	data []byte
	says string
}

// badCARs returns CARs of which each is bad in one way.
func badCARs(t *testing.T) []carCase {
	t.Helper()
	leaf, err := peertest.Block(cid.Raw, []byte("leaf"))
	if err != nil {
		t.Fatal(err)
	}
	c := leaf.Cid()
	head := headerOf(t, 1, c)
	named := func(code uint64, digest []byte) cid.Cid {
		sum, err := mh.Encode(digest, code)
		if err != nil {
			t.Fatal(err)
		}
		return cid.NewCidV1(cid.Raw, sum)
	}
	made := func(code uint64, digest []byte) []byte { return named(code, digest).Bytes() }
	many := make([]cid.Cid, MaxCARRoots+1)
	for i := range many {
		many[i] = c
	}
	large := bytes.Repeat([]byte{1}, MaxBlock+1)
	big, err := peertest.Block(cid.Raw, large)
	if err != nil {
		t.Fatal(err)
	}
	then := func(parts ...[]byte) []byte { return bytes.Join(append([][]byte{head}, parts...), nil) }
	good := carPart(c.Bytes(), leaf.RawData())
	v1 := then(good)
	at := fmt.Sprintf("at byte %d: ", len(head))
	return []carCase{
		{"nothing", nil, "at byte 0: the file ends"},
		{"text", []byte("hello, this is no CAR at all"), "the file ends in the header that begins here"},
		{"a header of 0 bytes", []byte{0}, "its length is 0"},
		{"a long header", carPart(make([]byte, maxCARHeader+1)), "at most 131072 bytes"},
		{"a length without end", bytes.Repeat([]byte{0xff}, 20), "its length is larger"},
		{"a list as header", carPart([]byte{0x80}), "no version"},
		{"no version", carPart([]byte("\xa1eroots\x80")), "no version"},
		{"a version of text", carPart([]byte("\xa1gversiona1")), "not a number"},
		{"version 3", headerOf(t, 3, c), "the version is 3"},
		{"no roots", carPart([]byte("\xa1gversion\x01")), "no list of roots"},
		{"an empty list of roots", headerOf(t, 1), "names no root"},
		{"a root of text", carPart([]byte("\xa2eroots\x81a1gversion\x01")), "root 0 of the header is not a CID"},
		{"a root with an insecure hash", headerOf(t, 1, c, named(mh.MD5, make([]byte, 16))), "root 1 of the header"},
		{"a root of a codec that is not known here", headerOf(t, 1, cid.NewCidV1(cid.GitRaw, c.Hash())), "unsupported codec"},
		{"many roots", headerOf(t, 1, many...), "names 1025 roots, at most 1024"},
		{"wrong bytes", then(good, carPart(c.Bytes(), []byte("lead"))), fmt.Sprintf("at byte %d: invalid block: bytes do not hash to %s", len(v1), c)},
		{"no bytes", then(carPart(c.Bytes())), "bytes do not hash to " + c.String()},
		{"wrong bytes of an identity CID", then(carPart(made(mh.IDENTITY, []byte("abc")), []byte("abd"))), "bytes do not hash to"},
		{"a hash function that is not known", then(carPart(made(0x300000, make([]byte, 32)), []byte("abc"))), at + "block "},
		{"an insecure hash", then(carPart(made(mh.MD5, make([]byte, 16)), []byte("abc"))), at + "block "},
		{"a large block", then(carPart(big.Cid().Bytes(), large)), "has 2097153 bytes, at most 2097152"},
		{"a length of 16 GiB", then(binary.AppendUvarint(nil, 1<<34)), "its length is larger"},
		{"a length of 0", then(good, []byte{0}), "its length is 0"},
		{"no CID", then(carPart([]byte("\x01"))), "no valid CID"},
		{"a CID that is cut off", then(carPart(c.Bytes()[:20])), "no valid CID"},
		{"version 2 inside of version 2", inV2(inV2(v1, 51, uint64(len(v1))), 51, uint64(len(v1))+51), "has version 2, not 1"},
		{"version 2, blocks inside of the header", inV2(v1, 50, uint64(len(v1))), "the header of the CARv2"},
		{"version 2 without blocks", inV2(v1, 51, 0), "the header of the CARv2"},
		{"version 2, the blocks begin after the end", inV2(v1, 1<<40, uint64(len(v1))), "the file ends"},
		{"version 2, blocks of 2^64 bytes", inV2(v1, 51, 1<<64-1), "the header of the CARv2"},
		{"version 2, blocks end in a header", inV2(v1, 51, 5), "the header is longer"},
		{"version 2, blocks end in a block", inV2(v1, 51, uint64(len(v1))-1), "where the blocks end"},
		{"version 2, blocks end in a length", inV2(then(good, carPart(make([]byte, 200))), 51, uint64(len(v1))+1), "where the blocks end"},
	}
}

// A bad CAR is refused with the position and the block that is bad.
func TestABadCARIsRefusedByName(t *testing.T) {
	for _, tc := range badCARs(t) {
		_, _, err := imported(t, bytes.NewReader(tc.data))
		if !errors.Is(err, ErrInvalidCAR) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), ": at byte ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, which does not say %q", tc.name, err, tc.says)
		}
	}
}

// The largest block, as many roots as are allowed, each root once, CIDs of version 0, and a CARv2 with padding are read.
func TestWhatACARMayHave(t *testing.T) {
	large, err := peertest.Block(cid.Raw, peertest.Bytes(1, MaxBlock))
	if err != nil {
		t.Fatal(err)
	}
	roots := []cid.Cid{large.Cid(), large.Cid()}
	for i := range MaxCARRoots - 2 {
		sum, err := mh.Sum(binary.AppendUvarint(nil, uint64(i)), mh.SHA2_512, -1)
		if err != nil {
			t.Fatal(err)
		}
		roots = append(roots, cid.NewCidV1(cid.DagCBOR, sum))
	}
	data := append(headerOf(t, 1, roots...), carPart(large.Cid().Bytes(), large.RawData())...)
	car, store, err := imported(t, bytes.NewReader(data))
	if err != nil || !slices.Equal(car.Roots, roots[1:]) || car.Blocks != 1 || car.Bytes != MaxBlock {
		t.Fatalf("%d roots, %d blocks, %d bytes, %v", len(car.Roots), car.Blocks, car.Bytes, err)
	}
	if has, err := store.Blockstore.Has(t.Context(), large.Cid()); err != nil || !has {
		t.Errorf("the block was not stored: %v", err)
	}
	if _, _, err := imported(t, bytes.NewReader(inV2(data, 4096, uint64(len(data))))); err != nil {
		t.Errorf("with padding in a CARv2: %v", err)
	}
	root, err := peertest.Node(cid.DagProtobuf, []byte{0}, large.Cid())
	if err != nil {
		t.Fatal(err)
	}
	v0 := cid.NewCidV0(root.Cid().Hash())
	data = slices.Concat(headerOf(t, 1, v0), carPart(v0.Bytes(), root.RawData()))
	if car, _, err := imported(t, bytes.NewReader(data)); err != nil || !slices.Equal(car.Roots, []cid.Cid{v0}) {
		t.Errorf("version 0: %+v, %v", car, err)
	}
}

// The errors of the reader, also one like that of a request whose body is cut off, those of put, and the end of the
// context are no fault of the CAR.
func TestErrorsOfOthersAreNotThoseOfTheCAR(t *testing.T) {
	whole, broken := goldenCAR(t, "v1.car"), errors.New("broken")
	for n := range len(whole) {
		for _, want := range []error{broken, io.ErrUnexpectedEOF} {
			_, _, err := imported(t, io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(want)))
			if !errors.Is(err, want) || errors.Is(err, ErrInvalidCAR) {
				t.Fatalf("%v after %d bytes: %v", want, n, err)
			}
		}
	}
	_, err := ImportCAR(t.Context(), bytes.NewReader(whole), func([]blocks.Block) error { return broken })
	if !errors.Is(err, broken) || errors.Is(err, ErrInvalidCAR) {
		t.Errorf("put: %v", err)
	}
}

// The memory for reading a CAR does not depend on its size, and blocks are passed on in batches.
func TestACARIsReadWithLevelMemory(t *testing.T) {
	block, err := peertest.Block(cid.Raw, peertest.Bytes(1, ChunkSize))
	if err != nil {
		t.Fatal(err)
	}
	head, body := headerOf(t, 1, block.Cid()), carPart(block.Cid().Bytes(), block.RawData())
	const count = 256
	readers := []io.Reader{bytes.NewReader(head)}
	for range count {
		readers = append(readers, bytes.NewReader(body))
	}
	var most uint64
	got := 0
	car, err := ImportCAR(t.Context(), io.MultiReader(readers...), func(blks []blocks.Block) error {
		got += len(blks)
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
		return nil
	})
	if err != nil || car.Blocks != count || got != count {
		t.Fatalf("%+v, %d blocks, %v", car, got, err)
	}
	if most > 64<<20 {
		t.Errorf("%d bytes of memory for a CAR of %d", most, car.Bytes)
	}
}

// An export of a DAG with more links than a walk keeps in memory, of nodes that share children, has each block once,
// parents before children, and the same bytes every time. The import of it has every block.
func TestAnExportHasEachBlockOnce(t *testing.T) {
	store := peertest.NewStore()
	root, count, size, err := store.AddTree(7, cid.DagCBOR, 6, 4, 100)
	if err != nil {
		t.Fatal(err)
	}
	again, err := peertest.Node(cid.DagCBOR, []byte("twice"), root, root)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Blockstore.Put(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	first, err := exported(t, store, again.Cid())
	if err != nil {
		t.Fatal(err)
	}
	second, err := exported(t, store, again.Cid())
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("%d bytes, then %d other ones, %v", len(first), len(second), err)
	}
	car, other, err := imported(t, bytes.NewReader(first))
	if err != nil || car.Blocks != count+1 || car.Bytes != size+uint64(len(again.RawData())) {
		t.Fatalf("%+v, want %d blocks and %d bytes, %v", car, count+1, size, err)
	}
	has := other.Blockstore.Has
	if err := NewWalks().Check(t.Context(), other, has, car.Roots); err != nil {
		t.Error(err)
	}
}

// An export fails at a block that is missing or has an unknown codec, names it, and gives its memory back. If the root
// is missing, nothing is written.
func TestAnExportNeedsAllBlocks(t *testing.T) {
	missing, err := peertest.Block(cid.Raw, []byte("missing"))
	if err != nil {
		t.Fatal(err)
	}
	odd := cid.NewCidV1(cid.GitRaw, missing.Cid().Hash())
	for _, tc := range []struct {
		child cid.Cid
		want  error
	}{{missing.Cid(), ErrNotFound}, {odd, ErrUnsupportedCodec}} {
		root, err := peertest.Node(cid.DagCBOR, nil, tc.child)
		if err != nil {
			t.Fatal(err)
		}
		store := peertest.NewStore()
		if got, err := exported(t, store, root.Cid()); !errors.Is(err, ErrNotFound) || len(got) > 0 {
			t.Errorf("without the root: %d bytes, %v", len(got), err)
		}
		if err := store.Blockstore.Put(t.Context(), root); err != nil {
			t.Fatal(err)
		}
		if _, err := exported(t, store, root.Cid()); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.child.String()) {
			t.Errorf("%s: %v", tc.child, err)
		}
		has := store.Blockstore.Has
		if err := NewWalks().Check(t.Context(), store, has, []cid.Cid{root.Cid()}); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.child.String()) {
			t.Errorf("check of %s: %v", tc.child, err)
		}
	}
}

// afar is a store behind a network: it counts the reads at the same time, and lets leaves arrive only after as many
// were requested as can be expected.
type afar struct {
	*peertest.Store
	most   int // reads at the same time that are expected
	mu     sync.Mutex
	now    int
	ever   int // most reads at the same time
	total  int
	enough chan struct{} // closed when most reads were under way
}

func (d *afar) Distant() bool { return true }

func (d *afar) Get(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	d.mu.Lock()
	d.now++
	d.total++
	if d.ever = max(d.ever, d.now); d.now == d.most {
		close(d.enough)
		d.most = -1
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.now--
		d.mu.Unlock()
	}()
	if c.Prefix().Codec == cid.Raw {
		select {
		case <-d.enough:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return d.Store.Get(ctx, c)
}

// An export through a network requests up to readAhead leaves before it needs them, beside the one that it needs, reads
// no block twice, also no leaf that occurs again, and writes the same bytes as one from the local store. After an error
// no read is under way.
func TestAnExportFromAfarReadsAhead(t *testing.T) {
	store := peertest.NewStore()
	root, count, _, err := store.AddTree(9, cid.DagCBOR, 30, 2, 50)
	if err != nil {
		t.Fatal(err)
	}
	top, err := store.Get(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := Links(top)
	if err != nil {
		t.Fatal(err)
	}
	again, err := peertest.Node(cid.DagCBOR, nil, append(slices.Clone(nodes), nodes...)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Blockstore.Put(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	want, err := exported(t, store, again.Cid())
	if err != nil {
		t.Fatal(err)
	}
	far := &afar{Store: store, most: readAhead, enough: make(chan struct{})}
	var out bytes.Buffer
	if err := NewWalks().Export(t.Context(), &out, far, again.Cid()); err != nil || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%d bytes, want %d, %v", out.Len(), len(want), err)
	}
	if far.ever > readAhead+1 || far.total != int(count) {
		t.Errorf("%d reads at the same time, %d in total of %d blocks", far.ever, far.total, count)
	}
	broken := errors.New("broken")
	far = &afar{Store: store, most: readAhead, enough: make(chan struct{})}
	if err := NewWalks().Export(t.Context(), noWriter{broken}, far, again.Cid()); !errors.Is(err, broken) || far.now != 0 {
		t.Errorf("%v, with %d reads under way", err, far.now)
	}
}

// noWriter is a writer that always fails.
type noWriter struct{ err error }

func (f noWriter) Write([]byte) (int, error) { return 0, f.err }

// FuzzImportCAR promises that any bytes are either read or refused, that each block that is passed on has its hash, and
// that a DAG that is complete has the same blocks after an export and another import.
func FuzzImportCAR(f *testing.F) {
	f.Add(goldenCAR(f, "v1.car"))
	f.Add(goldenCAR(f, "v2.car"))
	f.Fuzz(func(t *testing.T, data []byte) {
		car, store, err := imported(t, bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, ErrInvalidCAR) {
				t.Error(err)
			}
			return
		}
		has := store.Blockstore.Has
		if NewWalks().Check(t.Context(), store, has, car.Roots[:1]) != nil {
			return
		}
		out, err := exported(t, store, car.Roots[0])
		if err != nil {
			t.Fatal(err)
		}
		_, other, err := imported(t, bytes.NewReader(out))
		if err == nil {
			has = other.Blockstore.Has
			err = NewWalks().Check(t.Context(), other, has, car.Roots[:1])
		}
		if err != nil {
			t.Error(err)
		}
	})
}
