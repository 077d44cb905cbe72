package state

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// audits are changes of every form of Audited, in an order in which all of them take effect, and
// what their rows say.
func audits() []struct {
	change         Command
	action         Action
	target, detail string
} {
	bucket := func() Bucket { return Bucket{Account: alice, Name: "one", Created: 1, Public: true} }
	born := Incarnation(0) // the test fills it in
	link := func(purpose LinkPurpose, id LinkID, email string, account AccountID, proof Hash) *AddOneTimeLink {
		return &AddOneTimeLink{Link: OneTimeLink{ID: id, Purpose: purpose, Email: email, Account: account, Proof: proof, Expires: 999}}
	}
	dave := identity(bob, "1")
	return []struct {
		change         Command
		action         Action
		target, detail string
	}{
		{&RotateSigningKey{Sealed: []byte("sealed")}, ActionSigningKey, "", ""},
		{session("s1", 10), ActionSessionCreate, "alice", "alice@example.org"},
		{&CreateKey{Key: APIKey{ID: "k1", Account: alice, Name: "laptop", Scope: []string{ScopeRead}}}, ActionKeyCreate, "k1", "alice@example.org, laptop, storage:read"},
		{&NoteKeyShown{"k1"}, ActionKeyShow, "k1", "alice@example.org, laptop, storage:read"},
		{&ByKey{Key: "k1", Change: &CreateBucket{bucket()}}, ActionBucketCreate, "alice/one", "public"},
		{&SetBucketCors{Account: alice, Bucket: "one", Born: born, Cors: Cors{Rules: []CorsRule{{Origins: []string{"*"}, Methods: []string{"GET"}, MaxAge: -1}}}}, ActionBucketCors, "alice/one", "1 rules"},
		{&BySession{Session: "s1", Change: &SetBucketPublic{Account: alice, Name: "one", Born: born}}, ActionBucketPublic, "alice/one", "private"},
		{&SetBucketPublic{Account: alice, Name: "one", Born: born, Public: true}, ActionBucketPublic, "alice/one", "public"},
		{
			&CreateShare{Share: testShare("photos/")}, ActionShareCreate, "alice/one",
			"share 0123456789abcdef0123456789abcdef, for Ann, read write",
		},
		{&NoteKeyShown{"sharekey"}, ActionKeyShow, "alice/one", "share 0123456789abcdef0123456789abcdef, for Ann, read write"},
		{
			&RevokeShare{Account: alice, Bucket: "one", ID: "0123456789abcdef0123456789abcdef"}, ActionShareRevoke, "alice/one",
			"share 0123456789abcdef0123456789abcdef, for Ann, read write",
		},
		{&DeleteBucket{Account: alice, Name: "one", Born: born}, ActionBucketDelete, "alice/one", ""},
		{&CreateBucket{Bucket{Account: alice, Name: "two", Created: 1}}, ActionBucketCreate, "alice/two", ""},
		{&RevokeKey{ID: "k1"}, ActionKeyRevoke, "k1", "alice@example.org, laptop, storage:read"},
		{&EndSession{"s1"}, ActionSessionEnd, "s1", "alice@example.org"},
		{&CreateAccount{Account{ID: "c", Email: "c@example.org"}}, ActionUserCreate, "c", "c@example.org"},
		{&OpenAccount{Account: Account{ID: "d", Email: "d@example.org"}, Allowance: 5}, ActionUserCreate, "d", "d@example.org, 5 bytes"},
		{&OpenFirstAdmin{Account: Account{ID: "e", Email: "e@example.org"}}, ActionUserCreate, "e", "e@example.org, administrator"},
		{
			&EndContent{Account: "d", Now: 9, Grace: 2, Items: []Ending{{Created: 1_700_000_000_000, Pin: "p"}}}, ActionUserDry, "d",
			"d@example.org, no credits: content ended, 1 pins, created from 2023-11-14 22:13:20 to 2023-11-14 22:13:20, 0 bytes",
		},
		{link(ForSignUp, "l1", "f@example.org", "", Hash{}), ActionUserLink, "f@example.org", "invitation"},
		{&SignUp{Account: Account{ID: "f", Email: "f@example.org"}, Link: "l1"}, ActionUserCreate, "f", "f@example.org"},
		{&SetQuota{Account: "d", Allowance: 3 << 29}, ActionUserQuota, "d", "d@example.org, 1536 MiB"},
		{&SetQuota{Account: "d", Allowance: Unlimited}, ActionUserQuota, "d", "d@example.org, no limit"},
		{&GrantCredits{Posting{ID: "p", Account: "d", Credits: 7}}, ActionUserCredits, "d", "d@example.org, 7 credits"},
		{
			&PostCredits{Posting{ID: "q", Account: "d", Kind: Correction, Credits: 2, Takes: true, Corrects: "p", Note: "5 were meant"}}, ActionUserCredits, "d",
			"d@example.org, correction of -2 credits, 5 were meant",
		},
		{&SetAdmin{Account: "d", Admin: true}, ActionUserAdmin, "d", "d@example.org, administrator"},
		{&SetPassword{Account: bob, Hash: "canary-hash"}, ActionUserPassword, "bob", "bob@example.org"},
		{link(ForPassword, "canary-link", "", bob, PasswordProof("canary-hash")), ActionUserLink, "bob", "bob@example.org, new password"},
		{link(ForPassword, "l3", "", "d", Hash{}), ActionUserLink, "d", "d@example.org, new password"},
		{&RemoveOneTimeLink{"l3"}, ActionUserLinkEnd, "d", "d@example.org, new password"},
		{&DecideAdmin{Account: "d"}, ActionUserAdmin, "d", "d@example.org, no longer administrator"},
		{&ResetPassword{Link: "canary-link", Account: bob, Hash: "canary-hash-2"}, ActionUserPassword, "bob", "bob@example.org, by a one-time link"},
		{&SetDisabled{Account: bob, On: true, At: 9}, ActionUserDisable, "bob", "bob@example.org"},
		{&SetDisabled{Account: bob, At: 9}, ActionUserEnable, "bob", "bob@example.org"},
		{&LinkIdentity{dave}, ActionUserIdentity, "bob", "bob@example.org, https://id.example"},
		{begins(bob, "s2", dave.ID(), ""), ActionSessionCreate, "bob", "bob@example.org"},
		{&UnlinkIdentity{bob, dave.ID()}, ActionUserUnlink, "bob", "bob@example.org"},
		{&CreateTicket{Ticket: Ticket{ID: "ticket", Created: 1, Expires: 1000}}, ActionMemberToken, "ticket", "valid until 1970-01-01 00:00:01"},
		{&JoinNode{Node: Node{ID: "n2", Name: "second", FeatureLevel: NewestFeatureLevel}, Ticket: "ticket"}, ActionMemberJoin, "n2", "second"},
		{&SetDrain{Node: "n2", On: true}, ActionMemberDrain, "n2", "second, begun"},
		{&SetDrain{Node: "n2"}, ActionMemberDrain, "n2", "second, ended"},
		{&RemoveNode{ID: "n2"}, ActionMemberRemove, "n2", "second"},
		{&AddApp{App{Name: "app", Redirects: []string{"myapp://done"}, Scope: []string{ScopeRead}}}, ActionAppCreate, "app", "myapp://done"},
		{&RemoveApp{"app"}, ActionAppRemove, "app", ""},
		{&CloseAccount{bob}, ActionUserDelete, "bob", "bob@example.org"},
		{&CloseOwnAccount{"d"}, ActionUserDelete, "d", "d@example.org, by its owner"},
	}
}

// Every audited change leaves one row of the audit log, with the right fields and without a secret. A rejected
// change leaves none.
func TestEachAuditedChangeLeavesOneRow(t *testing.T) {
	m := signedIn(t)
	if first := m.entries(); len(first) != 2 || first[0].Action != ActionClusterCreate || first[0].Target != "c" || first[0].Detail != "alice@example.org" {
		t.Errorf("founding a cluster leaves %+v", first)
	}
	covered := map[reflect.Type]bool{}
	for i, tc := range audits() {
		covered[reflect.TypeOf(tc.change)] = true
		bornOf(t, m, tc.change)
		before := len(m.entries())
		at := Millis(1000 + i)
		m.must(&Audited{By: admin, At: at, Change: tc.change})
		rows := m.entries()
		if len(rows) != before+1 {
			t.Fatalf("%T left %d rows", tc.change, len(rows)-before)
		}
		want := AuditRow{Seq: uint64(before + 1), At: at, Actor: admin, Action: tc.action, Target: tc.target, Detail: tc.detail, Count: 1}
		if got := rows[before].AuditRow; got != want {
			t.Errorf("%T left\n%+v, not\n%+v", tc.change, got, want)
		}
		kept := m.rows()
		if _, err := m.apply(&Audited{By: admin, At: at, Change: tc.change}); err != nil && !slices.Equal(m.rows(), kept) {
			t.Errorf("%T was refused and left a row", tc.change)
		}
		m.wantAuditChain()
		m.restore(kept)
	}
	for _, empty := range auditForms[1:] {
		if !covered[reflect.TypeOf(empty())] {
			t.Errorf("%T is not tested here", empty())
		}
	}
	for _, r := range m.rows(tableAudit) {
		if strings.Contains(r.value, "canary") {
			t.Errorf("a secret is in %q", r.value)
		}
	}
}

// restore puts a store back to the rows that it had.
func (m *machine) restore(rows []row) {
	for _, r := range m.rows() {
		_ = m.Delete([]byte(r.key))
	}
	for _, r := range rows {
		_ = m.Set([]byte(r.key), []byte(r.value))
	}
}

// bornOf fills in the incarnation of the bucket that a change names.
func bornOf(t *testing.T, m *machine, change Command) {
	t.Helper()
	if of, ends := change.(*EndContent); ends {
		p := of.Items[0]
		m.must(&CreatePin{Pin: Pin{ID: p.Pin, Account: of.Account, CID: contents[0], Created: p.Created}, Nodes: []NodeID{"n1"}})
		m.stores(of.Account, 1)
		set(t, m.memory, dryKey(of.Account), []byte{7: 7})
	}
	b, err := findBucket(m, alice, "one")
	if err != nil {
		t.Fatal(err)
	}
	if b == nil {
		return
	}
	if by, ok := change.(*BySession); ok {
		change = by.Change
	}
	switch c := change.(type) {
	case *SetBucketPublic:
		c.Born = b.Born
	case *SetBucketCors:
		c.Born = b.Born
	case *DeleteBucket:
		c.Born = b.Born
	case *CreateShare:
		c.Share.Born = b.Born
	case *RevokeShare:
		c.Born = b.Born
	}
}

// An audited change without an Audited wrapper leaves a row with the caller that the command itself names. A
// sign-in and a sign-out have their session as the actor. A repeat, a rejected change and any change below
// AuditLevel leave no row.
func TestAnUnwrappedChangeLeavesARowToo(t *testing.T) {
	m := signedIn(t)
	m.must(session("s1", 10))
	m.must(by(5, &SetQuota{Account: bob, Allowance: 1}))
	m.must(&BySession{Session: "s1", Change: &CreateBucket{Bucket{Account: alice, Name: "one", Created: 1}}})
	m.must(&AddApp{App{Name: "app", Redirects: []string{"myapp://done"}, Scope: []string{ScopeRead}}})
	rows := m.entries()
	last := rows[len(rows)-2]
	if want := (Actor{Kind: ActorSession, Account: alice, Email: "alice@example.org", Session: "s1"}); last.Actor != want || last.At != 5 {
		t.Errorf("%+v", last)
	}
	if last := rows[len(rows)-1]; last.Actor != (Actor{}) || last.Action != ActionAppCreate {
		t.Errorf("%+v", last)
	}
	anonymous := session("s3", 10)
	m.must(&Audited{By: Actor{Kind: ActorAnonymous, Addr: "192.0.2.7"}, At: 6, Change: anonymous})
	rows = m.entries()
	want := Actor{Kind: ActorAnonymous, Account: alice, Email: "alice@example.org", Session: "s3", Addr: "192.0.2.7"}
	if got := rows[len(rows)-1].Actor; got != want {
		t.Errorf("a sign-in has the actor %+v", got)
	}
	m.must(&Audited{By: Actor{Kind: ActorAnonymous, Addr: "192.0.2.7"}, At: 6, Change: &EndSession{"s1"}})
	rows = m.entries()
	want = Actor{Kind: ActorSession, Account: alice, Email: "alice@example.org", Session: "s1", Addr: "192.0.2.7"}
	if got := rows[len(rows)-1].Actor; got != want {
		t.Errorf("a sign-out by a token has the actor %+v", got)
	}
	n := len(rows)
	m.must(by(7, session("s3", 10))) // the same again changes nothing
	if _, err := m.apply(by(8, &RevokeKey{ID: "none"})); err == nil || len(m.entries()) != n {
		t.Errorf("%v, and %d rows more", err, len(m.entries())-n)
	}
	old := found(t)
	old.must(&RaiseLevel{FeatureLevel: AuditLevel - 1})
	old.must(&SetQuota{Account: bob, Allowance: 1})
	if rows := old.rows(tableAudit); len(rows) > 0 {
		t.Errorf("below level %d there are rows: %v", AuditLevel, rows)
	}
}

// Commands that are not audited neither read nor write the audit log.
func TestOtherChangesCostNothingMore(t *testing.T) {
	m := signedIn(t)
	m.must(&SetQuota{Account: bob, Allowance: Unlimited})
	before := m.rows(tableAudit)
	meta, err := readAuditHead(m)
	if err != nil {
		t.Fatal(err)
	}
	touched := &touching{memory: m.memory}
	for _, cmd := range []Command{create(bob, "p1", contents[0]), &ByKey{Key: "none", Change: &DeletePin{Account: bob, ID: "p1"}}, &NoteUses{}} {
		_, _ = run(touched, cmd, &entry{index: 50, settle: MaxSettle, fx: new(Effects)})
	}
	if touched.audit || !slices.Equal(m.rows(tableAudit), before) {
		t.Error("a pin touched the audit log")
	}
	if after, err := readAuditHead(m); err != nil || *after != *meta {
		t.Errorf("%+v, %v", after, err)
	}
}

// touching notices reads of the audit log.
type touching struct {
	*memory
	audit bool
}

func (m *touching) Get(key []byte) ([]byte, bool, error) {
	m.audit = m.audit || key[0] == tableAudit || string(key) == string(auditKey)
	return m.memory.Get(key)
}

// An Audited command without an audited change is not encoded, and one with an unknown form is not decoded.
func TestAuditedHasAnAuditedChange(t *testing.T) {
	for name, cmd := range map[string]*Audited{
		"none": {}, "a pin": {Change: &DeletePin{}}, "a pin by a key": {Change: &ByKey{Key: "k", Change: &DeletePin{Account: alice}}},
	} {
		c := codec.Encoder(nil)
		cmd.Code(c)
		if _, err := c.Finish(); err == nil {
			t.Errorf("%s is coded", name)
		}
	}
	for _, form := range []byte{0, byte(len(auditForms)), 255} {
		c := codec.Encoder(nil)
		by, at := Actor{}, Millis(1)
		by.Code(c)
		codec.Int(c, &at)
		codec.Uint(c, &form)
		b, err := c.Finish()
		if err != nil {
			t.Fatal(err)
		}
		d := codec.Decoder(b)
		new(Audited).Code(d)
		if _, err := d.Finish(); err == nil {
			t.Errorf("form %d is read", form)
		}
	}
}
