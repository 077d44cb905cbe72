package blocks

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	blocks "github.com/ipfs/go-block-format"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// directHere tells whether the file system of dir takes writes past the page cache.
func directHere(t *testing.T, dir string) bool {
	t.Helper()
	path := filepath.Join(dir, "probe")
	must(t, os.WriteFile(path, nil, filePerm))
	f, err := durable.OpenDirect(path)
	if err != nil {
		return false
	}
	defer f.Close()
	page := make([]byte, 2*directAlign)
	at := -place(page) & (directAlign - 1)
	_, err = f.WriteAt(page[at:at+directAlign], 0)
	return err == nil
}

// Blocks that were written past the page cache and between them others are all here, also after a kill. Large batches
// of content that nobody reads soon go past the page cache.
func TestColdBlocksAreThereWhicheverWayTheyWent(t *testing.T) {
	dir := t.TempDir()
	opts := testOptions()
	opts.SegmentBytes = 6 << 20
	s := openWith(t, dir, opts)
	var all []blocks.Block
	for k, size := range []int{1 << 20, 10, 1<<20 - 17, directAlign, 700, 1 << 19} {
		for n := range 5 {
			blks := makeBlocks(t, uint64(10*k+n), 1+n, size)
			switch n {
			case 2:
				must(t, s.Put(t.Context(), "o", blks))
			case 3:
				must(t, s.PutColdAndSeal(t.Context(), fmt.Sprint("o", k), blks, Sealed{}))
			default:
				must(t, s.PutCold(t.Context(), "o", blks))
			}
			all = append(all, blks...)
			wantHere(t, s, blks...)
		}
	}
	if here := directHere(t, t.TempDir()); here != s.direct {
		t.Errorf("past the page cache: %v, and the file system can: %v", s.direct, here)
	}
	if s.direct && s.active.direct == nil {
		t.Error("nothing went past the page cache")
	}
	wantHere(t, s, all...)
	wantHere(t, openWith(t, kill(t, dir), opts), all...)
}

// Cold blocks go through the page cache, and are here, if the file system cannot write past it.
func TestWithoutAWayPastThePageCache(t *testing.T) {
	dir := t.TempDir()
	opts := testOptions()
	opts.SegmentBytes = DefaultSegmentBytes
	opts.openDirect = func(string) (*os.File, error) { return nil, syscall.EINVAL }
	s := openWith(t, dir, opts)
	first := makeBlocks(t, 1, 3, 1<<20)
	must(t, s.PutCold(t.Context(), "o", first))
	if s.direct || s.active.direct != nil {
		t.Error("it went past the page cache")
	}
	second := makeBlocks(t, 2, 3, 1<<20)
	must(t, s.PutCold(t.Context(), "o", second))
	wantHere(t, s, append(first, second...)...)
}

// A write past the page cache that fails leaves no byte in the segment and no block, and the next write succeeds.
func TestAFailedWritePastThePageCacheLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	opts := testOptions()
	opts.SegmentBytes = DefaultSegmentBytes
	s := openWith(t, dir, opts)
	if !directHere(t, t.TempDir()) {
		t.Skip("the file system has no way past the page cache")
	}
	size := s.active.size
	broken, err := os.Open(s.active.f.Name()) // not for writing
	must(t, err)
	s.active.direct = broken
	lost, good := makeBlocks(t, 1, 3, 1<<20), makeBlocks(t, 2, 3, 1<<20)
	if err := s.PutCold(t.Context(), "o", lost); err == nil {
		t.Fatal("no error")
	}
	end, err := s.active.f.Seek(0, io.SeekEnd)
	if must(t, err); end != size {
		t.Errorf("%d bytes are left", end-size)
	}
	must(t, broken.Close())
	s.active.direct = nil
	must(t, s.PutCold(t.Context(), "o", good))
	wantGone(t, s, lost...)
	wantHere(t, s, good...)
}

// A batch is laid out in pages only if it may go past the page cache: it is large and at least half is cold. The file
// system must be able to write past the page cache. Cold content is content that nobody reads soon.
func TestOnlyLargeColdBatchesAreMadeForTheWayPastThePageCache(t *testing.T) {
	for _, tc := range []struct {
		name      string
		direct    bool
		cold, hot int64
		want      bool
	}{
		{"all cold", true, directBytes, 0, true},
		{"half cold", true, 2 * directBytes, directBytes, true},
		{"too little", true, directBytes - 1, 0, false},
		{"too little cold", true, directBytes * 3 / 4, directBytes / 2, false},
		{"mostly hot", true, directBytes, 2 * directBytes, false},
		{"the file system cannot", false, 4 * directBytes, 0, false},
	} {
		s := &Store{direct: tc.direct, active: &active{size: 100}}
		s.opts.directBytes = directBytes
		s.ready([]*op{{bytes: tc.cold, cold: true}, {bytes: tc.hot}})
		if got := len(s.memory) > 0; got != tc.want {
			t.Errorf("%s: laid out in pages: %t, want %t", tc.name, got, tc.want)
		}
		if tc.want && place(s.buf[:1]) != 100 {
			t.Errorf("%s: it begins %d bytes into a page, want as in the segment", tc.name, place(s.buf[:1]))
		}
	}
}
