package state

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// ending returns a machine at the newest level whose accounts have no limit.
func ending(t *testing.T) *machine {
	t.Helper()
	return rich(t, Unlimited)
}

// until returns the command for a pin that has an end.
func until(a AccountID, id RequestID, cid string, end Millis) *CreatePin {
	c := create(a, id, cid)
	c.Pin.Until = end
	return c
}

// bounded returns the command for a pin that permits so many bytes.
func bounded(a AccountID, id RequestID, cid string, most uint64) *CreatePin {
	c := create(a, id, cid)
	c.Pin.MaxBytes = most
	return c
}

// A pin is gone when its end has come and not before. Its content goes with the last pin.
func TestPinsEndAtTheirTime(t *testing.T) {
	m := ending(t)
	root, shared := rootOf(t, contents[1]), rootOf(t, contents[2])
	m.must(until(alice, "soon", contents[1], 100))
	m.must(until(alice, "late", contents[2], 200))
	m.must(create(bob, "stays", contents[2]))
	m.must(until(bob, "soon too", contents[2], 100))
	m.hold(root)
	m.hold(shared)
	m.check()
	statuses := func() string {
		return fmt.Sprint(m.status(alice, "soon"), m.status(alice, "late"), m.status(bob, "stays"), m.status(bob, "soon too"))
	}
	for _, step := range []struct {
		now  Millis
		want string
		due  bool
	}{
		{99, "pinnedpinnedpinnedpinned", false},
		{100, "gonepinnedpinnedgone", true},
		{199, "gonepinnedpinnedgone", false},
		{1000, "gonegonepinnedgone", true},
	} {
		if due, err := m.view().PinsDue(step.now); err != nil || due != step.due {
			t.Errorf("at %d due is %v, %v", step.now, due, err)
		}
		m.must(&EndPins{Now: step.now})
		m.check()
		if got := statuses(); got != step.want {
			t.Errorf("at %d the pins are %s, want %s", step.now, got, step.want)
		}
	}
	if m.kept(root) || !m.kept(shared) {
		t.Error("the content that nobody pins is kept, or the other is not")
	}
	if a, b := m.quota(alice), m.quota(bob); a.Stored != 0 || b.Stored != 10 {
		t.Errorf("alice stores %d bytes, bob %d", a.Stored, b.Stored)
	}
	if want := []AccountChange{{alice, m.index}}; !slices.Equal(m.fx.Accounts, want) {
		t.Errorf("the accounts %v have changed, want %v", m.fx.Accounts, want)
	}
}

// A failed pin, which holds nothing, is gone when its end has come.
func TestAFailedPinEnds(t *testing.T) {
	m := ending(t)
	m.must(until(alice, "a", contents[1], 100))
	m.giveUp(rootOf(t, contents[1]), "nobody has it")
	if got := m.status(alice, "a"); got != "failed" {
		t.Fatalf("the pin is %s", got)
	}
	m.must(&EndPins{Now: 100})
	m.check()
	if got := m.status(alice, "a"); got != "gone" {
		t.Errorf("the pin is %s", got)
	}
}

// One command ends a bounded number of pins, and the next ones the others.
func TestOneEntryEndsABoundedNumberOfPins(t *testing.T) {
	m := ending(t)
	for i := range MaxSettle + 2 {
		m.must(until(alice, RequestID(fmt.Sprintf("p%04d", i)), contents[1], Millis(1+i)))
	}
	for _, left := range []uint64{2, 0} {
		m.must(&EndPins{Now: 1 << 20})
		m.check()
		total, _, err := m.view().ListPins(t.Context(), alice, PinQuery{Statuses: Statuses(), Limit: 1})
		if err != nil || total != left {
			t.Errorf("%d pins are left, %v, want %d", total, err, left)
		}
	}
	if due, err := m.view().PinsDue(1 << 20); due || err != nil {
		t.Errorf("a pin is due: %v, %v", due, err)
	}
}

// A pin with a later end, or none, keeps the copies of the pin that it renews, so no node fetches the content
// again.
func TestARenewedPinKeepsItsCopies(t *testing.T) {
	for name, renew := range map[string]Command{
		"another pin":    until(alice, "new", contents[1], 300),
		"a replacement":  &ReplacePin{Old: "old", Pin: until(alice, "new", contents[1], 300).Pin, Nodes: []NodeID{"n1"}},
		"without an end": &ReplacePin{Old: "old", Pin: create(alice, "new", contents[1]).Pin, Nodes: []NodeID{"n1"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := ending(t)
			root := rootOf(t, contents[1])
			m.must(until(alice, "old", contents[1], 100))
			m.hold(root)
			before, err := m.view().Root(root)
			if err != nil {
				t.Fatal(err)
			}
			m.must(renew)
			m.must(&EndPins{Now: 200})
			m.check()
			after, err := m.view().Root(root)
			if err != nil || after.Born != before.Born || !slices.Equal(after.Copies, before.Copies) {
				t.Errorf("%+v, before %+v, %v", after, before, err)
			}
			if got := m.status(alice, "old") + " " + m.status(alice, "new"); got != "gone pinned" {
				t.Errorf("the pins are %s", got)
			}
			m.must(&EndPins{Now: 300})
			m.check()
			if want := name == "without an end"; m.kept(root) != want {
				t.Errorf("at the new end the content is kept: %v, want %v", !want, want)
			}
		})
	}
}

// A pin that goes before its end leaves no end behind.
func TestADeletedPinHasNoEnd(t *testing.T) {
	for name, remove := range map[string]func(m *machine){
		"deleted":  func(m *machine) { m.must(&DeletePin{Account: bob, ID: "a"}) },
		"replaced": func(m *machine) { m.must(replace(bob, "a", "b", contents[2])) },
		"of a closed account": func(m *machine) {
			m.must(&CloseAccount{Account: bob})
			m.must(&ClearAccounts{Accounts: []AccountID{bob}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := ending(t)
			c := until(bob, "a", contents[1], 100)
			c.Pin.MaxBytes = 1000
			m.must(c)
			remove(m)
			m.check()
			if rows := m.rows(tablePinEnd, tableBounded); len(rows) != 0 {
				t.Errorf("%q is left", rows)
			}
		})
	}
}

// The pin of content that is larger than it permits fails as soon as the size is known, by whatever
// tells it, and says why. Other pins of the content go on.
func TestAPinOfLargerContentFails(t *testing.T) {
	root := rootOf(t, contents[1])
	known := func(m *machine) Root {
		r, err := m.view().Root(root)
		if err != nil {
			m.t.Fatal(err)
		}
		return r
	}
	for name, tell := range map[string]func(m *machine){
		"bytes that arrive": func(m *machine) {
			m.must(&ReportArrivals{Items: []Arrival{{Root: root, Born: known(m).Born, Bytes: 10}}})
		},
		"the first copy": func(m *machine) { m.report("n1", root, Held, "") },
		"an object":      func(m *machine) { m.must((&shelf{m, m.bucket(bob, "bucket")}).putOf("k", "v", contents[1])) },
	} {
		for _, others := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", others ", others), func(t *testing.T) {
				m := ending(t)
				m.must(bounded(alice, "small", contents[1], 9))
				if others {
					m.must(bounded(bob, "exact", contents[1], 10))
					m.must(create(bob, "any", contents[1]))
				}
				tell(m)
				m.check()
				p, err := m.view().Pin(alice, "small")
				if err != nil || p.Status != Failed || !strings.Contains(p.Detail, "larger than the 9 bytes") {
					t.Errorf("%+v, %v", p, err)
				}
				if q := m.quota(alice); q.Used() != 0 || m.kept(root) != (others || name == "an object") {
					t.Errorf("it is charged %+v, and kept: %v", q, m.kept(root))
				}
				if others {
					m.hold(root)
					m.check()
					if got := m.status(bob, "exact") + " " + m.status(bob, "any"); got != "pinned pinned" {
						t.Errorf("the others are %s", got)
					}
				}
			})
		}
	}
}

// A pin that permits less than what is known to be there fails on creation, and changes nothing
// about the content.
func TestAPinOfContentKnownToBeLargerFailsOnCreation(t *testing.T) {
	root := rootOf(t, contents[1])
	for name, change := range map[string]Command{
		"created":  bounded(bob, "new", contents[1], 9),
		"replaced": &ReplacePin{Old: "old", Pin: bounded(bob, "new", contents[1], 9).Pin, Nodes: []NodeID{"n1"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := ending(t)
			m.must(create(alice, "a", contents[1]))
			m.must(create(bob, "old", contents[2]))
			m.hold(root)
			if r := m.must(change); r.Pin.Status != Queued {
				t.Errorf("it was accepted as %s", r.Pin.Status)
			}
			m.check()
			p, err := m.view().Pin(bob, "new")
			if err != nil || p.Status != Failed || !strings.Contains(p.Detail, "larger than the 9 bytes") {
				t.Errorf("%+v, %v", p, err)
			}
			if r, err := m.view().Root(root); err != nil || r.Refs != 1 || m.quota(bob).Stored != 0 {
				t.Errorf("%+v, %v; %+v", r, err, m.quota(bob))
			}
		})
	}
}

// Below feature level PinsEndLevel a pin with an end or a bound is rejected and changes nothing. Members below it
// cannot read its record. An end that is no time is invalid at any level.
func TestPinsWithAnEndNeedTheirLevel(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: PinsEndLevel - 1})
	m.must(create(alice, "a", contents[1]))
	before := m.rows()
	for _, cmd := range []Command{
		until(alice, "b", contents[1], 100), bounded(alice, "b", contents[1], 100), &EndPins{Now: 100},
		&ReplacePin{Old: "a", Pin: until(alice, "b", contents[1], 100).Pin, Nodes: []NodeID{"n1"}},
	} {
		if _, err := m.apply(cmd); !errors.Is(err, ErrUnavailable) || !slices.Equal(m.rows(), before) {
			t.Errorf("%T: %v", cmd, err)
		}
	}
	m.must(&RaiseLevel{FeatureLevel: PinsEndLevel})
	for _, end := range []Millis{-1, maxCreated + 1} {
		m.refused(until(alice, "b", contents[1], end), ErrInvalid)
	}
	m.must(until(alice, "b", contents[1], maxCreated))
	m.check()
}

// A list by name and meta finds a pin that has an end and a bound.
func TestAListReadsPinsWithAnEnd(t *testing.T) {
	p := Pin{ID: "p", Account: alice, Created: 5, Status: Pinned, CID: contents[1], Name: "name", Origins: []string{"o"}, Meta: map[string]string{"k": "v"}, Until: 7, MaxBytes: 8}
	c := codec.Encoder(nil)
	p.Code(c)
	row, err := c.Finish()
	if err != nil {
		t.Fatal(err)
	}
	name, _, err := peekPin(row)
	if err != nil || !bytes.Equal(name, []byte("name")) {
		t.Errorf("%q, %v", name, err)
	}
	m := ending(t)
	m.must(&CreatePin{Pin: p, Nodes: []NodeID{"n1"}})
	total, found, err := m.view().ListPins(t.Context(), alice, PinQuery{Statuses: Statuses(), Limit: 9, Name: "NAM", Match: IPartial, Meta: map[string]string{"k": "v"}})
	if err != nil || total != 1 || len(found) != 1 || found[0].Until != 7 || found[0].MaxBytes != 8 {
		t.Errorf("%d: %+v, %v", total, found, err)
	}
}

// A repeated request is the same request if it asks for the same end, or for the same time from now.
func TestARepeatedRequestAsksForTheSameEnd(t *testing.T) {
	ask := func(id RequestID, end, lasts Millis) *CreateOnce {
		return &CreateOnce{Key: Hash{1}, Change: until(alice, id, contents[1], end), Lasts: lasts}
	}
	for name, tc := range map[string]struct {
		again *CreateOnce
		same  bool
	}{
		"the same end":    {ask("b", 100, 0), true},
		"another end":     {ask("b", 101, 0), false},
		"no end":          {ask("b", 0, 0), false},
		"a time from now": {ask("b", 100, 50), false},
	} {
		m := ending(t)
		m.must(ask("a", 100, 0))
		r, err := m.apply(tc.again)
		if tc.same && (err != nil || r.Pin.ID != "a" || r.Pin.Until != 100) || !tc.same && !errors.Is(err, ErrExists) {
			t.Errorf("%s: %+v, %v", name, r.Pin, err)
		}
	}
	m := ending(t)
	m.must(ask("a", 100, 50))
	if r, err := m.apply(ask("b", 130, 50)); err != nil || r.Pin.ID != "a" || r.Pin.Until != 100 {
		t.Errorf("%+v, %v", r.Pin, err)
	}
	m.refused(ask("c", 100, 51), ErrExists)
	m.check()
}
