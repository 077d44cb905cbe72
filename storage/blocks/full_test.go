package blocks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	blocks "github.com/ipfs/go-block-format"

	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
)

// A file system that is full to its last byte refuses puts with ErrNoSpace, and breaks and loses nothing. Puts and
// drops go on when there is room.
func TestAFullDiskIsNoBrokenStore(t *testing.T) {
	dir := t.TempDir()
	hosttest.SmallDisk(t, dir, 64<<20)
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

// Usage returns the figures of the store while the index waits for room on a full disk.
func TestUsageIsToldWhileTheIndexWaitsForRoom(t *testing.T) {
	dir := t.TempDir()
	hosttest.SmallDisk(t, dir, 64<<20)
	var once sync.Once
	asked, room := make(chan struct{}), make(chan struct{})
	s, err := Open(filepath.Join(dir, "store"), Options{MinFreeBytes: -1, Full: func() {
		once.Do(func() { close(asked) })
		<-room
	}})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	mustPut(t, s, "o", makeBlocks(t, 1, 3, 1000)...)
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	written := make(chan error, 1)
	go func() {
		written <- s.do(t.Context(), 1, func(b *batch) error { // more than the log keeps in memory
			return b.tx.Set([]byte("~"), make([]byte, 2<<20))
		})
	}()
	<-asked
	told := make(chan Usage, 1)
	go func() { told <- s.Usage() }()
	select {
	case u := <-told:
		if u.Blocks != 3 {
			t.Errorf("%+v", u)
		}
	case <-time.After(time.Minute):
		t.Error("nothing is told")
	}
	must(t, os.Remove(filler))
	close(room)
	must(t, <-written)
}

// Compact removes the garbage of the other segments beside one that cannot be read, which Scrub frees.
func TestGarbageIsCollectedBesideASegmentThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	blks := makeBlocks(t, 1, 96, 4<<10)
	for i, b := range blks {
		mustPut(t, s, fmt.Sprint("o", i), b)
	}
	for i := range blks {
		if i < 12 || i%4 > 0 { // of the first segment more than of the others
			mustDrop(t, s, fmt.Sprint("o", i))
		}
	}
	must(t, s.Close())
	before := len(segmentPaths(t, dir))
	flipAt(3, headerCopyBytes+9)(t, segmentPaths(t, dir)[0], 1)
	s = openTest(t, dir)
	must(t, s.Compact(t.Context()))
	if left := len(segmentPaths(t, dir)); left > before/2 {
		t.Errorf("%d of %d segments are left", left, before)
	}
	if sum := mustScrub(t, s); sum.Damaged == 0 || s.stuck[1] {
		t.Errorf("%+v, stuck %v", sum, s.stuck)
	}
}

// A later Compact removes a segment from the index if the batch of the first one was refused after the file had gone.
func TestARemovedSegmentIsForgottenByALaterPassToo(t *testing.T) {
	opts := testOptions()
	opts.openDirect = os.Open // not for writing
	s := openWith(t, t.TempDir(), opts)
	mustPut(t, s, "o", makeBlocks(t, 1, 40, 4<<10)...)
	mustDrop(t, s, "o")
	release := busy(t, s)
	passed, put := make(chan error, 1), make(chan error, 1)
	go func() { passed <- s.Compact(t.Context()) }()
	waitQueued(s, 1)
	go func() { put <- s.PutCold(t.Context(), "p", makeBlocks(t, 2, 3, 1<<20)) }()
	waitQueued(s, 2)
	release()
	if err1, err2 := <-passed, <-put; err1 == nil || err2 == nil {
		t.Fatalf("not refused: %v, %v", err1, err2)
	}
	must(t, s.Compact(t.Context()))
	v := s.index.View()
	defer v.Close()
	must(t, v.Scan([]byte{keySegment}, []byte{keySegment + 1}, false, func(key, _ []byte) (bool, error) {
		if number := uint32((&reader{b: key[1:]}).uint(4)); s.sizes[number] == 0 {
			t.Errorf("the index keeps segment %d, which is gone", number)
		}
		return true, nil
	}))
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

// Compact frees garbage on a disk that is full for new content, and copies nothing if there is no room for copies.
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

// Compact on a full disk does not rewrite segments of small objects, and still frees real garbage among them. Small
// objects take bytes beside their own, which a pass must not copy again and again.
func TestSmallObjectsAreNoGarbage(t *testing.T) {
	s := openTest(t, t.TempDir())
	blks := makeBlocks(t, 1, 1200, 100)
	for i, b := range blks {
		reference := fmt.Sprintf("root/raw-%060d", i)
		must(t, s.PutAndSeal(t.Context(), reference, []blocks.Block{b}, Sealed{Bytes: 100, Blocks: 1}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked atomic.Int64
	s.opts.Room = func() (int64, int64) {
		if asked.Add(1) > 1000 { // a pass asks a few times for each segment
			cancel()
		}
		return 0, math.MaxInt64
	}
	segments, newest := s.Usage().Segments, s.active.number
	must(t, s.Compact(ctx))
	if n := s.active.number - newest; n != 0 {
		t.Errorf("%d of %d segments were written anew", n, segments)
	}
	for i := range blks {
		if i%4 == 0 {
			mustDrop(t, s, fmt.Sprintf("root/raw-%060d", i))
		}
	}
	before := s.Usage().DiskBytes
	must(t, s.Compact(ctx))
	if got := s.Usage().DiskBytes; got > before*85/100 {
		t.Errorf("%d of %d bytes are left, a quarter of which was garbage", got, before)
	}
}
