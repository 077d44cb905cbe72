package kv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// passing selects keys that begin with p.
func passing(key []byte) bool { return len(key) > 0 && key[0] == 'p' }

// Passing keys that were deleted stay deleted, whatever Pebble has merged meanwhile, and all rows are those of a map.
func TestPassingKeysThatWereDeletedStayDeleted(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(3, 3))
	want := map[string]string{}
	for round := range 30 {
		s, err := Open(dir, Options{Fatal: func(m string) { panic(m) }, Sparse: bKeys(), Passing: passing})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			tx := s.Begin()
			for range 1 + r.IntN(12) {
				key := fmt.Sprintf("%c%d", "pb"[r.IntN(2)], r.IntN(6))
				_, there := want[key]
				if there && (passing([]byte(key)) || r.IntN(2) == 0) {
					err = tx.Delete([]byte(key))
					delete(want, key)
				} else {
					want[key] = fmt.Sprintf("%d-%d", round, i)
					err = tx.Set([]byte(key), []byte(want[key]))
				}
				if err != nil {
					t.Fatal(err)
				}
				if r.IntN(3) == 0 {
					if value, ok, err := tx.Get([]byte(key)); err != nil || string(value) != want[key] || ok != (want[key] != "") {
						t.Fatalf("%s is %q, %t, %v, want %q", key, value, ok, err, want[key])
					}
				}
			}
			if err := tx.Commit(false); err != nil {
				t.Fatal(err)
			}
			switch r.IntN(6) {
			case 0:
				err = s.live.db.Flush()
			case 1:
				err = errors.Join(s.live.db.Flush(), s.live.db.Compact(t.Context(), []byte("a"), []byte("z"), false))
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := stored(t, s); got != text(want) {
				t.Fatalf("round %d, %d: the store holds\n%s\nthe map\n%s", round, i, got, text(want))
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A passing key that is deleted before the memtable is written leaves no tombstone.
func TestAPassingKeyLeavesNoTombstone(t *testing.T) {
	for _, short := range []bool{false, true} {
		opts := Options{}
		if short {
			opts.Passing = passing
		}
		s, err := Open(t.TempDir(), opts)
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, false, "p0", "x", "p9", "x") // so that the last level has a table there
		if err := errors.Join(s.live.db.Flush(), s.live.db.Compact(t.Context(), []byte("a"), []byte("z"), false)); err != nil {
			t.Fatal(err)
		}
		put(t, s, false, "p00", "x")
		tx := s.Begin()
		if err := errors.Join(tx.Delete([]byte("p00")), tx.Set([]byte("q"), nil), tx.Commit(false), s.live.db.Flush()); err != nil {
			t.Fatal(err)
		}
		tables, err := s.live.db.SSTables(pebble.WithProperties())
		if err != nil {
			t.Fatal(err)
		}
		left := uint64(0)
		for _, level := range tables {
			for _, table := range level {
				left += table.Properties.NumDeletions
			}
		}
		if (left == 0) != short {
			t.Errorf("passing %t: %d tombstones are left", short, left)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A transaction writes nothing to the log for deletions of keys that are known to be missing.
func TestADeletionOfAMissingKeyIsNotWritten(t *testing.T) {
	s := openSparse(t, t.TempDir())
	put(t, s, false, "a", "x", "b", "x")
	built(t, s)
	before := s.live.db.Metrics().WAL.BytesIn
	tx := s.Begin()
	if _, ok, err := tx.Get([]byte("c")); ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := errors.Join(tx.Delete([]byte("b1")), tx.Set([]byte("c"), nil), tx.Delete([]byte("c")), tx.Commit(false)); err != nil {
		t.Fatal(err)
	}
	if n := s.live.db.Metrics().WAL.BytesIn - before; n > 0 {
		t.Errorf("%d bytes were written", n)
	}
	if got := stored(t, s); got != "a=x b=x ~=" {
		t.Error(got)
	}
}
