package blocks

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	blocks "github.com/ipfs/go-block-format"
)

// A reference whose seal the store has taken back stays in doubt after the segment of that seal has gone. The doubt
// ends when the reference is put again or dropped, and a rebuilt index has it, too. The index alone knows the seal
// when its segment is gone or cannot be read: the store writes it again.
func TestADoubtOutlivesTheSegmentOfItsSeal(t *testing.T) {
	for _, hurt := range []string{"gone", "header", "seal"} {
		for _, then := range []string{"put again", "dropped"} {
			t.Run(hurt+", "+then, func(t *testing.T) {
				power := cutPower(t)
				before, torn, sealed := power.before, power.torn, power.sealed
				first := segmentPaths(t, power.dir)[0]
				s := openTest(t, power.dir)
				wantDoubted(t, s, "torn")
				d, err := getDoubt(s.index, "torn")
				if must(t, err); d.segment != 1 {
					t.Fatalf("doubt %+v", d)
				}
				switch hurt {
				case "gone":
					must(t, os.Remove(first))
				case "header":
					editFile(t, first, func(b []byte) []byte { clear(b[:headerBytes]); return b })
				case "seal":
					if power.seal.kind != kindHidden {
						t.Fatalf("last is %+v", power.seal)
					}
					editFile(t, first, func(b []byte) []byte { b[power.seal.off] ^= 1; return b })
				}
				s.files.remove(1) // it is not open for reading
				if hurt == "gone" {
					_, err = s.CheckSegments(t.Context())
				} else {
					_, err = s.Scrub(t.Context(), ScrubOptions{})
				}
				must(t, err)
				if fileExists(first) {
					t.Fatalf("%s is here still: %+v", first, s.Usage())
				}
				d, err = getDoubt(s.index, "torn")
				if must(t, err); d.segment <= 1 {
					t.Fatalf("doubt %+v", d)
				}
				mustDrop(t, s, "before") // what is lost of it
				mustPut(t, s, "before", before...)
				must(t, s.Seal(t.Context(), "before", Sealed{Bytes: 200, Blocks: 2}))
				wantDoubted(t, s, "torn")
				s = rebuild(t, s)
				wantDoubted(t, s, "torn")
				must(t, s.Compact(t.Context()))
				if then == "dropped" {
					mustDrop(t, s, "torn")
					wantDoubted(t, s)
					s = rebuild(t, s)
					if _, ok, err := s.Reference(t.Context(), "torn"); ok || err != nil {
						t.Errorf("it is back: %v", err)
					}
					wantLoads(t, s)
					return
				}
				must(t, s.PutAndSeal(t.Context(), "torn", torn, sealed))
				wantDoubted(t, s)
				wantLoads(t, s)
				s = rebuild(t, s)
				wantDoubted(t, s)
				wantHere(t, s, append(before, torn...)...)
				wantVisible(t, s, false, torn...)
				wantVisible(t, s, true, before...)
				wantLoads(t, s)
			})
		}
	}
}

// powerCut is a store whose power went in the midst of a batch: of the content "torn" the
// seal came to the disk and the references did not. "before" is whole.
type powerCut struct {
	dir          string
	before, torn []blocks.Block
	sealed       Sealed // as the seal of "torn" says
	seal         record // of "torn", the last one
}

func cutPower(t *testing.T) powerCut {
	t.Helper()
	dir := t.TempDir()
	s := openTest(t, dir)
	before, torn := makeBlocks(t, 1, 2, 100), makeBlocks(t, 2, 3, 5_000)
	mustPut(t, s, "before", before...)
	must(t, s.Seal(t.Context(), "before", Sealed{Bytes: 200, Blocks: 2}))
	cut := powerCut{kill(t, dir), before, torn, Sealed{Bytes: 15_000, Blocks: 3, Hidden: true}, record{}} // the index ends here
	end := s.active.size
	must(t, s.PutAndSeal(t.Context(), "torn", torn, cut.sealed))
	path := segmentPaths(t, dir)[0]
	records := recordsOf(t, path, 1)
	cut.seal = records[len(records)-1]
	whole, err := os.ReadFile(path)
	must(t, err)
	clear(whole[end : end+directAlign])
	must(t, os.WriteFile(segmentPaths(t, cut.dir)[0], whole, 0o600))
	return cut
}

// A reference with more entries than one record holds keeps every block after the segment of its entries was damaged.
// All blocks of that reference are elsewhere.
func TestManyReferencesOutliveTheirSegment(t *testing.T) {
	for _, n := range []int{maxRefsPerRecord - 1, maxRefsPerRecord, maxRefsPerRecord + 1, 2*maxRefsPerRecord + 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			opts := testOptions()
			opts.SegmentBytes = 1 << 20 // what follows has two
			s := openWith(t, t.TempDir(), opts)
			blks := makeBlocks(t, 1, n, 8)
			mustPut(t, s, "other", blks...)
			must(t, s.retire(t.Context(), s.active.number)) // the references alone follow
			second := s.active.number
			mustPut(t, s, "many", blks...)
			must(t, s.Seal(t.Context(), "many", Sealed{Bytes: uint64(n) * 8, Blocks: uint64(n)}))
			must(t, s.retire(t.Context(), second))
			path := segmentPath(filepath.Join(s.dir, segmentsDir), second)
			editFile(t, path, func(b []byte) []byte { clear(b[headerBytes:]); return b })
			s.files.remove(second) // it is not open for reading
			_, err := s.Scrub(t.Context(), ScrubOptions{})
			must(t, err)
			if fileExists(path) {
				t.Fatalf("the damaged segment is here still: %+v", s.Usage())
			}
			wantLoads(t, s)
			s = rebuild(t, s)
			wantLoads(t, s)
			mustDrop(t, s, "other")
			must(t, s.Compact(t.Context()))
			wantHere(t, s, blks...)
			if freed := mustDrop(t, s, "many"); freed == 0 {
				t.Error("nothing was left to free")
			}
			wantGone(t, s, blks...)
		})
	}
}
