package blocks

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// wantVisible fails unless Visible says the same of all blocks.
func wantVisible(t *testing.T, s *Store, want bool, blks ...blocks.Block) {
	t.Helper()
	for i, b := range blks {
		if got, err := s.Visible(t.Context(), b.Cid()); got != want || err != nil {
			t.Fatalf("block %d of %d is visible: %v, %v; want %v", i, len(blks), got, err, want)
		}
	}
}

// A block is visible exactly while a sealed reference that is not hidden includes it, also in a rebuilt index.
func TestBlocksOfHiddenReferencesShowWhereAnotherReferenceShowsThem(t *testing.T) {
	for name, n := range map[string]int{"few blocks": 10, "many blocks": 2*countStep + 10, "a step": countStep} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openTest(t, dir)
			blks := makeBlocks(t, 1, n, 20)
			shared, rest := blks[:2], blks[2:]
			mustPut(t, s, "hidden", blks...)
			mustPut(t, s, "shown", shared...)
			wantVisible(t, s, false, blks...)
			must(t, s.Seal(t.Context(), "hidden", Sealed{Blocks: 7, Hidden: true}))
			wantVisible(t, s, false, blks...)
			must(t, s.Seal(t.Context(), "shown", Sealed{Blocks: 2}))
			for _, again := range []bool{false, true} {
				if again {
					must(t, errors.Join(s.Close(), os.RemoveAll(filepath.Join(dir, indexDir))))
					s = openTest(t, dir)
				}
				wantVisible(t, s, true, shared...)
				wantVisible(t, s, false, rest...)
			}
			late := makeBlocks(t, 2, 1, 20)
			mustPut(t, s, "hidden", late...)
			wantVisible(t, s, false, late...)
			for _, hidden := range []bool{false, true} {
				changed, err := s.Hide(t.Context(), "hidden", hidden)
				if o, _, _ := s.Reference(t.Context(), "hidden"); !changed || err != nil || o.Hidden != hidden || o.Blocks != 7 {
					t.Errorf("changed %v, %v, reference %+v", changed, err, o)
				}
				if changed, err := s.Hide(t.Context(), "hidden", hidden); changed || err != nil {
					t.Errorf("the same again changes it: %v, %v", changed, err)
				}
				wantVisible(t, s, true, shared...)
				wantVisible(t, s, !hidden, append(late, rest...)...)
			}
			mustDrop(t, s, "shown")
			wantVisible(t, s, false, blks...)
			mustPut(t, s, "shown", blks...)
			must(t, s.Seal(t.Context(), "shown", Sealed{}))
			mustDrop(t, s, "hidden") // takes what it hid along
			wantVisible(t, s, true, blks...)
		})
	}
}

// Hide does not change a reference that is not sealed or does not exist, and refuses an empty name.
func TestHideLeavesWhatIsNotSealed(t *testing.T) {
	s := openTest(t, t.TempDir())
	mustPut(t, s, "open", makeBlocks(t, 1, 1, 10)...)
	for _, reference := range []string{"open", "none"} {
		before, was, _ := s.Reference(t.Context(), reference)
		if changed, err := s.Hide(t.Context(), reference, true); changed || err != nil {
			t.Errorf("%s: changed %v, %v", reference, changed, err)
		}
		if o, ok, err := s.Reference(t.Context(), reference); o != before || ok != was || err != nil {
			t.Errorf("%s: %+v, %v, %v", reference, o, ok, err)
		}
	}
	if _, err := s.Hide(t.Context(), "", true); !errors.Is(err, ErrBadReference) {
		t.Errorf("no reference: %v", err)
	}
}

// A seal that was interrupted while it counts shows no block, and the next Compact, Seal, Hide or start ends it.
func TestSealThatIsCutShortIsEndedByTheNext(t *testing.T) {
	ends := map[string]func(t *testing.T, s *Store, dir string, sealed Sealed) *Store{
		"compact": func(t *testing.T, s *Store, _ string, _ Sealed) *Store {
			must(t, s.Compact(t.Context()))
			return s
		},
		"seal": func(t *testing.T, s *Store, _ string, sealed Sealed) *Store {
			must(t, s.Seal(t.Context(), "a", sealed))
			return s
		},
		"hide": func(t *testing.T, s *Store, _ string, sealed Sealed) *Store {
			_, err := s.Hide(t.Context(), "a", sealed.Hidden)
			must(t, err)
			return s
		},
		"crash": func(t *testing.T, _ *Store, dir string, _ Sealed) *Store { return openTest(t, kill(t, dir)) },
		"no index": func(t *testing.T, s *Store, dir string, _ Sealed) *Store {
			must(t, errors.Join(s.Close(), os.RemoveAll(filepath.Join(dir, indexDir))))
			return openTest(t, dir)
		},
	}
	for name, end := range ends {
		for _, hidden := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", hidden", false: ", shown"}[hidden], func(t *testing.T) {
				dir := t.TempDir()
				s := openTest(t, dir)
				blks := makeBlocks(t, 1, 2*countStep+10, 20)
				mustPut(t, s, "a", blks...)
				must(t, s.Seal(t.Context(), "a", Sealed{Hidden: !hidden}))
				sealed := Sealed{Hidden: hidden}
				must(t, s.do(t.Context(), recordSlack, func(b *batch) error {
					_, err := b.seal("a", sealed)
					return err
				}))
				if len(s.uncounted) != 1 {
					t.Fatalf("one step was enough: %v", s.uncounted)
				}
				wantVisible(t, s, false, blks...)
				s = end(t, s, dir, sealed)
				wantVisible(t, s, !hidden, blks...)
				if len(s.uncounted) != 0 {
					t.Errorf("left over: %v", s.uncounted)
				}
				mustPut(t, s, "b", blks...)
				must(t, s.Seal(t.Context(), "b", Sealed{}))
				mustDrop(t, s, "a")
				wantVisible(t, s, true, blks...)
			})
		}
	}
}

// A reference that was announced as hidden is sealed hidden in one step, and shows no block before. The store counts
// its blocks if the seal differs from the announcement. A rebuilt index does not know of the announcement, and
// counts.
func TestWhatIsGoingToBeHiddenIsSealedInOneStep(t *testing.T) {
	for name, hidden := range map[string]bool{"as it was said": true, "other than it was said": false} {
		for _, then := range []string{"", "put", "crash", "no index"} {
			t.Run(name+" "+then, func(t *testing.T) {
				dir := t.TempDir()
				s := openTest(t, dir)
				blks := makeBlocks(t, 1, 2*countStep+10, 20)
				late := makeBlocks(t, 2, 3, 20)
				mustPut(t, s, "shown", blks...)
				must(t, s.Seal(t.Context(), "shown", Sealed{}))
				var cids []cid.Cid
				for _, b := range blks {
					cids = append(cids, b.Cid())
				}
				bytes, missing, err := s.TakeOver(t.Context(), "o", append(cids, late[0].Cid()), true)
				if err != nil || bytes != uint64(20*len(blks)) || len(missing) != 1 {
					t.Fatalf("%d bytes, missing %v, %v", bytes, missing, err)
				}
				wantVisible(t, s, true, blks...)
				mustDrop(t, s, "shown")
				wantVisible(t, s, false, blks...)
				switch then {
				case "put":
					mustPut(t, s, "o", late...)
					blks = append(blks, late...)
				case "crash":
					s = openTest(t, kill(t, dir))
				case "no index":
					must(t, errors.Join(s.Close(), os.RemoveAll(filepath.Join(dir, indexDir))))
					s = openTest(t, dir)
				}
				if o, ok, err := s.Reference(t.Context(), "o"); o.Sealed || o.Hidden || !ok || err != nil {
					t.Errorf("%+v, %v, %v", o, ok, err)
				}
				must(t, s.do(t.Context(), recordSlack, func(b *batch) error {
					_, err := b.seal("o", Sealed{Hidden: hidden})
					return err
				}))
				// Without the index they are counted like those of any other reference.
				if again := then == "no index" == hidden; again != (len(s.uncounted) == 1) {
					t.Errorf("the seal goes through them: %v, want %v", !again, again)
				}
				wantVisible(t, s, then == "no index" && !hidden, blks...)
				must(t, s.Seal(t.Context(), "o", Sealed{Hidden: hidden}))
				wantVisible(t, s, !hidden, blks...)
				changed, err := s.Hide(t.Context(), "o", !hidden)
				if !changed || err != nil {
					t.Errorf("changed %v, %v", changed, err)
				}
				wantVisible(t, s, hidden, blks...)
			})
		}
	}
}

// Seal ends with the error of its context, and Compact ends the count.
func TestSealEndsWithItsContext(t *testing.T) {
	s := openTest(t, t.TempDir())
	blks := makeBlocks(t, 1, 3*countStep, 20)
	mustPut(t, s, "a", blks...)
	must(t, s.do(t.Context(), recordSlack, func(b *batch) error {
		_, err := b.seal("a", Sealed{Hidden: true})
		return err
	}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Seal(ctx, "a", Sealed{Hidden: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("seal: %v", err)
	}
	must(t, s.Compact(t.Context()))
	if len(s.uncounted) != 0 {
		t.Errorf("left over: %v", s.uncounted)
	}
}

// A store uses an index from oldestVersion on as it is and rebuilds an older one. Otherwise it would have to read
// terabytes of segments again.
func TestIndexOfTheVersionBeforeIsUsed(t *testing.T) {
	for version, kept := range map[byte]bool{oldestVersion: true, oldestVersion - 1: false} {
		dir := t.TempDir()
		s := openTest(t, dir)
		blks := makeBlocks(t, 1, 5, 100)
		mustPut(t, s, "a", blks...)
		must(t, s.Seal(t.Context(), "a", Sealed{Blocks: 5}))
		tx := s.index.Begin()
		meta, _, err := tx.Get([]byte{keyMeta})
		must(t, err)
		must(t, errors.Join(tx.Set([]byte{keyMeta}, append([]byte{version}, meta[1:]...)), tx.Commit(true), s.Close()))
		var said bytes.Buffer
		opts := testOptions()
		opts.Logger = slog.New(slog.NewTextHandler(&said, nil))
		s = openWith(t, dir, opts)
		if rebuilt := bytes.Contains(said.Bytes(), []byte("rebuilding the block index")); rebuilt == kept {
			t.Errorf("version %d: %s", version, said.String())
		}
		wantVisible(t, s, true, blks...)
		_, err = s.Hide(t.Context(), "a", true)
		must(t, err)
		wantVisible(t, s, false, blks...)
	}
}
