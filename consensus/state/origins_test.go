package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// naming returns a command that pins content with origins.
func naming(account AccountID, id RequestID, origins ...string) *CreatePin {
	c := create(account, id, contents[1])
	c.Pin.Origins = origins
	return c
}

// someOrigins are so many addresses that begin alike.
func someOrigins(name string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s%d", name, i))
	}
	return all
}

func (m *machine) origins(k RootKey) []string {
	m.t.Helper()
	got, err := m.view().Origins(k)
	if err != nil {
		m.t.Fatal(err)
	}
	return got
}

// A root has the origins of its pins, and loses those of a pin that is replaced, deleted or failed. So it does
// when the account is closed.
func TestOriginsGoWithTheirPin(t *testing.T) {
	large := strings.Repeat("x", FreeMeta)
	m := rich(t, Unlimited)
	root := rootOf(t, contents[1])
	knows := func(what string, want ...string) {
		t.Helper()
		m.check()
		if got := m.origins(root); !slices.Equal(got, want) {
			t.Errorf("%s: %.20q, want %.20q", what, got, want)
		}
	}
	m.must(naming(bob, "small", "o1"))
	m.must(naming(bob, "p1", "o2", large))
	knows("two pins", "o2", large, "o1")
	m.must(&ReplacePin{Old: "p1", Pin: naming(bob, "p2", large, "o3").Pin})
	knows("replaced by one that has a large one too", large, "o3", "o1")
	m.must(&ReplacePin{Old: "p2", Pin: naming(bob, "p3").Pin})
	knows("and by one without origins", "o1")
	m.must(&DeletePin{Account: bob, ID: "small"})
	knows("deleted")
	m.must(naming(alice, "a1", "o1"))
	m.must(naming(bob, "p4", "o1", large))
	knows("two name one", "o1", large)
	m.must(&DeletePin{Account: bob, ID: "p4"})
	knows("one of two is deleted", "o1")
	m.must(&DeletePin{Account: bob, ID: "p3"})
	m.must(naming(bob, "p5", "o5", large))
	m.must(&SetQuota{Account: bob, Allowance: 9})
	m.hold(root)
	if got := m.status(bob, "p5"); got != "failed" {
		t.Errorf("a pin above the allowance is %s", got)
	}
	knows("the pin failed alone", "o1")
	m.must(&DeletePin{Account: alice, ID: "a1"})
	m.must(naming(bob, "p6", "o6"))
	m.giveUp(root, "nobody has it")
	knows("all failed")
	m.must(naming(bob, "p7", "o7"))
	m.must(&CloseAccount{Account: bob})
	m.must(&ClearAccounts{Accounts: []AccountID{bob}})
	knows("the account is closed")
}

// Each account has its share of a root's origins, whatever others name, and those of its newest pins come first.
func TestAccountsShareTheOriginsOfARoot(t *testing.T) {
	root := rootOf(t, contents[1])
	own := []string{"own0", "own1"}
	for _, tc := range []struct {
		name string
		pins []*CreatePin
		want int // origins in all
		has  []string
	}{
		{"as many as there may be, later", []*CreatePin{naming(alice, "a", own...), naming(bob, "b", someOrigins("b", 20)...)}, 20, own},
		{"as many as there may be, before", []*CreatePin{naming(bob, "b", someOrigins("b", 20)...), naming(alice, "a", own...)}, 20, own},
		{"the same ones", []*CreatePin{naming(alice, "a", own...), naming(bob, "b", own...)}, 2, own},
		{"some of the same", []*CreatePin{naming(alice, "a", own...), naming(bob, "b", "own1", "b1")}, 3, append(own, "b1")},
		{
			"both have many",
			[]*CreatePin{naming(alice, "a", someOrigins("a", 20)...), naming(bob, "b", someOrigins("b", 20)...)},
			20, append(someOrigins("a", 10), someOrigins("b", 10)...),
		},
		{"the newest pin", []*CreatePin{naming(alice, "a", someOrigins("a", 20)...), naming(alice, "n", own...)}, 20, own},
		{"empty text", []*CreatePin{naming(alice, "a", "", "o")}, 1, []string{"o"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := rich(t, Unlimited)
			for _, c := range tc.pins {
				m.must(c)
			}
			m.check()
			got := m.origins(root)
			if len(got) != tc.want {
				t.Errorf("%d origins, want %d: %q", len(got), tc.want, got)
			}
			for _, o := range tc.has {
				if !slices.Contains(got, o) {
					t.Errorf("%s is not among %q", o, got)
				}
			}
		})
	}
}

// The origins of an account are found and few rows are read, however many pins another account has of the root.
func TestManyPinsOfOneAccountHideNoOrigins(t *testing.T) {
	m := rich(t, Unlimited)
	root := rootOf(t, contents[1])
	m.must(naming(alice, "older", "older"))
	m.must(naming(alice, "own", "own"))
	for i := range 3 * maxOriginPins {
		m.must(naming(bob, RequestID(fmt.Sprintf("p%04d", i)), "same"))
		m.must(naming(bob, RequestID(fmt.Sprintf("q%04d", i))))
	}
	reads := &rowReads{memory: m.memory}
	got, err := NewView(reads, m.index).Origins(root)
	if err != nil || !slices.Equal(slices.Sorted(slices.Values(got)), []string{"older", "own", "same"}) {
		t.Errorf("%q, %v", got, err)
	}
	if most := 1 + 2*(maxOriginPins+2); reads.n > most { // the root, and a locator and a row of each
		t.Errorf("%d rows were read, want at most %d", reads.n, most)
	}
	m.check()
}

// rowReads counts the rows that are read one by one.
type rowReads struct {
	*memory
	n int
}

func (r *rowReads) Get(k []byte) ([]byte, bool, error) {
	r.n++
	return r.memory.Get(k)
}

// wantOrigins compares the origins of roots with those that their pins name.
func (m *machine) wantOrigins(roots []Root, named map[RootKey][]string) {
	m.t.Helper()
	for i := range roots {
		k := roots[i].Key
		got := slices.Sorted(slices.Values(m.origins(k)))
		want := slices.Compact(slices.Sorted(slices.Values(named[k])))
		want = slices.DeleteFunc(want, func(o string) bool { return o == "" })
		other := slices.ContainsFunc(got, func(o string) bool { return !slices.Contains(want, o) })
		if other || len(slices.Compact(got)) != min(len(want), MaxOrigins) {
			m.t.Errorf("root %s has the origins %q, its pins name %q", k, got, want)
		}
	}
}

// wantAccounts compares the accounts of roots with those of the pins, objects and parts that reference them.
func (m *machine) wantAccounts(roots []Root, by map[RootKey][]AccountID) {
	m.t.Helper()
	for i := range roots {
		k := roots[i].Key
		got, err := m.view().AttachedAccounts(k, 100)
		want := slices.Compact(slices.Sorted(slices.Values(by[k])))
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			m.t.Errorf("root %s has the accounts %q, %v, and references of %q", k, got, err, want)
		}
	}
}
