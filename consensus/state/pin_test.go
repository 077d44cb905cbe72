package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Names of the contents that tests pin.
const (
	contentA = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"
	contentB = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
	contentC = "bafybeihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
)

func create(a AccountID, id RequestID, content string) *CreatePin {
	return &CreatePin{Pin: Pin{ID: id, Account: a, Created: 1000, CID: content}, Nodes: []NodeID{"n1", "n2", "n3"}}
}

func replace(a AccountID, old, id RequestID, content string) *ReplacePin {
	return &ReplacePin{Old: old, Pin: create(a, id, content).Pin, Nodes: []NodeID{"n1", "n2", "n3"}}
}

// Each command of the table is rejected with its error and changes nothing.
func TestRefusals(t *testing.T) {
	pinWith := func(change func(*Pin)) Command {
		c := create(alice, "new", contentA)
		change(&c.Pin)
		return c
	}
	for _, tc := range []struct {
		name string
		cmd  Command
		want error
	}{
		{"cluster founded again", &InitCluster{Cluster: Cluster{ID: "other"}}, ErrExists},
		{"pin without id", pinWith(func(p *Pin) { p.ID = "" }), ErrInvalid},
		{"pin without time", pinWith(func(p *Pin) { p.Created = 0 }), ErrInvalid},
		{"pin after the year 9999", pinWith(func(p *Pin) { p.Created = maxCreated + 1 }), ErrInvalid},
		{"pin of no cid", pinWith(func(p *Pin) { p.CID = "x" }), ErrInvalid},
		{"pin of a long cid", pinWith(func(p *Pin) { p.CID = strings.Repeat("b", MaxCIDLen+1) }), ErrInvalid},
		{"name of 256 characters", pinWith(func(p *Pin) { p.Name = strings.Repeat("ä", 256) }), ErrInvalid},
		{"21 origins", pinWith(func(p *Pin) { p.Origins = make([]string, 21) }), ErrInvalid},
		{"large meta", pinWith(func(p *Pin) { p.Meta = map[string]string{"k": strings.Repeat("v", MaxMetaBytes)} }), ErrInvalid},
		{"pin of no account", create("nobody", "new", contentA), ErrUnauthorized},
		{"new content on no member", &CreatePin{Pin: create(alice, "new", contentB).Pin, Nodes: []NodeID{"gone"}}, ErrConflict},
		{"other account's pin replaced", replace(bob, "a", "new", contentB), ErrNotFound},
		{"unknown pin replaced", replace(alice, "none", "new", contentB), ErrNotFound},
		{"replaced by an invalid pin", replace(alice, "a", "new", "x"), ErrInvalid},
		{"other account's pin deleted", &DeletePin{Account: bob, ID: "a"}, ErrNotFound},
		{"unknown pin deleted", &DeletePin{Account: alice, ID: "none"}, ErrNotFound},
		{"unknown phase", &ReportCopies{Node: "n1", Items: []CopyReport{{Phase: 9}}}, ErrInvalid},
		{"e-mail in other letters", &CreateAccount{Account{ID: "c", Email: "Alice@Example.org"}}, ErrExists},
		{"no e-mail", &CreateAccount{Account{ID: "c", Email: "x"}}, ErrInvalid},
		{"key of no account", &CreateKey{Key: APIKey{ID: "k2", Account: "nobody", Scope: []string{ScopeRead}}}, ErrNotFound},
		{"key with an unknown scope", &CreateKey{Key: APIKey{ID: "k2", Account: alice, Scope: []string{"all"}}}, ErrInvalid},
		{"key with a taken id", &CreateKey{Key: APIKey{ID: "k", Account: bob, Scope: []string{ScopeRead}}}, ErrExists},
		{"other account's key revoked", &RevokeKey{Account: bob, ID: "k"}, ErrNotFound},
		{"a node that is not a member updates its record", &UpdateNode{Node{ID: "n9"}}, ErrNotFound},
		{"a node that is not a member is removed", &RemoveNode{ID: "n9"}, ErrNotFound},
		{"removed from other members than were looked at", &RemoveNode{ID: "n3", Of: []NodeID{"n1", "n2", "n3", "n9"}}, ErrConflict},
		{"joined by no ticket", &JoinNode{Node: Node{ID: "n9"}, Ticket: "none", At: 1}, ErrUnauthorized},
		{"joined by an expired ticket", &JoinNode{Node: Node{ID: "n9"}, Ticket: "ticket", At: 200}, ErrUnauthorized},
		{"ticket that is open", &CreateTicket{Ticket: Ticket{ID: "ticket", Created: 50, Expires: 300}}, ErrExists},
		{"ticket that never opens", &CreateTicket{Ticket: Ticket{ID: "t2", Created: 5, Expires: 5}}, ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := found(t)
			m.must(create(alice, "a", contentA))
			m.must(&CreateKey{Key: APIKey{ID: "k", Account: alice, Scope: []string{ScopeRead}, Created: 1}})
			m.must(&CreateTicket{Ticket: Ticket{ID: "ticket", Created: 1, Expires: 100}})
			before := m.rows()
			if _, err := m.apply(tc.cmd); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if !slices.Equal(m.rows(), before) {
				t.Error("a refused command changed something")
			}
		})
	}
}

// An account cannot be created before the cluster is: ErrUnavailable.
func TestNothingHappensBeforeTheCluster(t *testing.T) {
	m := &machine{memory: newMemory(), t: t}
	if _, err := m.apply(&CreateAccount{Account{ID: "a", Email: "a@b"}}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("an account before the cluster: %v", err)
	}
}

// A pin is pinned once two of its three nodes have held the root, and fails when all three have given up. A node
// that holds the root keeps the pin from failing.
func TestPinFollowsItsRoot(t *testing.T) {
	a := rootOf(t, contentA)
	type step struct {
		node   NodeID
		phase  Phase
		status string // of the pin then
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"two of three hold it", []step{
			{"n1", Fetching, "pinning"}, {"n1", Held, "pinning"}, {"n2", Held, "pinned"}, {"n3", Held, "pinned"},
		}},
		{"one holder loses it", []step{{"n1", Held, "pinning"}, {"n2", Held, "pinned"}, {"n2", Fetching, "pinned"}}},
		{"all give up", []step{{"n1", Fetching, "pinning"}, {"n1", GaveUp, "pinning"}, {"n2", GaveUp, "pinning"}, {"n3", GaveUp, "failed"}}},
		{"some give up", []step{{"n1", GaveUp, "queued"}, {"n2", GaveUp, "queued"}, {"n3", Held, "pinning"}, {"n1", Held, "pinned"}}},
		{"nobody gives up what somebody holds", []step{{"n1", Held, "pinning"}, {"n2", GaveUp, "pinning"}, {"n3", GaveUp, "pinning"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := found(t)
			m.must(create(alice, "a", contentA))
			for i, s := range tc.steps {
				m.report(s.node, a, s.phase, "no reason")
				if got := m.status(alice, "a"); got != s.status {
					t.Fatalf("step %d: the pin is %s, want %s", i+1, got, s.status)
				}
				m.check()
			}
		})
	}
}

// The text of a failure names each reason with nodes that have it, in at most MaxReasonLen bytes of valid UTF-8.
func TestFailureNamesTheNodesOfEachReason(t *testing.T) {
	id := func(i int) NodeID {
		return NodeID(fmt.Sprintf("12D3KooWNrbHpKYDmTUXFRQBnnvJ7aMLUCGNCAio2P3AW2N3LN%02d", i))
	}
	root := new(Root)
	for i := range 6 {
		root.Copies = append(root.Copies, Copy{Node: id(i), Phase: GaveUp, Reason: "nobody has it"})
	}
	root.Copies = append(root.Copies, Copy{Node: id(6), Phase: GaveUp, Reason: "timed out"}, Copy{Node: id(7), Phase: GaveUp})
	want := "nodes ...W2N3LN00, ...W2N3LN01, ...W2N3LN02, ...W2N3LN03 and 2 more: nobody has it; node ...W2N3LN06: timed out"
	if got := failure(root); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	root.Copies = nil
	for i := range MaxCopies {
		root.Copies = append(root.Copies, Copy{Node: id(i), Phase: GaveUp, Reason: fmt.Sprint(i, strings.Repeat("é", MaxReasonLen/2-2))})
	}
	got := failure(root)
	if len(got) > MaxReasonLen || !utf8.ValidString(got) {
		t.Fatalf("%d bytes: %q", len(got), got)
	}
	for i := range MaxCopies {
		if !strings.Contains(got, fmt.Sprintf("node %s: %d", id(i).Short(), i)) {
			t.Errorf("%q lacks node %d", got, i)
		}
	}
}

// A node that gives up without having seen the newest pin of a root is to try again, and no pin fails.
func TestGivingUpAnswersNoLaterPin(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: 3})
	a := rootOf(t, contentA)
	m.must(create(alice, "a", contentA))
	r, err := m.view().Root(a)
	if err != nil {
		t.Fatal(err)
	}
	givesUp := func(n NodeID, seen uint64) {
		t.Helper()
		m.must(&ReportCopies{Node: n, Items: []CopyReport{{Root: a, Born: r.Born, Phase: GaveUp, Reason: "nobody has it", Seen: seen}}})
	}
	givesUp("n1", r.PinnedAt())
	givesUp("n2", r.PinnedAt())
	m.must(create(bob, "b", contentA))
	givesUp("n3", r.PinnedAt())
	after, err := m.view().Root(a)
	if err != nil || after.Copy("n3").Phase != Assigned || m.status(alice, "a") == "failed" || m.status(bob, "b") == "failed" {
		t.Fatalf("%+v, %v; the pins are %s and %s", after, err, m.status(alice, "a"), m.status(bob, "b"))
	}
	givesUp("n3", after.PinnedAt())
	if m.status(alice, "a") != "failed" || m.status(bob, "b") != "failed" {
		t.Errorf("the pins are %s and %s", m.status(alice, "a"), m.status(bob, "b"))
	}
}

// A failed pin says why each node has given up, and its root is not kept. A new pin of the content can be pinned,
// and the old one stays failed.
func TestFailedPinTellsWhyAndLetsGo(t *testing.T) {
	m := found(t)
	a := rootOf(t, contentA)
	m.must(create(alice, "a", contentA))
	m.report("n1", a, GaveUp, "nobody offered it")
	m.report("n2", a, GaveUp, "nobody offered it")
	m.report("n3", a, GaveUp, "the disk is full")
	p, err := m.view().Pin(alice, "a")
	if err != nil || p.Status != Failed || p.Detail != "nodes n1, n2: nobody offered it; node n3: the disk is full" {
		t.Errorf("pin %+v, %v", p, err)
	}
	if m.kept(a) {
		t.Error("the root of a failed pin is kept")
	}
	// Pinning it again is a new attempt, and the old pin stays failed.
	m.must(create(alice, "b", contentA))
	m.hold(a)
	if m.status(alice, "a") != "failed" || m.status(alice, "b") != "pinned" {
		t.Errorf("pins are %s and %s", m.status(alice, "a"), m.status(alice, "b"))
	}
	m.must(&DeletePin{Account: alice, ID: "a"})
	if !m.kept(a) {
		t.Error("deleting the failed pin took the root of the other")
	}
	m.check()
}

// A report about an earlier incarnation of a root changes no pin of the present one.
func TestReportOfAnEarlierIncarnationIsIgnored(t *testing.T) {
	m := found(t)
	a := rootOf(t, contentA)
	m.must(create(alice, "a", contentA))
	old, err := m.view().Root(a)
	if err != nil {
		t.Fatal(err)
	}
	m.must(&DeletePin{Account: alice, ID: "a"})
	m.must(create(alice, "b", contentA))
	m.must(&ReportCopies{Node: "n1", Items: []CopyReport{{Root: a, Born: old.Born, Phase: Held}}})
	if got := m.status(alice, "b"); got != "queued" {
		t.Errorf("the new pin is %s by word of the old one", got)
	}
}

// Pins of two accounts share a root, and deleting one keeps the other and the root. The root goes with the last
// pin.
func TestAccountsShareContentAndNothingElse(t *testing.T) {
	m := found(t)
	a := rootOf(t, contentA)
	m.must(create(alice, "same", contentA))
	m.must(create(bob, "same", contentA))
	m.hold(a)
	if m.status(alice, "same") != "pinned" || m.status(bob, "same") != "pinned" {
		t.Error("one fetch did not serve both")
	}
	m.must(&DeletePin{Account: alice, ID: "same"})
	if m.status(alice, "same") != "gone" || m.status(bob, "same") != "pinned" || !m.kept(a) {
		t.Error("deleting one account's pin reached the other's")
	}
	m.must(&DeletePin{Account: bob, ID: "same"})
	if m.kept(a) {
		t.Error("nobody pins it and it is kept")
	}
	m.check()
}

// The creation times of an account's pins rise, and none is earlier than its proposer says.
func TestCreationTimesRiseWhateverTheClocksSay(t *testing.T) {
	m := found(t)
	var last Millis
	for i, at := range []Millis{1000, 1000, 5, 2000, 1999} {
		c := create(alice, RequestID(fmt.Sprintf("p%d", i)), contentA)
		c.Pin.Created = at
		got := m.must(c).Pin.Created
		if got <= last || got < at {
			t.Errorf("pin %d proposed at %d got %d after %d", i, at, got, last)
		}
		last = got
	}
}

// Content of a replaced pin is kept until the new content is pinned, has failed or is deleted, and longer if
// others pin it. If the new pin is replaced in turn, it is kept until the content of that one is pinned.
func TestReplacedContentStaysUntilTheNewIsReplicated(t *testing.T) {
	a, b, c := rootOf(t, contentA), rootOf(t, contentB), rootOf(t, contentC)
	pinned := func(t *testing.T) *machine {
		m := found(t)
		m.must(create(alice, "a", contentA))
		m.hold(a)
		m.must(replace(alice, "a", "b", contentB))
		if m.status(alice, "a") != "gone" || m.status(alice, "b") != "queued" || !m.kept(a) {
			t.Fatal("the old content is not kept while the new is fetched")
		}
		m.check()
		return m
	}
	for _, tc := range []struct {
		name string
		then func(*machine)
	}{
		{"until it is pinned", func(m *machine) { m.hold(b) }},
		{"until it has failed", func(m *machine) { m.giveUp(b, "nobody has it") }},
		{"until it is deleted", func(m *machine) { m.must(&DeletePin{Account: alice, ID: "b"}) }},
		{"until what replaces it in turn is pinned", func(m *machine) {
			m.must(replace(alice, "b", "c", contentC))
			if m.kept(b) || !m.kept(a) {
				m.t.Errorf("half-fetched content kept: %t, whole content kept: %t", m.kept(b), m.kept(a))
			}
			m.hold(c)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := pinned(t)
			tc.then(m)
			if m.kept(a) {
				t.Error("the old content is still kept")
			}
			m.check()
		})
	}
	t.Run("and beyond while somebody else pins it", func(t *testing.T) {
		m := pinned(t)
		m.must(create(bob, "a", contentA))
		m.hold(b)
		if !m.kept(a) || m.status(bob, "a") != "pinned" {
			t.Error("content that somebody pins is gone")
		}
		m.check()
	})
	t.Run("replaced by itself", func(t *testing.T) {
		m := pinned(t)
		m.must(replace(alice, "b", "b2", contentB))
		m.hold(b)
		if m.kept(a) || m.status(alice, "b2") != "pinned" {
			t.Error("replacing a pin by one of the same content lost its way")
		}
		m.check()
	})
}

// After 200 replacements in a row two roots are kept: the one that was pinned and that of the last pin.
func TestChainOfReplacementsDoesNotGrow(t *testing.T) {
	m := found(t)
	a := rootOf(t, contentA)
	m.must(create(alice, "p0", contentA))
	m.hold(a)
	for i := range 200 {
		content := []string{contentB, contentC}[i%2]
		m.must(replace(alice, RequestID(fmt.Sprintf("p%d", i)), RequestID(fmt.Sprintf("p%d", i+1)), content))
	}
	if roots := m.allRoots(); len(roots) != 2 || !m.kept(a) {
		t.Errorf("%d roots after 200 replacements", len(roots))
	}
	m.check()
}

// One entry moves at most MaxSettle pins of a root, and SettleRoots moves the others step by step.
func TestPinsOfPopularContentMoveInBoundedSteps(t *testing.T) {
	for _, want := range []string{"pinned", "failed"} {
		t.Run(want, func(t *testing.T) {
			const total = 2*MaxSettle + 100
			m := found(t)
			a := rootOf(t, contentA)
			for i := range total {
				m.must(create(alice, RequestID(fmt.Sprintf("p%05d", i)), contentA))
			}
			if want == "pinned" {
				m.hold(a)
			} else {
				m.giveUp(a, "nobody has it")
			}
			moved := func() uint64 {
				pins, _, err := m.view().Totals()
				if err != nil {
					t.Fatal(err)
				}
				return maps.Collect(func(yield func(string, uint64) bool) {
					for s, n := range pins {
						if !yield(s.String(), n) {
							return
						}
					}
				})[want]
			}
			steps := 0
			for ; ; steps++ {
				if got := moved(); got != uint64(min(total, (steps+1)*MaxSettle)) {
					t.Fatalf("after %d steps %d pins are %s", steps, got, want)
				}
				roots, err := m.view().Settling(10)
				if err != nil {
					t.Fatal(err)
				}
				if len(roots) == 0 {
					break
				}
				m.must(&SettleRoots{Roots: roots})
			}
			if steps != 2 || m.kept(a) != (want == "pinned") {
				t.Errorf("%d further steps, root kept: %t", steps, m.kept(a))
			}
			m.check()
		})
	}
}

// In any history with steps of one pin, every index agrees with the records, and the work that is left comes to an
// end. Nothing is left of an account that was closed.
func TestSettlingInTheSmallestStepsGetsThere(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := found(rt)
		m.narrow = true
		if rapid.Bool().Draw(rt, "newest level") {
			m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
		}
		apply := func(cmd Command) {
			m.index++
			m.fx = Effects{}
			before := m.fork()
			_, err := run(m.memory, cmd, &entry{index: m.index, settle: 1, fx: &m.fx})
			var refused *Error
			if err != nil && !errors.As(err, &refused) {
				rt.Fatalf("%+v: %v", cmd, err)
			}
			m.check()
			m.checkAllowances(before, cmd)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			apply(anyCommand(rt, m))
		}
		closes := rapid.Bool().Draw(rt, "it is closed in the end")
		if closes {
			apply(&CloseAccount{Account: bob})
		}
		for range 10_000 {
			left := m.leftOver()
			if len(left) == 0 {
				if closes {
					m.wantNothingOf(bob)
				}
				return
			}
			for _, cmd := range left {
				apply(cmd)
			}
		}
		rt.Fatal("it never ends")
	})
}

// The state keeps the newest MaxOps operations and forgets the oldest.
func TestOldestOperationsAreForgotten(t *testing.T) {
	m := found(t)
	drop := &DeletePin{Account: alice, ID: "none"}
	first := m.op + 1
	for range MaxOps + 10 {
		if _, err := m.apply(drop); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
	}
	if ops := len(m.rows(tableOp)); ops != MaxOps {
		t.Errorf("%d operations on record, want %d", ops, MaxOps)
	}
	if order := len(m.rows(tableOpOrder)); order != MaxOps {
		t.Errorf("%d operations in order, want %d", order, MaxOps)
	}
	if known, _ := has(m, opKey(opOf(first))); known {
		t.Error("the oldest is still on record")
	}
}

// A repeated operation has the first result and does not create a pin again that was deleted.
func TestRepeatedOperationGivesTheFirstAnswer(t *testing.T) {
	m := found(t)
	op := OpID{1, 2, 3}
	first, err := m.applyOp(op, create(alice, "a", contentA))
	if err != nil {
		t.Fatal(err)
	}
	m.must(&DeletePin{Account: alice, ID: "a"})
	again, err := m.applyOp(op, create(alice, "a", contentA))
	if err != nil || again.Pin == nil || again.Pin.Created != first.Pin.Created {
		t.Errorf("again: %+v, %v", again, err)
	}
	if m.status(alice, "a") != "gone" {
		t.Error("the repeat made the pin again")
	}
}

// A subscription is notified once of each changed root of its node, or of all nodes. A new one, and one whose
// state was replaced, is told to look at everything, and a closed one is told nothing.
func TestWatchTellsWhomItConcerns(t *testing.T) {
	var w Watch
	n1, n9, all := w.Subscribe("n1"), w.Subscribe("n9"), w.Subscribe("")
	for _, s := range []*Subscription{n1, n9, all} {
		<-s.C
		if !s.Take().All {
			t.Error("a new subscription has not looked at anything yet")
		}
	}
	m := found(t)
	m.must(create(alice, "a", contentA))
	w.Publish(m.index, &m.fx)
	w.Publish(m.index, &m.fx)
	a := rootOf(t, contentA)
	for _, tc := range []struct {
		s    *Subscription
		want []RootKey
	}{{n1, []RootKey{a}}, {n9, nil}, {all, []RootKey{a}}} {
		<-tc.s.C
		if got := tc.s.Take(); got.All || !slices.Equal(got.Roots, tc.want) || got.Index != m.index {
			t.Errorf("told %+v, want roots %v", got, tc.want)
		}
		if again := tc.s.Take(); len(again.Roots) != 0 {
			t.Errorf("told twice: %v", again.Roots)
		}
	}
	// A root that changes twice is told of once, whether the entries were applied together
	// or one after the other.
	m.must(create(alice, "b", contentA))
	w.Publish(m.index, &m.fx)
	m.must(&DeletePin{Account: alice, ID: "b"})
	w.Publish(m.index, &m.fx)
	fx := Effects{}
	fx.touch(&Root{Key: a, Copies: []Copy{{Node: "n9"}}})
	fx.touch(&Root{Key: a, Copies: []Copy{{Node: "n1"}}})
	w.Publish(m.index, &fx)
	<-n1.C
	if got := n1.Take(); !slices.Equal(got.Roots, []RootKey{a}) {
		t.Errorf("told %+v of a root that changed more than once", got)
	}
	n1.Close()
	w.Replace(m.index)
	select {
	case <-n1.C:
		t.Error("a closed subscription is told")
	default:
	}
	if !all.Take().All {
		t.Error("not told that the state was replaced")
	}
}

// A Watch knows the entry that last changed an account, whoever asked for the change, and for a
// bounded number of accounts.
func TestWatchKnowsTheLastChangeOfAnAccount(t *testing.T) {
	var w Watch
	m := found(t)
	is := func(want uint64) {
		t.Helper()
		w.Publish(m.index, &m.fx)
		if got := w.ChangedAt(alice); got != want || w.ChangedAt(bob) != 0 {
			t.Errorf("alice was changed at %d, not %d; bob at %d", got, want, w.ChangedAt(bob))
		}
	}
	m.must(create(alice, "a", contentA))
	created := m.index
	is(created)
	m.must(&SettleRoots{})
	if _, err := m.apply(&DeletePin{Account: alice, ID: "none"}); err == nil {
		t.Fatal("an absent pin is deleted")
	}
	is(created)
	m.must(&CreateOnce{Key: Hash{1}, Change: create(alice, "b", contentA)})
	is(m.index)
	w.Replace(m.index)
	if at := w.ChangedAt(alice); at != 0 {
		t.Errorf("in a state of others alice was changed at %d", at)
	}
	var fx Effects
	for i := range maxChangedAccounts + 5 {
		fx.Accounts = append(fx.Accounts, AccountChange{AccountID(fmt.Sprint(i)), 1})
	}
	w.Publish(m.index, &fx)
	if n := len(w.changed); n > maxChangedAccounts {
		t.Errorf("it knows %d accounts", n)
	}
}
