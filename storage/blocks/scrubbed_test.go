package blocks

import (
	"errors"
	"strings"
	"testing"
)

// TestAScrubCountsTheBytesOfEverySegment promises that a pass tells blocks and bytes of all
// segments that it found good, which operators read.
func TestAScrubCountsTheBytesOfEverySegment(t *testing.T) {
	opts := testOptions()
	opts.SegmentBytes = 16 << 10
	s := openWith(t, t.TempDir(), opts)
	first := s.active.number
	const references, each, size = 3, 20, 500
	for i, reference := range []string{"one", "two", "three"} {
		mustPut(t, s, reference, makeBlocks(t, uint64(i), each, size)...)
	}
	if s.active.number == first {
		t.Fatal("there is one segment only")
	}
	sum := mustScrub(t, s)
	if sum.Blocks != references*each || sum.Bytes != references*each*size || sum.Damaged != 0 {
		t.Errorf("%+v, want %d blocks of %d bytes each", sum, references*each, size)
	}
}

// TestACopyOfARecordSharesNoBytes promises that a record which is kept while its buffer is used
// again does not change with it, its references neither.
func TestACopyOfARecordSharesNoBytes(t *testing.T) {
	r := record{hash: []byte("hash"), data: []byte("data"), refs: []blockRef{{hash: []byte("ref"), size: 7}}}
	kept := r.clone()
	for _, b := range [][]byte{r.hash, r.data, r.refs[0].hash} {
		b[0] ^= 1
	}
	r.refs[0].size = 8
	if string(kept.hash) != "hash" || string(kept.data) != "data" || len(kept.refs) != 1 || string(kept.refs[0].hash) != "ref" || kept.refs[0].size != 7 {
		t.Errorf("%+v", kept)
	}
}

// TestNobodyIsWholeWithoutAName promises that a name which no reference can have is refused, also
// where nothing is missing.
func TestNobodyIsWholeWithoutAName(t *testing.T) {
	s := openWith(t, t.TempDir(), testOptions())
	for _, reference := range []string{"", strings.Repeat("x", MaxReferenceBytes+1)} {
		if whole, err := s.Whole(t.Context(), reference); whole || !errors.Is(err, ErrBadReference) {
			t.Errorf("%d bytes: %v, %v", len(reference), whole, err)
		}
	}
}

// TestARecordOfTheIndexThatCannotBeReadEndsTheChange promises that the end of a segment is not
// counted by a record of a reference, or of a drop, that is damaged.
func TestARecordOfTheIndexThatCannotBeReadEndsTheChange(t *testing.T) {
	const inc = 7
	for name, key := range map[string][]byte{"drop": droppedKey(inc), "reference": referenceKey("o")} {
		s := openWith(t, t.TempDir(), testOptions())
		c := s.change()
		must(t, c.tx.Set(key, []byte{1}))
		if err := c.forgotten(inc, "o"); err == nil {
			t.Errorf("%s: no error", name)
		}
		c.tx.Discard()
	}
}
