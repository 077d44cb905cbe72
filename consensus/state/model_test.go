package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"
	"pgregory.net/rapid"
)

// contents are CIDs of four DAGs; two are versions of one.
var contents = []string{
	"QmdfTbBqBPQ7VNxZEYEj14VmRuZBkqFbiwReogJgS1zR1n",
	"bafybeihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku",
	"bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e",
	"bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku",
	"bafyreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku",
}

func rootOf(t reporter, text string) RootKey {
	t.Helper()
	c, err := cid.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return RootOf(c)
}

// sizeOf returns the size of a DAG, which all nodes agree on.
func sizeOf(k RootKey) uint64 { return 10 + uint64(k[len(k)-1])%50 }

// anyMeta is metadata with which a record weighs nothing, or about as much as content of
// the same world.
func anyMeta(t *rapid.T) map[string]string {
	over := rapid.SampledFrom([]int{-FreeMeta, -FreeMeta, -FreeMeta, -2, 5, 20, 60}).Draw(t, "over")
	if over == -FreeMeta {
		switch rapid.IntRange(0, 9).Draw(t, "pairs") {
		case 0:
			return manyMeta(maxIndexedPairs + 1)
		case 1:
			return manyMeta(maxIndexedPairs)
		case 2, 3:
			return map[string]string{"a": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "a"), "b": ""}
		}
		return nil
	}
	return map[string]string{"m": strings.Repeat("x", FreeMeta+over-1)}
}

// anyCreated draws the creation time of a pin. Every other one packs the names before it.
func anyCreated(t *rapid.T) Millis {
	at := Millis(rapid.IntRange(1, 1<<24).Draw(t, "created"))
	if rapid.Bool().Draw(t, "packs") {
		at = (at/packEvery + 1) * packEvery
	}
	return at
}

// withAnyEnd draws an end and a bound for a pin, from the level on that has them.
func withAnyEnd(t *rapid.T, level FeatureLevel, p Pin) Pin {
	if level >= PinsEndLevel {
		p.Until = Millis(rapid.SampledFrom([]int{0, 0, 3, 7}).Draw(t, "until"))
		p.MaxBytes = rapid.SampledFrom([]uint64{0, 0, 30, 60}).Draw(t, "bound")
	}
	return p
}

// anyCommand draws a command out of a small world, so that commands meet.
func anyCommand(t *rapid.T, m *machine) Command {
	level, err := m.view().FeatureLevel()
	if err != nil {
		t.Fatal(err)
	}
	if level >= 3 && rapid.IntRange(0, 2).Draw(t, "naming") > 0 {
		return anyNaming(t, m)
	}
	account := rapid.SampledFrom([]AccountID{alice, bob, "nobody"}).Draw(t, "account")
	id := func(label string) RequestID {
		return RequestID(fmt.Sprintf("p%d", rapid.IntRange(0, 7).Draw(t, label)))
	}
	nodes := rapid.SliceOfDistinct(rapid.SampledFrom([]NodeID{"n1", "n2", "n3", "n4", "n5"}), rapid.ID)
	node := rapid.SampledFrom([]NodeID{"n1", "n2", "n3", "n4"})
	pin := func() Pin {
		p := Pin{
			ID: id("pin"), Account: account, CID: rapid.SampledFrom(contents).Draw(t, "cid"),
			Created: anyCreated(t),
			Name:    rapid.SampledFrom([]string{"", "a", "b", "ſtraße"}).Draw(t, "name"),
			Origins: rapid.SliceOfN(rapid.SampledFrom([]string{"o1", "o2", "o3"}), 0, 2).Draw(t, "origins"),
			Meta:    anyMeta(t),
		}
		return withAnyEnd(t, level, p)
	}
	root := func() (RootKey, uint64) {
		k := rootOf(m.t, rapid.SampledFrom(contents).Draw(t, "root"))
		r, err := m.view().Root(k)
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		return k, r.Born - uint64(rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(t, "age"))
	}
	switch rapid.IntRange(-1, 23).Draw(t, "kind") {
	case 21:
		return &Audited{
			By: Actor{Kind: ActorSession, Account: account, Addr: "192.0.2.7"}, At: Millis(rapid.IntRange(0, 9).Draw(t, "at")),
			Change: &SetQuota{Account: account, Allowance: rapid.SampledFrom([]uint64{30, Unlimited}).Draw(t, "allowance")},
		}
	case 22:
		if rapid.Bool().Draw(t, "prune") {
			return &PruneAudit{Before: Millis(rapid.IntRange(0, 9).Draw(t, "before"))}
		}
		return &NoteRefusals{Items: []Refusal{{Action: ActionSessionCreate, At: Millis(rapid.IntRange(0, 2).Draw(t, "hour")) * hourMillis, Account: account, Count: 3}}}
	case 23:
		return anyUpkeep(t, m)
	case -1:
		return &CreateOnce{
			Key:    Hash{byte(rapid.IntRange(0, 3).Draw(t, "name"))},
			Change: &CreatePin{Pin: pin(), Nodes: nodes.Draw(t, "nodes")},
		}
	case 0, 1, 2:
		return &CreatePin{Pin: pin(), Nodes: nodes.Draw(t, "nodes")}
	case 3, 4:
		return &ReplacePin{Old: id("old"), Pin: pin(), Nodes: nodes.Draw(t, "nodes")}
	case 5:
		return &DeletePin{Account: account, ID: id("pin")}
	case 6, 7, 8, 9:
		r := &ReportCopies{Node: node.Draw(t, "node")}
		for range rapid.IntRange(1, 3).Draw(t, "reports") {
			k, born := root()
			r.Items = append(r.Items, CopyReport{
				Root: k, Born: born, Phase: rapid.SampledFrom([]Phase{Fetching, Held, Held, GaveUp, GaveUp}).Draw(t, "phase"),
				Size: sizeOf(k), Blocks: 1, Reason: rapid.SampledFrom([]string{"", "nobody has it"}).Draw(t, "reason"),
			})
		}
		return r
	case 10:
		k, born := root()
		return &PlaceRoots{Items: []Placement{{Root: k, Born: born, Nodes: nodes.Draw(t, "nodes")}}}
	case 11:
		k, _ := root()
		return &SettleRoots{Roots: []RootKey{k}}
	case 13:
		return anyLevel(t)
	case 14, 15:
		return &SetQuota{Account: account, Allowance: rapid.SampledFrom([]uint64{0, 1, 30, 90, Unlimited}).Draw(t, "allowance")}
	case 16, 17:
		k, born := root()
		return &ReportArrivals{Items: []Arrival{{Root: k, Born: born, Bytes: rapid.Uint64Range(0, sizeOf(k)).Draw(t, "bytes")}}}
	case 18:
		if rapid.Bool().Draw(t, "of the ledger") {
			return anyBooking(t, m, account)
		}
		return &GrantCredits{Posting: Posting{
			ID: rapid.SampledFrom([]string{"g1", "g2"}).Draw(t, "posting"), Account: account, Credits: rapid.Uint64Range(0, 1).Draw(t, "credits"),
		}}
	case 19:
		return &CloseAccount{Account: bob}
	case 20:
		return &ClearAccounts{Accounts: []AccountID{alice, bob}}
	case 12:
		return &JoinNode{Node: Node{ID: node.Draw(t, "node"), FeatureLevel: rapid.SampledFrom([]FeatureLevel{0, NewestFeatureLevel}).Draw(t, "level")}}
	default:
		return anyTaking(t, account, node)
	}
}

// anyTaking returns a command that takes something from an account or a member, or gives it back.
func anyTaking(t *rapid.T, account AccountID, node *rapid.Generator[NodeID]) Command {
	switch rapid.IntRange(0, 2).Draw(t, "drain") {
	case 1:
		return &SetDisabled{Account: account, On: rapid.Bool().Draw(t, "disabled"), At: 1}
	case 2:
		return &SetDrain{Node: node.Draw(t, "node"), On: rapid.Bool().Draw(t, "drained"), At: 1}
	}
	return &RemoveNode{ID: rapid.SampledFrom([]NodeID{"n3", "n4"}).Draw(t, "node")}
}

func anyLevel(t *rapid.T) Command {
	return &RaiseLevel{FeatureLevel: rapid.SampledFrom([]FeatureLevel{1, 2, 3, NewestFeatureLevel}).Draw(t, "level")}
}

// anyUpkeep returns a command that no account asks for: EndPins, or the next step of the index by
// meta or of packed names, or one that changes nothing.
func anyUpkeep(t *rapid.T, m *machine) Command {
	switch rapid.IntRange(0, 3).Draw(t, "upkeep") {
	case 0, 1:
		return &EndPins{Now: Millis(rapid.IntRange(0, 9).Draw(t, "now"))}
	case 2:
		next, _, _, err := m.view().NamesToPack()
		if err != nil {
			t.Fatal(err)
		}
		if next == nil {
			next = &PackNames{}
		}
		next.Most = rapid.Uint32Range(1, 20).Draw(t, "most")
		return next
	}
	next, _, _, err := m.view().PinsToIndex()
	if err != nil {
		t.Fatal(err)
	}
	if next == nil {
		next = &IndexPins{}
	}
	next.Most = rapid.Uint32Range(1, 3).Draw(t, "most")
	return next
}

// After any commands every index and counter agrees with the records, and a rejected command changes nothing. A
// machine that got each command twice, as in a retry through another node, has the same bytes.
func TestAnyHistoryKeepsEveryIndexAndCounter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := found(rt)
		if rapid.Bool().Draw(rt, "newest level") {
			m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
		}
		history(rt, m, func() Command { return anyCommand(rt, m) })
	})
}

// After any commands on versions, uploads and pins of one account, its quota counts what its records weigh. All
// that TestAnyHistoryKeepsEveryIndexAndCounter promises holds too. The account has little room in most histories.
func TestAnyHistoryOfRecordsKeepsTheirWeight(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := shelved(rt, rapid.SampledFrom([]uint64{120, 250, Unlimited}).Draw(rt, "allowance"))
		s.b = s.bucket(bob, "one")
		s.versioning(rapid.SampledFrom([]Versioning{Versioned, Suspended}).Draw(rt, "versioning"))
		s.bucket(bob, "two")
		history(rt, s.machine, func() Command {
			if rapid.IntRange(0, 3).Draw(rt, "a pin") == 0 {
				return anyCommand(rt, s.machine)
			}
			return anyNaming(rt, s.machine)
		})
	})
}

// After any replacements of pins that come and fail, an account is charged for what it stores and waits for. All
// that TestAnyHistoryKeepsEveryIndexAndCounter promises holds too. The pins are of few contents, and the account
// has little room in most histories.
func TestAnyHistoryOfReplacementsKeepsWhatIsCharged(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := rich(rt, Unlimited)
		nodes := []NodeID{"n1", "n2", "n3"}
		report := func(n NodeID, content string, phase Phase) Command {
			k := rootOf(rt, content)
			r, err := m.view().Root(k)
			if err != nil && !errors.Is(err, ErrNotFound) {
				rt.Fatal(err)
			}
			return &ReportCopies{Node: n, Items: []CopyReport{{Root: k, Born: r.Born, Phase: phase, Size: sizeOf(k), Blocks: 1}}}
		}
		for i, c := range contents[1:3] { // alice has two of them, so their sizes are known
			m.must(create(alice, RequestID(fmt.Sprintf("a%d", i)), c))
			m.must(report("n1", c, Held))
			m.must(report("n2", c, Held))
		}
		if rapid.Bool().Draw(rt, "another waits too") { // so what comes is not bob's alone
			for i, c := range contents[3:] {
				m.must(create(alice, RequestID(fmt.Sprintf("w%d", i)), c))
			}
		}
		drawn := 0
		history(rt, m, func() Command {
			drawn++
			content := rapid.SampledFrom(contents[1:]).Draw(rt, "cid")
			old := rapid.SampledFrom(append(m.allPins(), Pin{ID: "none"})).Draw(rt, "old").ID // alice's are none of bob's
			pin := Pin{
				ID: RequestID(fmt.Sprintf("p%d", drawn)), Account: bob, CID: content, Created: 1, Meta: anyMeta(rt),
				MaxBytes: rapid.SampledFrom([]uint64{0, 0, 0, 30}).Draw(rt, "bound"),
			}
			switch rapid.IntRange(0, 9).Draw(rt, "kind") {
			case 0, 1:
				return &CreatePin{Pin: pin, Nodes: nodes}
			case 2, 3, 4:
				return &ReplacePin{Old: old, Pin: pin, Nodes: nodes}
			case 5:
				return &DeletePin{Account: bob, ID: old}
			case 6:
				return &SetQuota{Account: bob, Allowance: rapid.SampledFrom([]uint64{0, 20, 60, Unlimited}).Draw(rt, "allowance")}
			case 7:
				k := rootOf(rt, content)
				r, _ := m.view().Root(k)
				return &ReportArrivals{Items: []Arrival{{Root: k, Born: r.Born, Bytes: rapid.Uint64Range(1, sizeOf(k)).Draw(rt, "bytes")}}}
			default:
				return report(rapid.SampledFrom(nodes).Draw(rt, "node"), content, rapid.SampledFrom([]Phase{Held, GaveUp}).Draw(rt, "phase"))
			}
		})
	})
}

// history applies commands, and checks the state after each. The machine remembers the pins of new roots. A second
// one, which gets each command twice, does not.
func history(rt *rapid.T, m *machine, draw func() Command) {
	rt.Helper()
	twice := &machine{memory: m.fork(), t: rt, index: m.index, op: m.op}
	m.firsts = &firstPins{allFirstPins{}}
	steps := rapid.IntRange(1, 60).Draw(rt, "steps")
	for step := range steps {
		cmd := draw()
		before := m.fork()
		result, err := m.apply(cmd)
		var refused *Error
		if err != nil && !errors.As(err, &refused) {
			rt.Fatalf("step %d, %+v: %v", step, cmd, err)
		}
		if refused != nil && !slices.Equal(m.rows(), before.rows()) {
			rt.Fatalf("step %d: %+v was refused (%v) and changed something", step, cmd, err)
		}
		first, ferr := twice.apply(cmd)
		second, serr := twice.applyOp(opOf(twice.op), cmd)
		twice.index-- // the other machine has no such entry
		for _, other := range []Result{first, second} {
			if err == nil && (!slices.Equal(other.Deeds, result.Deeds) || other.Created != result.Created) {
				rt.Fatalf("step %d: %+v did %+v, then %+v", step, cmd, result, other)
			}
		}
		for _, other := range []struct {
			result Result
			err    error
		}{{first, ferr}, {second, serr}} {
			var again *Error
			if errors.As(other.err, &again) != (refused != nil) || refused != nil && again.Code != refused.Code || (other.result.Pin == nil) != (result.Pin == nil) ||
				result.Pin != nil && fmt.Sprint(*other.result.Pin) != fmt.Sprint(*result.Pin) {
				rt.Fatalf("step %d: %+v gave %+v, %v; then %+v, %v", step, cmd, result, err, other.result, other.err)
			}
		}
		m.check()
		m.checkAllowances(before, cmd)
		m.checkComing(before, cmd)
		if rt.Failed() {
			rt.Fatalf("after step %d: %+v", step, cmd)
		}
	}
	if !slices.Equal(m.rows(), twice.rows()) || !slices.Equal(m.rows(tableOp, tableOpOrder), twice.rows(tableOp, tableOpOrder)) {
		rt.Fatal("applying every command twice gave another state")
	}
}
