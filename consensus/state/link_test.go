package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A put needs two members that hold its content in an epoch not below their fence, and is rejected without them.
func TestOnlyTheWordOfMembersThatHaveNotFencedCounts(t *testing.T) {
	for _, tc := range []struct {
		name string
		held []Holding
		want error
		// In the end: n2 and n3 hold it where the put is refused.
		holders []NodeID
	}{
		{"two members", []Holding{{"n1", 4}, {"n3", 0}}, nil, []NodeID{"n1", "n3"}},
		{"a later epoch", []Holding{{"n1", 5}, {"n3", 9}}, nil, []NodeID{"n1", "n3"}},
		{"one", []Holding{{"n1", 4}}, ErrConflict, []NodeID{"n2", "n3"}},
		{"one twice", []Holding{{"n1", 4}, {"n1", 5}}, ErrConflict, []NodeID{"n2", "n3"}},
		{"nobody", nil, ErrConflict, []NodeID{"n2", "n3"}},
		{"before the fence", []Holding{{"n1", 3}, {"n3", 0}}, ErrConflict, []NodeID{"n2", "n3"}},
		{"before and after the fence", []Holding{{"n1", 3}, {"n1", 4}, {"n3", 0}}, nil, []NodeID{"n1", "n3"}},
		{"a node that is not a member", []Holding{{"n1", 4}, {"n9", 9}}, ErrConflict, []NodeID{"n2", "n3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := shelved(t, Unlimited)
			s.must(&Fence{Node: "n1", Epoch: 4})
			s.must(&Fence{Node: "n1", Epoch: 2})
			put := s.putOf("k", "v1", contents[1])
			put.Content.Held = tc.held
			if tc.want != nil {
				s.refused(put, tc.want)
				s.must(s.putLater("other", "v0", contents[1]))
				s.refused(put, tc.want) // also where it is kept: whether it still is nobody has said
			} else {
				s.must(put)
			}
			s.check()
			root, err := s.view().Root(put.Content.Root)
			if err != nil {
				t.Fatal(err)
			}
			var held []NodeID
			for _, c := range root.Copies {
				if c.Phase == Held {
					held = append(held, c.Node)
				}
			}
			if !slices.Equal(held, tc.holders) {
				t.Errorf("it is held by %s, want %s", held, tc.holders)
			}
		})
	}
	s := shelved(t, Unlimited)
	s.refused(&Fence{Node: "n9", Epoch: 1}, ErrNotFound)
}

// putLater returns a put that n2 and n3 hold.
func (s *shelf) putLater(k string, id VersionID, cid string) *PutObject {
	put := s.putOf(k, id, cid)
	put.Content.Held = []Holding{{"n2", 0}, {"n3", 0}}
	return put
}

// A holding that a node reported before its removal does not count after the node has joined again. The fence of
// the node is not on record in between.
func TestAFenceOutlivesTheMembership(t *testing.T) {
	s := shelved(t, Unlimited)
	late := s.putOf("k", "v1", contents[1])
	fence := func() uint64 {
		n, err := s.view().FenceOf("n1")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for range 3 {
		s.must(&Fence{Node: "n1", Epoch: fence() + 1})
	}
	late.Content.Held[0].Epoch = fence()
	s.must(&RemoveNode{ID: "n1"})
	if fence() != 0 {
		t.Error("the fence of a node that is gone is on record")
	}
	s.must(&JoinNode{Node: Node{ID: "n1", FeatureLevel: NewestFeatureLevel}})
	s.refused(late, ErrConflict)
	before := fence()
	s.must(&JoinNode{Node: Node{ID: "n1", FeatureLevel: NewestFeatureLevel}}) // it is one already
	if fence() != before {
		t.Error("a member that says that it joins is fenced")
	}
	below := found(t)
	below.must(&JoinNode{Node: Node{ID: "n4"}})
	if rows := below.rows(tableFence); len(rows) != 0 {
		t.Errorf("below level 3 there are fences: %q", rows)
	}
}

// A member cannot be removed if it became the only holder of content after the entry that the caller has seen. A
// caller that has seen that entry may remove the member.
func TestTheOnlyHolderOfSomethingNewStays(t *testing.T) {
	alone := []Holding{{"n1", 0}}
	for name, tc := range map[string]struct {
		change func(s *shelf)
		stays  bool
	}{
		"nothing":      {func(*shelf) {}, false},
		"a put":        {func(s *shelf) { put := s.putOf("k", "v1", contents[1]); put.Content.Held = alone; s.must(put) }, true},
		"a put of two": {func(s *shelf) { s.must(s.putOf("k", "v1", contents[1])) }, false},
		"a put that another holds": {func(s *shelf) {
			put := s.putOf("k", "v1", contents[1])
			put.Content.Held = []Holding{{"n3", 0}}
			s.must(put)
		}, false},
		"a pin": {func(s *shelf) {
			s.must(&CreatePin{Pin: Pin{ID: "p1", Account: bob, CID: contents[1], Created: 1}, Nodes: []NodeID{"n1", "n2"}})
			s.report("n1", rootOf(t, contents[1]), Held, "")
		}, true},
		"a loss": {func(s *shelf) {
			s.must(s.putOf("k", "v1", contents[1]))
			s.report("n2", rootOf(t, contents[1]), Assigned, "")
		}, true},
		"a loss beside a copy on who is no member": {func(s *shelf) {
			s.must(s.putOf("k", "v1", contents[1]))
			s.report("n3", rootOf(t, contents[1]), Held, "")
			s.must(&RemoveNode{ID: "n3"})
			s.report("n2", rootOf(t, contents[1]), Assigned, "")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := shelved(t, Unlimited)
			c, err := s.view().Cluster()
			if err != nil {
				t.Fatal(err)
			}
			c.WriteCopies = 1
			if err := put(s.memory, clusterKey, &c); err != nil {
				t.Fatal(err)
			}
			looked := s.index
			tc.change(s)
			s.check()
			remove := &RemoveNode{ID: "n1", At: looked}
			if !tc.stays {
				s.must(remove)
				return
			}
			s.refused(remove, ErrConflict)
			s.must(&RemoveNode{ID: "n1", At: s.index}) // who has seen it may decide
			if rows := s.rows(tableMeta); slices.ContainsFunc(rows, func(r row) bool { return r.key == string(soleKey("n1")) }) {
				t.Error("what it alone held is on record of who is no member")
			}
		})
	}
}

// A put of content that pins wait for makes them pinned, and the account is charged once for the content. The
// nodes that were to fetch the content are notified and keep their places.
func TestAPutFinishesWhatPinsWaitFor(t *testing.T) {
	s := shelved(t, 10)
	root := rootOf(t, contents[1])
	s.must(&CreatePin{Pin: Pin{ID: "p1", Account: bob, CID: contents[1], Created: 1}, Nodes: []NodeID{"n3"}})
	s.must(&CreatePin{Pin: Pin{ID: "p2", Account: alice, CID: contents[1], Created: 1}})
	s.must(&ReplacePin{Old: "p2", Pin: Pin{ID: "p3", Account: alice, CID: contents[2], Created: 2}, Nodes: []NodeID{"n1"}})
	s.must(&CreatePin{Pin: Pin{ID: "p4", Account: alice, CID: contents[1], Created: 3}})
	r, err := s.view().Root(root)
	if err != nil {
		t.Fatal(err)
	}
	s.must(&ReportArrivals{Items: []Arrival{{Root: root, Born: r.Born, Bytes: 4}}})
	s.must(s.putOf("k", "v1", contents[1]))
	s.check()
	if got := s.status(bob, "p1") + " " + s.status(alice, "p4"); got != "pinned pinned" {
		t.Errorf("the pins are %s", got)
	}
	r, err = s.view().Root(root)
	if err != nil || !slices.Equal(r.Nodes(), []NodeID{"n1", "n2", "n3"}) || r.In(Held) != 2 || r.Size != 10 || r.Links != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if q := s.quota(bob); q.Stored != 10 || q.Coming != 0 {
		t.Errorf("%+v", q)
	}
	touched := slices.ContainsFunc(s.fx.Roots, func(c RootChange) bool { return c.Root == root && slices.Contains(c.Nodes, "n3") })
	if !touched {
		t.Errorf("n3 is not told: %+v", s.fx.Roots)
	}
	s.must(&DeletePin{Account: bob, ID: "p1"})
	if q := s.quota(bob); q.Stored != 10 || !s.kept(root) {
		t.Errorf("without the pin %+v", q)
	}
	s.check()
	if accounts, err := s.view().AttachedAccounts(root, 9); err != nil || !slices.Equal(accounts, []AccountID{bob, alice}) {
		t.Errorf("%v, %v", accounts, err)
	}
	if accounts, err := s.view().AttachedAccounts(root, 1); err != nil || !slices.Equal(accounts, []AccountID{bob}) {
		t.Errorf("%v, %v", accounts, err)
	}
}

// A put of a root with MaxCopies copies keeps the copies that hold it and replaces some that do not.
func TestAPutFindsRoomAmongTheMostCopies(t *testing.T) {
	s := shelved(t, Unlimited)
	var nodes []NodeID
	for i := range MaxCopies {
		n := NodeID(fmt.Sprintf("m%02d", i))
		nodes = append(nodes, n)
		s.must(&JoinNode{Node: Node{ID: n, FeatureLevel: NewestFeatureLevel}})
	}
	s.must(&CreatePin{Pin: Pin{ID: "p1", Account: bob, CID: contents[1], Created: 1}, Nodes: nodes})
	s.report("m31", rootOf(t, contents[1]), Held, "")
	s.must(s.putOf("k", "v1", contents[1]))
	s.check()
	r, err := s.view().Root(rootOf(t, contents[1]))
	if err != nil || len(r.Copies) != MaxCopies || r.In(Held) != 3 || r.Copy("n1") == nil || r.Copy("m31") == nil || r.Copy("m30") != nil {
		t.Errorf("%+v, %v", r, err)
	}
	if len(s.rows(tableWanted)) != MaxCopies {
		t.Error("nodes that lost it want it still")
	}
}

// joined makes a node a member and returns its word that it holds something.
func (s *shelf) joined(n NodeID) Holding {
	s.t.Helper()
	s.must(&JoinNode{Node: Node{ID: n, FeatureLevel: NewestFeatureLevel}})
	epoch, err := s.view().FenceOf(n)
	if err != nil {
		s.t.Fatal(err)
	}
	return Holding{n, epoch}
}

// A put of pinned content adds the holders that it names, unless enough of them are on record as holders. Those on
// record may be down for good, or may have just lost the content. Copies above the target are marked as a surplus
// until roots are placed.
func TestAPutOfWhatIsPinnedIsKeptByWhoHoldsItNow(t *testing.T) {
	type nodes = []NodeID
	for _, tc := range []struct {
		name    string
		lost    nodes // of n1 to n3, which held it
		held    nodes // by the put
		want    nodes // that hold it in the end
		kept    nodes // that are to keep it in the end
		surplus bool
	}{
		{"enough of them held it", nil, nodes{"n1", "n3", "n4"}, nodes{"n1", "n2", "n3"}, nodes{"n1", "n2", "n3"}, false},
		{"one of them held it", nil, nodes{"n3", "n4"}, nodes{"n1", "n2", "n3", "n4"}, nodes{"n1", "n2", "n3", "n4"}, true},
		{"none of them held it", nil, nodes{"n4", "n5"}, nodes{"n1", "n2", "n3", "n4", "n5"}, nodes{"n1", "n2", "n3", "n4", "n5"}, true},
		{"one copy was lost", nodes{"n1"}, nodes{"n4", "n5"}, nodes{"n2", "n3", "n4", "n5"}, nodes{"n1", "n2", "n3", "n4", "n5"}, true},
		{"all copies were lost", nodes{"n1", "n2", "n3"}, nodes{"n4", "n5"}, nodes{"n4", "n5"}, nodes{"n1", "n2", "n3", "n4", "n5"}, true},
		{"they are back where they were", nodes{"n1", "n2", "n3"}, nodes{"n1", "n2"}, nodes{"n1", "n2"}, nodes{"n1", "n2", "n3"}, false},
	} {
		for _, named := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, an object names it: %v", tc.name, named), func(t *testing.T) {
				s := shelved(t, Unlimited)
				word := map[NodeID]Holding{"n4": s.joined("n4"), "n5": s.joined("n5")}
				root := rootOf(t, contents[1])
				if named {
					s.must(s.putOf("k", "v1", contents[1]))
				} else {
					s.must(&CreatePin{Pin: Pin{ID: "p1", Account: bob, CID: contents[1], Created: 1}, Nodes: []NodeID{"n1", "n2", "n3"}})
				}
				s.hold(root)
				s.report("n3", root, Held, "")
				for _, n := range tc.lost {
					s.report(n, root, Assigned, "the disk is gone")
				}
				put := s.putOf("again", "v2", contents[1])
				put.Content.Held = nil
				for _, n := range tc.held {
					put.Content.Held = append(put.Content.Held, Holding{n, word[n].Epoch})
				}
				s.must(put)
				s.check()
				r, err := s.view().Root(root)
				if err != nil {
					t.Fatal(err)
				}
				held := slices.DeleteFunc(r.Nodes(), func(n NodeID) bool { return r.Copy(n).Phase != Held })
				if !slices.Equal(held, tc.want) || !slices.Equal(r.Nodes(), tc.kept) {
					t.Errorf("%v hold it of %v, want %v of %v", held, r.Nodes(), tc.want, tc.kept)
				}
				if short, err := s.view().IsShort(root); short != (len(held) < 3) || err != nil {
					t.Errorf("held by %d it is short: %v, %v", len(held), short, err)
				}
				since, err := s.view().SurplusSince(root)
				if (since == s.index) != tc.surplus || (since == 0) == tc.surplus || err != nil {
					t.Errorf("a surplus since %d of %d, %v", since, s.index, err)
				}
				s.must(&PlaceRoots{Items: []Placement{{Root: root, Born: r.Born, Nodes: tc.held}}})
				s.check()
				if since, err = s.view().SurplusSince(root); since != 0 || err != nil {
					t.Errorf("of %d copies there is a surplus since %d, %v", len(tc.held), since, err)
				}
			})
		}
	}
}

// A placement that was chosen before a put takes no copy from the nodes that hold the content since that put. The
// nodes that held it before may be down for good.
func TestAPlacementTakesNothingFromWhoHoldsItSince(t *testing.T) {
	s := shelved(t, Unlimited)
	word := []Holding{s.joined("n4"), s.joined("n5")}
	root := rootOf(t, contents[1])
	s.must(s.putOf("k", "v1", contents[1])) // n1 and n2 hold it
	place := func(nodes ...NodeID) *PlaceRoots {
		r, err := s.view().Root(root)
		if err != nil {
			t.Fatal(err)
		}
		return &PlaceRoots{At: s.index, Items: []Placement{{Root: root, Born: r.Born, Nodes: nodes, Held: r.Holders()}}}
	}
	stale := place("n1", "n2", "n3")
	put := s.putOf("again", "v2", contents[1])
	put.Content.Held = word
	s.must(put)
	for _, tc := range []struct {
		place *PlaceRoots
		want  []NodeID
	}{
		{stale, []NodeID{"n1", "n2", "n4", "n5"}},
		{place("n4", "n5"), []NodeID{"n4", "n5"}},
	} {
		s.must(tc.place)
		s.check()
		r, err := s.view().Root(root)
		if got := r.Holders(); !slices.Equal(got, tc.want) || err != nil {
			t.Errorf("%v hold it, %v, want %v", got, err, tc.want)
		}
	}
}

// The mark of a root with surplus copies goes with the root.
func TestTheMarkOfASurplusGoesWithItsRoot(t *testing.T) {
	s := shelved(t, Unlimited)
	s.must(s.putOf("k", "v1", contents[1]))
	put := s.putOf("again", "v2", contents[1])
	put.Content.Held = []Holding{s.joined("n4"), s.joined("n5")}
	s.must(put)
	var marked []RootKey
	collect := func(r Root) (bool, error) { marked = append(marked, r.Key); return true, nil }
	root := rootOf(t, contents[1])
	if err := s.view().Surplus("", collect); err != nil || !slices.Equal(marked, []RootKey{root}) {
		t.Errorf("marked are %v, %v", marked, err)
	}
	if err := s.view().Surplus(root+"x", collect); err != nil || len(marked) != 1 {
		t.Errorf("after it %v, %v", marked, err)
	}
	s.must(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k", "again"}})
	s.check()
	if s.kept(root) || len(s.rows(tableSurplus)) != 0 {
		t.Errorf("left are %v", s.rows(tableSurplus))
	}
}

// A root that an object links stays pinned, and so do its pins, even if every copy has given up. Without the
// object they fail.
func TestWhatObjectsNameNeverFails(t *testing.T) {
	s := shelved(t, Unlimited)
	root := rootOf(t, contents[1])
	s.must(s.putOf("k", "v1", contents[1]))
	s.must(&CreatePin{Pin: Pin{ID: "p1", Account: alice, CID: contents[1], Created: 1}})
	s.giveUp(root, "the disk is gone")
	s.check()
	r, err := s.view().Root(root)
	if err != nil || r.Status != Pinned || s.status(alice, "p1") != "pinned" || r.In(Assigned) != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	if short, err := s.view().IsShort(root); !short || err != nil {
		t.Errorf("without a copy it is short: %v, %v", short, err)
	}
	s.must(s.putOf("again", "v2", contents[1])) // who has it brings it back
	s.check()
	if r, err = s.view().Root(root); err != nil || r.In(Held) != 2 || r.In(GaveUp) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	s.must(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"k", "again"}})
	s.giveUp(root, "the disk is gone")
	s.check()
	if got := s.status(alice, "p1"); got != "failed" || s.kept(root) {
		t.Errorf("without an object the pin is %s", got)
	}
}

// A put of a failed root makes it pinned again while its pins are still being moved. Pins that were not moved yet
// become pinned.
func TestAPutTakesBackWhatHasFailed(t *testing.T) {
	s := shelved(t, Unlimited)
	root := rootOf(t, contents[1])
	const pins = MaxSettle + 5
	for i := range pins {
		if err := s.create(alice, RequestID(fmt.Sprintf("p%04d", i)), contents[1]); err != nil {
			t.Fatal(err)
		}
	}
	before, err := s.view().Root(root)
	if err != nil {
		t.Fatal(err)
	}
	s.giveUp(root, "nobody has it")
	r, err := s.view().Root(root)
	if err != nil || r.Status != Failed {
		t.Fatalf("%+v, %v", r, err)
	}
	s.must(s.putOf("k", "v1", contents[1]))
	s.check()
	if r, err = s.view().Root(root); err != nil || r.Status != Pinned || r.Born == before.Born || r.In(GaveUp) != 0 || r.Detail != "" {
		t.Errorf("%+v, %v", r, err)
	}
	if got := s.status(alice, "p0000") + " " + s.status(alice, "p1028"); got != "failed pinned" {
		t.Errorf("the first and the last pin are %s", got)
	}
}

// An account is charged once for a root, and a put may use the room of the object that it replaces.
func TestObjectsAreChargedByTheNetChange(t *testing.T) {
	s := shelved(t, 25)
	s.must(s.putOf("a", "v1", contents[1]))
	s.must(s.putOf("b", "v2", contents[2]))
	s.refused(s.putOf("c", "v3", contents[3]), ErrQuota)
	s.must(s.putOf("b", "v3", contents[3])) // in the place of another
	s.must(s.putOf("c", "v4", contents[3])) // the same content
	s.refused(s.putOf("b", "v5", contents[2]), ErrQuota)
	if err := s.create(bob, "p1", contents[1]); err != nil {
		t.Errorf("a pin of what an object names: %v", err)
	}
	if err := s.create(bob, "p2", contents[2]); err != nil { // of unknown size: it may come
		t.Error(err)
	}
	s.hold(rootOf(t, contents[2]))
	if got := s.status(bob, "p2"); got != "failed" {
		t.Errorf("a pin that does not fit is %s", got)
	}
	s.check()
	s.must(&SetQuota{Account: bob, Allowance: 5})
	s.must(s.putOf("a", "v6", contents[3])) // no more than before
	if q := s.quota(bob); q.Stored != 20 {
		t.Errorf("the pin holds on to the content: %+v", q)
	}
	s.must(&DeletePin{Account: bob, ID: "p1"})
	if q := s.quota(bob); q.Stored != 10 {
		t.Errorf("%+v", q)
	}
	s.must(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"a", "b"}})
	if q := s.quota(bob); q.Stored != 10 {
		t.Errorf("c names it still: %+v", q)
	}
	s.check()
	// A pin that is replaced frees nothing while an object names its content.
	s.must(&SetQuota{Account: bob, Allowance: 10})
	if err := s.create(bob, "p3", contents[3]); err != nil {
		t.Fatal(err)
	}
	s.must(&CreatePin{Pin: Pin{ID: "a1", Account: alice, CID: contents[1], Created: 1}, Nodes: []NodeID{"n1", "n2"}})
	s.hold(rootOf(t, contents[1]))
	replace := &ReplacePin{Old: "p3", Pin: Pin{ID: "p4", Account: bob, CID: contents[1], Created: 3}}
	s.refused(replace, ErrQuota)
	s.must(&DeleteObjects{Account: bob, Bucket: "bucket", Born: s.b.Born, Keys: []string{"c"}})
	s.must(replace)
	s.check()
}

// CompleteUpload may use the room of the parts that it frees, and is rejected if its object needs more.
func TestCompletingIsChargedLessTheParts(t *testing.T) {
	s := shelved(t, 25)
	s.must(s.begin("k", "up"))
	s.must(s.partOf("k", "up", 1, "p1", contents[1]))
	s.must(s.partOf("k", "up", 2, "p2", contents[2]))
	s.must(s.partOf("k", "up", 3, "p3", contents[2])) // the same bytes again
	complete := s.completeOf("k", "up", contents[3], Part{Number: 1, ID: "p1"}, Part{Number: 2, ID: "p2"}, Part{Number: 3, ID: "p3"})
	complete.Content.Bytes = 26
	s.refused(complete, ErrQuota)
	complete.Content.Bytes = 25
	s.must(complete)
	s.check()
	if q := s.quota(bob); q.Stored != 25 {
		t.Errorf("%+v", q)
	}
	s.must(s.begin("l", "up"))
	s.refused(s.partOf("l", "up", 1, "p1", contents[1]), ErrQuota)
	s.must(&GrantCredits{Posting: Posting{ID: "g", Account: bob, Credits: 1}})
	s.must(s.partOf("l", "up", 1, "p1", contents[1]))
	s.check()
}

// A closed account loses its buckets, objects, uploads and parts in three bounded entries. Content that another
// account links is kept.
func TestAClosedAccountLeavesNoNames(t *testing.T) {
	s := shelved(t, Unlimited)
	empty := s.bucket(bob, "empty")
	theirs := &shelf{s.machine, s.bucket(alice, "theirs")}
	theirs.must(theirs.putOf("k", "v", contents[2]))
	for i := range MaxSettle + 10 {
		s.must(s.putOf(fmt.Sprint(i), VersionID(fmt.Sprint(i)), contents[1+i%2]))
	}
	s.must(s.begin("k", "up"))
	for i := range MaxSettle + 10 {
		s.must(s.partOf("k", "up", uint16(i+1), VersionID(fmt.Sprint("p", i)), contents[1+i%2]))
	}
	s.must(&CloseAccount{Account: bob})
	s.refused(s.putOf("late", "late", contents[1]), ErrUnauthorized)
	s.refused(&DeleteBucket{Account: bob, Name: "empty", Born: empty.Born}, ErrUnauthorized)
	entries := 0
	for {
		closing, err := s.view().Closing(10)
		if err != nil {
			t.Fatal(err)
		}
		if len(closing) == 0 {
			break
		}
		entries++
		s.must(&ClearAccounts{Accounts: closing})
		s.check()
	}
	if entries != 3 {
		t.Errorf("%d records went in %d entries", 2*(MaxSettle+10), entries)
	}
	for _, r := range s.rows() {
		if strings.Contains(r.key, string(bob)) {
			t.Errorf("%q is left", r.key)
		}
	}
	if s.kept(rootOf(t, contents[1])) || !s.kept(rootOf(t, contents[2])) {
		t.Error("its content is kept, or that of another account is not")
	}
	if _, err := s.view().Bucket(alice, "theirs"); err != nil {
		t.Error(err)
	}
	if _, err := s.view().Bucket(bob, "empty"); !errors.Is(err, ErrNoBucket) {
		t.Error(err)
	}
}

// gathered writes a changed counter once, after its function has succeeded, and not at all if the function fails.
// A counter of zero is deleted.
func TestGatheredCountersAreWrittenOnce(t *testing.T) {
	m := newMemory()
	k, other := metaKey("count"), rootKey("other")
	set(t, m, k, make([]byte, 8))
	err := gathered(m, func(tx Tx) error {
		for range 3 {
			if err := count(tx, k, 2); err != nil {
				return err
			}
		}
		if n, err := counter(tx, k); n != 6 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := counter(m, k); n != 0 || err != nil {
			t.Errorf("written at once: %d, %v", n, err)
		}
		if err := tx.Set(other, nil); err != nil {
			return err
		}
		return count(tx, metaKey("gone"), 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := counter(m, k); n != 6 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	failed := errors.New("failed")
	err = gathered(m, func(tx Tx) error { return errors.Join(count(tx, metaKey("gone"), -1), failed) })
	if n, cerr := counter(m, metaKey("gone")); n != 1 || cerr != nil || !errors.Is(err, failed) {
		t.Errorf("%d, %v, %v", n, cerr, err)
	}
	if err := gathered(m, func(tx Tx) error { return count(tx, metaKey("gone"), -1) }); err != nil {
		t.Fatal(err)
	}
	if there, err := has(m, metaKey("gone")); there || err != nil {
		t.Errorf("a counter of zero is there: %v, %v", there, err)
	}
}

// The nodes of a DAG are charged, and no put is rejected for them if the bytes of the object fit. Of content whose
// blocks repeat, all bytes have to fit, also when it comes again.
func TestTheNodesOfADAGRefuseNoPut(t *testing.T) {
	s := shelved(t, 18)
	s.must(s.begin("k", "up"))
	for n, cid := range []string{contents[1], contents[2]} {
		p := s.partOf("k", "up", uint16(n+1), VersionID(cid), cid)
		p.Content.Bytes = 9 // one block
		s.must(p)
	}
	complete := s.completeOf("k", "up", contents[3], Part{Number: 1, ID: VersionID(contents[1])}, Part{Number: 2, ID: VersionID(contents[2])})
	complete.Content.Bytes = 20
	s.must(complete)
	s.check()
	if q := s.quota(bob); q.Used() != 20 {
		t.Errorf("%+v", q)
	}
	s.refused(s.putOf("l", "v1", contents[1]), ErrQuota)
	larger := s.putOf("k", "v2", contents[4])
	larger.Object.Size, larger.Content.Bytes = 19, 21
	s.refused(larger, ErrQuota)
	larger.Object.Size = 18
	s.must(larger)
	s.check()
	s.drop("gone", "k")

	// Of content whose blocks repeat all bytes have to fit, also when it comes again.
	repeats := s.putOf("zeros", "v3", contents[2])
	repeats.Object.Size, repeats.Content.Bytes = 19, 5
	s.refused(repeats, ErrQuota)
	repeats.Object.Size = 14
	s.must(repeats)
	again := s.putOf("again", "v4", contents[2])
	again.Object.Size, again.Content.Bytes = 14, 5
	s.refused(again, ErrQuota)
	s.must(&CopyObject{
		Account: bob, Bucket: "bucket", Born: s.b.Born, Object: again.Object,
		SourceBucket: "bucket", SourceBorn: s.b.Born, SourceKey: "zeros", SourceID: "v3",
	})
	s.check()
}
