package dag

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

func seenKey(i int) string { return string(binary.BigEndian.AppendUint64(nil, uint64(i))) }

// A seen set reports a key as first once, and gives its memory back when it forgets. It takes less than 20 bytes for
// each key.
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

// Walks share one bound of memory: a walk that has no room gets ErrMemory, and room when another has forgotten.
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

// Small walks have room for 80,000 nodes each while large walks take all memory that they get. One of them is of the
// largest DAG.
func TestSmallWalksHaveRoomBesideTheLargest(t *testing.T) {
	free := newSeenBytes()
	large := newSeen(free)
	if err := large.take(190e6); err != nil {
		t.Fatalf("the largest DAG: %v", err)
	}
	for {
		if err := newSeen(free).take(smallSeen + 1); err != nil {
			break // it gives nothing back
		}
	}
	const nodes = 80_000
	for range keptForSmall / smallSeen {
		s := newSeen(free)
		for i := range nodes {
			if _, err := s.add(seenKey(i)); err != nil {
				t.Fatalf("after %d nodes, %d bytes free: %v", i, free.Load(), err)
			}
		}
		if s.taken > smallSeen {
			t.Fatalf("%d nodes take %d bytes", nodes, s.taken)
		}
	}
	if err := large.take(1); !errors.Is(err, ErrMemory) {
		t.Errorf("a large one is given what is kept for small ones: %v", err)
	}
}

// A walk remembers DefaultMaxBlocks/10 nodes in at most 20 MiB. That is a tenth of the largest DAG: BenchmarkSeen
// shows the whole of it.
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

// heap is a Store that has blocks for whoever asks.
type heap map[cid.Cid]blocks.Block

func (h heap) Get(_ context.Context, c cid.Cid) (blocks.Block, error) {
	if b := h[c]; b != nil {
		return b, nil
	}
	return nil, ipld.ErrNotFound{Cid: c}
}

func (h heap) Put(_ context.Context, _ string, blks []blocks.Block) error {
	for _, b := range blks {
		h[b.Cid()] = b
	}
	return nil
}

func (h heap) Adopt(_ context.Context, _ string, cids []cid.Cid) (missing []cid.Cid, err error) {
	return slices.DeleteFunc(slices.Clone(cids), func(c cid.Cid) bool { return h[c] != nil }), nil
}

func (h heap) TakeOver(ctx context.Context, reference string, cids []cid.Cid) (bytes uint64, missing []cid.Cid, err error) {
	for _, c := range cids {
		if b := h[c]; b != nil {
			bytes += uint64(len(b.RawData()))
		}
	}
	missing, err = h.Adopt(ctx, reference, cids)
	return bytes, missing, err
}

// A fetch with Here set of content that was just put succeeds when other fetches have taken all memory for walks.
// Another fetch fails with ErrMemory.
func TestWhatIsHereNeedsNoRoomOfFetches(t *testing.T) {
	store := heap{}
	put := func(blks []blocks.Block) error { return store.Put(t.Context(), "put", blks) }
	root, size, err := Import(t.Context(), bytes.NewReader(make([]byte, 3*ChunkSize+1)), put)
	if err != nil {
		t.Fatal(err)
	}
	buffer := NewBuffer(DefaultBuffer)
	buffer.seen.Store(0) // fetches have taken all
	req := FetchRequest{Root: root, Reference: "root", Store: store, Here: true, Buffer: buffer}
	if got, err := Fetch(t.Context(), req); err != nil || got.Bytes >= size || got.Blocks != 3 {
		t.Errorf("%d bytes in %d blocks, %v", got.Bytes, got.Blocks, err)
	}
	req.Here = false
	if _, err := Fetch(t.Context(), req); !errors.Is(err, ErrMemory) {
		t.Errorf("another fetch: %v", err)
	}
}
