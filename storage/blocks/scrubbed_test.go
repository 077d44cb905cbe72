package blocks

import (
	"errors"
	"strings"
	"testing"
)

// A scrub counts the blocks and bytes of all segments that it found good. Operators read these figures.
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

// The clone of a record, with its references, does not change when the buffer of the record is used again.
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

// Whole refuses a name that no reference can have with ErrBadReference.
func TestNobodyIsWholeWithoutAName(t *testing.T) {
	s := openWith(t, t.TempDir(), testOptions())
	for _, reference := range []string{"", strings.Repeat("x", MaxReferenceBytes+1)} {
		if whole, err := s.Whole(t.Context(), reference); whole || !errors.Is(err, ErrBadReference) {
			t.Errorf("%d bytes: %v, %v", len(reference), whole, err)
		}
	}
}

// A damaged record of a reference or of a drop in the index ends a change of the counts of segments with an error.
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
