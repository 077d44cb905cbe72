package state

import (
	"fmt"
	"testing"
)

// shortWithout counts what has too few copies when some nodes are not there.
func (m *machine) shortWithout(away ...NodeID) uint64 {
	m.t.Helper()
	view := m.view()
	n, err := view.ShortWithout(func(id NodeID) bool {
		for _, a := range away {
			if a == id {
				return false
			}
		}
		_, err := view.Node(id)
		return err == nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return n
}

// ShortWithout counts the pinned roots that have too few copies on nodes that are there. Copies on an absent
// member are on record until repair has placed them again.
func TestCopiesOfWhoIsNotThereDoNotCount(t *testing.T) {
	m := rich(t, Unlimited)
	whole, short, coming := rootOf(t, contents[1]), rootOf(t, contents[2]), rootOf(t, contents[3])
	for i, c := range contents[1:4] {
		m.must(create(alice, RequestID(fmt.Sprint(i)), c))
	}
	for _, n := range []NodeID{"n1", "n2", "n3"} {
		m.report(n, whole, Held, "")
	}
	m.hold(short)
	m.report("n2", coming, Held, "") // pinning: not counted
	check := func(what string, want uint64, away ...NodeID) {
		t.Helper()
		if got := m.shortWithout(away...); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	check("everybody is there", 1)
	check("one is not", 2, "n3")
	check("two are not, each with both roots", 2, "n1", "n2")
	m.report("n3", short, Held, "")
	check("all on record, everybody there", 0)
	check("all on record, one is not", 2, "n2")
	m.must(&RemoveNode{ID: "n2"}) // two can hold everything, and do
	check("removed, and two of two hold all", 0)
	m.must(&JoinNode{Node: Node{ID: "n4", FeatureLevel: NewestFeatureLevel}})
	check("a third could hold them again", 2)
	for _, k := range []RootKey{whole, short} {
		r, err := m.view().Root(k)
		if err != nil {
			t.Fatal(err)
		}
		m.must(&PlaceRoots{Items: []Placement{{Root: k, Born: r.Born, Nodes: []NodeID{"n1", "n3", "n4"}}}})
	}
	check("placed and not fetched yet", 2)
	m.report("n4", whole, Held, "")
	m.report("n4", short, Held, "")
	check("placed again", 0)
}

// ShortWithout is 0 on a node that has no state yet.
func TestNothingIsShortBeforeTheCluster(t *testing.T) {
	m := &machine{memory: newMemory(), t: t}
	if got := m.shortWithout("n1"); got != 0 {
		t.Errorf("%d roots are short in an empty state", got)
	}
}

// Above maxCounted copies on absent nodes, ShortWithout returns their number as a bound.
func TestVeryManyCopiesOfWhoIsNotThereAreNotLookedAt(t *testing.T) {
	m := found(t)
	for _, n := range []NodeID{"n2", "n3"} {
		for _, k := range []key{heldKey(n), wantedCount(n)} {
			if err := count(m.memory, k, maxCounted); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := m.shortWithout("n2", "n3"); got != 2*maxCounted {
		t.Errorf("counted %d, the bound is %d", got, 2*maxCounted)
	}
}
