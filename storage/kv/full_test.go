package kv

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fullDisk is a file system whose writes, or flushes, can be refused.
type fullDisk struct {
	vfs.FS
	writes, flushes atomic.Bool // refused
	flushed         atomic.Int64
}

func (d *fullDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if d.writes.Load() {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
	}
	return d.file(d.FS.Create(name, c))
}

func (d *fullDisk) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.file(d.FS.ReuseForWrite(oldname, newname, c))
}

func (d *fullDisk) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &fullFile{f, d}, nil
}

type fullFile struct {
	vfs.File
	disk *fullDisk
}

func (f *fullFile) Write(b []byte) (int, error) {
	if f.disk.writes.Load() {
		return 0, &os.PathError{Op: "write", Path: "file", Err: syscall.ENOSPC}
	}
	return f.File.Write(b)
}

func (f *fullFile) Fd() uintptr { return vfs.InvalidFd } // no way around Sync

func (f *fullFile) Sync() error { return f.flush(f.File.Sync) }

func (f *fullFile) SyncData() error { return f.flush(f.File.SyncData) }

func (f *fullFile) flush(fn func() error) error {
	if f.disk.flushes.Load() {
		f.disk.flushed.Add(1)
		return syscall.ENOSPC
	}
	return fn()
}

func set(s *Store, key string, sync bool) error {
	tx := s.Begin()
	defer tx.Discard()
	if err := tx.Set([]byte(key), []byte("value")); err != nil {
		return err
	}
	return tx.Commit(sync)
}

// A write on a full disk waits until there is room and then succeeds, reads go on meanwhile, and no write is lost.
func TestAWriteWaitsForRoomAndReadsGoOn(t *testing.T) {
	disk := &fullDisk{FS: vfs.Default}
	asked, room := make(chan struct{}), make(chan struct{})
	var once sync.Once
	dir := t.TempDir()
	opts := Options{fs: disk, Fatal: func(m string) { t.Errorf("the store has failed: %s", m) }, Full: func() {
		once.Do(func() { close(asked) })
		<-room
	}}
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := set(s, fmt.Sprint("before", i), true); err != nil {
			t.Fatal(err)
		}
	}
	disk.writes.Store(true)
	done := make(chan error, 1)
	go func() { done <- set(s, "full", true) }()
	<-asked
	if _, ok, err := s.Get([]byte("before7")); !ok || err != nil {
		t.Errorf("a read on a full disk: %t, %v", ok, err)
	}
	select {
	case err := <-done:
		t.Fatalf("a write on a full disk was answered: %v", err)
	default:
	}
	disk.writes.Store(false)
	close(room)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, key := range []string{"before0", "before99", "full"} {
		if _, ok, err := s.Get([]byte(key)); !ok || err != nil {
			t.Errorf("%s after a restart: %t, %v", key, ok, err)
		}
	}
}

// A flush that fails for want of room ends the store, which does not repeat the flush. It does not ask for room
// either.
func TestAFlushThatFailedForWantOfRoomIsNotAskedForAgain(t *testing.T) {
	disk := &fullDisk{FS: vfs.Default}
	fatal := make(chan string, 16)
	full := make(chan struct{}, 16)
	s, err := Open(t.TempDir(), Options{
		fs: disk, Full: func() { full <- struct{}{} },
		Fatal: func(m string) {
			fatal <- m
			select {} // the process would end here
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	disk.flushes.Store(true)
	go func() { _ = set(s, "lost", true) }()
	if m := <-fatal; !strings.Contains(m, "flush") {
		t.Errorf("fatal: %s", m)
	}
	if n := disk.flushed.Load(); n != 1 || len(full) != 0 {
		t.Errorf("%d flushes, %d calls of Full", n, len(full))
	}
}
