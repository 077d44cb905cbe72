package raftlog

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
)

// A full disk refuses an append with ErrNoSpace, does not break the Raft log, and loses no entry. Deleted entries
// make room. A vote can still be written: it takes the pages that the last transaction has freed.
func TestAFullDiskRefusesAWriteAndLosesNothing(t *testing.T) {
	dir := t.TempDir()
	hosttest.SmallDisk(t, dir, 4<<20)
	path := filepath.Join(dir, "raft.db")
	l := openLog(t, path)
	must(t, l.SetUint64([]byte("CurrentTerm"), 7))
	entry := func(i uint64) *raft.Log { return &raft.Log{Index: i, Term: 1, Data: make([]byte, 40<<10)} }
	var last uint64
	fill := func() {
		t.Helper()
		for i := last + 1; ; i++ {
			err := l.StoreLog(entry(i))
			if errors.Is(err, ErrNoSpace) && errors.Is(err, syscall.ENOSPC) {
				return
			}
			must(t, err)
			last = i
		}
	}
	whole := func(first uint64) {
		t.Helper()
		if got, err := l.LastIndex(); got != last || err != nil {
			t.Errorf("last entry is %d, %v, want %d", got, err, last)
		}
		for i := first; i <= last; i++ {
			var e raft.Log
			if err := l.GetLog(i, &e); err != nil || len(e.Data) != 40<<10 {
				t.Fatalf("entry %d: %d bytes, %v", i, len(e.Data), err)
			}
		}
	}
	fill()
	if last < 10 {
		t.Fatalf("only %d entries", last)
	}
	for range 100 { // refused again and again
		if err := l.StoreLog(entry(last + 1)); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("on a full disk: %v", err)
		}
	}
	select {
	case <-l.Failed():
		t.Fatal("a full disk counts as a broken one")
	default:
	}
	whole(1)
	// A vote takes the pages that the last transaction has freed.
	must(t, l.SetUint64([]byte("CurrentTerm"), 8))
	// What is deleted makes room in the file itself.
	must(t, l.DeleteRange(1, 5))
	had := last
	fill()
	if last <= had {
		t.Error("no room was made by deleting")
	}
	whole(6)
	must(t, l.Close())
	l = openLog(t, path)
	whole(6)
	if term, err := l.GetUint64([]byte("CurrentTerm")); term != 8 || err != nil {
		t.Errorf("term %d, %v", term, err)
	}
}

// A flush that fails, even with ENOSPC, breaks the Raft log and does not count as a full disk.
func TestAFlushThatFailsIsNoFullDisk(t *testing.T) {
	l := openLog(t, filepath.Join(t.TempDir(), "raft.db"))
	for _, err := range []error{
		syscall.ENOSPC, // of fdatasync
		&os.PathError{Op: "sync", Err: syscall.ENOSPC},
		&os.PathError{Op: "write", Err: syscall.EIO},
	} {
		l.broken, l.failed = nil, make(chan struct{})
		if got := l.write("store", func() error { return err }); errors.Is(got, ErrNoSpace) || l.broken == nil {
			t.Errorf("%v is taken for a full disk", err)
		}
	}
	l.broken = nil
}
