package kv

import (
	"bytes"
	"errors"
	"fmt"
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
// and has a filter: it never hides a key.
func TestAFilterHidesNothing(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(2, 2))
	committed := map[string]string{}
	for range 20 {
		s := openSparse(t, dir)
		for range 60 {
			committed = transact(t, r, s, committed)
		}
		if s.live.filter.whole.Load() == nil {
			t.Error("the filter is not complete")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A store with more keys than a commit looks at has its filter after some
// commits, before that it answers all the same; then no new key is looked for.
func TestAFilterIsBuiltInSteps(t *testing.T) {
	const keys = 5 * filterStep
	dir := t.TempDir()
	s := open(t, dir)
	for i := range keys {
		put(t, s, false, fmt.Sprintf("a%06d", i), "", fmt.Sprintf("b%06d", 2*i), "v", fmt.Sprintf("c%06d", i), "")
	}
	if s.live.filter.lacks([]byte("b000001")) {
		t.Error("a store without a filter has one")
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
	for ; s.live.filter.whole.Load() == nil; commits++ {
		if commits%2 == 0 {
			check()
		}
		put(t, s, false, "c", "")
	}
	if commits < keys/filterStep || commits > keys/filterStep+3 {
		t.Errorf("whole after %d commits", commits)
	}
	check()
	missed := 0
	for i := range keys {
		if !s.live.filter.lacks(fmt.Appendf(nil, "b%06d", 2*i+1)) {
			missed++
		}
	}
	if missed > keys/50 {
		t.Errorf("%d of %d keys that are not there are looked for", missed, keys)
	}
	if s.live.filter.lacks([]byte("a-")) {
		t.Error("a key that is not selected is known not to be there")
	}
	// Made anew, it has what is there and what is written meanwhile.
	s.live.filter.added = filterKeys + 1
	put(t, s, false, "b000001", "v")
	for s.live.filter.young != nil {
		put(t, s, false, "c", "")
	}
	if s.live.filter.lacks([]byte("b000001")) || s.live.filter.lacks([]byte("b000000")) {
		t.Error("a key is hidden after the filter was rebuilt")
	}
}

// A store that is replaced by a snapshot's has a filter of the new keys.
func TestARestoredStoreHasAFilterOfItsKeys(t *testing.T) {
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
	for range 2 { // before the new filter is complete, and after
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
	if !to.live.filter.lacks([]byte("b2")) {
		t.Error("a key of the old store is not known to be gone")
	}
}

// A store with more keys than filterMost gives the filter up, and answers
// as without one.
func TestAFilterOfTooManyKeysIsGivenUp(t *testing.T) {
	s := openSparse(t, t.TempDir())
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	s.live.filter.most = 10
	for i := range s.live.filter.most {
		put(t, s, false, fmt.Sprintf("b%02d", i), "v")
	}
	again := func() {
		t.Helper()
		s.live.filter.added = filterKeys + 1
		put(t, s, false, "c", "")
	}
	again()
	if !s.live.filter.lacks([]byte("b10")) {
		t.Fatal("a filter that is worth having is given up")
	}
	put(t, s, false, "b10", "v")
	again()
	if s.live.filter.whole.Load() != nil || s.live.filter.young != nil {
		t.Error("a filter of too many keys is kept")
	}
	put(t, s, false, "b11", "v")
	again()
	tx := s.Begin()
	defer tx.Discard()
	for key, want := range map[string]bool{"b00": true, "b10": true, "b11": true, "b12": false} {
		if _, ok, err := tx.Get([]byte(key)); err != nil || ok != want {
			t.Errorf("%s: %t, %v", key, ok, err)
		}
	}
}

// What a transaction looks for among its own writes alone is no answer about the
// store, and is not remembered as one.
func TestOwnWritesAreToldFromTheStore(t *testing.T) {
	s := open(t, t.TempDir())
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	put(t, s, false, "a", "stored", "b", "stored")
	tx := s.Begin()
	defer tx.Discard()
	want := func(get func([]byte) ([]byte, bool, error), key, value string) {
		t.Helper()
		if got, ok, err := get([]byte(key)); err != nil || ok != (value != "") || string(got) != value {
			t.Errorf("%s: %q, %t, %v; want %q", key, got, ok, err, value)
		}
	}
	want(tx.GetOwn, "a", "")
	want(tx.Get, "a", "stored")
	if err := errors.Join(tx.Set([]byte("b"), []byte("own")), tx.Set([]byte("c"), []byte("own"))); err != nil {
		t.Fatal(err)
	}
	want(tx.GetOwn, "b", "own")
	want(tx.GetOwn, "c", "own")
	if err := errors.Join(tx.Delete([]byte("b")), tx.Delete([]byte("c"))); err != nil {
		t.Fatal(err)
	}
	want(tx.GetOwn, "b", "")
	want(tx.GetOwn, "c", "")
	if err := tx.Commit(false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tx.GetOwn([]byte("a")); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}
