package kv

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"testing"
)

// bKeys selects keys that begin with b and have more.
func bKeys() *Sparse {
	return &Sparse{
		Is: func(key []byte) bool { return len(key) > 1 && key[0] == 'b' },
		After: func(key []byte) []byte {
			if len(key) == 0 || key[0] < 'b' {
				return []byte("b")
			}
			if key[0] > 'b' {
				return []byte{0xff}
			}
			return nil
		},
	}
}

func openSparse(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, Options{Fatal: func(m string) { panic(m) }, Sparse: bKeys()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// As TestTransactionsAreThoseOfAMap, over a store that is opened again and again
// and has a sieve: it never hides a key.
func TestASieveHidesNothing(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(2, 2))
	committed := map[string]string{}
	for range 20 {
		s := openSparse(t, dir)
		for range 60 {
			tx := s.Begin()
			model := maps.Clone(committed)
			for range r.IntN(40) {
				step(t, r, tx, model)
			}
			if r.IntN(3) == 0 {
				tx.Discard()
				continue
			}
			if err := tx.Commit(false); err != nil {
				t.Fatal(err)
			}
			committed = model
		}
		if s.live.sieve.whole == nil {
			t.Error("the sieve is not whole")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A store with more keys than a commit looks at has its sieve after some
// commits, before that it answers all the same; then no new key is looked for.
func TestASieveGrowsWhole(t *testing.T) {
	const keys = 5 * sieveStep
	dir := t.TempDir()
	s := open(t, dir)
	for i := range keys {
		put(t, s, false, fmt.Sprintf("a%06d", i), "", fmt.Sprintf("b%06d", 2*i), "v", fmt.Sprintf("c%06d", i), "")
	}
	if s.live.sieve.lacks([]byte("b000001")) {
		t.Error("a store without a sieve has one")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openSparse(t, dir)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	check := func() {
		t.Helper()
		tx := s.Begin()
		defer tx.Discard()
		for i := range 2 * keys {
			_, ok, err := tx.Get(fmt.Appendf(nil, "b%06d", i))
			if err != nil || ok != (i%2 == 0) {
				t.Fatalf("key %d: %t, %v", i, ok, err)
			}
		}
	}
	commits := 0
	for ; s.live.sieve.whole == nil; commits++ {
		if commits%2 == 0 {
			check()
		}
		put(t, s, false, "c", "")
	}
	if commits < keys/sieveStep || commits > keys/sieveStep+3 {
		t.Errorf("whole after %d commits", commits)
	}
	check()
	missed := 0
	for i := range keys {
		if !s.live.sieve.lacks(fmt.Appendf(nil, "b%06d", 2*i+1)) {
			missed++
		}
	}
	if missed > keys/50 {
		t.Errorf("%d of %d keys that are not there are looked for", missed, keys)
	}
	if s.live.sieve.lacks([]byte("a-")) {
		t.Error("a key that is not selected is known not to be there")
	}
	// Made anew, it has what is there and what is written meanwhile.
	s.live.sieve.added = sieveKeys + 1
	put(t, s, false, "b000001", "v")
	for s.live.sieve.young != nil {
		put(t, s, false, "c", "")
	}
	if s.live.sieve.lacks([]byte("b000001")) || s.live.sieve.lacks([]byte("b000000")) {
		t.Error("a key is hidden after the sieve was made anew")
	}
}

// A store that is replaced by a snapshot's has a sieve of the new keys.
func TestASieveIsThatOfTheRestoredStore(t *testing.T) {
	from, to := openSparse(t, t.TempDir()), openSparse(t, t.TempDir())
	defer func() {
		for _, s := range []*Store{from, to} {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	put(t, from, false, "b1", "v")
	put(t, to, false, "b2", "v")
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	if err := from.Checkpoint(checkpoint); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := WriteArchive(&archive, checkpoint); err != nil {
		t.Fatal(err)
	}
	if err := to.Restore(&archive); err != nil {
		t.Fatal(err)
	}
	for range 2 { // before the new sieve is whole, and after
		tx := to.Begin()
		for key, want := range map[string]bool{"b1": true, "b2": false} {
			if _, ok, err := tx.Get([]byte(key)); err != nil || ok != want {
				t.Errorf("%s: %t, %v", key, ok, err)
			}
		}
		if err := tx.Commit(false); err != nil {
			t.Fatal(err)
		}
	}
	if !to.live.sieve.lacks([]byte("b2")) {
		t.Error("a key of the old store is not known to be gone")
	}
}
