package raftlog

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
)

// When entries are removed, the pages of the file leave the memory of the process. The entries that stay can be
// read, and further ones can be added.
func TestRemovedEntriesTakeNoMemory(t *testing.T) {
	const entries, size = 64, 256 << 10
	path := filepath.Join(t.TempDir(), "raft.db")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	entry := func(index uint64) *raft.Log {
		return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: bytes.Repeat([]byte{byte(index)}, size)}
	}
	check := func(index uint64) {
		t.Helper()
		var got raft.Log
		if err := l.GetLog(index, &got); err != nil || !bytes.Equal(got.Data, entry(index).Data) {
			t.Fatalf("entry %d: %d bytes, %v", index, len(got.Data), err)
		}
	}
	for index := uint64(1); index <= entries; index++ {
		if err := l.StoreLog(entry(index)); err != nil {
			t.Fatal(err)
		}
		check(index)
	}
	if got := hosttest.MappedBytes(t, path); got < entries*size/2 {
		t.Fatalf("%d bytes are resident before", got)
	}
	if err := l.DeleteRange(1, entries-1); err != nil {
		t.Fatal(err)
	}
	if got := hosttest.MappedBytes(t, path); got > 1<<20 {
		t.Errorf("%d bytes are resident afterwards", got)
	}
	check(entries)
	if err := l.StoreLog(entry(entries + 1)); err != nil {
		t.Fatal(err)
	}
	check(entries + 1)
}
