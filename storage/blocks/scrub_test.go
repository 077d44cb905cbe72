package blocks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	blocks "github.com/ipfs/go-block-format"
	ipld "github.com/ipfs/go-ipld-format"
)

// damagedReferences lists what Damaged tells.
func damagedReferences(t testing.TB, s *Store) map[string]uint64 {
	t.Helper()
	found := map[string]uint64{}
	must(t, s.Damaged(t.Context(), func(reference string, blocks uint64) (bool, error) {
		found[reference] = blocks
		return true, nil
	}))
	return found
}

func mustScrub(t testing.TB, s *Store) Scrubbed {
	t.Helper()
	sum, err := s.Scrub(t.Context(), ScrubOptions{})
	must(t, err)
	return sum
}

// flipIn flips one bit of the n-th record of a kind.
func flipIn(kind byte, n int, at func(r record) int64) func(t testing.TB, path string, number uint32) {
	return func(t testing.TB, path string, number uint32) {
		left := n
		for _, r := range recordsOf(t, path, number) {
			if r.kind != kind {
				continue
			}
			if left--; left < 0 {
				editFile(t, path, func(b []byte) []byte { b[at(r)] ^= 0x10; return b })
				return
			}
		}
		t.Fatal("no such record")
	}
}

func removeFile(t testing.TB, path string, _ uint32) { must(t, os.Remove(path)) }

func flipAt(offs ...int) func(t testing.TB, path string, number uint32) {
	return func(t testing.TB, path string, _ uint32) {
		editFile(t, path, func(b []byte) []byte {
			for _, off := range offs {
				b[off] ^= 1
			}
			return b
		})
	}
}

// Scrub finds every damage to a segment, and keeps all good blocks. It reports the references that lost blocks, and
// no wrong byte is read. Once the blocks are put again nothing remembers the damage: not even the journal, from which
// the index is rebuilt at the end.
func TestScrubFindsDamageAndKeepsWhatIsGood(t *testing.T) {
	first := func(r record) int64 { return r.off }
	last := func(r record) int64 { return r.off + r.bytes - 1 }
	for name, tc := range map[string]struct {
		harm func(t testing.TB, path string, number uint32)
		lost int // blocks, of 20 in a segment; -1: at least one
	}{
		"nothing":               {func(testing.TB, string, uint32) {}, 0},
		"a bit of a block":      {flipIn(kindBlock, 3, last), 1},
		"the head of a block":   {flipIn(kindBlock, 3, first), 1},
		"references":            {flipIn(kindReference, 1, last), 0},
		"a seal":                {flipIn(kindHidden, 0, last), 0},
		"a drop":                {flipIn(kindDrop, 0, last), 0},
		"one copy of the head":  {flipAt(3), 0},
		"the other copy":        {flipAt(headerCopyBytes + 9), 0},
		"both copies":           {flipAt(3, headerCopyBytes+9), -1},
		"the end is cut off":    {func(t testing.TB, path string, _ uint32) { must(t, os.Truncate(path, 3000)) }, -1},
		"the file is emptied":   {func(t testing.TB, path string, _ uint32) { must(t, os.Truncate(path, 0)) }, -1},
		"the file is gone":      {removeFile, -1},
		"another file is there": {func(t testing.TB, path string, _ uint32) { must(t, os.WriteFile(path, make([]byte, 50_000), 0o600)) }, -1},
	} {
		for _, when := range []string{"open and read", "open", "closed"} {
			for _, which := range []string{"full", "active"} {
				t.Run(name+"/"+when+"/"+which, func(t *testing.T) {
					t.Parallel() // it mostly waits for the disk
					harmAndScrub(t, tc.harm, tc.lost, when, which)
				})
			}
		}
	}
}

func harmAndScrub(t *testing.T, harm func(testing.TB, string, uint32), lost int, when, which string) {
	dir := t.TempDir()
	opts := testOptions()
	opts.SegmentBytes = 16 << 10
	s := openWith(t, dir, opts)
	all := map[string][]blocks.Block{}
	fill := func(reference string, seed uint64) {
		all[reference] = makeBlocks(t, seed, 20, 500)
		mustPut(t, s, reference, all[reference][:10]...)
		mustPut(t, s, reference, all[reference][10:]...)
		must(t, s.Seal(t.Context(), reference, Sealed{Bytes: 10_000, Blocks: 20, Hidden: reference == "one"}))
	}
	gone := makeBlocks(t, 99, 1, 100)
	mustPut(t, s, "gone", gone...)
	fill("one", 1)
	mustDrop(t, s, "gone")
	target := s.active.number
	if which == "full" {
		fill("two", 2)
	}
	if which == "full" == (target == s.active.number) {
		t.Fatalf("segment %d, active %d", target, s.active.number)
	}
	switch when {
	case "closed":
		must(t, s.Close())
	case "open and read":
		wantHere(t, s, all["one"]...)
	}
	harm(t, segmentPath(filepath.Join(dir, segmentsDir), target), target)
	if when == "closed" {
		s = openWith(t, dir, opts)
	}
	for range 2 { // the second pass finds nothing more
		sum := mustScrub(t, s)
		if lost == 0 && sum.Damaged != 0 {
			t.Errorf("%d blocks were lost", sum.Damaged)
		}
		if good := uint64(20*len(all) - lost); lost >= 0 && sum.Blocks != good {
			t.Errorf("%d blocks are good, want %d", sum.Blocks, good)
		}
	}
	here := func(s *Store) (missing []blocks.Block) {
		for _, reference := range all {
			for _, b := range reference {
				if got, err := s.Get(t.Context(), b.Cid()); ipld.IsNotFound(err) {
					missing = append(missing, b)
				} else if err != nil || string(got.RawData()) != string(b.RawData()) {
					t.Fatalf("block: %v", err)
				}
			}
		}
		return missing
	}
	missing := here(s)
	o, _, err := s.Reference(t.Context(), "one")
	must(t, err)
	if lost >= 0 && (len(missing) != lost || !o.Sealed) {
		t.Errorf("%d blocks are missing, want %d", len(missing), lost)
	}
	if o.Sealed {
		if got := damagedReferences(t, s); got["one"]+got["two"] != uint64(len(missing)) {
			t.Errorf("damaged: %v, %d are missing", got, len(missing))
		}
		if whole, err := s.Whole(t.Context(), "one"); whole != (len(missing) == 0) || err != nil {
			t.Errorf("whole: %v, %v", whole, err)
		}
	}
	for reference, blks := range all {
		mustPut(t, s, reference, blks...)
		must(t, s.Seal(t.Context(), reference, Sealed{Bytes: 10_000, Blocks: 20, Hidden: reference == "one"}))
	}
	if sum := mustScrub(t, s); sum.Damaged != 0 || sum.Blocks < uint64(20*len(all)) {
		t.Errorf("after the repair: %+v", sum)
	}
	must(t, s.Compact(t.Context()))
	if got := damagedReferences(t, s); len(got) != 0 {
		t.Errorf("still damaged: %v", got)
	}
	before := describe(t, s)
	must(t, errors.Join(s.Close(), os.RemoveAll(filepath.Join(dir, indexDir))))
	again := openTest(t, dir)
	must(t, again.Compact(t.Context()))
	if left := here(again); len(left) != 0 {
		t.Errorf("%d blocks are not in the journal", len(left))
	}
	if after := describe(t, again); after != before {
		t.Errorf("rebuilt:\n%s\nwas:\n%s", after, before)
	}
}

// CheckSegments finds a segment file that has gone while the store is open, and counts its blocks as lost. It
// notifies Lost. It reads no segment.
func TestCheckSegmentsFindsWhatIsGone(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	blks := makeBlocks(t, 1, 3, 500)
	mustPut(t, s, "a", blks...)
	must(t, s.Seal(t.Context(), "a", Sealed{Bytes: 1500, Blocks: 3}))
	if n, err := s.CheckSegments(t.Context()); n != 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	must(t, os.Remove(segmentPaths(t, dir)[0]))
	if n, err := s.CheckSegments(t.Context()); n != 3 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	select {
	case <-s.Lost():
	default:
		t.Error("nobody is told")
	}
	if got := damagedReferences(t, s); got["a"] != 3 {
		t.Errorf("damaged: %v", got)
	}
	mustPut(t, s, "a", blks...)
	again := openTest(t, kill(t, dir))
	wantHere(t, again, blks...)
}

// Scrub with Resume continues where the last one was interrupted. It begins anew after a complete one or with a
// damaged state.
func TestScrubGoesOnWhereItWasCutShort(t *testing.T) {
	dir := t.TempDir()
	opts := testOptions()
	opts.SegmentBytes = 8 << 10
	s := openWith(t, dir, opts)
	for i := range 40 {
		mustPut(t, s, fmt.Sprint(i), makeBlocks(t, uint64(i), 1, 1000)...)
	}
	must(t, s.saveScrub(scrubState{Next: s.active.number - 1}))
	part, err := s.Scrub(t.Context(), ScrubOptions{Resume: true})
	must(t, err)
	if done := s.ScrubCompleted(); part.Blocks == 0 || part.Blocks > 20 || done.IsZero() {
		t.Errorf("%+v of the last two segments, completed %v", part, done)
	}
	if whole, err := s.Scrub(t.Context(), ScrubOptions{Resume: true}); whole.Blocks != 40 || err != nil {
		t.Errorf("%+v, %v", whole, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, scrubFile), []byte("?"), 0o600))
	if whole, err := s.Scrub(t.Context(), ScrubOptions{Resume: true}); whole.Blocks != 40 || err != nil {
		t.Errorf("%+v, %v", whole, err)
	}
}

// Scrub reads no faster than its rate, and ends with the error of its context at once.
func TestScrubReadsAtABoundedRateAndStopsWhenTold(t *testing.T) {
	s := openTest(t, t.TempDir())
	mustPut(t, s, "a", makeBlocks(t, 1, 12, 1<<20)...)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		time.AfterFunc(5*time.Second, cancel)
		_, err := s.Scrub(ctx, ScrubOptions{BytesPerSecond: 1 << 20})
		if took := time.Since(begin); !errors.Is(err, context.Canceled) || took != 5*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// Scrub finds no damage while the store takes puts, drops and compactions, and loses no block.
func TestScrubRacesWithEverything(t *testing.T) {
	opts := testOptions()
	opts.SegmentBytes = 16 << 10
	dir := t.TempDir()
	s := openWith(t, dir, opts)
	ended := make(chan error, 1)
	go func() {
		for i := range 60 {
			reference := fmt.Sprint(i)
			err := s.Put(t.Context(), reference, makeBlocks(t, uint64(i), 5, 900))
			if err == nil && i%3 != 0 {
				_, err = s.Drop(t.Context(), reference)
			}
			if err == nil && i%10 == 0 {
				err = s.Compact(t.Context())
			}
			if err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	for done := false; !done; {
		if sum := mustScrub(t, s); sum.Damaged != 0 {
			t.Fatalf("%+v", sum)
		}
		select {
		case err := <-ended:
			must(t, err)
			done = true
		default:
		}
	}
	for i := range 20 {
		wantHere(t, s, makeBlocks(t, uint64(3*i), 5, 900)...)
	}
	if u := s.Usage(); u.Damaged != 0 || u.Corrupt != 0 {
		t.Errorf("%+v", u)
	}
}

// A read returns no wrong byte wherever a bit of a segment is flipped. The blocks are new ones and ones that the
// store recognizes.
func TestNoFlipIsEverServed(t *testing.T) {
	for _, at := range []struct{ blocks, bytes, flips int }{{8, 300, 10_000}, {2, knownBytes + 1000, 1_000}} {
		t.Run(fmt.Sprintf("%d bytes", at.bytes), func(t *testing.T) {
			dir := t.TempDir()
			s := openTest(t, dir)
			blks := makeBlocks(t, 1, at.blocks, at.bytes)
			mustPut(t, s, "a", blks...)
			flipEverywhere(t, s, segmentPaths(t, dir)[0], blks, at.flips)
		})
	}
}

func flipEverywhere(t *testing.T, s *Store, path string, blks []blocks.Block, flips int) {
	wantHere(t, s, blks...) // so large ones are known from here on
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	clean, err := os.ReadFile(path)
	must(t, err)
	number := s.active.number
	for i := range flips {
		bit := i * 7919 % (len(clean) * 8)
		flipped := []byte{clean[bit/8] ^ 1<<(bit%8)}
		_, err := f.WriteAt(flipped, int64(bit/8))
		must(t, err)
		for _, b := range blks {
			e, ok, err := getBlock(s.index, b.Cid().Hash())
			if must(t, err); !ok || e.segment != number {
				t.Fatal("the block is elsewhere")
			}
			for _, hashed := range []bool{true, false} { // members compare the hash themselves
				data, err := s.read(e, b.Cid().Hash(), hashed, fresh)
				if err == nil && !slices.Equal(data, b.RawData()) {
					t.Fatalf("bit %d, hashed %t: wrong bytes", bit, hashed)
				}
			}
		}
		_, err = f.WriteAt(clean[bit/8:bit/8+1], int64(bit/8))
		must(t, err)
	}
	wantHere(t, s, blks...)
}
