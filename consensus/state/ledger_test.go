package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// ledger returns all postings of an account, oldest first, read in pages of 2.
func (m *machine) ledger(a AccountID) (all []Posting) {
	m.t.Helper()
	for before := uint64(0); ; {
		page, err := m.view().Ledger(a, before, 2)
		if err != nil {
			m.t.Fatal(err)
		}
		if len(page) == 0 {
			slices.Reverse(all)
			return all
		}
		all = append(all, page...)
		before = page[len(page)-1].Seq
	}
}

// wantLedgers wants the sum of the postings of every account to be its balance. From LedgerLevel on
// it also wants each posting once in the order, with the balance after it.
func (m *machine) wantLedgers() {
	m.t.Helper()
	level, err := m.view().FeatureLevel()
	if err != nil {
		m.t.Fatal(err)
	}
	postings, err := scanAll[Posting](m, table(tablePosting))
	if err != nil {
		m.t.Fatal(err)
	}
	ordered := 0
	for _, a := range []AccountID{alice, bob} {
		q, err := get[Quota](m, quotaKey(a))
		if err != nil {
			m.t.Fatal(err)
		}
		if closing, err := has(m, closingKey(a)); err != nil || closing || q == nil {
			ordered += len(m.ledger(a))
			continue // its postings are being deleted
		}
		of := slices.DeleteFunc(slices.Clone(postings), func(p Posting) bool { return p.Account != a })
		var sum uint64
		for _, p := range of {
			if sum += p.Credits; p.Takes {
				sum -= 2 * p.Credits
			}
		}
		if sum != q.Credits || uint64(len(of)) != q.Postings {
			m.t.Errorf("%d postings of %s sum up to %d credits, and the quota is %+v", len(of), a, sum, *q)
		}
		rows := m.ledger(a)
		ordered += len(rows)
		if level < LedgerLevel {
			continue
		}
		if len(rows) != len(of) {
			m.t.Errorf("the ledger of %s has %d rows of %d", a, len(rows), len(of))
		}
		balance := uint64(0)
		for i, p := range rows {
			if balance += p.Credits; p.Takes {
				balance -= 2 * p.Credits
			}
			if p.Seq != uint64(i+1) || p.Balance != balance || p.Account != a {
				m.t.Errorf("row %d of %s is %+v, and the balance is %d", i+1, a, p, balance)
			}
		}
	}
	if rows := len(m.rows(tableLedger)); rows != ordered {
		m.t.Errorf("%d rows of order, of %d postings", rows, ordered)
	}
}

func anyPosting(t *rapid.T, a AccountID) Command {
	ids := rapid.SampledFrom([]string{"g1", "g2", "g3", "g4", "g5"})
	p := Posting{
		ID: ids.Draw(t, "posting"), Account: a, Kind: rapid.SampledFrom([]PostingKind{Grant, Refund, Charge, Correction}).Draw(t, "kind"),
		Credits: rapid.Uint64Range(1, 5).Draw(t, "credits"), Made: Millis(rapid.IntRange(0, 3).Draw(t, "made")),
	}
	p.Takes = p.Kind == Charge
	if p.Kind == Correction {
		p.Corrects, p.Takes = ids.Draw(t, "corrects"), rapid.Bool().Draw(t, "takes")
	}
	return &PostCredits{p}
}

// After any postings, repeats and restores, the sum of an account's postings is its balance, in any order. No
// posting ever changes.
func TestTheSumOfThePostingsIsTheBalance(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := rich(rt, 0)
		cmds := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Command {
			return anyPosting(t, rapid.SampledFrom([]AccountID{alice, bob}).Draw(t, "account"))
		}), 1, 40).Draw(rt, "postings")
		orders := [][]Command{cmds, rapid.Permutation(cmds).Draw(rt, "order")}
		start := m.rows()
		for _, order := range orders {
			m.restore(start)
			for _, cmd := range order {
				before := m.ledger(bob)
				q := m.quota(bob)
				if _, err := m.apply(cmd); err != nil && !isOutcome(err) {
					rt.Fatal(err)
				} else if errors.Is(err, ErrCredits) && cmd.(*PostCredits).Posting.Account == bob && cmd.(*PostCredits).Posting.Credits <= q.Credits {
					rt.Fatalf("%d credits are there, and %+v is refused: %v", q.Credits, cmd, err)
				}
				if after := m.ledger(bob); len(after) < len(before) || !slices.Equal(after[:len(before)], before) {
					rt.Fatalf("the ledger was\n%+v and is\n%+v", before, after)
				}
				snapshot := m.rows()
				_, _ = m.apply(cmd) // a repeat, by another node
				m.wantLedgers()
				if rapid.IntRange(0, 4).Draw(rt, "restore") == 0 {
					m.restore(snapshot)
					m.wantLedgers()
				}
			}
		}
	})
}

// PostCredits appends a posting with its sequence, balance and caller, and a repeat appends nothing. An invalid
// posting is rejected and changes nothing, and the postings of a closed account are removed.
func TestPostings(t *testing.T) {
	m := rich(t, 0)
	post := func(id string, kind PostingKind, credits uint64) *PostCredits {
		return &PostCredits{Posting{ID: id, Account: bob, Kind: kind, Credits: credits, Takes: kind == Charge, Made: 5}}
	}
	correct := func(id, of string, credits uint64, takes bool) *PostCredits {
		p := post(id, Correction, credits)
		p.Posting.Corrects, p.Posting.Takes, p.Posting.Note = of, takes, "wrong"
		return p
	}
	m.must(&Audited{By: admin, At: 6, Change: post("g", Grant, 10)})
	m.must(post("c", Charge, 4))
	m.must(post("r", Refund, 1))
	m.must(correct("k", "g", 5, true))
	renamed := post("g", Grant, 10)
	renamed.Posting.Note, renamed.Posting.Made = "again", 99
	m.must(renamed)
	m.must(&GrantCredits{Posting{ID: "g", Account: bob, Credits: 10}})
	m.must(&GrantCredits{Posting{ID: "old", Account: bob, Credits: 3}})
	var got []string
	for _, p := range m.ledger(bob) {
		got = append(got, fmt.Sprintf("%d %s %s %s -> %d by %s %s", p.Seq, p.ID, p.Kind, p.Signed(), p.Balance, p.By.Kind, p.By.Email))
	}
	want := []string{
		fmt.Sprintf("1 g grant 10 -> 10 by %s %s", admin.Kind, admin.Email), "2 c charge -4 -> 6 by cluster ", "3 r refund 1 -> 7 by cluster ",
		"4 k correction -5 -> 2 by cluster ", "5 old grant 3 -> 5 by cluster ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the ledger is\n%s", strings.Join(got, "\n"))
	}
	wrongWay := post("w", Grant, 1)
	wrongWay.Posting.Takes = true
	noted := post("n", Grant, 1)
	noted.Posting.Note = "a\nb"
	bare := post("b", Correction, 1)
	for name, tc := range map[string]struct {
		cmd  Command
		want error
	}{
		"below zero":          {post("x", Charge, 6), ErrCredits},
		"correction to below": {correct("x", "g", 6, true), ErrCredits},
		"another of the id":   {post("g", Grant, 11), ErrExists},
		"another kind":        {post("g", Refund, 10), ErrExists},
		"no credits":          {post("x", Grant, 0), ErrInvalid},
		"too many":            {post("x", Grant, MaxCredits+1), ErrInvalid},
		"no kind":             {post("x", 0, 1), ErrInvalid},
		"unknown kind":        {post("x", 5, 1), ErrInvalid},
		"no id":               {post("", Grant, 1), ErrInvalid},
		"a grant that takes":  {wrongWay, ErrInvalid},
		"a note of two lines": {noted, ErrInvalid},
		"corrects nothing":    {bare, ErrInvalid},
		"corrects no posting": {correct("x", "none", 1, false), ErrNotFound},
		"no account":          {&PostCredits{Posting{ID: "x", Account: "none", Kind: Grant, Credits: 1}}, ErrNotFound},
	} {
		before := m.ledger(bob)
		m.refused(tc.cmd, tc.want)
		if !slices.Equal(before, m.ledger(bob)) {
			t.Errorf("%s: the ledger has changed", name)
		}
	}
	m.must(&CloseAccount{bob})
	m.must(&ClearAccounts{[]AccountID{bob}})
	if left := append(m.rows(tableLedger), m.rows(tablePosting)...); len(left) > 0 {
		t.Errorf("a closed account leaves %v", left)
	}
}

// Grants from before LedgerLevel get their order when the level is raised, and stay what they were.
func TestOldGrantsGetAnOrder(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: LedgerLevel - 1})
	for _, p := range []Posting{{ID: "b", Credits: 5, Made: 2}, {ID: "c", Credits: 1, Made: 1}, {ID: "a", Credits: 7, Made: 2}} {
		p.Account = bob
		m.must(&GrantCredits{p})
	}
	m.must(&GrantCredits{Posting{ID: "b", Account: alice, Credits: 2}})
	m.refused(&PostCredits{Posting{ID: "x", Account: bob, Kind: Grant, Credits: 1}}, ErrUnavailable)
	m.wantLedgers()
	m.must(&RaiseLevel{FeatureLevel: LedgerLevel})
	m.wantLedgers()
	want := []Posting{
		{ID: "c", Account: bob, Kind: Grant, Credits: 1, Made: 1, Seq: 1, Balance: 1},
		{ID: "a", Account: bob, Kind: Grant, Credits: 7, Made: 2, Seq: 2, Balance: 8},
		{ID: "b", Account: bob, Kind: Grant, Credits: 5, Made: 2, Seq: 3, Balance: 13},
	}
	if got := m.ledger(bob); !slices.Equal(got, want) {
		t.Errorf("the ledger is %+v", got)
	}
	m.must(&GrantCredits{Posting{ID: "b", Account: bob, Credits: 5}})
	m.refused(&GrantCredits{Posting{ID: "b", Account: bob, Credits: 6}}, ErrExists)
	m.wantLedgers()
}

// A page of a ledger of 1,000,000 rows is read by the index, from its end and from its middle.
func BenchmarkLedgerPage(b *testing.B) {
	const rows = 1_000_000
	d := newOnDisk(b)
	d.apply(b, &RaiseLevel{FeatureLevel: NewestFeatureLevel})
	for done := 0; done < rows; {
		tx := d.store.Begin()
		for range 10_000 {
			done++
			p := &Posting{
				ID:      fmt.Sprintf("charge %08x", binary.BigEndian.Uint32(binary.LittleEndian.AppendUint32(nil, uint32(done)))), //nolint:gosec // ids in another order than sequences
				Account: bob, Kind: Grant, Credits: 1, Made: Millis(done), Note: "storage",
			}
			if err := putPosting(tx, p, &Quota{Credits: uint64(done), Postings: uint64(done)}); err != nil {
				b.Fatal(err)
			}
		}
		if err := tx.Commit(false); err != nil {
			b.Fatal(err)
		}
	}
	for name, before := range map[string]uint64{"newest": 0, "middle": rows / 2} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				view := d.store.View()
				page, err := NewView(view, 0).Ledger(bob, before, 100)
				view.Close()
				if err != nil || len(page) != 100 {
					b.Fatal(len(page), err)
				}
			}
		})
	}
}
