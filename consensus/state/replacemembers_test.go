package state

import (
	"errors"
	"slices"
	"testing"
)

// replace applies a change of all members as the next entry.
func (m *machine) replace(v ReplaceMembers) ([]Node, error) {
	m.index++
	return v.Apply(m, m.index)
}

// One node is the only member after ReplaceMembers: no ticket, drain or quarantine stays, what others held does not
// count, and everything else is as before.
func TestOneNodeReplacesAllMembers(t *testing.T) {
	for name, node := range map[string]NodeID{"a member": "n2", "a new node": "n9"} {
		t.Run(name, func(t *testing.T) {
			m := found(t)
			m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel - 1})
			m.must(&CreateTicket{Ticket: Ticket{ID: "t1", Created: 1, Expires: 2}})
			m.must(&SetDrain{Node: "n2", On: true, At: 1})
			m.must(&SetDrain{Node: "n3", On: true, At: 1})
			m.must(&Fence{Node: "n2", Epoch: 7})
			root := rootOf(t, contentA)
			m.must(create(alice, "p", contentA))
			m.hold(root)
			audited, err := m.view().AuditHead()
			if err != nil {
				t.Fatal(err)
			}
			removed, err := m.replace(ReplaceMembers{
				Node: Node{ID: node, Store: "s", Votes: true, FeatureLevel: NewestFeatureLevel}, Cluster: "new", SealedSecret: []byte("sealed"), At: 5, Action: ActionClusterRestore,
			})
			if want := 3 - map[NodeID]int{"n2": 1}[node]; err != nil || len(removed) != want {
				t.Fatalf("%d members removed, want %d: %v", len(removed), want, err)
			}
			m.check()
			view := m.view()
			nodes, err := view.Nodes()
			if err != nil || len(nodes) != 1 || nodes[0].ID != node || !nodes[0].MayVote() || nodes[0].Store != "s" {
				t.Errorf("members %v, %v", nodes, err)
			}
			tickets, err := view.Tickets()
			if err != nil || len(tickets) != 0 {
				t.Errorf("tickets %v, %v", tickets, err)
			}
			if drains, err := view.Drains(); err != nil || len(drains) != 0 {
				t.Errorf("drains %v, %v", drains, err)
			}
			fence, err := view.FenceOf(node)
			if want := map[NodeID]uint64{"n2": 7, "n9": m.index}[node]; err != nil || fence != want {
				t.Errorf("fence %d, want %d, %v", fence, want, err)
			}
			c, err := view.Cluster()
			if err != nil || c.ID != "new" || string(c.SealedSecret) != "sealed" || c.Operator != alice {
				t.Errorf("cluster %+v, %v", c, err)
			}
			if level, err := view.FeatureLevel(); err != nil || level != NewestFeatureLevel {
				t.Errorf("feature level %d, %v", level, err)
			}
			if at, err := view.MembersReplaced(); err != nil || at != m.index {
				t.Errorf("replaced at %d, want %d, %v", at, m.index, err)
			}
			if status := m.status(alice, "p"); status != Pinned.String() {
				t.Errorf("the pin is %s", status)
			}
			after, err := view.AuditHead()
			if err != nil || after.Next != audited.Next+1 {
				t.Errorf("%d rows of the audit log, %d before, %v", after.Next-after.First, audited.Next-audited.First, err)
			}
			born, err := view.Root(root)
			if err != nil {
				t.Fatal(err)
			}
			m.must(&PlaceRoots{Items: []Placement{{Root: root, Born: born.Born, Nodes: []NodeID{node}}}})
			m.check()
			if n, _, err := m.view().CopiesOn("n1"); err != nil || n != 0 || m.status(alice, "p") != Pinned.String() {
				t.Errorf("%d copies on a removed member, the pin is %s, %v", n, m.status(alice, "p"), err)
			}
		})
	}
}

// A change of all members that is refused changes nothing.
func TestMembersAreNotReplacedByAnyNode(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	before := m.rows()
	if _, err := m.replace(ReplaceMembers{Node: Node{ID: "n1", FeatureLevel: NewestFeatureLevel - 1}}); !errors.Is(err, ErrTooOld) {
		t.Errorf("a node of an older release: %v", err)
	}
	if _, err := m.replace(ReplaceMembers{Node: Node{FeatureLevel: NewestFeatureLevel}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a node without an id: %v", err)
	}
	if !slices.Equal(m.rows(), before) {
		t.Error("a refused change has changed the state")
	}
	if err := put(m, quarantineKey("n1"), &Quarantine{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.replace(ReplaceMembers{Node: Node{ID: "n1", FeatureLevel: NewestFeatureLevel}}); !errors.Is(err, ErrConflict) {
		t.Errorf("a node in quarantine: %v", err)
	}
	empty := &machine{memory: newMemory(), t: t}
	if _, err := empty.replace(ReplaceMembers{Node: Node{ID: "n1", FeatureLevel: NewestFeatureLevel}}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("an empty state: %v", err)
	}
}
