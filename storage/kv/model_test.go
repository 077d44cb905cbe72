package kv

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// errStop is a scan's callback that fails.
var errStop = errors.New("stop")

// transact makes some changes and commits them, or not, and returns what is committed then.
func transact(t *testing.T, r *rand.Rand, s *Store, committed map[string]string) map[string]string {
	t.Helper()
	tx, model := s.Begin(), maps.Clone(committed)
	for range r.IntN(40) {
		step(t, r, tx, model)
	}
	if r.IntN(3) == 0 {
		tx.Discard()
		return committed
	}
	if err := tx.Commit(false); err != nil {
		t.Fatal(err)
	}
	return model
}

// Transactions read, scan and commit what a map has after any sequence of writes. There are few keys, so that what is
// read was often written, deleted or remembered before.
func TestTransactionsAreThoseOfAMap(t *testing.T) {
	s := open(t, t.TempDir())
	s.live.gaps.steps = 1
	r := rand.New(rand.NewPCG(1, 1))
	committed := map[string]string{}
	for range 1000 {
		committed = transact(t, r, s, committed)
		if got, want := stored(t, s), text(committed); got != want {
			t.Fatalf("the store holds\n%s\nthe model\n%s", got, want)
		}
	}
	if len(s.live.gaps.all) == 0 {
		t.Error("no gap was remembered")
	}
}

func text(m map[string]string) string {
	var b bytes.Buffer
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s=%s", k, m[k])
	}
	return b.String()
}

func anyKey(r *rand.Rand) []byte {
	return []byte{'a' + byte(r.IntN(3)), 'a' + byte(r.IntN(4)), 'a' + byte(r.IntN(3))}[:1+r.IntN(3)]
}

func step(t *testing.T, r *rand.Rand, tx *Tx, model map[string]string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			tx.Discard() // or closing the store waits for it
		}
	}()
	switch key := anyKey(r); r.IntN(6) {
	case 0, 1:
		value := fmt.Sprint(r.IntN(1000))
		if err := tx.Set(key, []byte(value)); err != nil {
			t.Fatal(err)
		}
		model[string(key)] = value
	case 2:
		if err := tx.Delete(key); err != nil {
			t.Fatal(err)
		}
		delete(model, string(key))
	case 3, 4:
		got, ok, err := tx.Get(key)
		want, there := model[string(key)]
		if err != nil || ok != there || string(got) != want {
			t.Fatalf("%s is %q, %t, %v, want %q, %t", key, got, ok, err, want, there)
		}
		clear(got) // it is ours: nobody else may see this
	case 5:
		compareScan(t, r, tx, model)
	}
}

// compareScan scans between two bounds, in either direction, up to some row.
func compareScan(t *testing.T, r *rand.Rand, tx *Tx, model map[string]string) {
	t.Helper()
	var lower, upper []byte
	if r.IntN(3) > 0 {
		lower = anyKey(r)
	}
	if r.IntN(3) > 0 {
		upper = anyKey(r)
	}
	reverse, most := r.IntN(2) == 0, 1+r.IntN(12)
	var want []string
	for _, k := range slices.Sorted(maps.Keys(model)) {
		if k >= string(lower) && (upper == nil || k < string(upper)) {
			want = append(want, k+"="+model[k])
		}
	}
	if reverse {
		slices.Reverse(want)
	}
	want = want[:min(most, len(want))]
	fails := r.IntN(4) == 0 && len(want) == most
	var got []string
	err := tx.Scan(lower, upper, reverse, func(k, v []byte) (bool, error) {
		got = append(got, string(k)+"="+string(v))
		if len(got) == most && fails {
			return true, errStop
		}
		return len(got) < most, nil
	})
	if !slices.Equal(got, want) || fails != errors.Is(err, errStop) || !fails && err != nil {
		t.Fatalf("scan [%s, %s) reverse %t: %v, %v, want %v", lower, upper, reverse, got, err, want)
	}
}

// A scan visits each row once although its function deletes the row and writes it elsewhere.
func TestWritesOfAScanAreSafe(t *testing.T) {
	s := open(t, t.TempDir())
	put(t, s, false, "a1", "x", "a3", "x", "a5", "x")
	tx := s.Begin()
	defer tx.Discard()
	if err := tx.Set([]byte("a2"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	// Each row moves to another place, as pins do when they are settled.
	if err := tx.Scan([]byte("a"), []byte("b"), false, func(k, v []byte) (bool, error) {
		return true, errors.Join(tx.Delete(k), tx.Set(append([]byte("b"), k...), v))
	}); err != nil {
		t.Fatal(err)
	}
	if got, want := content(t, tx), "ba1=x ba2=x ba3=x ba5=x"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A store remembers at most recentBytes of values that were read, and none that nobody has read.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	s := open(t, t.TempDir())
	value := bytes.Repeat([]byte("v"), 1000)
	const rows = 3 * recentBytes / 1000
	key := func(i int) []byte { return fmt.Appendf(nil, "key %07d", i) }
	tx := s.Begin()
	for i := range rows {
		if err := tx.Set(key(i), value); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Set(key(rows), make([]byte, recentBytes)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(false); err != nil {
		t.Fatal(err)
	}
	if n := s.live.points.recent.Len(); n != 0 {
		t.Errorf("%d values are remembered that nobody has read", n)
	}
	for i := range rows + 1 {
		tx := s.Begin()
		if _, ok, err := tx.Get(key(i)); err != nil || !ok {
			t.Fatal(i, ok, err)
		}
		if err := tx.Commit(false); err != nil {
			t.Fatal(err)
		}
	}
	if w := s.live.points.recent.Weight(); w > recentBytes || w < recentBytes/2 {
		t.Errorf("%d bytes are remembered, the bound is %d", w, recentBytes)
	}
}
