package members

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// pinned pins content of a size on nodes, of which some hold it, and returns its root.
func (w *world) pinnedOn(t *testing.T, name string, size uint64, nodes []state.NodeID, holders ...state.NodeID) state.RootKey {
	t.Helper()
	sum, err := multihash.Sum([]byte(name), multihash.SHA2_256, -1)
	if err != nil {
		t.Fatal(err)
	}
	c := cid.NewCidV1(cid.Raw, sum)
	key := state.RootOf(c)
	w.state.Apply(t, &state.CreatePin{Pin: state.Pin{ID: state.RequestID(name), Account: clustertest.Operator, Created: 1, CID: c.String()}, Nodes: nodes})
	for _, n := range holders {
		view, release := w.state.LocalView()
		root, err := view.Root(key)
		release()
		if err != nil {
			t.Fatal(err)
		}
		w.state.Apply(t, &state.ReportCopies{Node: n, Items: []state.CopyReport{{Root: key, Born: root.Born, Phase: state.Held, Size: size, Blocks: 1}}})
	}
	return key
}

// shortage is the missing copies as text: by node, those of each class of sizes.
func (w *world) shortage(t *testing.T) (all []string) {
	t.Helper()
	s, err := w.Shortage(t.Context())
	if err != nil || s.Partial {
		t.Fatalf("%+v, %v", s, err)
	}
	for _, r := range s.Rows {
		all = append(all, fmt.Sprintf("%s%v", r.Node, r.Missing))
	}
	return all
}

// Each copy that is not made, is out of reach or has no node counts once as missing, and is in the list of its
// node and size class.
func TestMissingCopiesAreCountedByNodeAndSize(t *testing.T) {
	w := newWorld(t, "a", "b", "c", "d")
	all := []state.NodeID{"a", "b", "c"}
	w.pinnedOn(t, "whole", 5, all, all...)
	w.pinnedOn(t, "small", 1<<20-1, all, "a")
	large := w.pinnedOn(t, "large", 4<<30, all, "a", "b")
	w.pinnedOn(t, "waits", 5, all) // it is not pinned yet
	alone := w.pinnedOn(t, "alone", 1<<20, []state.NodeID{"b"}, "b")
	w.state.Apply(t, &state.ReportCopies{Node: "c", Items: []state.CopyReport{{Root: large, Born: w.born(t, large), Phase: state.Assigned, Reason: "no room"}}})
	is := func(want ...string) {
		t.Helper()
		if got := w.shortage(t); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("missing are %v, not %v", got, want)
		}
	}
	is("a[0 0 0 0 0]", "b[1 0 0 0 0]", "c[1 0 0 0 1]", "d[0 0 0 0 0]", "[0 2 0 0 0]")
	list := func(node state.NodeID, class int) []MissingCopy {
		t.Helper()
		rows, next, err := w.MissingOn(t.Context(), node, Class{Number: class}, "", 10)
		if err != nil || next != "" {
			t.Fatal(rows, next, err)
		}
		return rows
	}
	if rows := list("c", 4); len(rows) != 1 || rows[0] != (MissingCopy{Root: large, Size: 4 << 30, Held: 2, Wanted: 3, Phase: state.Assigned, Reason: "no room"}) {
		t.Errorf("%+v", rows)
	}
	if rows := list("", 1); len(rows) != 1 || rows[0].Root != alone {
		t.Errorf("%+v", rows)
	}
	if rows := list("c", 1); len(rows) != 0 {
		t.Errorf("%+v", rows)
	}
	w.loads["a"] = Load{State: "down", Away: true}
	is("a[0 0 0 0 0]", "b[1 0 0 0 0]", "c[1 0 0 0 1]", "d[0 0 0 0 0]", "[0 2 0 0 0]") // this node is within its own reach
	w.loads["b"] = Load{State: "down", Away: true}
	is("a[0 0 0 0 0]", "b[2 1 0 0 1]", "c[1 0 0 0 1]", "d[0 0 0 0 0]", "[0 2 0 0 0]")
	if rows := list("b", 0); len(rows) != 2 { // one that it held and one that it never held
		t.Errorf("%+v", rows)
	}
	w.state.Apply(t, &state.RemoveNode{ID: "b"})
	is("a[0 0 0 0 0]", "c[1 0 0 0 1]", "d[0 0 0 0 0]", "b[2 1 0 0 1]", "[0 2 0 0 0]")
}

// born is the incarnation of a root.
func (w *world) born(t *testing.T, k state.RootKey) uint64 {
	t.Helper()
	view, release := w.state.LocalView()
	defer release()
	root, err := view.Root(k)
	if err != nil {
		t.Fatal(err)
	}
	return root.Born
}

// The pages of a list have every copy once. A call reads a bounded number of copies, and then the
// counts say so and a page may be short.
func TestMissingCopiesAreListedInPages(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	all := []state.NodeID{"a", "b", "c"}
	const copies = maxShortRead + 20
	want := map[state.RootKey]bool{}
	for i := range copies {
		size := uint64(1)
		if i%1000 == 0 {
			size = 1 << 30
		}
		if k := w.pinnedOn(t, fmt.Sprint(i), size, all, "a"); size > 1 {
			want[k] = true
		}
	}
	if s, err := w.Shortage(t.Context()); err != nil || !s.Partial || s.Rows[1].Total() != maxShortRead {
		t.Errorf("%+v, %v", s, err)
	}
	for _, away := range []bool{false, true} {
		w.loads["b"] = Load{State: "down", Away: away}
		seen, pages := map[state.RootKey]bool{}, 0
		for from := state.RootKey(""); from != "" || pages == 0; pages++ {
			rows, next, err := w.MissingOn(t.Context(), "b", Class{Number: 3}, from, 2)
			if err != nil || len(rows) > 2 || next != "" && next <= from || pages > 10 {
				t.Fatalf("page %d: %d rows, %v", pages, len(rows), err)
			}
			for _, r := range rows {
				if seen[r.Root] || !want[r.Root] {
					t.Errorf("away %t: %s is there twice, or of another class", away, r.Root)
				}
				seen[r.Root] = true
			}
			from = next
		}
		if len(seen) != len(want) {
			t.Errorf("away %t: %d pages have %d of %d copies", away, pages, len(seen), len(want))
		}
	}
}

// The rate of repair is known after some time in which the number of contents with too few copies
// fell, and not after it has risen.
func TestTheRateOfRepair(t *testing.T) {
	var r repairs
	at := time.UnixMilli(1_000_000)
	for _, tc := range []struct {
		after time.Duration
		short uint64
		rate  float64
		left  time.Duration
	}{
		{0, 700, 0, 0},
		{5 * time.Second, 650, 0, 0},
		{5 * time.Second, 600, 600, time.Minute},
		{20 * time.Second, 400, 600, 40 * time.Second},
		{time.Second, 900, 0, 0},
		{30 * time.Second, 900, 0, 0},
		{30 * time.Second, 450, 450, time.Minute},
		{time.Second, 0, 0, 0},
	} {
		at = at.Add(tc.after)
		if got := r.note(at, tc.short); got != (Repair{tc.rate, tc.left}) {
			t.Errorf("%d are left: %+v", tc.short, got)
		}
	}
	for i := range 3 * maxRepairs {
		r.note(at.Add(time.Duration(i)*repairEvery), 10_000-uint64(i))
	}
	if len(r.samples) > maxRepairs {
		t.Errorf("%d samples", len(r.samples))
	}
}

// The counts and lists of missing copies return an error if a read of the state fails.
func TestMissingCopiesThatCannotBeRead(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	all := []state.NodeID{"a", "b", "c"}
	w.pinnedOn(t, "whole", 5, all, all...)
	w.pinnedOn(t, "short", 5, all, "a")
	w.loads["b"] = Load{State: "down", Away: true}
	for name, use := range map[string]func() error{
		"counts":         func() error { _, err := w.Shortage(t.Context()); return err },
		"list":           func() error { _, _, err := w.MissingOn(t.Context(), "c", Class{}, "", 10); return err },
		"list of a node": func() error { _, _, err := w.MissingOn(t.Context(), "b", Class{}, "", 10); return err },
	} {
		t.Run(name, func(t *testing.T) { w.state.EachReadFails(t, use) })
	}
}
