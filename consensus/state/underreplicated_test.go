package state

import (
	"fmt"
	"testing"
)

// losing returns a machine with pin a of alice on content that n1 to n3 held, and lost but for
// held of them.
func losing(t reporter, held int) (*machine, RootKey) {
	t.Helper()
	m := rich(t, Unlimited)
	root := rootOf(t, contents[1])
	m.must(create(alice, "a", contents[1]))
	nodes := []NodeID{"n1", "n2", "n3"}
	for _, n := range nodes {
		m.report(n, root, Held, "")
	}
	for _, n := range nodes[held:] {
		m.report(n, root, Assigned, "the disk is gone")
	}
	return m, root
}

// A pin of content with too few copies is pinned once two members hold it. A pin that was pinned before stays
// pinned while the content is repaired.
func TestAPinOfLostContentIsPinnedWhenItIsBack(t *testing.T) {
	for held, want := range []string{"pinning", "pinning", "pinned", "pinned"} {
		t.Run(fmt.Sprintf("%d hold it", held), func(t *testing.T) {
			m, root := losing(t, held)
			m.must(create(bob, "b", contents[1]))
			m.must(create(alice, "c", contents[1]))
			m.check()
			statuses := func() string { return m.status(alice, "a") + " " + m.status(bob, "b") + " " + m.status(alice, "c") }
			if got := statuses(); got != "pinned "+want+" "+want {
				t.Fatalf("the pins are %s", got)
			}
			if q := m.quota(bob); q.Stored != 10 {
				t.Errorf("%+v", q)
			}
			for i, n := range []NodeID{"n3", "n2", "n1"} {
				m.report(n, root, Held, "")
				m.check()
				if i+1+held >= 2 {
					want = "pinned"
				}
				if got := statuses(); got != "pinned "+want+" "+want {
					t.Fatalf("once %s holds it the pins are %s", n, got)
				}
			}
			for _, n := range []NodeID{"n1", "n2", "n3"} { // it was: what is lost again stays pinned
				m.report(n, root, Assigned, "")
				m.check()
			}
			if got := statuses(); got != "pinned pinned pinned" {
				t.Errorf("in the end the pins are %s", got)
			}
		})
	}
}

// When every node gives up lost content, its earlier and its new pins fail and the root goes.
func TestAPinOfLostContentFailsWithIt(t *testing.T) {
	m, root := losing(t, 0)
	m.must(create(bob, "b", contents[1]))
	m.giveUp(root, "nobody has it")
	m.check()
	if got := m.status(alice, "a") + " " + m.status(bob, "b"); got != "failed failed" || m.kept(root) {
		t.Errorf("the pins are %s", got)
	}
	if q := m.quota(bob); q.Stored != 0 {
		t.Errorf("%+v", q)
	}
}

// Pins that are not moved yet when their content is lost wait for it as later ones do, and all are pinned in the
// end.
func TestMovedPinsOfLostContentCountAsUnderReplicated(t *testing.T) {
	const pins = MaxSettle + 5
	m := rich(t, Unlimited)
	root := rootOf(t, contents[1])
	for i := range pins {
		m.must(create(alice, RequestID(fmt.Sprintf("p%04d", i)), contents[1]))
	}
	m.hold(root)
	if got := m.status(alice, "p0000") + " " + m.status(alice, "p1028"); got != "pinned queued" {
		t.Fatalf("the first and the last pin are %s", got)
	}
	m.report("n1", root, Assigned, "")
	m.must(create(bob, "late", contents[1]))
	m.check()
	settle := func() {
		for range 3 {
			m.must(&SettleRoots{Roots: []RootKey{root}})
			m.check()
		}
	}
	settle()
	if got := m.status(alice, "p0000") + " " + m.status(alice, "p1028") + " " + m.status(bob, "late"); got != "pinned queued pinning" {
		t.Errorf("without the content the pins are %s", got)
	}
	m.report("n1", root, Held, "")
	settle()
	if got := m.status(alice, "p0000") + " " + m.status(alice, "p1028") + " " + m.status(bob, "late"); got != "pinned pinned pinned" {
		t.Errorf("in the end the pins are %s", got)
	}
	if r, err := m.view().Root(root); err != nil || r.UnderReplicated {
		t.Errorf("%+v, %v", r, err)
	}
}

// Content that a pin of under-replicated content has replaced is kept until the new content is back, fails or is
// deleted. The two may share blocks.
func TestAPinOfUnderReplicatedContentRetainsWhatItReplaced(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(m *machine, root RootKey)
	}{
		{"until it is back", func(m *machine, root RootKey) { m.hold(root) }},
		{"until it is gone", func(m *machine, _ RootKey) {
			m.must(&DeletePin{Account: alice, ID: "a"})
			m.must(&DeletePin{Account: bob, ID: "new"})
		}},
		{"until it fails", func(m *machine, root RootKey) { m.giveUp(root, "nobody has it") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, root := losing(t, 0)
			old := rootOf(t, contents[2])
			m.must(create(bob, "old", contents[2]))
			m.hold(old)
			m.must(replace(bob, "old", "new", contents[1]))
			m.check()
			if got := m.status(bob, "new"); got != "pinning" || !m.kept(old) {
				t.Fatalf("the new pin is %s", got)
			}
			tc.end(m, root)
			m.check()
			if m.kept(old) {
				t.Error("the old content is kept")
			}
		})
	}
}

// A pin of under-replicated content is pinned when it is placed on as many members as are left. Fewer members need
// fewer holders.
func TestPinsOfUnderReplicatedContentFollowTheNumberOfMembers(t *testing.T) {
	m, root := losing(t, 1)
	m.must(create(bob, "b", contents[1]))
	m.must(&RemoveNode{ID: "n2"})
	m.must(&RemoveNode{ID: "n3"})
	r, err := m.view().Root(root)
	if err != nil || !r.UnderReplicated {
		t.Fatalf("%+v, %v", r, err)
	}
	m.must(&PlaceRoots{Items: []Placement{{Root: root, Born: r.Born, Nodes: []NodeID{"n1"}}}})
	m.check()
	if got := m.status(bob, "b"); got != "pinned" {
		t.Errorf("the pin is %s", got)
	}
}

// Copies on a removed member make no pin pinned, neither one that comes now nor one that waits. They are on record
// until repair has moved them.
func TestCopiesOnWhoIsNoMemberMakeNothingPinned(t *testing.T) {
	m := rich(t, Unlimited)
	was, waits := rootOf(t, contents[1]), rootOf(t, contents[2])
	m.must(create(alice, "was", contents[1]))
	m.hold(was)
	m.must(create(alice, "waits", contents[2]))
	m.report("n1", waits, Held, "")
	m.must(&RemoveNode{ID: "n1"})
	m.must(create(bob, "comes", contents[1]))
	m.report("n2", waits, Held, "")
	m.check()
	statuses := func() string {
		return m.status(alice, "was") + " " + m.status(bob, "comes") + " " + m.status(alice, "waits")
	}
	if got := statuses(); got != "pinned pinning pinning" {
		t.Errorf("while one member holds it the pins are %s", got)
	}
	m.report("n3", was, Held, "")
	m.report("n3", waits, Held, "")
	m.check()
	if got := statuses(); got != "pinned pinned pinned" {
		t.Errorf("while two do they are %s", got)
	}
}

// Below feature level 3 a pin of content that has lost a copy is pinned at once. Members may have a release that
// does not know under-replicated content, and all have to come to the same state.
func TestBelowLevel3NoPinIsOfUnderReplicatedContent(t *testing.T) {
	m := found(t)
	root := rootOf(t, contents[1])
	m.must(create(alice, "a", contents[1]))
	m.hold(root)
	m.report("n1", root, Assigned, "")
	m.must(create(bob, "b", contents[1]))
	m.check()
	if r, err := m.view().Root(root); err != nil || r.UnderReplicated || m.status(bob, "b") != "pinned" {
		t.Errorf("%+v, %v; the pin is %s", r, err, m.status(bob, "b"))
	}
}

// The under-replicated content of a replaced pin is kept until the new content is pinned. Pins of others that come
// and go meanwhile do not change that.
func TestAnUnderReplicatedRootIsKeptForItsReplacement(t *testing.T) {
	m, old := losing(t, 1) // the last copy, of two that are needed
	m.must(create(bob, "b", contents[1]))
	m.must(&DeletePin{Account: bob, ID: "b"})
	m.must(replace(alice, "a", "new", contents[2]))
	m.check()
	if !m.kept(old) {
		t.Error("the old content is dropped before the new one is pinned")
	}
	m.hold(rootOf(t, contents[2]))
	m.check()
	if m.kept(old) {
		t.Error("the old content is kept though the new one is pinned")
	}
}

// Under-replicated roots that replaced each other in a circle are not kept when nobody pins them any more.
func TestUnderReplicatedRootsDoNotKeepEachOther(t *testing.T) {
	m := rich(t, Unlimited)
	const around = 3
	for i := range around {
		id := RequestID(fmt.Sprint("first", i))
		m.must(create(alice, id, contents[i]))
		m.hold(rootOf(t, contents[i]))
		m.report("n2", rootOf(t, contents[i]), Assigned, "the disk is gone")
		m.must(create(bob, id, contents[i])) // it is late from now on
	}
	for i := range around {
		for _, a := range []AccountID{alice, bob} {
			if i > 0 {
				m.must(&DeletePin{Account: a, ID: RequestID(fmt.Sprint("first", i))})
			}
		}
		m.check()
	}
	m.must(&DeletePin{Account: bob, ID: "first0"})
	old := RequestID("first0")
	for i := range 2*around + 1 {
		id := RequestID(fmt.Sprint("next", i))
		m.must(replace(alice, old, id, contents[(i+1)%around]))
		old = id
		m.check()
	}
	m.must(&DeletePin{Account: alice, ID: old})
	m.check()
	for i := range around {
		if m.kept(rootOf(t, contents[i])) {
			t.Errorf("content %d is kept", i)
		}
	}
}

// From feature level 3 on, a root says which entry created its newest pin, also if that pin has gone. Below that
// level it says which entry created the root, because members may not read a record with more.
func TestARootSaysWhenItWasPinnedAnew(t *testing.T) {
	root := rootOf(t, contents[1])
	for level, says := range map[FeatureLevel]bool{2: false, 3: true} {
		m := found(t)
		m.must(&RaiseLevel{FeatureLevel: level})
		pinnedAt := func(want uint64) {
			t.Helper()
			if r, err := m.view().Root(root); err != nil || r.PinnedAt() != want || !says && r.Repinned != 0 {
				t.Errorf("level %d: pinned at %d, want %d: %+v, %v", level, r.PinnedAt(), want, r, err)
			}
		}
		m.must(create(alice, "a", contents[1]))
		born := m.index
		pinnedAt(born)
		m.must(create(bob, "b", contents[1]))
		last := m.index
		if !says {
			last = born
		}
		m.report("n1", root, Fetching, "")
		pinnedAt(last)
		m.must(&DeletePin{Account: bob, ID: "b"})
		pinnedAt(last)
		m.check()
		m.must(&DeletePin{Account: alice, ID: "a"})
		m.must(create(alice, "c", contents[1]))
		pinnedAt(m.index)
	}
}
