package kv

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// Memtables and cached blocks are counted, both together take about the size of the cache, and a closed store has
// none.
func TestMemoryOfTheStoreIsKnown(t *testing.T) {
	const cache, value = 4 << 20, 4 << 10
	s, err := Open(t.TempDir(), Options{CacheBytes: cache})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.MemoryBytes(); got == 0 || got > cache {
		t.Errorf("a new store has %d bytes of a cache of %d", got, cache)
	}
	key := func(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	const rows = 4 * cache / value
	for n := range rows {
		tx := s.Begin()
		if err := tx.Set(key(n), bytes.Repeat(key(n*n), value/8)); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(false); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.live.db.Flush(); err != nil {
		t.Fatal(err)
	}
	written := s.MemoryBytes()
	if written < cache/4 {
		t.Errorf("%d bytes of memtables, one has %d", written, cache/4)
	}
	for n := range rows {
		if _, ok, err := s.Get(key(n)); err != nil || !ok {
			t.Fatal(n, ok, err)
		}
	}
	if read := s.MemoryBytes(); read <= written || read > 2*cache {
		t.Errorf("%d bytes after all rows were read, %d before, of a cache of %d", read, written, cache)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := s.MemoryBytes(); got != 0 {
		t.Errorf("a closed store has %d bytes", got)
	}
}
