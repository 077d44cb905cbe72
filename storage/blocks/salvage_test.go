package blocks

import (
	"os"
	"testing"
)

// The seal that was taken back is known from the index alone when its segment is gone or
// cannot be read: it is written again, so that an index which is made anew doubts it too.
func TestADoubtOutlivesTheSegmentOfItsSeal(t *testing.T) {
	for _, hurt := range []string{"gone", "header", "seal"} {
		for _, then := range []string{"put again", "dropped"} {
			t.Run(hurt+", "+then, func(t *testing.T) {
				dir := t.TempDir()
				s := openTest(t, dir)
				before, torn := makeBlocks(t, 1, 2, 100), makeBlocks(t, 2, 3, 5_000)
				mustPut(t, s, "before", before...)
				must(t, s.Seal(t.Context(), "before", Sealed{Bytes: 200, Blocks: 2}))
				killed := kill(t, dir) // the index ends here
				end, sealed := s.active.size, Sealed{Bytes: 15_000, Blocks: 3, Hidden: true}
				must(t, s.PutAndSeal(t.Context(), "torn", torn, sealed))
				whole, err := os.ReadFile(segmentPaths(t, dir)[0])
				must(t, err)
				records := recordsOf(t, segmentPaths(t, dir)[0], 1)
				last := records[len(records)-1]
				clear(whole[end : end+directAlign])
				must(t, os.WriteFile(segmentPaths(t, killed)[0], whole, 0o600))
				s = openTest(t, killed)
				wantDoubted(t, s, "torn")
				d, err := getDoubt(s.index, "torn")
				if must(t, err); d.segment != 1 {
					t.Fatalf("doubt %+v", d)
				}
				first := segmentPaths(t, killed)[0]
				switch hurt {
				case "gone":
					must(t, os.Remove(first))
				case "header":
					editFile(t, first, func(b []byte) []byte { clear(b[:headerBytes]); return b })
				case "seal":
					if last.kind != kindHidden {
						t.Fatalf("last is %+v", last)
					}
					editFile(t, first, func(b []byte) []byte { b[last.off] ^= 1; return b })
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
					if _, ok, err := s.Owner(t.Context(), "torn"); ok || err != nil {
						t.Errorf("it is back: %v", err)
					}
					checkLoads(t, s)
					return
				}
				must(t, s.PutAndSeal(t.Context(), "torn", torn, sealed))
				wantDoubted(t, s)
				checkLoads(t, s)
				s = rebuild(t, s)
				wantDoubted(t, s)
				wantHere(t, s, append(before, torn...)...)
				wantVisible(t, s, false, torn...)
				wantVisible(t, s, true, before...)
				checkLoads(t, s)
			})
		}
	}
}

// checkLoads wants no segment with less than nothing in it, and the counts that the
// segments make by themselves.
func checkLoads(t *testing.T, s *Store) {
	t.Helper()
	s.stats.Lock()
	defer s.stats.Unlock()
	for n, l := range s.loads {
		if l.records < 0 || l.bytes < 0 || l.bytes > s.sizes[n] {
			t.Errorf("segment %d of %d bytes: %+v", n, s.sizes[n], l)
		}
	}
}
