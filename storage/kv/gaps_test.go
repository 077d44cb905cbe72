package kv

import (
	"fmt"
	"testing"
)

// queued returns a store with rows of a queue, and one behind it.
func queued(t testing.TB, rows int) *Store {
	t.Helper()
	s := open(t, t.TempDir())
	tx := s.Begin()
	for i := range rows {
		if err := tx.Set(fmt.Appendf(nil, "q%08d", i), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Set([]byte("r"), nil); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(false); err != nil {
		t.Fatal(err)
	}
	return s
}

// pop takes the first row of the queue, "" if there is none.
func pop(t testing.TB, s *Store) (key string) {
	t.Helper()
	tx := s.Begin()
	defer tx.Discard()
	if err := tx.Scan([]byte("q"), []byte("r"), false, func(k, _ []byte) (bool, error) {
		key = string(k)
		return false, tx.Delete(k)
	}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(false); err != nil {
		t.Fatal(err)
	}
	return key
}

// A store remembers the gap of deleted rows at the front of a queue, so a scan from the front does not pass them again.
// A row that is set inside the gap is still found. The store remembers at most maxGaps gaps.
func TestTheFrontOfAQueueIsRemembered(t *testing.T) {
	const rows = 1000
	s := queued(t, rows)
	for i := range rows {
		if got, want := pop(t, s), fmt.Sprintf("q%08d", i); got != want {
			t.Fatalf("taken %q, want %q", got, want)
		}
		if i > 2*gapSteps {
			known := s.live.gaps.find([]byte("q"))
			if known == nil || string(known.to) < fmt.Sprintf("q%08d", i-gapSteps-1) || string(known.to) > fmt.Sprintf("q%08d", i) {
				t.Fatalf("after %d: %+v", i, known)
			}
		}
	}
	if got := pop(t, s); got != "" {
		t.Fatalf("taken of none: %q", got)
	}
	for _, key := range []string{"q00000500", "q00000100"} {
		put(t, s, false, key, "x")
		if got := pop(t, s); got != key {
			t.Errorf("taken %q, want %q", got, key)
		}
	}
	for i := range 3 * maxGaps {
		s.live.gaps.learn(fmt.Append(nil, "a", i), []byte("b"))
	}
	if n := len(s.live.gaps.all); n > maxGaps {
		t.Errorf("%d gaps are remembered", n)
	}
	if got := stored(t, s); got != "r=" {
		t.Errorf("left: %s", got)
	}
}

func BenchmarkPop(b *testing.B) {
	const rows = 20_000
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		s := queued(b, rows)
		b.StartTimer()
		for pop(b, s) != "" {
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N)/rows, "µs/pop")
}
