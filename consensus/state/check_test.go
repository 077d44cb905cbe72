package state

import (
	"fmt"
	"slices"
	"testing"
)

// checkNow asks for a check and returns its index.
func (m *machine) checkNow() uint64 {
	m.t.Helper()
	m.must(&CheckState{At: Millis(m.index)})
	if !m.fx.Check {
		m.t.Fatal("nobody is told to hash the state")
	}
	return m.index
}

func (m *machine) reportHash(id NodeID, check uint64, first byte) {
	m.t.Helper()
	m.must(&ReportHash{Node: id, Check: check, Hash: Hash{first}})
}

// nameStores has all members name their stores.
func (m *machine) nameStores() {
	m.t.Helper()
	nodes, err := m.view().Nodes()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, n := range nodes {
		n.FeatureLevel, n.Store, n.Votes = 1, StoreID("store of "+n.ID), true
		m.must(&UpdateNode{n})
	}
}

func (m *machine) quarantined() (ids []NodeID) {
	m.t.Helper()
	all, err := m.view().Quarantined()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, q := range all {
		ids = append(ids, q.Node)
	}
	return ids
}

// A member is quarantined exactly if most members have reported one hash of the state and this member another.
func TestTheMajorityOfMembersDecidesWhoIsWrong(t *testing.T) {
	type reports []string // node and the first byte of its hash
	for _, tc := range []struct {
		name    string
		members int
		reports reports
		want    []NodeID
		differs bool
	}{
		{"all equal", 3, reports{"n1a", "n2a", "n3a"}, nil, false},
		{"one of three", 3, reports{"n1a", "n2b", "n3a"}, []NodeID{"n2"}, true},
		{"the wrong one is first", 3, reports{"n2b", "n1a", "n3a"}, []NodeID{"n2"}, true},
		{"the wrong one is last", 3, reports{"n1a", "n3a", "n2b"}, []NodeID{"n2"}, true},
		{"one is silent, two differ", 3, reports{"n1a", "n2b"}, nil, true},
		{"three hashes", 3, reports{"n1a", "n2b", "n3c"}, nil, true},
		{"two nodes differ", 2, reports{"n1a", "n2b"}, nil, true},
		{"two and two", 4, reports{"n1a", "n2a", "n3b", "n4b"}, nil, true},
		{"two of five", 5, reports{"n1a", "n2b", "n3c", "n4a", "n5a"}, []NodeID{"n2", "n3"}, true},
		{"two of five agree, and two are silent", 5, reports{"n1a", "n2a", "n3b"}, nil, true},
		{"a second word does not count", 3, reports{"n1a", "n2b", "n2a", "n3a"}, []NodeID{"n2"}, true},
		{"a node that is not a member does not count", 3, reports{"n1a", "x1b", "n2b", "n3a"}, []NodeID{"n2"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := found(t)
			for i := 4; i <= tc.members; i++ {
				m.must(&JoinNode{Node: Node{ID: NodeID(fmt.Sprintf("n%d", i))}})
			}
			if tc.members == 2 {
				m.must(&RemoveNode{ID: "n3"})
			}
			m.nameStores()
			check := m.checkNow()
			for _, r := range tc.reports {
				m.reportHash(NodeID(r[:2]), check, r[2])
			}
			if got := m.quarantined(); !slices.Equal(got, tc.want) {
				t.Errorf("quarantined %v, want %v", got, tc.want)
			}
			checks, err := m.view().Checks()
			if err != nil || len(checks) != 1 {
				t.Fatal(checks, err)
			}
			if checks[0].Differs() != tc.differs {
				t.Errorf("differs: %v", checks[0].Differs())
			}
		})
	}
}

// A member leaves quarantine when it reports the hash of the majority for a later check, or when it is removed. An
// earlier check does not end the quarantine, and a member in quarantine gets no vote.
func TestQuarantineEndsWithALaterEqualHash(t *testing.T) {
	m := found(t)
	m.nameStores()
	first := m.checkNow()
	second := m.checkNow()
	for _, id := range []NodeID{"n1", "n2", "n3"} {
		m.reportHash(id, second, map[NodeID]byte{"n2": 'b'}[id])
	}
	if got := m.quarantined(); !slices.Equal(got, []NodeID{"n2"}) {
		t.Fatal(got)
	}
	// News of an earlier check says nothing about now.
	for _, id := range []NodeID{"n1", "n2", "n3"} {
		m.reportHash(id, first, 'a')
	}
	if got := m.quarantined(); !slices.Equal(got, []NodeID{"n2"}) {
		t.Fatalf("an earlier check let %v", got)
	}
	if _, err := m.apply(&GrantVote{Node: "n2"}); err == nil {
		t.Error("a node in quarantine got a vote")
	}
	again := m.checkNow()
	for _, id := range []NodeID{"n1", "n2", "n3"} {
		m.reportHash(id, again, map[NodeID]byte{"n2": 'b'}[id])
	}
	if q, err := m.view().Quarantine("n2"); err != nil || q == nil || q.Times != 1 || q.Check != again {
		t.Errorf("found again: %+v, %v", q, err)
	}
	third := m.checkNow()
	for _, id := range []NodeID{"n1", "n2", "n3"} {
		m.reportHash(id, third, 'c')
	}
	if got := m.quarantined(); len(got) != 0 {
		t.Errorf("%v stay in quarantine", got)
	}
	fourth := m.checkNow()
	for _, id := range []NodeID{"n1", "n2", "n3"} {
		m.reportHash(id, fourth, map[NodeID]byte{"n3": 'b'}[id])
	}
	m.must(&RemoveNode{ID: "n3"})
	if got := m.quarantined(); len(got) != 0 {
		t.Errorf("%v is no member and in quarantine", got)
	}
}

// A member that has not named its Raft store is not quarantined, even if its hash differs from the majority's.
func TestWhoHasNamedNoStoreIsNotJudged(t *testing.T) {
	m := found(t)
	check := m.checkNow()
	for _, id := range []NodeID{"n1", "n2", "n3"} {
		m.reportHash(id, check, map[NodeID]byte{"n2": 'b'}[id])
	}
	if got := m.quarantined(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// The state keeps the newest MaxChecks checks, and a report about an older one is no error.
func TestOnlyTheNewestChecksStayOnRecord(t *testing.T) {
	m := found(t)
	var want []uint64
	for range MaxChecks + 5 {
		want = append(want, m.checkNow())
	}
	checks, err := m.view().Checks()
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for _, c := range checks {
		got = append(got, c.Index)
	}
	if !slices.Equal(got, want[5:]) {
		t.Errorf("checks %v, want %v", got, want[5:])
	}
	m.reportHash("n1", want[0], 'a') // of a check that is forgotten
}
