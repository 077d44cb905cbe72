package blocks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	"github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

func testOptions() Options {
	return Options{
		SegmentBytes: 64 << 10, MinFreeBytes: -1, CompactBytesPerSecond: 1 << 40,
		Logger: slog.New(slog.DiscardHandler),
		Fatal:  func(m string) { panic(m) },
	}
}

func openWith(t testing.TB, dir string, opts Options) *Store {
	t.Helper()
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openTest(t testing.TB, dir string) *Store {
	t.Helper()
	return openWith(t, dir, testOptions())
}

func rawBlock(t testing.TB, data []byte) blocks.Block {
	t.Helper()
	b, err := blocks.NewBlockWithPrefix(data, cid.Prefix{Version: 1, Codec: cid.Raw, MhType: multihash.BLAKE3, MhLength: 32})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// makeBlocks returns n distinct blocks of size bytes.
func makeBlocks(t testing.TB, seed uint64, n, size int) []blocks.Block {
	t.Helper()
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	out := make([]blocks.Block, n)
	for i := range out {
		data := make([]byte, size)
		_, _ = rng.Read(data)
		out[i] = rawBlock(t, data)
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustPut(t testing.TB, s *Store, reference string, blks ...blocks.Block) {
	t.Helper()
	must(t, s.Put(t.Context(), reference, blks))
}

func mustDrop(t testing.TB, s *Store, reference string) uint64 {
	t.Helper()
	freed, err := s.Drop(t.Context(), reference)
	must(t, err)
	return freed
}

func wantHere(t testing.TB, s *Store, blks ...blocks.Block) {
	t.Helper()
	for _, b := range blks {
		got, err := s.Get(t.Context(), b.Cid())
		if err != nil || !bytes.Equal(got.RawData(), b.RawData()) {
			t.Fatalf("block %s: %v", b.Cid(), err)
		}
		if size, err := s.GetSize(t.Context(), b.Cid()); err != nil || size != len(b.RawData()) {
			t.Fatalf("size of %s: %d, %v", b.Cid(), size, err)
		}
	}
}

func wantGone(t testing.TB, s *Store, blks ...blocks.Block) {
	t.Helper()
	for _, b := range blks {
		if _, err := s.Get(t.Context(), b.Cid()); !ipld.IsNotFound(err) {
			t.Fatalf("block %s: %v, want not found", b.Cid(), err)
		}
		if has, err := s.Has(t.Context(), b.Cid()); has || err != nil {
			t.Fatalf("has %s: %v, %v", b.Cid(), has, err)
		}
	}
}

// kill copies the folder as it is, which is what a killed process leaves.
func kill(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "killed")
	must(t, copyStill(dir, to))
	return to
}

// copyStill copies a folder, again if files came or went meanwhile: the index
// removes its old files in the background, and a mixture of two moments is
// nothing that a crash leaves.
func copyStill(from, to string) error {
	const attempts = 1000
	names := func() (list []string, err error) {
		err = filepath.WalkDir(from, func(path string, _ os.DirEntry, err error) error {
			list = append(list, path)
			return err
		})
		return list, err
	}
	var err error
	for range attempts {
		before, berr := names()
		err = os.CopyFS(to, os.DirFS(from))
		after, aerr := names()
		if err = errors.Join(err, berr, aerr); err == nil && slices.Equal(before, after) {
			return nil
		}
		if rerr := os.RemoveAll(to); rerr != nil {
			return rerr
		}
	}
	return fmt.Errorf("folder %s does not stand still: %w", from, err)
}

// describe is everything that can be seen of a store through its interface.
func describe(t testing.TB, s *Store) string {
	t.Helper()
	var b strings.Builder
	must(t, s.References(t.Context(), "", func(o ReferenceInfo) (bool, error) {
		fmt.Fprintf(&b, "%+v:", o)
		return true, s.Blocks(t.Context(), o.Reference, func(h multihash.Multihash) (bool, error) {
			c := cid.NewCidV1(cid.Raw, h)
			_, err := s.Get(t.Context(), c)
			fmt.Fprintf(&b, " %s=%v", c, err == nil)
			return true, nil
		})
	}))
	var keys []string
	for c := range allKeys(t, s) {
		keys = append(keys, c.String())
	}
	slices.Sort(keys)
	u := s.Usage()
	fmt.Fprintf(&b, "\nkeys %v blocks %d bytes %d missing %d", keys, u.Blocks, u.LiveBytes, u.Missing)
	return b.String()
}

func allKeys(t testing.TB, s *Store) map[cid.Cid]bool {
	t.Helper()
	ch, err := s.Blockstore().AllKeysChan(t.Context())
	must(t, err)
	keys := make(map[cid.Cid]bool)
	for c := range ch {
		keys[c] = true
	}
	return keys
}

// Blocks and references are read back as they were put, after a restart, and after a kill.
func TestPutGetAndReopen(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	blks := makeBlocks(t, 1, 20, 10_000) // over several segments
	v0 := blocks.NewBlock([]byte("a version 0 block"))
	empty := rawBlock(t, nil)
	for part := range slices.Chunk(blks, 4) {
		mustPut(t, s, "root/a", part...)
	}
	mustPut(t, s, "root/a", v0, empty, v0)
	must(t, s.Seal(t.Context(), "root/a", Sealed{Bytes: 123, Blocks: 22}))
	mustPut(t, s, "lease/b", blks[:2]...)
	check := func(s *Store) {
		t.Helper()
		wantHere(t, s, append(blks, v0, empty)...)
		// The same multihash under another codec is the same block.
		got, err := s.Get(t.Context(), cid.NewCidV1(cid.DagProtobuf, v0.Cid().Hash()))
		if err != nil || got.Cid().Prefix().Codec != cid.DagProtobuf {
			t.Errorf("other codec: %v, %v", got, err)
		}
		wantGone(t, s, makeBlocks(t, 2, 1, 10)...)
		for reference, want := range map[string]ReferenceInfo{
			"root/a": {Reference: "root/a", Sealed: true, Bytes: 123, Blocks: 22}, "lease/b": {Reference: "lease/b", Bytes: 20_000, Blocks: 2},
		} {
			if got, ok, err := s.Reference(t.Context(), reference); got != want || !ok || err != nil {
				t.Errorf("reference %+v, %v, %v, want %+v", got, ok, err, want)
			}
		}
		if _, ok, err := s.Reference(t.Context(), "root"); ok || err != nil {
			t.Errorf("prefix of a reference is one: %v, %v", ok, err)
		}
		if u := s.Usage(); u.Blocks != 22 || u.LiveBytes != 200_017 || u.Segments < 3 || u.DiskBytes < u.LiveBytes || u.FreeBytes == 0 {
			t.Errorf("usage %+v", u)
		}
		if got := len(allKeys(t, s)); got != 22 {
			t.Errorf("%d keys", got)
		}
	}
	check(s)
	want := describe(t, s)
	must(t, s.Close())
	again := openTest(t, dir)
	check(again)
	if got := describe(t, again); got != want {
		t.Errorf("reopened:\n%s\nwant:\n%s", got, want)
	}
	check(openTest(t, kill(t, dir)))
}

// References lists the references with a prefix in order of their names.
func TestReferencesListsInOrderByPrefix(t *testing.T) {
	s := openTest(t, t.TempDir())
	b := makeBlocks(t, 1, 1, 10)
	for _, o := range []string{"root/b", "lease/1", "root/a", "roots"} {
		mustPut(t, s, o, b...)
	}
	for prefix, want := range map[string]string{"": "lease/1 root/a root/b roots", "root/": "root/a root/b", "x": ""} {
		var got []string
		must(t, s.References(t.Context(), prefix, func(o ReferenceInfo) (bool, error) { got = append(got, o.Reference); return true, nil }))
		if strings.Join(got, " ") != want {
			t.Errorf("prefix %q: %v, want %s", prefix, got, want)
		}
	}
}

// Put refuses a bad block or reference with its error, and stores no block of the same call. The block store's
// generic writes are refused with ErrNoReference.
func TestBadBlocksAndReferencesAreRefusedBeforeAnythingIsStored(t *testing.T) {
	s := openTest(t, t.TempDir())
	good := rawBlock(t, []byte("good"))
	lie, _ := blocks.NewBlockWithCid([]byte("evil"), good.Cid())
	large := rawBlock(t, make([]byte, MaxBlockBytes+1))
	weakHash, err := multihash.Sum([]byte("x"), multihash.MD5, -1)
	must(t, err)
	weak, _ := blocks.NewBlockWithCid([]byte("x"), cid.NewCidV1(cid.Raw, weakHash))
	for _, tc := range []struct {
		name      string
		reference string
		blk       blocks.Block
		want      error
	}{
		{"bytes of another block", "o", lie, ErrBadBlock},
		{"too large", "o", large, ErrTooLarge},
		{"weak hash", "o", weak, ErrBadBlock},
		{"no reference", "", good, ErrBadReference},
		{"long reference", strings.Repeat("o", 257), good, ErrBadReference},
	} {
		t.Run(tc.name, func(t *testing.T) {
			other := rawBlock(t, []byte(tc.name))
			if err := s.Put(t.Context(), tc.reference, []blocks.Block{other, tc.blk}); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			wantGone(t, s, other)
		})
	}
	mustPut(t, s, strings.Repeat("o", 256), rawBlock(t, make([]byte, MaxBlockBytes)))
	for _, err := range []error{
		s.Blockstore().Put(t.Context(), good), s.Blockstore().PutMany(t.Context(), nil), s.Blockstore().DeleteBlock(t.Context(), good.Cid()),
	} {
		if !errors.Is(err, ErrNoReference) {
			t.Errorf("blockstore write: %v", err)
		}
	}
}

// A store answers identity CIDs from their own bytes and stores nothing for them. It seals a reference without
// blocks.
func TestIdentityBlocksAreAnsweredAndNeverStored(t *testing.T) {
	s := openTest(t, t.TempDir())
	hash, err := multihash.Sum([]byte("inline"), multihash.IDENTITY, -1)
	must(t, err)
	b, err := blocks.NewBlockWithCid([]byte("inline"), cid.NewCidV1(cid.Raw, hash))
	must(t, err)
	wantHere(t, s, b)
	mustPut(t, s, "o", b)
	if missing, err := s.Adopt(t.Context(), "o", []cid.Cid{b.Cid()}); len(missing) != 0 || err != nil {
		t.Errorf("adopt: %v, %v", missing, err)
	}
	if _, ok, _ := s.Reference(t.Context(), "o"); ok || s.Usage().Blocks != 0 {
		t.Error("something was stored")
	}
	// A root that is such a CID has no blocks, but can be complete.
	must(t, s.Seal(t.Context(), "o", Sealed{Bytes: 6, Blocks: 1}))
	if o, ok, err := s.Reference(t.Context(), "o"); !ok || !o.Sealed || err != nil {
		t.Errorf("reference %+v, %v, %v", o, ok, err)
	}
	mustDrop(t, s, "o")
	if _, ok, _ := s.Reference(t.Context(), "o"); ok {
		t.Error("reference is still there")
	}
}

// A block is here exactly as long as a reference includes it, also after a crash and a compaction. A dropped name can
// be used again and begins with no block.
func TestBlocksLiveAsLongAsAReferenceIncludesThem(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	blks := makeBlocks(t, 1, 30, 5_000)
	a, shared, b := blks[:10], blks[10:20], blks[20:]
	mustPut(t, s, "a", a...)
	mustPut(t, s, "a", shared...)
	mustPut(t, s, "b", shared...)
	mustPut(t, s, "b", b...)
	absent := makeBlocks(t, 2, 1, 10)[0]
	missing, err := s.Adopt(t.Context(), "c", []cid.Cid{a[0].Cid(), absent.Cid(), b[0].Cid()})
	if err != nil || len(missing) != 1 || missing[0] != absent.Cid() {
		t.Fatalf("missing %v, %v", missing, err)
	}
	if freed := mustDrop(t, s, "a"); freed != 9*5_000 {
		t.Errorf("freed %d", freed)
	}
	check := func(s *Store) {
		t.Helper()
		wantGone(t, s, a[1:]...)
		wantHere(t, s, slices.Concat(a[:1], shared, b)...)
		if _, ok, _ := s.Reference(t.Context(), "a"); ok {
			t.Error("dropped reference is there")
		}
	}
	check(s)
	must(t, s.Compact(t.Context()))
	check(s)
	// A crash may undo the sweep of a drop, never the drop: the next pass ends it.
	killed := openTest(t, kill(t, dir))
	if _, ok, _ := killed.Reference(t.Context(), "a"); ok {
		t.Error("dropped reference is back after a crash")
	}
	must(t, killed.Compact(t.Context()))
	check(killed)
	// The name can be used again, and begins from nothing.
	mustPut(t, s, "a", a[1])
	if o, _, _ := s.Reference(t.Context(), "a"); o.Blocks != 1 || o.Sealed {
		t.Errorf("reference %+v", o)
	}
	for _, o := range []string{"a", "b", "c", "never"} {
		mustDrop(t, s, o)
	}
	must(t, s.Compact(t.Context()))
	if u := s.Usage(); u.Blocks != 0 || u.LiveBytes != 0 || u.Segments != 1 {
		t.Errorf("after all drops: %+v", u)
	}
	s.stats.Lock()
	defer s.stats.Unlock()
	if len(s.loads) != 1 || len(s.unswept) != 0 {
		t.Errorf("left over: %+v, %v", s.loads, s.unswept)
	}
}

// Open refuses a folder that is open already with ErrLocked, and a closed store returns ErrClosed.
func TestSecondOpenIsRefusedAndClosedStoreSaysSo(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	if _, err := Open(dir, testOptions()); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("second open: %v", err)
	}
	b := makeBlocks(t, 1, 1, 10)
	mustPut(t, s, "o", b...)
	must(t, s.Close())
	must(t, s.Close())
	_, getErr := s.Get(t.Context(), b[0].Cid())
	_, hasErr := s.Has(t.Context(), b[0].Cid())
	_, keysErr := s.Blockstore().AllKeysChan(t.Context())
	_, dropErr := s.Drop(t.Context(), "o")
	for _, err := range []error{getErr, hasErr, keysErr, dropErr, s.Put(t.Context(), "o", b), s.Seal(t.Context(), "o", Sealed{}), s.References(t.Context(), "", nil)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
}

// Every block that one of 16 concurrent writers has put is here after a kill.
func TestConcurrentWritersAreAllDurable(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	const writers, each = 16, 12
	all := make([][]blocks.Block, writers)
	for w := range all {
		all[w] = makeBlocks(t, uint64(w), each, 3_000)
	}
	var group sync.WaitGroup
	for w, blks := range all {
		group.Go(func() {
			for _, b := range blks {
				if err := s.Put(t.Context(), fmt.Sprintf("o%d", w), []blocks.Block{b}); err != nil {
					t.Error(err)
				}
				if _, err := s.Get(t.Context(), b.Cid()); err != nil {
					t.Errorf("after its own put: %v", err)
				}
			}
		})
	}
	group.Wait()
	again := openTest(t, kill(t, dir))
	for _, blks := range all {
		wantHere(t, again, blks...)
	}
}

// A block that Put or Adopt has acknowledged stays while another reference that includes it is dropped.
func TestDropRacingWithPutAndAdoptLosesNothingAcknowledged(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	ctx, stop := context.WithCancel(t.Context())
	running := make(chan error, 1)
	go func() { running <- s.Run(ctx) }()
	blks := makeBlocks(t, 1, 40, 2_000)
	cids := make([]cid.Cid, len(blks))
	for i, b := range blks {
		cids[i] = b.Cid()
	}
	for round := range 15 {
		old, put, adopt := fmt.Sprintf("old%d", round), fmt.Sprintf("put%d", round), fmt.Sprintf("adopt%d", round)
		mustPut(t, s, old, blks...)
		var group sync.WaitGroup
		var missing []cid.Cid
		group.Go(func() {
			if _, err := s.Drop(t.Context(), old); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			for part := range slices.Chunk(blks[:20], 5) {
				if err := s.Put(t.Context(), put, part); err != nil {
					t.Error(err)
				}
				wantHere(t, s, part...)
			}
		})
		group.Go(func() {
			for part := range slices.Chunk(cids[20:], 5) {
				absent, err := s.Adopt(t.Context(), adopt, part)
				if err != nil {
					t.Error(err)
				}
				missing = append(missing, absent...)
			}
		})
		group.Wait()
		for i, b := range blks {
			if i < 20 || !slices.Contains(missing, b.Cid()) {
				wantHere(t, s, b)
			} else {
				wantGone(t, s, b)
			}
		}
		mustDrop(t, s, put)
		mustDrop(t, s, adopt)
		wantGone(t, s, blks...)
	}
	stop()
	must(t, <-running)
}

// PutAndSeal and PutColdAndSeal of any size leave a sealed reference with all blocks after a kill. One that fails
// leaves no reference.
func TestPutAndSealIsDurableWhateverItsSize(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	id, err := identityBlock(cid.NewCidV1(cid.Raw, multihash.Multihash{multihash.IDENTITY, 1, 'x'}))
	must(t, err)
	for name, blks := range map[string][]blocks.Block{
		"nothing":            nil,
		"nothing to store":   {id},
		"one":                makeBlocks(t, 1, 1, 1_000),
		"one, shared":        makeBlocks(t, 1, 1, 1_000),
		"more than a step":   makeBlocks(t, 2, putStepBlocks+10, 10),
		"a step by its size": makeBlocks(t, 3, 4, putStepBytes/3),
	} {
		sealed := Sealed{Bytes: 7, Blocks: uint64(len(blks))}
		if name == "nothing to store" {
			sealed.Blocks = 0
		}
		must(t, s.PutAndSeal(t.Context(), name, blks, sealed))
		must(t, s.PutColdAndSeal(t.Context(), "cold "+name, blks, sealed))
		after := openTest(t, kill(t, dir))
		for _, name := range []string{name, "cold " + name} {
			o, ok, err := after.Reference(t.Context(), name)
			if want := (ReferenceInfo{Reference: name, Sealed: true, Bytes: 7, Blocks: sealed.Blocks}); err != nil || !ok || o != want {
				t.Fatalf("%s: %+v, %t, %v", name, o, ok, err)
			}
		}
		wantHere(t, after, blks...)
	}
	bad, err := blocks.NewBlockWithCid([]byte("x"), makeBlocks(t, 9, 1, 10)[0].Cid())
	must(t, err)
	if err := s.PutAndSeal(t.Context(), "bad", []blocks.Block{bad}, Sealed{}); !errors.Is(err, ErrBadBlock) {
		t.Fatalf("a block that is not its CID's: %v", err)
	}
	s.opts.MinFreeBytes = 1 << 62
	if err := s.PutAndSeal(t.Context(), "full", makeBlocks(t, 10, 1, 10), Sealed{}); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("on a full disk: %v", err)
	}
	for _, reference := range []string{"bad", "full"} {
		if o, ok, err := s.Reference(t.Context(), reference); err != nil || ok {
			t.Fatalf("%+v, %v", o, err)
		}
	}
}

// Puts that are cancelled leave the bounds of the queue free, and later puts succeed.
func TestCancelledPutLeavesTheQueueSound(t *testing.T) {
	s := openTest(t, t.TempDir())
	blks := makeBlocks(t, 1, 64, 1_000)
	var group sync.WaitGroup
	for i, b := range blks {
		ctx, cancel := context.WithCancel(t.Context())
		group.Go(func() {
			err := s.Put(ctx, "o", []blocks.Block{b})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if err == nil {
				wantHere(t, s, b)
			}
		})
		group.Go(func() {
			if i%2 == 0 {
				cancel()
			}
		})
		t.Cleanup(cancel)
	}
	group.Wait()
	mustPut(t, s, "after", blks...)
	wantHere(t, s, blks...)
	if !s.queueOps.TryAcquire(maxQueuedOps) || !s.queueBytes.TryAcquire(maxQueuedBytes) {
		t.Error("the queue's bounds leak")
	}
}

// A store without free space refuses new blocks with ErrNoSpace, and still drops. It still takes references to blocks
// that are here.
func TestFullDiskRefusesBlocksAndStillDrops(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	blks := makeBlocks(t, 1, 4, 1_000)
	mustPut(t, s, "a", blks[:2]...)
	s.opts.MinFreeBytes = 1 << 62
	if err := s.Put(t.Context(), "b", blks[2:]); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("put: %v", err)
	}
	mustPut(t, s, "b", blks[0]) // nothing to store
	mustDrop(t, s, "a")
	wantHere(t, s, blks[0])
	wantGone(t, s, blks[1:]...)
	s.opts.MinFreeBytes = -1
	mustPut(t, s, "b", blks[2:]...)
}

// After a failed flush every put and Run return ErrBroken, Failed is closed, and earlier blocks are still read.
func TestFailedFsyncBreaksTheStoreForGood(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	blks := makeBlocks(t, 1, 3, 1_000)
	mustPut(t, s, "o", blks[0])
	// A pipe takes no fdatasync and no write at an offset.
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	end, err := syscall.Dup(int(w.Fd()))
	must(t, err)
	real := s.active.f
	s.active.f = os.NewFile(uintptr(end), real.Name()) // under the name of the segment, which is there
	defer real.Close()
	for _, b := range blks[1:] {
		if err := s.Put(t.Context(), "o", []blocks.Block{b}); !errors.Is(err, ErrBroken) {
			t.Fatalf("put: %v, want ErrBroken", err)
		}
	}
	select {
	case <-s.Failed():
	default:
		t.Error("Failed is not closed")
	}
	if err := s.Run(t.Context()); !errors.Is(err, ErrBroken) {
		t.Errorf("Run: %v", err)
	}
	wantHere(t, s, blks[0])
	wantGone(t, s, blks[1:]...)
}

// A scan of the index that skips by sparseAfter finds all blocks and references and reads almost no other key.
func TestSparseKeysAreBlocksAndReferences(t *testing.T) {
	s := openTest(t, t.TempDir())
	makeHistory(t, s)
	v := s.index.View()
	defer v.Close()
	var all [][]byte
	must(t, v.Scan(nil, nil, false, func(key, _ []byte) (bool, error) {
		all = append(all, bytes.Clone(key))
		return true, nil
	}))
	kinds, found, read := map[byte]int{}, map[byte]int{}, 0
	for _, key := range all {
		kinds[key[0]]++
	}
	for i := 0; i < len(all); read++ {
		if key := all[i]; sparse(key) {
			found[key[0]]++
		} else if next := sparseAfter(key); bytes.Compare(next, key) > 0 {
			i, _ = slices.BinarySearchFunc(all, next, bytes.Compare)
			continue
		}
		i++
	}
	want := map[byte]int{keyBlock: kinds[keyBlock], keyReference: kinds[keyReference]}
	if !maps.Equal(found, want) || want[keyBlock] == 0 || want[keyReference] == 0 {
		t.Errorf("found %v of %v", found, kinds)
	}
	if most := want[keyBlock] + want[keyReference] + 2; read > most {
		t.Errorf("%d keys of %d were read, %d at most are needed", read, len(all), most)
	}
}
