package dag

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
)

func seenKey(i int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(i))) }

func TestSeenIsASet(t *testing.T) {
	free := newSeenBytes()
	s := newSeen(free)
	const n = 5 * splitAt
	for round := range 2 {
		for i := range n {
			if first, err := s.add(seenKey(i)); err != nil || first != (round == 0) {
				t.Fatal(round, i, first, err)
			}
		}
	}
	if s.parts == nil || free.Load() != maxSeenBytes-s.taken || s.taken > n*20 {
		t.Errorf("%d bytes taken for %d entries, %d left", s.taken, n, free.Load())
	}
	s.forget()
	if first, err := s.add(seenKey(1)); err != nil || !first {
		t.Error("not forgotten")
	}
	s.forget()
	if free.Load() != maxSeenBytes {
		t.Errorf("%d bytes are lost", maxSeenBytes-free.Load())
	}
}

func TestWalksShareWhatTheyRemember(t *testing.T) {
	free := new(atomic.Int64)
	free.Store(1 << 20)
	a, b := newSeen(free), newSeen(free)
	fill := func(s *seen) (n int, err error) {
		for ; err == nil; n++ {
			_, err = s.add(seenKey(n))
		}
		return n, err
	}
	n, err := fill(a)
	if !errors.Is(err, ErrMemory) || n < 50_000 {
		t.Fatal(n, err)
	}
	if m, err := fill(b); !errors.Is(err, ErrMemory) || m > n/4 {
		t.Fatal(m, err)
	}
	if left := free.Load(); left < 0 {
		t.Fatal(left)
	}
	a.forget()
	if m, err := fill(b); !errors.Is(err, ErrMemory) || m < n/2 {
		t.Fatal(m, err)
	}
}

// A tenth of the largest DAG takes a tenth of 200 MB: BenchmarkSeen shows the
// whole of it.
func TestAMillionNodesAreRememberedInLittle(t *testing.T) {
	const nodes, most = DefaultMaxBlocks / 10, 20 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := newSeen(newSeenBytes())
	for i := range nodes {
		if first, err := s.add(seenKey(i)); err != nil || !first {
			t.Fatal(i, first, err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d nodes: %d bytes counted, %d of heap", nodes, s.taken, grown)
	if s.taken > most || grown > s.taken+(2<<20) {
		t.Errorf("%d nodes: %d bytes counted, %d of heap", nodes, s.taken, grown)
	}
	runtime.KeepAlive(s)
}

func BenchmarkSeen(b *testing.B) {
	b.ReportAllocs()
	s := newSeen(newSeenBytes())
	i := 0
	for b.Loop() {
		if i++; i%DefaultMaxBlocks == 0 {
			s.forget()
		}
		if _, err := s.add(seenKey(i)); err != nil {
			b.Fatal(err)
		}
	}
}
