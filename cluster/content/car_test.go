package content

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// other is a second root.
const other = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"

// ImportCAR returns a CAR with the two roots.
func (s *store) ImportCAR(_ context.Context, reference string, r io.Reader) (CAR, error) {
	s.references[reference] = true
	n, err := io.Copy(io.Discard, r)
	return CAR{Roots: []cid.Cid{cid.MustParse(text), cid.MustParse(other)}, Blocks: 2, Bytes: uint64(n)}, errors.Join(err, s.fail)
}

func (s *store) ExportCAR(_ context.Context, w io.Writer, root cid.Cid, holders []state.NodeID) error {
	s.holders = holders
	_, err := io.WriteString(w, "CAR of "+root.String())
	return err
}

// The lease of a CAR lasts until the last of its roots is pinned, or for LeaseTTL without pins. An import that fails leaves
// no lease.
func TestTheLeaseOfACARLastsUntilAllRootsArePinned(t *testing.T) {
	pinOther := func(w *world) {
		w.state.Apply(t, &state.CreatePin{
			Pin: state.Pin{ID: "2", Account: clustertest.Operator, Created: 2, CID: other}, Nodes: []state.NodeID{"a", "b", "c"},
		})
		w.reportRoot(t, other, state.Held, "a", "b")
	}
	for _, tc := range []struct {
		name string
		then func(*world)
		kept bool
	}{
		{"nothing has happened", func(*world) {}, true},
		{"its time is up", func(w *world) { w.now = w.now.Add(LeaseTTL) }, false},
		{"the first root is pinned", func(w *world) { w.pin(t, "a", "b") }, true},
		{"the second root is pinned", func(w *world) { pinOther(w) }, true},
		{"the second root is pinned, and the pin of the first takes long", func(w *world) { pinOther(w); w.pin(t); w.now = w.now.Add(20 * LeaseTTL) }, true},
		{"both are pinned", func(w *world) { w.pin(t, "a", "b"); pinOther(w) }, false},
		{"one is pinned, and the time of the other is up", func(w *world) { pinOther(w); w.now = w.now.Add(LeaseTTL) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			car, err := w.ImportCAR(t.Context(), strings.NewReader("four"))
			if err != nil || len(car.Roots) != 2 || car.Bytes != 4 {
				t.Fatalf("%+v, %v", car, err)
			}
			tc.then(w)
			w.Sweep(t.Context())
			if w.store.references[LeasePrefix+"1"] != tc.kept {
				t.Errorf("kept: %v", !tc.kept)
			}
		})
	}
	w := newWorld(t)
	w.store.fail = state.Errorf(state.CodeInvalid, "bad")
	if _, err := w.ImportCAR(t.Context(), strings.NewReader("four")); !errors.Is(err, state.ErrInvalid) {
		t.Error(err)
	}
	w.store.fail = nil
	w.Sweep(t.Context())
	if len(w.store.references) != 0 {
		t.Errorf("after a bad CAR: %v", w.store.references)
	}
}

// An export asks the holders of the root. For an account it needs the same rights as reading a file, and a text that is
// no CID, or has a path after it, is invalid.
func TestAnExportNeedsTheRightsOfAReader(t *testing.T) {
	w := newWorld(t)
	var out strings.Builder
	if err := w.ExportCAR(t.Context(), &out, text); err != nil || out.String() != "CAR of "+text {
		t.Errorf("%q, %v", &out, err)
	}
	out.Reset()
	if err := w.ExportCARFor(t.Context(), &out, clustertest.Operator, text); !errors.Is(err, state.ErrNotFound) || out.Len() > 0 {
		t.Errorf("private content: %q, %v", &out, err)
	}
	w.pin(t, "a", "b")
	if err := w.ExportCARFor(t.Context(), &out, clustertest.Operator, text); err != nil || out.String() != "CAR of "+text || len(w.store.holders) != 2 {
		t.Errorf("pinned content: %q of %v, %v", &out, w.store.holders, err)
	}
	for _, bad := range []string{"hello", text + "/a/path"} {
		if err := w.ExportCAR(t.Context(), &out, bad); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
		if err := w.ExportCARFor(t.Context(), &out, clustertest.Operator, bad); !errors.Is(err, state.ErrInvalid) {
			t.Errorf("%s for an account: %v", bad, err)
		}
	}
}
