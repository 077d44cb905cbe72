package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

const text = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"

// store remembers references, and whom it was told to ask for a file.
type store struct {
	references map[string]bool
	holders    []state.NodeID
	path       []string
	visible    bool
	fail       error
	during     func() // runs in the middle of an import
}

func (s *store) Import(_ context.Context, reference string, r io.Reader, _ Layout) (Imported, error) {
	s.references[reference] = true
	n, err := io.Copy(io.Discard, r)
	if s.during != nil {
		s.during()
	}
	return Imported{Root: cid.MustParse(text), Size: uint64(n)}, errors.Join(err, s.fail)
}

func (s *store) ImportFolder(ctx context.Context, reference string, r io.Reader, as Layout) (Imported, error) {
	return s.Import(ctx, reference, r, as)
}

func (s *store) ImportFiles(ctx context.Context, reference string, next NextFile, as Layout) (Imported, error) {
	all := Imported{Root: cid.MustParse(text)}
	for {
		path, r, err := next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return Imported{}, err
		}
		file, err := s.Import(ctx, reference, r, as)
		if err != nil {
			return Imported{}, err
		}
		all.Entries = append(all.Entries, Entry{path, cid.MustParse(other)})
		all.Size += file.Size
	}
}

func (s *store) Drop(_ context.Context, reference string) error {
	if s.fail != nil {
		return s.fail
	}
	delete(s.references, reference)
	return nil
}

func (s *store) OpenPath(_ context.Context, _ cid.Cid, path []string, holders []state.NodeID) (io.ReadSeekCloser, uint64, error) {
	s.holders, s.path = holders, path
	return nil, 0, nil
}

func (s *store) OpenFolder(_ context.Context, _ cid.Cid, path []string, holders []state.NodeID) (Folder, error) {
	s.holders, s.path = holders, path
	return nil, nil
}

type world struct {
	*Content
	store *store
	state *clustertest.State
	now   time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		store: &store{references: map[string]bool{}}, now: time.UnixMilli(1_000_000),
		state: clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members("a", "b", "c")}),
	}
	ids := 0
	w.Content = New(Options{
		State: w.state, Store: w.store, Now: func() time.Time { return w.now }, Logger: slog.New(slog.DiscardHandler),
		NewID: func() string { ids++; return fmt.Sprint(ids) },
	})
	return w
}

// pin makes the root pinned by the nodes.
func (w *world) pin(t *testing.T, nodes ...state.NodeID) {
	t.Helper()
	w.state.Apply(t, &state.CreatePin{
		Pin: state.Pin{ID: "1", Account: clustertest.Operator, Created: 1, CID: text}, Nodes: []state.NodeID{"a", "b", "c"},
	})
	w.report(t, state.Held, nodes...)
}

// unpin removes the pin, if there is one.
func (w *world) unpin(t *testing.T) {
	t.Helper()
	_, err := w.state.Propose(t.Context(), &state.DeletePin{Account: clustertest.Operator, ID: "1"})
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		t.Fatal(err)
	}
}

// lose has nodes lose the root.
func (w *world) lose(t *testing.T, nodes ...state.NodeID) {
	t.Helper()
	w.report(t, state.Assigned, nodes...)
}

func (w *world) report(t *testing.T, phase state.Phase, nodes ...state.NodeID) {
	t.Helper()
	w.reportRoot(t, text, phase, nodes...)
}

// reportRoot has nodes report a root.
func (w *world) reportRoot(t *testing.T, text string, phase state.Phase, nodes ...state.NodeID) {
	t.Helper()
	view, release := w.state.LocalView()
	defer release()
	root, err := view.Root(state.RootOf(cid.MustParse(text)))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		w.state.Apply(t, &state.ReportCopies{Node: n, Items: []state.CopyReport{{Root: root.Key, Born: root.Born, Phase: phase, Size: 1, Blocks: 1}}})
	}
}

// The lease of an import ends when its content is pinned, or after LeaseTTL without a pin on its way.
func TestALeaseEndsWhenItsContentIsPinnedOrItsTimeIsUp(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(*world)
		kept bool
	}{
		{"nothing has happened", func(*world) {}, true},
		{"pinned, and one who held it was removed", func(w *world) {
			w.state.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
			w.pin(t, "a", "b")
			w.state.Apply(t, &state.RemoveNode{ID: "b"})
		}, true},
		{"just before its time is up", func(w *world) { w.now = w.now.Add(LeaseTTL - 1) }, true},
		{"its time is up", func(w *world) { w.now = w.now.Add(LeaseTTL) }, false},
		{"one copy is held", func(w *world) { w.pin(t, "a") }, true},
		{"a pin is on its way for longer than that", func(w *world) { w.pin(t); w.now = w.now.Add(20 * LeaseTTL) }, true},
		{"pinned by few, and on its way to others", func(w *world) { w.pin(t, "a"); w.now = w.now.Add(LeaseTTL) }, true},
		{"pinned", func(w *world) { w.pin(t, "a", "b") }, false},
		{"pinned, and lost since", func(w *world) { w.pin(t, "a", "b"); w.lose(t, "a", "b") }, true},
		{"pinned, and the store fails", func(w *world) { w.pin(t, "a", "b"); w.store.fail = errors.New("disk") }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			root, size, err := w.Add(t.Context(), strings.NewReader("four"), Layout{})
			if err != nil || size != 4 || root.String() != text {
				t.Fatalf("%s, %d bytes, %v", root, size, err)
			}
			tc.then(w)
			w.Sweep(t.Context())
			if kept := len(w.store.references) == 1; kept != tc.kept {
				t.Errorf("references %v", slices.Collect(maps.Keys(w.store.references)))
			}
			w.store.fail = nil
			w.unpin(t)
			w.now = w.now.Add(2 * LeaseTTL)
			w.Sweep(t.Context())
			if len(w.store.references) != 0 || len(w.leases) != 0 {
				t.Errorf("at the end: references %v, leases %v", w.store.references, w.leases)
			}
		})
	}
}

// A sweep keeps the blocks of an import that is under way, and removes those of one that failed.
func TestAnImportUnderWayIsNotSwept(t *testing.T) {
	w := newWorld(t)
	w.store.during = func() {
		w.now = w.now.Add(10 * LeaseTTL)
		w.Sweep(t.Context())
		if len(w.store.references) != 1 {
			t.Error("swept in the middle of the import")
		}
	}
	w.store.fail = io.ErrUnexpectedEOF
	if _, _, err := w.Add(t.Context(), strings.NewReader("x"), Layout{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	w.store.fail = nil
	if w.Sweep(t.Context()); len(w.store.references) != 0 {
		t.Error("what a failed import left is not swept")
	}
}

// A node with maxLeases imports that wait for a pin refuses one more with ErrLimited.
func TestImportsThatWaitForPinsAreBounded(t *testing.T) {
	w := newWorld(t)
	for i := range maxLeases {
		if _, _, err := w.Add(t.Context(), strings.NewReader(""), Layout{}); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, _, err := w.Add(t.Context(), strings.NewReader(""), Layout{}); !errors.Is(err, state.ErrLimited) {
		t.Errorf("one more: %v", err)
	}
}

// Open passes the holders of a pinned root to the store, and none for content that nobody has pinned.
func TestOpenTellsTheStoreWhoHoldsContent(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.Open(t.Context(), "no cid"); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("no cid: %v", err)
	}
	if _, _, err := w.Open(t.Context(), text); err != nil || w.store.holders != nil {
		t.Errorf("content that nobody pinned: holders %v, %v", w.store.holders, err)
	}
	w.pin(t, "c")
	if _, _, err := w.Open(t.Context(), text); err != nil || !slices.Equal(w.store.holders, []state.NodeID{"c"}) {
		t.Errorf("holders %v, %v", w.store.holders, err)
	}
}

// A path after the CID reaches the store as names, for files and for folders.
func TestAPathReachesTheStore(t *testing.T) {
	w := newWorld(t)
	for path, want := range map[string][]string{
		"": nil, "/": nil, "/a": {"a"}, "/a/ü b/c%20d": {"a", "ü b", "c%20d"}, "//a//b/": {"a", "b"}, "/../.": {"..", "."},
	} {
		if _, _, err := w.Open(t.Context(), text+path); err != nil || !slices.Equal(w.store.path, want) {
			t.Errorf("%q: %q, %v", path, w.store.path, err)
		}
		w.store.path = nil
		if _, err := w.OpenFolder(t.Context(), text+path); err != nil || !slices.Equal(w.store.path, want) {
			t.Errorf("folder %q: %q, %v", path, w.store.path, err)
		}
	}
	if _, err := w.OpenFolder(t.Context(), "/"+text); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("no CID: %v", err)
	}
}

// An imported folder is protected like a file: until it is pinned, and not after the import has failed.
func TestAnImportedFolderIsProtected(t *testing.T) {
	w := newWorld(t)
	if done, err := w.AddFolder(t.Context(), strings.NewReader("four"), Layout{}); err != nil || done.Root.String() != text || done.Size != 4 {
		t.Fatalf("%+v, %v", done, err)
	}
	if w.Sweep(t.Context()); len(w.store.references) != 1 {
		t.Errorf("references %v", w.store.references)
	}
	w.pin(t, "a", "b", "c")
	if w.Sweep(t.Context()); len(w.store.references) != 0 {
		t.Errorf("references after the pin: %v", w.store.references)
	}
	w.store.fail = io.ErrUnexpectedEOF
	if _, err := w.AddFolder(t.Context(), strings.NewReader("x"), Layout{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	w.store.fail = nil
	if w.Sweep(t.Context()); len(w.store.references) != 0 {
		t.Errorf("references after a failure: %v", w.store.references)
	}
}

// An account opens content that is public, pinned or in its own objects, and gets the answer for absent content for
// any other. The operator opens everything.
func TestAnAccountReadsWhatItMay(t *testing.T) {
	const other, one state.AccountID = "b1", "a1"
	for _, tc := range []struct {
		name  string
		setup func(*testing.T, *world)
		may   []state.AccountID
	}{
		{"nothing names it", func(*testing.T, *world) {}, nil},
		{"a part of what everybody may see", func(_ *testing.T, w *world) { w.store.visible = true }, []state.AccountID{one, other}},
		{"a pin", func(t *testing.T, w *world) { w.pin(t, "a", "b") }, []state.AccountID{one, other}},
		{"an object of a private bucket", func(t *testing.T, w *world) { w.put(t, one, false) }, []state.AccountID{one}},
		{"objects of two accounts", func(t *testing.T, w *world) { w.put(t, one, false); w.put(t, other, false) }, []state.AccountID{one, other}},
		{"an object of a public bucket", func(t *testing.T, w *world) { w.put(t, one, true) }, []state.AccountID{one, other}},
		{"a private object, and a part of what everybody may see", func(t *testing.T, w *world) {
			w.put(t, one, false)
			w.store.visible = true
		}, []state.AccountID{one, other}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			for _, a := range []state.AccountID{one, other} {
				w.state.Apply(t, &state.CreateAccount{Account: state.Account{ID: a, Email: string(a) + "@example.org", Created: 1}})
			}
			tc.setup(t, w)
			for _, a := range []state.AccountID{one, other} {
				_, _, err := w.OpenFor(t.Context(), a, text)
				if may := slices.Contains(tc.may, a); may != (err == nil) || !may && err.Error() != NotHeld(cid.MustParse(text)).Error() {
					t.Errorf("%s: %v", a, err)
				}
				_, _, inFolder := w.OpenFor(t.Context(), a, text+"/a")
				_, folder := w.OpenFolderFor(t.Context(), a, text)
				_, below := w.OpenFolderFor(t.Context(), a, text+"/a/b")
				for _, other := range []error{inFolder, folder, below} {
					if (other == nil) != (err == nil) || other != nil && other.Error() != err.Error() {
						t.Errorf("%s: %v, and %v for a folder or a path", a, err, other)
					}
				}
			}
			if _, _, err := w.Open(t.Context(), text); err != nil {
				t.Errorf("the operator: %v", err)
			}
			if _, err := w.OpenFolder(t.Context(), text); err != nil {
				t.Errorf("the operator: %v", err)
			}
		})
	}
	w := newWorld(t)
	if _, _, err := w.OpenFor(t.Context(), one, "no cid"); !errors.Is(err, state.ErrInvalid) {
		t.Errorf("no cid: %v", err)
	}
	w.store.fail = errors.New("disk")
	if _, _, err := w.OpenFor(t.Context(), one, text); !errors.Is(err, w.store.fail) {
		t.Errorf("a store that cannot judge: %v", err)
	}
}

// put has an object of an account's own bucket name the root, held by all nodes.
func (w *world) put(t *testing.T, account state.AccountID, public bool) {
	t.Helper()
	bucket := w.state.NewBucket(t, account, "bucket", public)
	root := state.RootOf(cid.MustParse(text))
	w.state.Apply(t, &state.PutObject{
		Account: account, Bucket: "bucket", Born: bucket.Born,
		Object: state.Object{ID: state.VersionID("v-" + account), Key: "k", Root: root, Size: 1, Created: 1, ETag: "e"},
		Content: state.Content{
			Root: root, Bytes: 1, Blocks: 1, Nodes: []state.NodeID{"a", "b", "c"},
			Held: []state.Holding{{Node: "a"}, {Node: "b"}},
		},
	})
}
