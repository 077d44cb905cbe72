package state

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// rich returns a machine at the newest level, where bob may store so many bytes.
func rich(t reporter, allowance uint64) *machine {
	t.Helper()
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	m.must(&SetQuota{Account: bob, Allowance: allowance})
	return m
}

func (m *machine) create(a AccountID, id RequestID, content string) error {
	_, err := m.apply(&CreatePin{Pin: Pin{ID: id, Account: a, CID: content, Created: 1}, Nodes: []NodeID{"n1", "n2", "n3"}})
	return err
}

func (m *machine) quota(a AccountID) Quota {
	m.t.Helper()
	q, err := m.view().Quota(a)
	if err != nil {
		m.t.Fatal(err)
	}
	return q
}

// A pin above the allowance is rejected if its size is known, and fails once its size is known if not. An account
// is charged once for content with two pins.
func TestWhatIsPinnedStaysWithinTheAllowance(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("content that is held %v", held), func(t *testing.T) {
			m := rich(t, 25)
			if held {
				for i, c := range contents[1:] {
					m.must(&CreatePin{Pin: Pin{ID: RequestID(fmt.Sprintf("a%d", i)), Account: alice, CID: c, Created: 1}, Nodes: []NodeID{"n1", "n2"}})
					m.hold(rootOf(t, c))
				}
			}
			if err := errors.Join(m.create(bob, "p1", contents[1]), m.create(bob, "p2", contents[2])); err != nil {
				t.Fatal(err)
			}
			if err := m.create(bob, "again", contents[1]); err != nil {
				t.Errorf("content that is charged already: %v", err)
			}
			err := m.create(bob, "p3", contents[3])
			if held != errors.Is(err, ErrQuota) {
				t.Fatalf("a third of 10 bytes: %v", err)
			}
			if !held {
				for _, c := range contents[1:4] {
					m.hold(rootOf(t, c))
				}
				p, err := m.view().Pin(bob, "p3")
				if err != nil || p.Status != Failed || !strings.Contains(p.Detail, "free storage") {
					t.Errorf("the pin that did not fit is %+v, %v", p, err)
				}
				if m.kept(rootOf(t, contents[3])) {
					t.Error("content that nobody pays for is kept")
				}
			}
			if q := m.quota(bob); q.Stored != 20 || q.Coming != 0 {
				t.Errorf("%+v", q)
			}
			m.must(&DeletePin{Account: bob, ID: "p1"})
			if q := m.quota(bob); q.Stored != 20 {
				t.Errorf("one of two pins deleted: %+v", q)
			}
			m.must(&DeletePin{Account: bob, ID: "again"})
			if q := m.quota(bob); q.Stored != 10 {
				t.Errorf("both deleted: %+v", q)
			}
		})
	}
}

// A replacement may use the room of the pin that it replaces, and is rejected if it needs more. An account with
// credits has no limit.
func TestReplaceIsJudgedByTheNetChange(t *testing.T) {
	m := rich(t, 10)
	for i, c := range contents[1:3] {
		m.must(&CreatePin{Pin: Pin{ID: RequestID(fmt.Sprintf("a%d", i)), Account: alice, CID: c, Created: 1}, Nodes: []NodeID{"n1", "n2"}})
		m.hold(rootOf(t, c))
	}
	if err := m.create(bob, "p1", contents[1]); err != nil {
		t.Fatal(err)
	}
	if err := m.create(bob, "p2", contents[2]); !errors.Is(err, ErrQuota) {
		t.Fatalf("beside it: %v", err)
	}
	m.must(&ReplacePin{Old: "p1", Pin: Pin{ID: "p3", Account: bob, CID: contents[2], Created: 2}})
	if q := m.quota(bob); q.Stored != 10 {
		t.Errorf("%+v", q)
	}
	m.must(&SetQuota{Account: bob, Allowance: 9})
	m.must(&CreatePin{Pin: Pin{ID: "larger", Account: alice, CID: contents[3], Created: 1}, Nodes: []NodeID{"n1", "n2"}})
	larger, err := m.view().Root(rootOf(t, contents[3]))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []NodeID{"n1", "n2"} {
		m.must(&ReportCopies{Node: n, Items: []CopyReport{{Root: larger.Key, Born: larger.Born, Phase: Held, Size: 11, Blocks: 1}}})
	}
	if _, err := m.apply(&ReplacePin{Old: "p3", Pin: Pin{ID: "p4", Account: bob, CID: contents[3], Created: 3}}); !errors.Is(err, ErrQuota) {
		t.Errorf("more in its place, with less allowed: %v", err)
	}
	if got := m.status(bob, "p3"); got != "pinned" {
		t.Errorf("the old pin is %s", got)
	}
	m.must(&GrantCredits{Posting: Posting{ID: "g", Account: bob, Credits: 1}})
	m.must(&GrantCredits{Posting: Posting{ID: "g", Account: bob, Credits: 1}})
	if q := m.quota(bob); q.Credits != 1 {
		t.Errorf("posted twice: %+v", q)
	}
	m.must(&ReplacePin{Old: "p3", Pin: Pin{ID: "p4", Account: bob, CID: contents[1], Created: 3}})
	if err := m.create(bob, "p5", contents[2]); err != nil {
		t.Errorf("with credits: %v", err)
	}
}

// A pin fails when more of its content has arrived than its account may store, and another account's pin goes on.
func TestContentThatOutgrowsTheAllowanceFailsAsItArrives(t *testing.T) {
	m := rich(t, 100)
	root := rootOf(t, contents[1])
	if err := errors.Join(m.create(bob, "p1", contents[1]), m.create(alice, "p2", contents[1])); err != nil {
		t.Fatal(err)
	}
	m.report("n1", root, Fetching, "")
	r, err := m.view().Root(root)
	if err != nil {
		t.Fatal(err)
	}
	m.must(&ReportArrivals{Items: []Arrival{{Root: root, Born: r.Born, Bytes: 100}}})
	if q := m.quota(bob); q.Coming != 100 {
		t.Errorf("%+v", q)
	}
	if err := m.create(bob, "p3", contents[2]); !errors.Is(err, ErrQuota) {
		t.Errorf("with all of the allowance on its way: %v", err)
	}
	m.must(&ReportArrivals{Items: []Arrival{{Root: root, Born: r.Born + 1, Bytes: 101}}}) // of another time
	if got := m.status(bob, "p1"); got != "pinning" {
		t.Errorf("the pin is %s", got)
	}
	m.must(&ReportArrivals{Items: []Arrival{{Root: root, Born: r.Born, Bytes: 101}}})
	if got := m.status(bob, "p1") + " " + m.status(alice, "p2"); got != "failed pinning" {
		t.Errorf("the pins of both accounts are %s", got)
	}
	if q := m.quota(bob); q.Used() != 0 {
		t.Errorf("after the failure: %+v", q)
	}
	if !m.kept(root) {
		t.Error("the content of another account is gone")
	}
}

// SetPassword ends the sessions of the account and reports that credentials have changed.
func TestANewPasswordEndsTheSessions(t *testing.T) {
	m := rich(t, 0)
	m.must(&SetPassword{Account: bob, Hash: "old"})
	m.must(&CreateSession{Session: Session{ID: "s", Account: bob, Created: 1, Expires: 9, Idle: 5}, Password: PasswordProof("old")})
	m.must(&SetPassword{Account: bob, Hash: "new"})
	if _, _, err := m.view().Session("s"); !errors.Is(err, ErrNotFound) || !m.fx.Keys {
		t.Errorf("the session: %v; who waits hears %+v", err, m.fx)
	}
}

// A closed account leaves no row with its id after bounded steps, and its e-mail address can be used again. The
// account of local commands cannot be closed.
func TestAClosedAccountLeavesNothing(t *testing.T) {
	m := rich(t, Unlimited)
	m.must(&CreateKey{Key: APIKey{ID: "k", Account: bob, Scope: []string{ScopeRead}}})
	m.must(&SetPassword{Account: bob, Hash: "hash"})
	m.must(&CreateSession{Session: Session{ID: "s", Account: bob, Created: 1, Expires: 9, Idle: 5}, Password: PasswordProof("hash")})
	m.must(&NoteUses{Items: []Use{{Key: "k", At: 2}, {Session: "s", At: 2}}})
	m.must(&CreateOnce{Key: Hash{1}, Change: &CreatePin{Pin: Pin{ID: "once", Account: bob, CID: contents[2], Created: 1}, Nodes: []NodeID{"n1"}}})
	m.must(&GrantCredits{Posting: Posting{ID: "g", Account: bob, Credits: 1}})
	before := m.rows(tableEmail)
	for i := range MaxSettle + 10 {
		if err := m.create(bob, RequestID(fmt.Sprintf("p%d", i)), contents[1]); err != nil {
			t.Fatal(err)
		}
	}
	m.hold(rootOf(t, contents[1]))
	if _, err := m.apply(&CloseAccount{Account: alice}); !errors.Is(err, ErrForbidden) {
		t.Errorf("the operator's account: %v", err)
	}
	m.must(&CloseAccount{Account: bob})
	if !m.fx.Keys || !m.fx.Settling {
		t.Errorf("who waits hears %+v", m.fx)
	}
	if _, err := m.view().Key("k"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a key of a closed account: %v", err)
	}
	if err := m.create(bob, "late", contents[1]); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("a pin of a closed account: %v", err)
	}
	rounds := 0
	for {
		closing, err := m.view().Closing(10)
		if err != nil {
			t.Fatal(err)
		}
		if len(closing) == 0 {
			break
		}
		rounds++
		m.must(&ClearAccounts{Accounts: closing})
		m.check()
	}
	if rounds < 2 {
		t.Errorf("%d pins went in %d command", MaxSettle+10, rounds)
	}
	if m.kept(rootOf(t, contents[1])) {
		t.Error("its content is kept")
	}
	if left := m.rows(tableSession, tableSessionsOf, tableUse, tableMadeBy, tableKey); len(left) != 0 {
		t.Errorf("sessions, keys and uses are left: %q", left)
	}
	for _, r := range m.rows() {
		if strings.Contains(r.key, string(bob)) {
			t.Errorf("%q is left", r.key)
		}
	}
	m.must(&OpenAccount{Account: Account{ID: "bob2", Email: "bob@example.org"}, Allowance: 7})
	if q := m.quota("bob2"); q.Allowance != 7 || len(m.rows(tableEmail)) != len(before) {
		t.Errorf("the address again: %+v", q)
	}
}

// Room above the allowance that a replacement frees is reserved for the content of the new pin. Were it free for
// others, each round of replacements would store an allowance more.
func TestWhatAReplacementFreesIsNotSpentTwice(t *testing.T) {
	m := rich(t, 10)
	if err := m.create(bob, "old", contents[1]); err != nil {
		t.Fatal(err)
	}
	m.hold(rootOf(t, contents[1]))
	m.must(&SetQuota{Account: bob, Allowance: 9})
	m.must(replace(bob, "old", "new", contents[2]))
	m.check()
	if err := m.create(bob, "beside", contents[3]); !errors.Is(err, ErrQuota) {
		t.Errorf("a pin in the room of one whose content is on its way: %v", err)
	}
	m.must(replace(bob, "new", "newer", contents[3]))
	m.hold(rootOf(t, contents[3]))
	m.check()
	if got := m.status(bob, "newer"); got != "pinned" {
		t.Errorf("as much in its place is %s", got)
	}
	if q := m.quota(bob); q.Stored != 10 || q.Coming != 0 {
		t.Errorf("%+v", q)
	}
	m.must(&DeletePin{Account: bob, ID: "newer"})
	if q := m.quota(bob); q.Used() != 0 {
		t.Errorf("with nothing left: %+v", q)
	}
}

// An account above its allowance can replace a pin by content that is no larger, also if its size is known only as
// it comes. Larger content fails.
func TestAReplacementBringsNoMoreThanItFrees(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bytes uint64
		want  string
	}{{"less", 7, "pinned"}, {"as much", 10, "pinned"}, {"more", 11, "failed"}} {
		t.Run(tc.name, func(t *testing.T) {
			m := rich(t, Unlimited)
			for i, c := range contents[1:3] {
				if err := m.create(bob, RequestID(fmt.Sprint("p", i)), c); err != nil {
					t.Fatal(err)
				}
				m.hold(rootOf(t, c))
			}
			m.must(&SetQuota{Account: bob, Allowance: 5})
			replace := func(old, id RequestID, name, content string) error {
				m.check()
				_, err := m.apply(&ReplacePin{Old: old, Pin: Pin{ID: id, Account: bob, Name: name, CID: content, Created: 9}, Nodes: []NodeID{"n1", "n2", "n3"}})
				return err
			}
			if err := replace("p0", "named", "a name", contents[1]); err != nil {
				t.Errorf("the same content: %v", err)
			}
			if err := m.create(bob, "other", contents[2]); err != nil {
				t.Errorf("what is charged already: %v", err)
			}
			m.must(&DeletePin{Account: bob, ID: "other"})
			if err := m.create(bob, "new", contents[3]); !errors.Is(err, ErrQuota) {
				t.Errorf("something new: %v", err)
			}
			for i, id := range []RequestID{"once", "twice"} { // before it has come it is replaced again
				if err := replace([]RequestID{"named", "once"}[i], id, string(id), contents[3]); err != nil {
					t.Fatal(err)
				}
			}
			root := rootOf(t, contents[3])
			r, err := m.view().Root(root)
			if err != nil {
				t.Fatal(err)
			}
			m.must(&ReportArrivals{Items: []Arrival{{Root: root, Born: r.Born, Bytes: 6}}})
			m.check()
			for _, n := range []NodeID{"n1", "n2"} {
				m.must(&ReportCopies{Node: n, Items: []CopyReport{{Root: root, Born: r.Born, Phase: Held, Size: tc.bytes, Blocks: 1}}})
			}
			m.check()
			if got := m.status(bob, "twice"); got != tc.want {
				t.Errorf("%d bytes in the place of 10 are %s, want %s", tc.bytes, got, tc.want)
			}
			if q := m.quota(bob); q.Used() > 20 {
				t.Errorf("%+v", q)
			}
			// What it may cost ends with its content's coming.
			if tc.want == "pinned" && tc.bytes < 10 {
				if err := replace("twice", "late", "", contents[4]); err != nil {
					t.Fatal(err)
				}
				m.hold(rootOf(t, contents[4]))
				if got := m.status(bob, "late"); got != "failed" {
					t.Errorf("10 bytes in the place of %d are %s", tc.bytes, got)
				}
			}
		})
	}
}

// The reserve of a replacement stays when another pin of its content comes, or when the pin gets another name.
// Some of the content has arrived by then.
func TestAReserveOutlivesAnotherPinOfItsContent(t *testing.T) {
	for _, tc := range []struct {
		name string
		then Command
	}{
		{"another pin", create(bob, "again", contents[2])},
		{"another name", replace(bob, "new", "newer", contents[2])},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := rich(t, Unlimited)
			m.must(create(bob, "old", contents[1]))
			m.hold(rootOf(t, contents[1]))
			m.must(&SetQuota{Account: bob, Allowance: 9})
			m.must(replace(bob, "old", "new", contents[2]))
			root := rootOf(t, contents[2])
			r, err := m.view().Root(root)
			if err != nil {
				t.Fatal(err)
			}
			m.must(&ReportArrivals{Items: []Arrival{{Root: root, Born: r.Born, Bytes: 3}}})
			m.must(tc.then)
			m.check()
			if q := m.quota(bob); q.Coming != 10 {
				t.Errorf("%d bytes are reserved, want the 10 that were freed", q.Coming)
			}
			m.refused(create(bob, "beside", contents[3]), ErrQuota)
			m.hold(root)
			m.check()
			if q := m.quota(bob); q.Stored != 10 || q.Coming != 0 {
				t.Errorf("when it has come: %+v", q)
			}
		})
	}
}

// Bytes of the new content that have come for another account are a part of the reserve, and are not charged
// beside it.
func TestWhatHasComeForOthersIsAPartOfTheReserve(t *testing.T) {
	for _, arrived := range []uint64{1, 9, 10} {
		m := rich(t, 10)
		root := rootOf(t, contents[2])
		m.must(create(bob, "old", contents[1]))
		m.hold(rootOf(t, contents[1]))
		m.must(create(alice, "a", contents[2]))
		r, err := m.view().Root(root)
		if err != nil {
			t.Fatal(err)
		}
		m.must(&ReportArrivals{Items: []Arrival{{Root: root, Born: r.Born, Bytes: arrived}}})
		m.must(&SetQuota{Account: bob, Allowance: 5})
		m.must(replace(bob, "old", "new", contents[2]))
		m.check()
		if q := m.quota(bob); q.Used() != 10 {
			t.Errorf("%d bytes have come: bob had 10, and uses %d", arrived, q.Used())
		}
	}
}

// Replacing a failed pin, which holds nothing, frees nothing, whatever other pins of its content the account has.
func TestAFailedPinFreesNothing(t *testing.T) {
	m := rich(t, 10)
	m.must(create(bob, "failed", contents[1]))
	m.giveUp(rootOf(t, contents[1]), "nobody has it")
	m.must(create(alice, "a1", contents[1]))
	m.must(create(alice, "a2", contents[2]))
	m.hold(rootOf(t, contents[1]))
	m.hold(rootOf(t, contents[2]))
	m.must(create(bob, "whole", contents[1]))
	m.refused(replace(bob, "failed", "beside", contents[2]), ErrQuota)
	m.check()
	if q := m.quota(bob); q.Stored != 10 {
		t.Errorf("%+v", q)
	}
}

// Room below the allowance is not reserved for a replacement, so another pin can take it.
func TestBelowTheAllowanceNothingIsReserved(t *testing.T) {
	m := rich(t, 10)
	m.must(create(bob, "old", contents[1]))
	m.hold(rootOf(t, contents[1]))
	m.must(replace(bob, "old", "new", contents[2]))
	m.check()
	if q := m.quota(bob); q.Used() != 0 {
		t.Errorf("while its content comes: %+v", q)
	}
	m.must(create(bob, "beside", contents[3]))
}

// The reserves of two replacements by pins of one content add up.
func TestReservesForOneContentAddUp(t *testing.T) {
	m := rich(t, Unlimited)
	for i, c := range contents[1:3] {
		m.must(create(bob, RequestID(fmt.Sprint("old", i)), c))
		m.hold(rootOf(t, c))
	}
	m.must(&SetQuota{Account: bob, Allowance: 5})
	for i := range 2 {
		m.must(replace(bob, RequestID(fmt.Sprint("old", i)), RequestID(fmt.Sprint("new", i)), contents[3]))
		m.check()
	}
	if q := m.quota(bob); q.Coming != 20 {
		t.Errorf("%d bytes are reserved, want the 20 that were freed", q.Coming)
	}
	m.hold(rootOf(t, contents[3]))
	m.check()
	if q := m.quota(bob); q.Used() != 10 || m.status(bob, "new1") != "pinned" {
		t.Errorf("when it has come: %+v", q)
	}
}
