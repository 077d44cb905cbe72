package state

import (
	"errors"
	"slices"
	"testing"
)

// wantDrains checks that all drains are of members, and counts them.
func (m *machine) wantDrains(want *memory, nodes []Node) {
	m.t.Helper()
	drains, err := m.view().Drains()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, d := range drains {
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.ID == d.Node }) {
			m.t.Errorf("%s is no member and is being drained", d.Node)
		}
	}
	bump(m.t, want, drainCount, len(drains))
}

// The last member that is not drained can neither be drained nor removed until the drain of another one ends.
func TestSomeMemberKeepsContent(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	for _, id := range []NodeID{"n1", "n2"} {
		m.must(&SetDrain{Node: id, On: true, At: 1})
	}
	before := m.rows()
	for name, cmd := range map[string]Command{"drain": &SetDrain{Node: "n3", On: true, At: 1}, "remove": &RemoveNode{ID: "n3"}} {
		if _, err := m.apply(cmd); !errors.Is(err, ErrConflict) || !slices.Equal(m.rows(), before) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.must(&RemoveNode{ID: "n2"}) // one that is drained can go
	m.must(&SetDrain{Node: "n1"})
	m.must(&RemoveNode{ID: "n3"})
	if need, full, err := copiesIn(m.view().r); err != nil || need != 1 || full != 1 {
		t.Errorf("%d copies make a root pinned, and it has %d, %v", need, full, err)
	}
}

// Below feature level lastKeeperLevel the last member that is not drained can be removed. Older releases, which
// may apply the same entry, remove it.
func TestOlderReleasesRemoveTheLastMemberThatKeepsContent(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: lastKeeperLevel - 1})
	for _, id := range []NodeID{"n1", "n2"} {
		m.must(&SetDrain{Node: id, On: true, At: 1})
	}
	m.must(&RemoveNode{ID: "n3"})
}
