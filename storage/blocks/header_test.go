package blocks

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A segment without a good header causes one rebuild of the index, not another with every start. Its file is removed.
func TestASegmentThatCannotBeReadIsSetAside(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	blks := makeBlocks(t, 1, 40, 5_000)
	mustPut(t, s, "a", blks...)
	must(t, s.Close())
	first := segmentPaths(t, dir)[0]
	editFile(t, first, func(b []byte) []byte { clear(b[:headerBytes]); return b })
	must(t, os.RemoveAll(filepath.Join(dir, indexDir)))
	s = openTest(t, dir)
	if !s.rebuilt {
		t.Fatal("the index was lost")
	}
	// All that a node does about damage.
	_, err := s.CheckSegments(t.Context())
	_, serr := s.Scrub(t.Context(), ScrubOptions{})
	must(t, errors.Join(err, serr))
	mustDrop(t, s, "a")
	mustPut(t, s, "a", blks...) // repaired
	must(t, s.Seal(t.Context(), "a", Sealed{Blocks: 40}))
	must(t, s.Compact(t.Context()))
	for i := range 3 {
		must(t, s.Close())
		s = openTest(t, dir)
		if s.rebuilt {
			t.Errorf("start %d reads all %d bytes of the store again", i, s.Usage().DiskBytes)
		}
		must(t, s.Compact(t.Context()))
	}
	if fileExists(first) {
		info, err := os.Stat(first)
		must(t, err)
		t.Errorf("nobody ever gets rid of %s, %d bytes; usage %+v", filepath.Base(first), info.Size(), s.Usage())
	}
}
