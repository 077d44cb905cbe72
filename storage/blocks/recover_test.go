package blocks

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/goldentest"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

func segmentPaths(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, segmentsDir, "*.seg"))
	must(t, err)
	slices.Sort(paths)
	return paths
}

func editFile(t testing.TB, path string, edit func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, edit(b), 0o600))
}

// recordsOf returns the records of a segment, with their slices cloned.
func recordsOf(t testing.TB, path string, number uint32) []record {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	seed, ok := parseSegmentHeader(b[:headerBytes], number)
	if !ok {
		t.Fatal("segment header")
	}
	var out []record
	sc := &scan{src: bytes.NewReader(b), seed: seed, size: int64(len(b))}
	must(t, sc.each(headerBytes, func(r record) error { out = append(out, r.clone()); return nil }))
	if len(sc.bad) > 0 {
		t.Fatalf("bad spans %v", sc.bad)
	}
	return out
}

// A store with some history: drops, adopted blocks, seals, compaction.
func makeHistory(t testing.TB, s *Store) {
	t.Helper()
	blks := makeBlocks(t, 7, 60, 4_000)
	for i := range 12 {
		reference := fmt.Sprintf("root/%d", i)
		mustPut(t, s, reference, blks[i*5:i*5+5]...)
		mustPut(t, s, reference, blks[(i*7)%60])
		if i%2 == 0 {
			must(t, s.Seal(t.Context(), reference, Sealed{Bytes: uint64(i), Blocks: 5}))
		}
	}
	for _, i := range []int{0, 1, 2, 3, 4, 8} {
		mustDrop(t, s, fmt.Sprintf("root/%d", i))
	}
	must(t, s.Compact(t.Context()))
	mustPut(t, s, "root/3", blks[0], blks[30])
	mustDrop(t, s, "root/9")
}

// A store rebuilds a lost, damaged or foreign index from its segments, with the same content as before.
func TestIndexIsRebuiltFromTheSegmentsAlone(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	makeHistory(t, s)
	want := describe(t, s)
	must(t, s.Close())
	for name, damage := range map[string]func(dir string) error{
		"index is gone":        func(dir string) error { return os.RemoveAll(filepath.Join(dir, indexDir)) },
		"marked as damaged":    func(dir string) error { return os.WriteFile(filepath.Join(dir, rebuildFile), nil, 0o600) },
		"pointer file garbled": func(dir string) error { return os.WriteFile(filepath.Join(dir, indexDir, "live"), []byte("x"), 0o600) },
		"manifest garbled": func(dir string) error {
			found, err := filepath.Glob(filepath.Join(dir, indexDir, "gen-*", "MANIFEST-*"))
			for _, path := range found {
				err = errors.Join(err, os.WriteFile(path, []byte("garbage, not a manifest"), 0o600))
			}
			return err
		},
		"counts garbled": func(dir string) error {
			index, err := kv.Open(filepath.Join(dir, indexDir), kv.Options{})
			if err != nil {
				return err
			}
			v, garbled := index.View(), []byte(nil)
			err = v.Scan([]byte{keySegment}, []byte{keySegment + 1}, false, func(key, _ []byte) (bool, error) {
				garbled = slices.Clone(key)
				return false, nil
			})
			v.Close()
			tx := index.Begin()
			return errors.Join(err, tx.Set(garbled, []byte("x")), tx.Commit(true), index.Close())
		},
		"of another store": func(dir string) error {
			other := t.TempDir()
			o := openTest(t, other)
			mustPut(t, o, "other", makeBlocks(t, 99, 200, 4_000)...)
			if err := errors.Join(o.Close(), os.RemoveAll(filepath.Join(dir, indexDir))); err != nil {
				return err
			}
			return os.Rename(filepath.Join(other, indexDir), filepath.Join(dir, indexDir))
		},
	} {
		t.Run(name, func(t *testing.T) {
			copied := kill(t, dir)
			must(t, damage(copied))
			again := openTest(t, copied)
			must(t, again.Compact(t.Context())) // ends drops
			if got := describe(t, again); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			if d := again.Usage().Damaged; d != 0 {
				t.Errorf("%d damaged places", d)
			}
			if fileExists(filepath.Join(copied, rebuildFile)) {
				t.Error("mark stays")
			}
		})
	}
}

// A store whose last segment was cut at any byte has all that is complete before that byte, and goes on. It cuts the
// rest off, with and without its index. A crash in the middle of writing leaves a file that ends anywhere.
func TestTornTailIsCutOffAtEveryByte(t *testing.T) {
	t.Parallel() // it mostly waits for the disk
	dir := t.TempDir()
	s := openTest(t, dir)
	first, second := makeBlocks(t, 1, 2, 100), makeBlocks(t, 2, 1, 150)
	mustPut(t, s, "a", first...)
	killed := kill(t, dir) // the index ends here
	before := s.active.size
	mustPut(t, s, "b", second...)
	must(t, s.Seal(t.Context(), "b", Sealed{Bytes: 150, Blocks: 1}))
	whole, err := os.ReadFile(segmentPaths(t, dir)[0])
	must(t, err)
	records := recordsOf(t, segmentPaths(t, dir)[0], 1)
	for index, step := range map[string]int64{"kept": 1, "lost": 11} {
		if testing.Short() {
			step = 37
		}
		for cut := before; cut <= int64(len(whole)); cut += step {
			copied := kill(t, killed)
			must(t, os.WriteFile(segmentPaths(t, copied)[0], whole[:cut], 0o600))
			if index == "lost" {
				must(t, os.RemoveAll(filepath.Join(copied, indexDir)))
			}
			again, err := Open(copied, testOptions())
			must(t, err)
			wantHere(t, again, first...)
			end := before
			complete := 0
			for _, r := range records {
				if r.off >= before && r.off+r.bytes <= cut {
					end, complete = r.off+r.bytes, complete+1
				}
			}
			if complete >= 2 {
				wantHere(t, again, second...)
			} else {
				wantGone(t, again, second...)
			}
			if o, ok, _ := again.Reference(t.Context(), "b"); ok != (complete >= 1) || o.Sealed != (complete >= 3) {
				t.Errorf("cut at %d: reference %+v, %v", cut, o, ok)
			}
			if size := again.active.size; size != end || again.Usage().Damaged != 0 {
				t.Errorf("cut at %d: goes on at %d, want %d; usage %+v", cut, size, end, again.Usage())
			}
			if info, err := os.Stat(segmentPaths(t, copied)[0]); err != nil || info.Size() != end {
				t.Errorf("cut at %d: the file has %d bytes, %v, want %d", cut, info.Size(), err, end)
			}
			// What was cut off can be written again.
			mustPut(t, again, "b", second...)
			wantHere(t, again, second...)
			must(t, again.Close())
		}
	}
}

// A seal whose references did not reach the disk counts for nothing, and its reference is in doubt. The doubt ends
// when the reference is put again or dropped. When the power goes in the middle of a batch, its pages may be on the
// disk in any order: the end of it, with the seal, and not the beginning, with the references. The batch was not
// acknowledged.
func TestASealThatTheReferencesDidNotReachTheDiskWithCountsForNothing(t *testing.T) {
	power := cutPower(t)
	before, torn, sealed := power.before, power.torn, power.sealed
	for _, index := range []string{"kept", "lost"} {
		for _, then := range []string{"put again", "dropped"} {
			t.Run("index "+index+", "+then, func(t *testing.T) {
				copied := kill(t, power.dir)
				if index == "lost" {
					must(t, os.RemoveAll(filepath.Join(copied, indexDir)))
				}
				again := openTest(t, copied)
				if o, _, err := again.Reference(t.Context(), "torn"); o.Sealed || err != nil {
					t.Fatalf("%+v, %v, and no block is here", o, err)
				}
				if o, _, err := again.Reference(t.Context(), "before"); !o.Sealed || err != nil {
					t.Errorf("acknowledged before: %+v, %v", o, err)
				}
				must(t, again.Close())
				again = openTest(t, copied)
				wantDoubted(t, again, "torn")
				again = emptied(t, again)
				wantDoubted(t, again, "torn")
				again = rebuild(t, again)
				wantDoubted(t, again, "torn")
				if then == "dropped" {
					mustDrop(t, again, "torn")
					wantDoubted(t, again)
					if _, ok, err := rebuild(t, again).Reference(t.Context(), "torn"); ok || err != nil {
						t.Errorf("it is back: %v", err)
					}
					return
				}
				must(t, again.PutAndSeal(t.Context(), "torn", torn, sealed))
				wantDoubted(t, again)
				again = rebuild(t, again)
				wantDoubted(t, again)
				if o, _, err := again.Reference(t.Context(), "torn"); !o.Sealed || !o.Hidden || o.Blocks != 3 || err != nil {
					t.Errorf("put again: %+v, %v", o, err)
				}
				wantHere(t, again, append(before, torn...)...)
				wantVisible(t, again, true, before...)
				wantVisible(t, again, false, torn...)
			})
		}
	}
}

// emptied moves what lives in the first segment to others, and the file is gone.
func emptied(t *testing.T, s *Store) *Store {
	t.Helper()
	first := segmentPaths(t, s.dir)[0]
	must(t, s.retire(t.Context(), 1))
	must(t, s.empty(t.Context(), 1))
	must(t, s.removeEmpty(t.Context()))
	if fileExists(first) {
		t.Errorf("%s is here still", first)
	}
	return s
}

// wantDoubted wants just these references to count as damaged, since their seals were taken
// back, and not as never complete.
func wantDoubted(t *testing.T, s *Store, references ...string) {
	t.Helper()
	var got []string
	must(t, s.Damaged(t.Context(), func(reference string, blocks uint64) (bool, error) {
		if doubted, err := s.Doubted(reference); !doubted || blocks == 0 || err != nil {
			t.Errorf("%s: %d blocks, doubted %v, %v", reference, blocks, doubted, err)
		}
		got = append(got, reference)
		return true, nil
	}))
	if !slices.Equal(got, references) {
		t.Errorf("in doubt are %q, want %q", got, references)
	}
}

// A start takes back the seal whose references are damaged, even if an earlier start was interrupted at them.
func TestDoubtsOutliveAStartThatIsCutShort(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	blks := makeBlocks(t, 1, 3, 5_000)
	mustPut(t, s, "before", blks[0])
	end := s.active.size
	must(t, s.PutAndSeal(t.Context(), "torn", blks, Sealed{Bytes: 15_000, Blocks: 3}))
	must(t, s.Close())
	editFile(t, segmentPaths(t, dir)[0], func(b []byte) []byte { clear(b[end : end+directAlign]); return b })
	must(t, os.RemoveAll(filepath.Join(dir, indexDir)))
	stop := segmentPath(filepath.Join(dir, segmentsDir), 2)
	must(t, os.Mkdir(stop, 0o700)) // ends the start when the first segment is read
	if _, err := Open(dir, testOptions()); err == nil {
		t.Fatal("a folder was read as a segment")
	}
	must(t, os.Remove(stop))
	again := openTest(t, dir)
	if o, _, err := again.Reference(t.Context(), "torn"); o.Sealed || err != nil || again.Usage().Damaged != 0 {
		t.Errorf("%+v, %v, %+v", o, err, again.Usage())
	}
	if _, met, err := again.index.Get([]byte{keyDoubt}); met || err != nil {
		t.Errorf("the doubt stays: %v", err)
	}
}

// A rebuild of the index takes back the seal of a reference whose blocks were in a file that is gone. It keeps the
// others. Nothing shows such damage but the seals, which declare more than their references refer to.
func TestARebuildDoesNotTrustSealsWhoseReferencesAreInAFileThatIsGone(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	blks := makeBlocks(t, 1, 40, 5_000)
	mustPut(t, s, "torn", blks...)
	must(t, s.Seal(t.Context(), "torn", Sealed{Bytes: 200_000, Blocks: 40}))
	mustPut(t, s, "whole", blks[39])
	must(t, s.Seal(t.Context(), "whole", Sealed{Bytes: 5_000, Blocks: 1}))
	must(t, s.Close())
	paths := segmentPaths(t, dir)
	if len(paths) < 2 {
		t.Fatalf("segments %v", paths)
	}
	must(t, errors.Join(os.Remove(paths[0]), os.RemoveAll(filepath.Join(dir, indexDir))))
	again := openTest(t, dir)
	if o, _, err := again.Reference(t.Context(), "torn"); o.Sealed || err != nil {
		t.Errorf("it lacks what was in %s: %+v, %v", filepath.Base(paths[0]), o, err)
	}
	if o, _, err := again.Reference(t.Context(), "whole"); !o.Sealed || err != nil {
		t.Errorf("nothing of it is gone: %+v, %v", o, err)
	}
}

// A block with a flipped bit is refused as damaged, counts as missing after that, and can be put again. The other
// blocks stay.
func TestFlippedBitIsNeverServedAndCanBeRepaired(t *testing.T) {
	t.Parallel() // it mostly waits for the disk
	dir := t.TempDir()
	s := openTest(t, dir)
	blks := makeBlocks(t, 1, 3, 500)
	mustPut(t, s, "a", blks...)
	must(t, s.Close())
	path := segmentPaths(t, dir)[0]
	var at record
	for _, r := range recordsOf(t, path, 1) {
		if r.kind == kindBlock && bytes.Equal(r.hash, blks[1].Cid().Hash()) {
			at = r
		}
	}
	for i := at.off; i < at.off+at.bytes; i += 13 {
		copied := kill(t, dir)
		editFile(t, segmentPaths(t, copied)[0], func(b []byte) []byte { b[i] ^= 1 << (i % 8); return b })
		again := openTest(t, copied)
		if _, err := again.Get(t.Context(), blks[1].Cid()); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("flip at %d: %v, want ErrCorrupt", i, err)
		}
		wantGone(t, again, blks[1])
		wantHere(t, again, blks[0], blks[2])
		if u := again.Usage(); u.Corrupt != 1 || u.Missing != 1 || u.Blocks != 2 {
			t.Errorf("usage %+v", u)
		}
		missing, err := again.Adopt(t.Context(), "b", []cid.Cid{blks[1].Cid()})
		if err != nil || len(missing) != 1 {
			t.Errorf("adopt of a bad block: %v, %v", missing, err)
		}
		mustPut(t, again, "a", blks[1])
		wantHere(t, again, blks...)
		if u := again.Usage(); u.Missing != 0 || u.Blocks != 3 {
			t.Errorf("repaired: %+v", u)
		}
		must(t, again.Close())

		// The same, found by rebuilding the index: everything else survives.
		must(t, os.RemoveAll(filepath.Join(copied, indexDir)))
		again = openTest(t, copied)
		wantHere(t, again, blks...)
		if u := again.Usage(); u.Damaged != 1 {
			t.Errorf("rebuilt: %+v", u)
		}
	}
}

// Get refuses bytes of another block with ErrCorrupt although their checksum is right. Only the hash can tell.
func TestBytesOfAnotherBlockUnderAGoodChecksumAreNotServed(t *testing.T) {
	s := openTest(t, t.TempDir())
	blks := makeBlocks(t, 1, 2, 100)
	hash, wrong := blks[0].Cid().Hash(), blks[1].RawData()
	must(t, s.do(t.Context(), 1000, func(b *batch) error {
		err := b.addBlocks("a", []blockRef{{hash, 100}})
		b.begin()
		b.s.buf = append(appendHash(b.s.buf, hash), wrong...)
		return errors.Join(err, b.end(record{kind: kindBlock, hash: hash, data: wrong}))
	}))
	if _, err := s.Get(t.Context(), blks[0].Cid()); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

// A dropped reference does not come back in a rebuilt index after the segment of its drop was compacted. A drop
// record is all that keeps the reference dead, for as long as a segment that cannot go holds its entries. When that
// segment goes, so does the drop record.
func TestDropOutlivesTheCompactionOfItsSegment(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	keep, garbage := makeBlocks(t, 1, 16, 5_000), makeBlocks(t, 2, 16, 5_000)
	mustPut(t, s, "dropped", keep[:2]...)
	must(t, s.Seal(t.Context(), "dropped", Sealed{Bytes: 10_000, Blocks: 2}))
	mustPut(t, s, "keep", keep...) // fills segment 1, which stays
	mustDrop(t, s, "dropped")      // in segment 2
	mustPut(t, s, "garbage", garbage...)
	mustDrop(t, s, "garbage") // in segment 3
	must(t, s.Compact(t.Context()))
	paths := segmentPaths(t, dir)
	if len(paths) != 2 || filepath.Base(paths[0]) != "00000001.seg" || filepath.Base(paths[1]) != "00000003.seg" {
		t.Fatalf("segments %v, want the first and the third", paths)
	}
	must(t, s.Close())
	must(t, os.RemoveAll(filepath.Join(dir, indexDir)))
	again := openTest(t, dir)
	must(t, again.Compact(t.Context()))
	if o, ok, err := again.Reference(t.Context(), "dropped"); ok || err != nil {
		t.Errorf("dropped reference is back: %+v, %v", o, err)
	}
	wantHere(t, again, keep...)
	// When the first segment goes, so does the need for the drop.
	mustDrop(t, again, "keep")
	must(t, again.Compact(t.Context()))
	again.stats.Lock()
	defer again.stats.Unlock()
	if len(again.loads) != 1 {
		t.Errorf("segments %+v", again.loads)
	}
	for number, l := range again.loads {
		if l.records != 0 {
			t.Errorf("segment %d still counts %+v", number, l)
		}
	}
}

// rebuild opens the store again from its segments alone and ends all drops.
func rebuild(t *testing.T, s *Store) *Store {
	t.Helper()
	must(t, errors.Join(s.Close(), os.RemoveAll(filepath.Join(s.dir, indexDir))))
	again := openTest(t, s.dir)
	must(t, again.Compact(t.Context()))
	return again
}

// A rebuilt index does not bring a dropped reference back by outdated records of it in a segment that stays. All
// records that followed them are gone.
func TestOutdatedRecordsDoNotBringADroppedReferenceBack(t *testing.T) {
	for name, tc := range map[string]struct {
		blocks  int // of the reference, in segment 1
		outdate func(t *testing.T, s *Store) *Store
	}{
		"sealed again": {0, func(t *testing.T, s *Store) *Store {
			must(t, s.Seal(t.Context(), "dropped", Sealed{Bytes: 20_000, Blocks: 4}))
			return s
		}},
		"compaction stopped between copy and removal": {2, func(t *testing.T, s *Store) *Store {
			var moved []record
			for _, r := range recordsOf(t, segmentPaths(t, s.dir)[0], 1) {
				if r.reference == "dropped" {
					moved = append(moved, r)
				}
			}
			must(t, s.do(t.Context(), recordSlack, func(b *batch) error { return b.relocate(1, moved) }))
			return s
		}},
		"drop record of an earlier reference of that name damaged": {2, func(t *testing.T, s *Store) *Store {
			mustDrop(t, s, "dropped")
			end := s.active.size
			mustPut(t, s, "dropped", makeBlocks(t, 3, 1, 100)...)
			editFile(t, segmentPaths(t, s.dir)[1], func(b []byte) []byte { b[end-1] ^= 1; return b })
			return rebuild(t, s)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, t.TempDir())
			keep, garbage := makeBlocks(t, 1, 16, 5_000), makeBlocks(t, 2, 16, 5_000)
			mustPut(t, s, "dropped", keep[:tc.blocks]...)
			must(t, s.Seal(t.Context(), "dropped", Sealed{Bytes: 10_000, Blocks: 2}))
			mustPut(t, s, "keep", keep...) // fills segment 1
			s = tc.outdate(t, s)           // in segment 2
			mustDrop(t, s, "dropped")
			mustPut(t, s, "garbage", garbage...)
			mustDrop(t, s, "garbage") // in segment 3
			must(t, s.Compact(t.Context()))
			var left []string
			for _, path := range segmentPaths(t, s.dir) {
				left = append(left, filepath.Base(path))
			}
			if !slices.Equal(left, []string{"00000001.seg", "00000003.seg"}) {
				t.Fatalf("segments %v, want the first and the third", left)
			}
			s = rebuild(t, s)
			if o, ok, err := s.Reference(t.Context(), "dropped"); ok || err != nil {
				t.Errorf("dropped reference is back: %+v, %v", o, err)
			}
			wantHere(t, s, keep...)
			// With the first segment goes all that was kept because of it.
			mustDrop(t, s, "keep")
			must(t, s.Compact(t.Context()))
			v := s.index.View()
			defer v.Close()
			must(t, v.Scan(nil, nil, false, func(key, value []byte) (bool, error) {
				if key[0] != keyMeta && key[0] != keySegment {
					t.Errorf("the index of an empty store holds %q: %x", key, value)
				}
				return true, nil
			}))
		})
	}
}

// A rebuild of the index skips and counts a damaged part of a segment, and keeps the blocks around it. It sets a
// segment without a good header aside. The lost blocks can be put again.
func TestDamageInTheMiddleIsSkippedAndCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		edit    func(b []byte, r record) []byte
		damaged uint64
	}{
		"head of a record":    {func(b []byte, r record) []byte { b[r.off+9] ^= 0x40; return b }, 1},
		"payload of a record": {func(b []byte, r record) []byte { b[r.off+r.bytes-1] ^= 1; return b }, 1},
		"a whole stretch":     {func(b []byte, r record) []byte { clear(b[r.off-40 : r.off+r.bytes+10]); return b }, 1},
		"one header copy":     {func(b []byte, r record) []byte { b[3] ^= 1; return b }, 0},
		"the other header":    {func(b []byte, r record) []byte { b[headerCopyBytes+20] ^= 1; return b }, 0},
		"both headers":        {func(b []byte, r record) []byte { b[3] ^= 1; b[headerCopyBytes+20] ^= 1; return b }, 1},
		"forged magic numbers": {func(b []byte, r record) []byte {
			copy(b[r.off:], bytes.Repeat([]byte{0xF5, 0xA3, 0xC9, 0x1E}, 30))
			return b
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openTest(t, dir)
			blks := makeBlocks(t, 1, 9, 700)
			mustPut(t, s, "a", blks...)
			must(t, s.Close())
			path := segmentPaths(t, dir)[0]
			records := recordsOf(t, path, 1)
			editFile(t, path, func(b []byte) []byte { return tc.edit(b, records[4]) })
			must(t, os.RemoveAll(filepath.Join(dir, indexDir)))
			again := openTest(t, dir)
			u := again.Usage()
			if u.Damaged != tc.damaged {
				t.Errorf("usage %+v, want %d damaged", u, tc.damaged)
			}
			if name == "both headers" {
				if u.Blocks != 0 || fileExists(path) || !fileExists(path+rottenSuffix) {
					t.Errorf("usage %+v; the file must be set aside", u)
				}
			} else if tc.damaged == 0 {
				wantHere(t, again, blks...)
			} else {
				wantHere(t, again, blks[0], blks[7], blks[8])
			}
			// It goes on, and what was lost can be stored again.
			mustPut(t, again, "a", blks...)
			wantHere(t, again, blks...)
			must(t, again.Compact(t.Context()))
			wantHere(t, again, blks...)
		})
	}
}

// A read that meets damage in the index ends the store, and the next start rebuilds the index with all blocks.
func TestADamagedIndexIsMadeAnewWhoeverMeetsTheDamage(t *testing.T) {
	dir := t.TempDir()
	blks := makeBlocks(t, 1, 1500, 20)
	s := openTest(t, dir)
	mustPut(t, s, "o", blks...)
	must(t, s.Close())
	must(t, openTest(t, dir).Close()) // makes a table of what was in the log
	tables, err := filepath.Glob(filepath.Join(dir, indexDir, "gen-*", "*.sst"))
	if must(t, err); len(tables) == 0 {
		t.Fatal("no table")
	}
	for _, path := range tables {
		editFile(t, path, func(b []byte) []byte { b[len(b)/8] ^= 1; return b })
	}
	s = openTest(t, dir)
	failed := 0
	for _, b := range blks {
		if _, err := s.Get(t.Context(), b.Cid()); err != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Fatal("no read has met it")
	}
	select {
	case <-s.Failed():
	case <-time.After(time.Minute):
		t.Fatalf("%d reads have failed, and the store goes on", failed)
	}
	must(t, s.Close())
	s = openTest(t, dir)
	wantHere(t, s, blks...)
}

// cut is a file whose reading fails from a place on.
type cut struct {
	b    []byte
	from int64
}

func (c cut) ReadAt(p []byte, off int64) (int, error) {
	if off >= c.from {
		return 0, errors.New("cut")
	}
	return bytes.NewReader(c.b).ReadAt(p, off)
}

// A rebuild of the index writes references in small steps while it reads, so that it keeps few of them in memory. One
// record can have a thousand references.
func TestRebuildTakesReferencesInSmallSteps(t *testing.T) {
	s := openTest(t, t.TempDir())
	number := s.active.number + 1
	b := segmentHeader(number, 42)
	seed, _ := parseSegmentHeader(b, number)
	add := func(kind byte, payload []byte) {
		start := len(b)
		b = append(beginRecord(b), payload...)
		endRecord(b, start, seed, int64(start), kind)
	}
	for i := range 10 {
		refs := make([]blockRef, maxRefsPerRecord)
		for j := range refs {
			hash, err := multihash.Sum(fmt.Appendf(nil, "%d %d", i, j), multihash.SHA2_256, -1)
			must(t, err)
			refs[j] = blockRef{hash, 1}
		}
		add(kindReference, appendRefs(nil, uint64(number)<<32|headerBytes, "o", refs))
	}
	end := int64(len(b))
	for i := range 3 { // so that not all is read at once
		add(kindBlock, append(appendHash(nil, makeBlocks(t, uint64(i), 1, 1)[0].Cid().Hash()), make([]byte, MaxBlockBytes)...))
	}
	sc := &scan{src: cut{b, headerBytes + 1}, seed: seed, size: int64(len(b))}
	if err := s.enter(sc, number, headerBytes); err == nil {
		t.Fatal("all was read")
	}
	raw, _, err := s.index.Get([]byte{keyMeta})
	must(t, err)
	m, err := decodeMeta(raw)
	if must(t, err); m.segment != number || m.off < end/2 {
		t.Errorf("the index reaches %d of %d bytes of references that were met", m.off, end)
	}
}

// Bytes in a block that look like a drop record drop nothing. Their maker does not know the salt of the segment.
func TestRecordsInsideABlockAreNotRecords(t *testing.T) {
	for _, tc := range []struct {
		name    string
		leaked  bool // whoever made the block knew the segment's salt
		survive bool
	}{{"salt unknown", false, true}, {"control: the place is right, so the salt is what counts", true, false}} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			s := openTest(t, dir)
			victim := makeBlocks(t, 1, 1, 100)[0]
			mustPut(t, s, "victim", victim)
			mustPut(t, s, "evil", victim)
			o, _, err := getReference(s.index, "victim")
			must(t, err)
			hash := victim.Cid().Hash() // as long as every other
			place := s.active.size + dropRecordBytes("evil") + 2 + refBytes(hash) + blockRecordBytes(hash, 0)
			seed := uint32(0)
			if tc.leaked {
				seed = s.active.seed
			}
			forged := appendReference(beginRecord(nil), o.inc, "victim")
			endRecord(forged, 0, seed, place, kindDrop)
			mustPut(t, s, "evil", rawBlock(t, forged))
			mustPut(t, s, "after", makeBlocks(t, 2, 1, 10)...)
			must(t, s.Close())
			path := segmentPaths(t, dir)[0]
			for _, r := range recordsOf(t, path, 1) {
				if r.kind == kindBlock && bytes.Equal(r.data, forged) {
					editFile(t, path, func(b []byte) []byte { b[r.off] ^= 1; return b })
				}
			}
			must(t, os.RemoveAll(filepath.Join(dir, indexDir)))
			again := openTest(t, dir)
			if _, ok, _ := again.Reference(t.Context(), "victim"); ok != tc.survive || again.Usage().Damaged == 0 {
				t.Errorf("reference there %v, usage %+v", ok, again.Usage())
			}
		})
	}
}

// Compact finishes an interrupted drop, also after a crash, and touches no new reference of the same name. None of
// the blocks of an interrupted drop is visible.
func TestInterruptedDropIsFinishedByTheNextPass(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	blks := makeBlocks(t, 1, 2*sweepStep+10, 20)
	mustPut(t, s, "a", blks...)
	must(t, s.Seal(t.Context(), "a", Sealed{Blocks: 1}))
	mustPut(t, s, "b", blks[0])
	var inc uint64
	must(t, s.do(t.Context(), 100, func(b *batch) error {
		o, _, err := getReference(b.tx, "a")
		inc = o.inc
		b.begin()
		b.s.buf = appendReference(b.s.buf, inc, "a")
		return errors.Join(err, b.end(record{kind: kindDrop, inc: inc, reference: "a"}))
	}))
	must(t, s.do(t.Context(), 100, func(b *batch) error {
		_, done, err := b.sweep(inc, sweepStep)
		if done {
			t.Error("one step was enough")
		}
		return err
	}))
	for name, s := range map[string]*Store{"same process": s, "after a crash": openTest(t, kill(t, dir))} {
		for _, b := range blks {
			if whole, err := s.Visible(t.Context(), b.Cid()); whole || err != nil {
				t.Fatalf("%s: a block of what is being dropped is in whole content: %v, %v", name, whole, err)
			}
		}
		// A new reference of the same name is not touched by the sweep of the old.
		mustPut(t, s, "a", blks[5], blks[len(blks)-1])
		must(t, s.Compact(t.Context()))
		if u := s.Usage(); u.Blocks != 3 || u.Missing != 0 {
			t.Errorf("%s: %+v", name, u)
		}
		wantHere(t, s, blks[0], blks[5], blks[len(blks)-1])
	}
}

// The records of a segment have the bytes of the golden file, and a scan reads them back.
func TestSegmentFormatIsTheGoldenOne(t *testing.T) {
	b := segmentHeader(7, 0x0102030405060708)
	seed, ok := parseSegmentHeader(b, 7)
	if !ok {
		t.Fatal("own header refused")
	}
	hash, err := multihash.Sum([]byte("block"), multihash.SHA2_256, -1)
	must(t, err)
	add := func(kind byte, payload []byte) {
		start := len(b)
		b = append(beginRecord(b), payload...)
		endRecord(b, start, seed, int64(start), kind)
	}
	add(kindReference, appendRefs(nil, 7<<32|64, "root/x", []blockRef{{hash, 5}}))
	add(kindBlock, append(appendHash(nil, hash), "block"...))
	add(kindSeal, appendSeal(nil, 7<<32|64, "root/x", Sealed{Bytes: 5, Blocks: 1}))
	add(kindHidden, appendSeal(nil, 7<<32|64, "root/x", Sealed{Bytes: 5, Blocks: 1, Hidden: true}))
	add(kindDrop, appendReference(nil, 7<<32|64, "root/x"))
	goldentest.File(t, filepath.Join("testdata", "segment.golden"), []byte(hex.Dump(b)))
	sc := &scan{src: bytes.NewReader(b), seed: seed, size: int64(len(b))}
	var kinds []byte
	must(t, sc.each(headerBytes, func(r record) error { kinds = append(kinds, r.kind); return nil }))
	if string(kinds) != "\x02\x01\x04\x05\x03" || len(sc.bad) != 0 {
		t.Errorf("kinds %v, bad %v", kinds, sc.bad)
	}
}

func FuzzScan(f *testing.F) {
	seedBytes := segmentHeader(1, 42)
	seed, _ := parseSegmentHeader(seedBytes, 1)
	hash, _ := multihash.Sum([]byte("block"), multihash.SHA2_256, -1)
	for kind, payload := range map[byte][]byte{
		kindBlock:     append(appendHash(nil, hash), "block"...),
		kindReference: appendRefs(nil, 1<<32, "o", []blockRef{{hash, 5}, {hash, 6}}),
		kindSeal:      appendSeal(nil, 1<<32, "o", Sealed{Bytes: 1, Blocks: 2}),
		kindHidden:    appendSeal(nil, 1<<32, "o", Sealed{Bytes: 1, Blocks: 2, Hidden: true}),
		kindDrop:      appendReference(nil, 1<<32, "o"),
	} {
		f.Add(append([]byte{kind}, payload...), []byte("between"))
	}
	f.Fuzz(func(t *testing.T, payload, garbage []byte) {
		if len(payload) == 0 || len(payload) > maxPayloadBytes {
			return
		}
		// The payload in a good record, garbage, and a record that must be found.
		b := append(beginRecord(nil), payload[1:]...)
		endRecord(b, 0, seed, 0, payload[0])
		b = append(b, garbage...)
		last := int64(len(b))
		b = append(beginRecord(b), appendReference(nil, 9, "last")...)
		endRecord(b, int(last), seed, last, kindDrop)
		found, end := false, int64(0)
		sc := &scan{src: bytes.NewReader(b), seed: seed, size: int64(len(b))}
		if err := sc.each(0, func(r record) error {
			if r.off < end || r.bytes < recordHeadBytes {
				t.Errorf("record at %d overlaps the one before, which ends at %d", r.off, end)
			}
			end = r.off + r.bytes
			found = found || r.off == last && r.reference == "last"
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !found {
			t.Error("the good record after the garbage was not found")
		}
	})
}
