package blocks

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	blocks "github.com/ipfs/go-block-format"
)

// TestAFullDiskIsNoBrokenStore fills the file system below a store to its last
// byte, which takes root to mount one.
func TestAFullDiskIsNoBrokenStore(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("holdfast-blocks", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("no small file system can be mounted here, so a full disk is not tested: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(dir, "filler")
	room := func() {
		if err := os.Remove(filler); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	opts := Options{SegmentBytes: 1 << 20, MinFreeBytes: -1, CompactBytesPerSecond: 1 << 40, Full: room}
	s, err := Open(filepath.Join(dir, "store"), opts)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	blks := makeBlocks(t, 1, 256, 16<<10)
	stored := 0
	put := func() error {
		b := blks[stored]
		err := s.Put(t.Context(), fmt.Sprint("o", stored), []blocks.Block{b})
		if err == nil {
			stored++
		}
		return err
	}
	for range 64 {
		must(t, put())
	}
	must(t, os.WriteFile(filler, nil, 0o600))
	fill(t, filler)
	refused := 0
	for refused < 20 {
		if err := put(); errors.Is(err, ErrNoSpace) {
			refused++
		} else {
			must(t, err) // the index may have had its log preallocated, or asked for room
			fill(t, filler)
		}
		if stored == len(blks) {
			t.Fatal("the disk does not fill")
		}
	}
	select {
	case <-s.Failed():
		t.Fatal("the store is broken")
	default:
	}
	wantHere(t, s, blks[:stored]...)
	room()
	must(t, put())
	for i := range stored / 2 {
		if _, err := s.Drop(t.Context(), fmt.Sprint("o", i)); err != nil {
			t.Fatal(err)
		}
	}
	must(t, s.Close())
	s, err = Open(filepath.Join(dir, "store"), opts)
	must(t, err)
	wantHere(t, s, blks[stored/2:stored]...)
}

// fill lets a file grow until the disk takes no more.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	must(t, err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else {
			must(t, err)
		}
	}
}

func TestGarbageIsCollectedFromTheReserve(t *testing.T) {
	s := openTest(t, t.TempDir())
	blks := makeBlocks(t, 1, 96, 4<<10)
	for i, b := range blks {
		mustPut(t, s, fmt.Sprint("o", i), b)
	}
	content, copies := int64(0), int64(math.MaxInt64)
	s.opts.Room = func() (int64, int64) { return content, copies }
	before := s.Usage().DiskBytes
	for i := range blks { // a quarter of each segment
		if i%4 == 0 {
			if _, err := s.Drop(t.Context(), fmt.Sprint("o", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	copies = 0
	must(t, s.Compact(t.Context()))
	if got := s.Usage().DiskBytes; got < before {
		t.Errorf("without room for a copy %d of %d bytes are left", got, before)
	}
	copies = math.MaxInt64
	must(t, s.Compact(t.Context()))
	if got := s.Usage().DiskBytes; got > before*85/100 {
		t.Errorf("on a full disk %d of %d bytes are left, a quarter of which was garbage", got, before)
	}
	for i, b := range blks {
		if i%4 != 0 {
			wantHere(t, s, b)
		}
	}
	if err := s.Put(t.Context(), "new", makeBlocks(t, 2, 1, 100)); !errors.Is(err, ErrNoSpace) {
		t.Errorf("new content: %v", err)
	}
}
