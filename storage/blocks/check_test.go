package blocks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// edit changes the index of a store behind its back.
func edit(t testing.TB, s *Store, fn func(tx *kv.Tx) error) {
	t.Helper()
	tx := s.index.Begin()
	defer tx.Discard()
	must(t, fn(tx))
	must(t, tx.Commit(false))
}

// Check names each block and each reference whose counts are wrong, and says what is stored and what was
// computed. It changes nothing.
func TestCheckNamesWrongCounts(t *testing.T) {
	blks := makeBlocks(t, 1, 20, 100)
	hash := blks[3].Cid().Hash()
	block := "references of block " + hash.B58String()
	entry := func(change func(*blockEntry)) func(tx *kv.Tx) error {
		return func(tx *kv.Tx) error {
			e, ok, err := getBlock(tx, hash)
			if err != nil || !ok {
				return fmt.Errorf("no entry: %w", err)
			}
			change(&e)
			return tx.Set(blockKey(hash), e.encode())
		}
	}
	reference := func(tx *kv.Tx) (referenceEntry, error) {
		o, ok, err := getReference(tx, "a")
		if err != nil || !ok {
			return o, fmt.Errorf("no entry: %w", err)
		}
		return o, nil
	}
	for _, tc := range []struct {
		name  string
		edit  func(tx *kv.Tx) error
		wants []string
	}{
		{"nothing", func(*kv.Tx) error { return nil }, nil},
		{"too many references", entry(func(e *blockEntry) { e.refs++ }), []string{block + ": 3, of which 1 are hidden, not 2, of which 1 are hidden"}},
		{"too few references", entry(func(e *blockEntry) { e.refs-- }), []string{block + ": 1, of which 1 are hidden, not 2, of which 1 are hidden"}},
		{"hidden", entry(func(e *blockEntry) { e.hidden++ }), []string{block + ": 2, of which 2 are hidden, not 2, of which 1 are hidden"}},
		{"no block", func(tx *kv.Tx) error { return tx.Delete(blockKey(hash)) }, []string{block + ": 0, of which 0 are hidden, not 2", "totals of the store: 20 blocks"}},
		{"an unreadable block", func(tx *kv.Tx) error { return tx.Set(blockKey(hash), []byte("x")) }, []string{"block " + hash.B58String() + ": 1 bytes, not"}},
		{"a size", entry(func(e *blockEntry) { e.size++ }), []string{"totals of the store: 20 blocks of 2000 bytes, 0 missing, not 20 blocks of 2001 bytes"}},
		{"a block of a reference", func(tx *kv.Tx) error {
			o, err := reference(tx)
			if err != nil {
				return err
			}
			return tx.Delete(blockRefKey(o.inc, hash))
		}, []string{"blocks of reference a: 20, not 19", block + ": 2, of which 1 are hidden, not 1"}},
		{"a reference", func(tx *kv.Tx) error { return tx.Delete(referenceKey("a")) }, []string{"blocks of reference number", ": 20, not none"}},
		{"an unreadable reference", func(tx *kv.Tx) error { return tx.Set(referenceKey("a"), []byte("x")) }, []string{"reference a: 1 bytes, not"}},
		{"an unreadable entry", func(tx *kv.Tx) error {
			o, err := reference(tx)
			if err != nil {
				return err
			}
			return tx.Set(blockRefKey(o.inc, hash), []byte("x"))
		}, []string{"block of a reference 0x72", block}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := openTest(t, t.TempDir())
			mustPut(t, s, "a", blks...)
			mustPut(t, s, "b", blks[:10]...)
			must(t, s.Seal(t.Context(), "b", Sealed{Bytes: 1000, Blocks: 10, Hidden: true}))
			edit(t, s, tc.edit)
			found, err := s.Check(t.Context(), 10)
			must(t, err)
			var lines []string
			for _, d := range found.Differences {
				lines = append(lines, fmt.Sprintf("%s %s: %s, not %s", d.What, d.Key, d.Stored, d.Computed))
			}
			all := strings.Join(lines, "\n")
			if len(tc.wants) == 0 && all != "" || found.More > 0 || found.Rows < 50 {
				t.Errorf("%+v", found)
			}
			for _, want := range tc.wants {
				if !strings.Contains(all, want) {
					t.Errorf("%s\ndoes not have %q", all, want)
				}
			}
			if again, err := s.Check(t.Context(), 1); err != nil || len(again.Differences)+int(again.More) != len(found.Differences) || len(again.Differences) > 1 {
				t.Errorf("then %+v, %v", again, err)
			}
		})
	}
}

// Check ends with its caller.
func TestCheckEndsWithItsCaller(t *testing.T) {
	s := openTest(t, t.TempDir())
	mustPut(t, s, "a", makeBlocks(t, 2, 10, 16)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Check(ctx, 10); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Collect frees the space of all garbage, also in the newest segment, and keeps what has a reference. A
// second one has nothing to do.
func TestCollectFreesAlsoTheNewestSegment(t *testing.T) {
	s := openTest(t, t.TempDir())
	kept, gone := makeBlocks(t, 3, 10, 1000), makeBlocks(t, 4, 30, 1000)
	mustPut(t, s, "kept", kept...)
	mustPut(t, s, "gone", gone...)
	before := s.Usage()
	must(t, s.Collect(t.Context()))
	if s.Usage() != before || s.Freed() != (Freed{}) {
		t.Errorf("without garbage: %+v, then %+v", before, s.Usage())
	}
	mustDrop(t, s, "gone")
	must(t, s.Compact(t.Context()))
	if u := s.Usage(); u.DiskBytes < before.DiskBytes {
		t.Fatalf("the background work has freed the newest segment: %+v", u)
	}
	must(t, s.Collect(t.Context()))
	u, freed := s.Usage(), s.Freed()
	if u.DiskBytes > 20_000 || freed.Blocks != 30 || freed.Bytes != 30_000 || freed.Files != 1 || freed.FileBytes < 40_000 {
		t.Errorf("%+v after %+v: %+v", u, before, freed)
	}
	wantHere(t, s, kept...)
	wantGone(t, s, gone...)
	wantSound(t, s)
	must(t, s.Collect(t.Context()))
	if s.Usage().DiskBytes != u.DiskBytes || s.Freed() != freed {
		t.Errorf("again: %+v after %+v", s.Usage(), u)
	}
	s = openTest(t, kill(t, s.dir))
	wantHere(t, s, kept...)
	wantGone(t, s, gone...)
}

// Collect leaves the newest segment of a store of tiny blocks, whose records of references are no garbage.
func TestCollectLeavesAStoreOfTinyBlocks(t *testing.T) {
	s := openTest(t, t.TempDir())
	for i, b := range makeBlocks(t, 5, 200, 10) {
		mustPut(t, s, fmt.Sprintf("root/%040d", i), b)
	}
	before := s.Usage()
	for range 2 {
		must(t, s.Collect(t.Context()))
	}
	if s.Usage() != before {
		t.Errorf("%+v, then %+v", before, s.Usage())
	}
}
