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

// built waits for the build of the filter, if there is one, and commits, which makes its result the filter.
func built(t testing.TB, s *Store) {
	t.Helper()
	if made := s.live.filter.young; made != nil {
		<-made.done
	}
	put(t, s, false, "~", "")
}

// Transactions over a store with a filter of its keys, which is opened again and again, read what a map has. The
// filter never hides a key. See TestTransactionsAreThoseOfAMap.
func TestAFilterHidesNothing(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(2, 2))
	committed := map[string]string{}
	for range 20 {
		s := openSparse(t, dir)
		for i := range 60 {
			if i == 30 {
				built(t, s)
				committed["~"] = ""
			}
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

// A store answers every read correctly before, during and after the build of its filter. Keys are written and deleted
// meanwhile. It has more keys than a step of a build. After the build at most 2 % of the keys that are not there are
// looked for.
func TestAFilterIsBuiltBesideCommits(t *testing.T) {
	const keys = 3 * filterStep
	dir := t.TempDir()
	s := open(t, dir)
	tx := s.Begin()
	for i := range keys {
		for _, key := range []string{"a%06d", "b%06d", "c%06d"} {
			if err := tx.Set(fmt.Appendf(nil, key, 2*i), []byte("v")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tx.Commit(false); err != nil {
		t.Fatal(err)
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
	r := rand.New(rand.NewPCG(1, 1))
	odd := map[int]bool{} // the odd keys that are there
	check := func(i int) {
		t.Helper()
		want := i%2 == 0 || odd[i]
		if _, ok, err := s.Get(fmt.Appendf(nil, "b%06d", i)); err != nil || ok != want {
			t.Fatalf("key %d: %t, %v; want %t", i, ok, err, want)
		}
	}
	write := func() {
		i := 2*r.IntN(keys) + 1
		tx := s.Begin()
		defer tx.Discard()
		key := fmt.Appendf(nil, "b%06d", i)
		if odd[i] = r.IntN(4) > 0; odd[i] {
			if err := tx.Set(key, nil); err != nil {
				t.Fatal(err)
			}
		} else if err := tx.Delete(key); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(false); err != nil {
			t.Fatal(err)
		}
		check(i)
		check(r.IntN(2 * keys))
	}
	for s.live.filter.whole.Load() == nil {
		write()
	}
	for i := range 2 * keys {
		check(i)
	}
	missed := 0
	for i := range keys {
		if i := 2*i + 1; !odd[i] && !s.live.filter.lacks(fmt.Appendf(nil, "b%06d", i)) {
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
	s.live.filter.added = s.live.filter.room + 1
	for old := s.live.filter.whole.Load(); s.live.filter.whole.Load() == old; {
		write()
	}
	for i := range 2 * keys {
		check(i)
	}
}

// Restore and Close end the build of a filter that is under way.
func TestABuildOfAFilterEndsWithItsStore(t *testing.T) {
	const keys = 2 * filterStep
	dir := t.TempDir()
	s := open(t, dir)
	tx := s.Begin()
	for i := range keys {
		if err := tx.Set(fmt.Appendf(nil, "b%06d", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(false); err != nil {
		t.Fatal(err)
	}
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	if err := errors.Join(s.Checkpoint(checkpoint), s.Close()); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s = openSparse(t, dir)
		first := s.live.filter.young.done
		var archive bytes.Buffer
		if err := errors.Join(WriteArchive(&archive, checkpoint), s.Restore(&archive)); err != nil {
			t.Fatal(err)
		}
		<-first
		second := s.live.filter.young.done
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		<-second
	}
}

// A store that a snapshot has replaced reads the new keys, and its filter knows that an old key is gone.
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
	for i := range 2 { // perhaps before the new filter is complete, and after
		if i > 0 {
			built(t, to)
		}
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

// A filter that is too small for the keys of the store is replaced by larger ones, until it has room for more. At no
// time it hides a key, also none that is written while the next one is built.
func TestAFilterGrowsWithItsStore(t *testing.T) {
	s := openSparse(t, t.TempDir())
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	built(t, s)
	f := &s.live.filter
	f.build(s.live.db, 1)
	const keys = 300 // more than fit into one block, and into four
	n := 0
	sizes := map[int]bool{}
	for ; n < keys || f.young != nil; n++ {
		put(t, s, false, fmt.Sprintf("b%04d", n), "v")
		for i := range n + 1 {
			if f.lacks(fmt.Appendf(nil, "b%04d", i)) {
				t.Fatalf("key %d of %d is hidden", i, n)
			}
		}
		if n == keys/2 { // made from here on
			for f.young != nil {
				built(t, s)
			}
			f.build(s.live.db, 1)
		}
		if young := f.young; young != nil {
			sizes[len(young.bits.blocks)] = true
		}
	}
	whole := f.whole.Load()
	if got := len(whole.blocks); !sizes[1] || !sizes[filterGrowth] || got != filterGrowth*filterGrowth || f.room < keys {
		t.Errorf("the filter has %d blocks and room for %d keys more; %v were built", got, f.room, sizes)
	}
	missed := 0
	for i := range 1000 {
		if !f.lacks(fmt.Appendf(nil, "b%04d", n+i)) {
			missed++
		}
	}
	if missed > 30 {
		t.Errorf("%d of 1000 keys that are not there are looked for", missed)
	}
	f.added = f.room + 1 // as many more: it is made anew, and as large
	put(t, s, false, "~", "")
	built(t, s)
	if next := f.whole.Load(); next == whole || len(next.blocks) != len(whole.blocks) {
		t.Error("a full filter is not made anew")
	}
}

// A store with more keys than the filter may have gives the filter up and answers as without one.
func TestAFilterOfTooManyKeysIsGivenUp(t *testing.T) {
	s := openSparse(t, t.TempDir())
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	built(t, s)
	s.live.filter.most = 10
	for i := range s.live.filter.most {
		put(t, s, false, fmt.Sprintf("b%02d", i), "v")
	}
	again := func() {
		t.Helper()
		s.live.filter.added = s.live.filter.room + 1
		put(t, s, false, "c", "")
		built(t, s)
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

// GetOwn returns only what its transaction has written, and Get after it still reads the store.
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
