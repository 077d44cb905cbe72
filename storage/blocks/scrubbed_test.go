package blocks

import "testing"

// TestAScrubCountsTheBytesOfEverySegment promises that a pass tells blocks and bytes of all
// segments that it found good, which operators read.
func TestAScrubCountsTheBytesOfEverySegment(t *testing.T) {
	opts := testOptions()
	opts.SegmentBytes = 16 << 10
	s := openWith(t, t.TempDir(), opts)
	first := s.active.number
	const owners, each, size = 3, 20, 500
	for i, owner := range []string{"one", "two", "three"} {
		mustPut(t, s, owner, makeBlocks(t, uint64(i), each, size)...)
	}
	if s.active.number == first {
		t.Fatal("there is one segment only")
	}
	sum := mustScrub(t, s)
	if sum.Blocks != owners*each || sum.Bytes != owners*each*size || sum.Damaged != 0 {
		t.Errorf("%+v, want %d blocks of %d bytes each", sum, owners*each, size)
	}
}
