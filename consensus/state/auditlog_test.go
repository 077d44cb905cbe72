package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// leveled is a cluster with an audit log, and an account with a session and a key.
func leveled(t reporter) *machine {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	return m
}

// entries returns the rows of the audit log, the oldest first.
func (m *machine) entries() (all []AuditEntry) {
	m.t.Helper()
	for _, r := range m.rows(tableAudit) {
		row, hash, err := decodeAuditRow([]byte(r.value))
		if err != nil {
			m.t.Fatal(err)
		}
		all = append(all, AuditEntry{*row, hash})
	}
	return all
}

// verify walks the chain in steps.
func (m *machine) verify() AuditChain {
	m.t.Helper()
	head, err := m.view().AuditHead()
	if err != nil {
		m.t.Fatal(err)
	}
	chain := AuditChain{Next: head.First, Hash: head.Anchor}
	for {
		longer, err := m.view().VerifyAudit(chain, 3)
		if err != nil {
			m.t.Fatal(err)
		}
		if longer == chain || longer.Broken != "" {
			return longer
		}
		chain = longer
	}
}

// wantAuditChain checks that the audit log verifies, up to its head.
func (m *machine) wantAuditChain() {
	m.t.Helper()
	head, err := m.view().AuditHead()
	if err != nil {
		m.t.Fatal(err)
	}
	if chain := m.verify(); chain.Broken != "" || chain.Next != head.Next {
		m.t.Errorf("the audit log from %d to %d is broken at %d: %s", head.First, head.Next, chain.Next, chain.Broken)
	}
}

var admin = Actor{Kind: ActorSession, Account: alice, Email: "alice@example.org", Session: "s1", Addr: "192.0.2.7"}

// by is a change of the administrator at a time.
func by(at Millis, change Command) *Audited { return &Audited{By: admin, At: at, Change: change} }

func logged(t reporter, rows int) *machine {
	t.Helper()
	m := leveled(t)
	for i := range rows {
		m.must(by(Millis(i+1), &SetQuota{Account: bob, Allowance: uint64(i + 1)}))
	}
	if n := len(m.entries()); n != rows {
		t.Fatalf("%d rows, not %d", n, rows)
	}
	m.wantAuditChain()
	return m
}

// VerifyAudit finds every single flipped bit of an audit row, at that row.
func TestEveryFlippedBitOfTheAuditLogIsFound(t *testing.T) {
	m := logged(t, 5)
	for i, r := range m.rows(tableAudit) {
		for bit := range 8 * len(r.value) {
			bad := &machine{memory: m.fork(), t: t, index: m.index}
			value := []byte(r.value)
			value[bit/8] ^= 1 << (bit % 8)
			set(t, bad.memory, key(r.key), value)
			chain := bad.verify()
			// A flipped bit of the hash is found at its own row.
			if want := uint64(i + 1); chain.Broken == "" || chain.Next != want {
				t.Fatalf("bit %d of row %d: broken at %d, %q", bit, want, chain.Next, chain.Broken)
			}
		}
	}
}

// VerifyAudit finds every row of the audit log that was dropped, swapped, added or cut off at the end.
func TestDroppedSwappedAndAddedRowsAreFound(t *testing.T) {
	m := logged(t, 7)
	rows := m.rows(tableAudit)
	for i := range rows {
		bad := &machine{memory: m.fork(), t: t, index: m.index}
		if err := bad.Delete([]byte(rows[i].key)); err != nil {
			t.Fatal(err)
		}
		if chain := bad.verify(); chain.Broken == "" || chain.Next != uint64(i+1) {
			t.Errorf("row %d was dropped: broken at %d, %q", i+1, chain.Next, chain.Broken)
		}
		for j := range i {
			bad := &machine{memory: m.fork(), t: t, index: m.index}
			set(t, bad.memory, key(rows[i].key), []byte(rows[j].value))
			set(t, bad.memory, key(rows[j].key), []byte(rows[i].value))
			if chain := bad.verify(); chain.Broken == "" || chain.Next != uint64(j+1) {
				t.Errorf("rows %d and %d were swapped: broken at %d, %q", j+1, i+1, chain.Next, chain.Broken)
			}
		}
	}
	for _, seq := range []uint64{0, 8, 9, 1 << 63} {
		bad := &machine{memory: m.fork(), t: t, index: m.index}
		row := AuditRow{Seq: seq, Action: ActionKeyShow, Count: 1}
		b, err := EncodeAuditRow(&row)
		if err != nil {
			t.Fatal(err)
		}
		hash := auditHash(m.entries()[6].Hash, b)
		set(t, bad.memory, auditRowKey(seq), append(hash[:], b...))
		if chain := bad.verify(); chain.Broken == "" {
			t.Errorf("row %d was added and nobody noticed", seq)
		}
	}
	// A row that is cut off with the hash of the head left behind.
	bad := &machine{memory: m.fork(), t: t, index: m.index}
	if err := bad.Delete([]byte(rows[6].key)); err != nil {
		t.Fatal(err)
	}
	head, err := readAuditHead(bad)
	if err != nil {
		t.Fatal(err)
	}
	head.Next--
	if err := put(bad.memory, auditKey, head); err != nil {
		t.Fatal(err)
	}
	if chain := bad.verify(); chain.Broken == "" {
		t.Error("the newest row was cut off and nobody noticed")
	}
}

// The rows that PruneAudit leaves verify from the hash of the last removed row, and new rows continue the chain.
func TestTheRestOfAPrunedAuditLogVerifies(t *testing.T) {
	m := logged(t, 6)
	gone := m.entries()[2].Hash
	m.must(&PruneAudit{Before: 4})
	m.wantAuditChain()
	head, err := m.view().AuditHead()
	if err != nil || head.First != 4 || head.Anchor != gone || len(m.entries()) != 3 {
		t.Fatalf("%+v, %d rows, %v", head, len(m.entries()), err)
	}
	m.must(by(7, &SetQuota{Account: bob, Allowance: 70}))
	m.must(&PruneAudit{Before: 1000})
	if m.wantAuditChain(); len(m.entries()) != 0 {
		t.Errorf("%d rows are left", len(m.entries()))
	}
	m.must(by(8, &SetQuota{Account: bob, Allowance: 80}))
	if m.wantAuditChain(); len(m.entries()) != 1 || m.entries()[0].Seq != 8 {
		t.Errorf("%+v", m.entries())
	}
}

// The audit log keeps its newest MaxAuditRows rows, and they verify.
func TestTheAuditLogKeepsItsNewestRows(t *testing.T) {
	m := leveled(t)
	h, err := readAuditHead(m)
	if err != nil {
		t.Fatal(err)
	}
	for i := range MaxAuditRows + 3 {
		if err := h.append(m, &AuditRow{At: Millis(i + 1), Action: ActionKeyShow, Count: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(m.memory, auditKey, h); err != nil {
		t.Fatal(err)
	}
	head, err := m.view().AuditHead()
	if err != nil || head.First != 4 || head.Next-head.First != MaxAuditRows {
		t.Fatalf("%+v, %v", head, err)
	}
	chain, err := m.view().VerifyAudit(AuditChain{Next: head.First, Hash: head.Anchor}, MaxAuditRows+1)
	if err != nil || chain.Broken != "" || chain.Hash != head.Head {
		t.Errorf("%+v, %v", chain, err)
	}
}

// Rejected sign-ins make a bounded number of audit rows an hour, and every try is counted. An invalid refusal is
// rejected and changes nothing.
func TestRefusalsMakeFewRowsAndLoseNoTry(t *testing.T) {
	m := leveled(t)
	var tried, counted uint64
	for minute := range 26 * 60 {
		cmd := &NoteRefusals{}
		for i := range MaxRefusals {
			cmd.Items = append(cmd.Items, Refusal{
				Action: ActionSessionCreate, At: Millis(minute)*60_000 + 1, Addr: fmt.Sprintf("192.0.2.%d", i), Account: bob, Count: 2,
			})
			tried += 2
		}
		m.must(cmd)
	}
	h, err := readAuditHead(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range m.entries() {
		counted += e.Count
		if !e.Refused || e.Actor.Kind != ActorAnonymous || e.Action == ActionSessionCreate && e.Detail != "bob@example.org" {
			t.Fatalf("%+v", e)
		}
	}
	if rows := len(m.entries()); rows > 26*(signInsPerHour+1) || counted+h.Rest != tried {
		t.Errorf("%d rows count %d and %d tries, of %d", rows, counted, h.Rest, tried)
	}
	m.wantAuditChain()
	before := m.rows()
	for _, bad := range []Refusal{{Action: ActionUserDelete, Count: 1}, {Action: ActionSessionCreate}, {Action: ActionSessionCreate, At: -1, Count: 1}} {
		if _, err := m.apply(&NoteRefusals{Items: []Refusal{bad}}); !errors.Is(err, ErrInvalid) || !slices.Equal(m.rows(), before) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// An audit row is written with texts of 5,000 characters, each of them cut to a text that is valid and not empty.
func TestLongTextsFitIntoAnAuditRow(t *testing.T) {
	m := leveled(t)
	long := strings.Repeat("ä", 5000)
	h, err := readAuditHead(m)
	if err != nil {
		t.Fatal(err)
	}
	row := &AuditRow{Actor: Actor{Account: AccountID(long), Email: long, Key: KeyID(long), Session: SessionID(long), Addr: "x" + long}, Target: long, Detail: long, Count: 1}
	if err := h.append(m, row); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{row.Target, row.Detail, row.Actor.Addr, row.Actor.Email} {
		if strings.ContainsRune(text, '\ufffd') || text == "" {
			t.Errorf("%q", text)
		}
	}
}

// Whatever bytes lie in a row: they are read as a row that has these bytes, or not at all.
func FuzzAuditRow(f *testing.F) {
	for _, row := range []AuditRow{{}, {Seq: 1, At: -3, Actor: admin, Action: ActionKeyShow, Target: "t", Detail: "d", Refused: true, Count: 1 << 60}} {
		b, err := EncodeAuditRow(&row)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		row, err := DecodeAuditRow(b)
		if err != nil {
			return
		}
		again, err := EncodeAuditRow(row)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", row, err)
		}
		back, err := DecodeAuditRow(again)
		if err != nil || *back != *row {
			t.Fatalf("%+v came back as %+v, %v", row, back, err)
		}
	})
}
