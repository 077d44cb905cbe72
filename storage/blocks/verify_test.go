package blocks

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	blocks "github.com/ipfs/go-block-format"
)

// A put of blocks that are here but damaged stores them again. Then the put and every other reference can read them.
func TestWhatHasRottedIsStoredByTheNextPut(t *testing.T) {
	const n = 20
	for name, put := range map[string]func(s *Store, blks []blocks.Block) error{
		"put": func(s *Store, blks []blocks.Block) error { return s.Put(t.Context(), "again", blks) },
		"put cold": func(s *Store, blks []blocks.Block) error {
			return s.PutCold(t.Context(), "again", blks)
		},
		"put and seal": func(s *Store, blks []blocks.Block) error {
			return s.PutAndSeal(t.Context(), "again", blks, Sealed{Bytes: 10_000, Blocks: n})
		},
	} {
		for what, harm := range map[string]struct {
			do   func(t testing.TB, path string, number uint32)
			lost uint64
		}{
			"nothing":            {func(testing.TB, string, uint32) {}, 0},
			"a bit of a block":   {flipIn(kindBlock, 3, func(r record) int64 { return r.off + r.bytes - 1 }), 1},
			"a head":             {flipIn(kindBlock, 3, func(r record) int64 { return r.off }), 1},
			"the end is cut off": {func(t testing.TB, path string, _ uint32) { must(t, os.Truncate(path, 3000)) }, n - 3},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel() // it mostly waits for the disk
				dir := t.TempDir()
				opts := testOptions()
				opts.SegmentBytes = 8 << 10
				s := openWith(t, dir, opts)
				all := makeBlocks(t, 1, n, 500)
				must(t, s.PutAndSeal(t.Context(), "one", all, Sealed{Bytes: 10_000, Blocks: n}))
				target := s.active.number
				mustPut(t, s, "other", makeBlocks(t, 2, n, 500)...)
				if target == s.active.number {
					t.Fatalf("segment %d is written to", target)
				}
				harm.do(t, segmentPath(filepath.Join(dir, segmentsDir), target), target)
				must(t, put(s, all))
				wantHere(t, s, all...)
				if got := s.corrupt.Load(); (got > 0) != (harm.lost > 0) || harm.lost == 1 && got != 1 {
					t.Errorf("%d blocks were found bad, want %d", got, harm.lost)
				}
				if hurt := damagedReferences(t, s); len(hurt) != 0 {
					t.Errorf("lacking blocks are %v", hurt)
				}
				must(t, s.Close())
				s = openWith(t, dir, opts)
				wantHere(t, s, all...)
			})
		}
	}
}

// onBad calls fn with the number of each block that a store tells to be bad, before that
// is noted.
type onBad struct {
	slog.Handler
	n  *int
	fn func(n int)
}

func (h onBad) Enabled(context.Context, slog.Level) bool { return true }

func (h onBad) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "stored block is damaged" {
		*h.n++
		h.fn(*h.n)
	}
	return nil
}

// A put stores damaged blocks again even if the store could not note the damage, and they are here after a restart.
func TestAPutIsNotAcknowledgedOverRottenBlocksThatCouldNotBeNoted(t *testing.T) {
	dir := t.TempDir()
	opts := testOptions()
	opts.SegmentBytes = 8 << 10
	var full string // where the next segment would be
	var told int
	opts.Logger = slog.New(onBad{slog.DiscardHandler, &told, func(n int) {
		if n == 2 {
			must(t, os.Remove(full)) // there is room again
		}
	}})
	s := openWith(t, dir, opts)
	all := makeBlocks(t, 1, 4, 500)
	mustPut(t, s, "one", all...)
	target := s.active.number
	for i := uint64(2); s.active.number == target || s.active.size < opts.SegmentBytes; i++ {
		mustPut(t, s, "other", makeBlocks(t, i, 1, 3000)...)
	}
	path := segmentPath(filepath.Join(dir, segmentsDir), target)
	var ends []int // of blocks
	for _, r := range recordsOf(t, path, target) {
		if r.kind == kindBlock {
			ends = append(ends, int(r.off+r.bytes-1))
		}
	}
	flipAt(ends[:2]...)(t, path, target)
	full = segmentPath(filepath.Join(dir, segmentsDir), s.active.number+1)
	must(t, os.WriteFile(full, nil, 0o600))
	mustPut(t, s, "again", all...)
	if told != 2 {
		t.Errorf("%d blocks were found bad, want 2", told)
	}
	wantHere(t, s, all...)
	must(t, s.Close())
	wantHere(t, openWith(t, dir, opts), all...)
}

// A put stores a damaged block again even if a compaction moves the damaged one meanwhile. A block that was written
// wrong has a good checksum, so Compact moves it like any other.
func TestAPutIsNotAcknowledgedOverARottenBlockThatIsMovedMeanwhile(t *testing.T) {
	opts := testOptions()
	opts.SegmentBytes = 8 << 10
	var s *Store
	var told int
	opts.Logger = slog.New(onBad{slog.DiscardHandler, &told, func(int) {
		mustDrop(t, s, "garbage")
		must(t, s.Compact(t.Context()))
	}})
	s = openWith(t, t.TempDir(), opts)
	b := rawBlock(t, []byte("the bytes"))
	wrong, err := blocks.NewBlockWithCid([]byte("not these"), b.Cid())
	must(t, err)
	mustPut(t, s, "one", claim{wrong, true})
	from := s.active.number
	mustPut(t, s, "garbage", makeBlocks(t, 1, 3, 3000)...)
	mustPut(t, s, "other", makeBlocks(t, 2, 1, 3000)...)
	mustPut(t, s, "again", b)
	if told != 1 || fileExists(segmentPath(filepath.Join(s.dir, segmentsDir), from)) {
		t.Errorf("%d blocks were found bad, want 1, whose segment is gone", told)
	}
	wantHere(t, s, b)
}

// Verify reports whether all given blocks are here and good, and a damaged one is gone after that. A closed store
// returns an error.
func TestVerifyTellsWhatIsHere(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	all := makeBlocks(t, 1, 3, 500)
	mustPut(t, s, "o", all[:2]...)
	want := func(want bool, blks ...blocks.Block) {
		t.Helper()
		if got, err := s.Verify(t.Context(), blks); got != want || err != nil {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	want(true)
	want(true, all[:2]...)
	want(false, all...)
	lie, err := blocks.NewBlockWithCid([]byte("not these"), all[0].Cid())
	must(t, err)
	want(true, lie) // what is here is good
	wantHere(t, s, all[:2]...)
	flipIn(kindBlock, 1, func(r record) int64 { return r.off + r.bytes - 1 })(t, segmentPath(filepath.Join(dir, segmentsDir), s.active.number), s.active.number)
	want(true, all[0])
	want(false, all[:2]...)
	wantGone(t, s, all[1])
	mustPut(t, s, "o", all[1])
	want(true, all[:2]...)
	must(t, s.Close())
	if _, err := s.Verify(t.Context(), all); err == nil {
		t.Error("a closed store tells what is there")
	}
}
