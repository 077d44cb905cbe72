package raftlog

import (
	"bytes"
	"math"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
)

// When entries are removed, and when many were added, the pages of the file leave the memory of the process. The
// entries can be read, and further ones can be added.
func TestOldEntriesTakeNoMemory(t *testing.T) {
	const size = 256 << 10
	const few, entries = mostMapped / size / 2, mostMapped/size + 1
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
	resident := func(least, most int) {
		t.Helper()
		if got := hosttest.MappedBytes(t, path); got < least || got > most {
			t.Errorf("%d bytes are resident, want %d to %d", got, least, most)
		}
	}
	for index := uint64(1); index <= entries; index++ {
		if err := l.StoreLog(entry(index)); err != nil {
			t.Fatal(err)
		}
		if index <= few {
			check(index)
		}
		if index == few {
			resident(few*size/2, math.MaxInt)
		}
	}
	resident(0, mostMapped/4)
	for index := uint64(1); index <= entries; index++ {
		check(index)
	}
	resident(entries*size/2, math.MaxInt)
	if err := l.DeleteRange(1, entries-1); err != nil {
		t.Fatal(err)
	}
	resident(0, 1<<20)
	check(entries)
	if err := l.StoreLog(entry(entries + 1)); err != nil {
		t.Fatal(err)
	}
	check(entries + 1)
}
