package state

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// No credential of a disabled account works, and an account that is enabled again has everything back but its
// sessions.
func TestADisabledAccountIsRefusedEverywhere(t *testing.T) {
	m := shareable(t)
	first := identity(bob, "1")
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	m.must(&SetPassword{Account: bob, Hash: "hash"})
	m.must(&LinkIdentity{first})
	b := m.bucket(bob, "two")
	shared := testShare("photos/")
	shared.Account, shared.Bucket, shared.Born, shared.ID, shared.Key = bob, "two", b.Born, "fedcba9876543210fedcba9876543210", "bobshare"
	m.must(&CreateShare{Share: shared})
	m.must(&CreateKey{Key: APIKey{ID: "k", Account: bob, Scope: []string{ScopeRead, ScopeWrite}, Created: 1}})
	link := OneTimeLink{ID: "l", Purpose: ForPassword, Account: bob, Proof: PasswordProof("hash"), Expires: 99}
	m.must(&AddOneTimeLink{Link: link})
	begin := session("s", 10)
	begin.Session.Account = bob
	m.must(begin)
	m.must(begins(bob, "s2", first.ID(), ""))
	signIn := session("s3", 10)
	signIn.Session.Account = bob
	before := m.rows()

	m.must(&SetDisabled{Account: bob, On: true, At: 300})
	if !m.fx.Keys {
		t.Error("nobody is told that the keys are refused")
	}
	off := m.rows()
	later := link
	later.ID = "l2"
	for name, tc := range map[string]struct {
		cmd  Command
		want error
	}{
		"an API key":       {&ByKey{Key: "k", Change: create(bob, "p", contentA)}, ErrUnauthorized},
		"a share":          {&ByKey{Key: "bobshare", Change: &AbortUpload{Account: bob, Bucket: "two", Born: b.Born, Key: "photos/a", ID: "u"}}, ErrUnauthorized},
		"a session":        {&BySession{Session: "s", Change: create(bob, "p", contentA)}, ErrUnauthorized},
		"a password":       {signIn, ErrUnauthorized},
		"an identity":      {begins(bob, "s3", first.ID(), ""), ErrUnauthorized},
		"a one-time link":  {&ResetPassword{Link: "l", Account: bob, Hash: "other"}, ErrNotFound},
		"a new link":       {&AddOneTimeLink{Link: later}, ErrForbidden},
		"a new key":        {&CreateKey{Key: APIKey{ID: "k2", Account: bob, Scope: []string{ScopeRead}, Created: 1}}, ErrForbidden},
		"no time":          {&SetDisabled{Account: bob}, ErrInvalid},
		"nobody's account": {&SetDisabled{Account: "nobody", On: true, At: 1}, ErrNotFound},
	} {
		if _, err := m.apply(tc.cmd); !errors.Is(err, tc.want) || !slices.Equal(m.rows(), off) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.view().OneTimeLink("l"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the link: %v", err)
	}
	m.must(&SetDisabled{Account: bob, On: true, At: 301})
	if since, err := m.view().Disabled(bob); since != 300 || err != nil || !slices.Equal(m.rows(), off) {
		t.Errorf("disabled at %d, %v, after a second time", since, err)
	}
	m.must(&SetDisabled{Account: bob, At: 302})
	if m.fx.Keys {
		t.Error("to enable an account takes nothing away")
	}
	kept := func(rows []row) []row {
		return slices.DeleteFunc(rows, func(r row) bool {
			return slices.Contains([]byte{tableSession, tableSessionsOf, tableUse, tableAudit}, r.key[0]) || r.key == string(auditKey)
		})
	}
	if !slices.Equal(kept(m.rows()), kept(before)) {
		t.Error("an account that is enabled again is not as it was")
	}
	m.must(signIn)
	m.must(&ByKey{Key: "k", Change: create(bob, "p", contentA)})
	m.must(&SetDisabled{Account: bob, On: true, At: 303})
	m.must(&CloseAccount{Account: bob})
	if left := m.rows(tableDisabled); len(left) != 0 {
		t.Errorf("a closed account leaves %v", left)
	}
}

// The last enabled administrator, the account of local commands and the caller's own account cannot be disabled.
// The last enabled administrator cannot close the account either. So somebody can always sign in and enable
// accounts.
func TestAnAdministratorIsLeft(t *testing.T) {
	s := shelved(t, Unlimited)
	s.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	s.must(&OpenFirstAdmin{Account: Account{ID: "ada", Email: "ada@example.org", Created: 1}})
	disable := func(by, who AccountID) error {
		_, err := s.apply(&Audited{By: Actor{Kind: ActorSession, Account: by}, Change: &SetDisabled{Account: who, On: true, At: 5}})
		return err
	}
	for _, who := range []AccountID{alice, "ada", PaidAccount} { // local commands act as alice
		if err := disable(bob, who); err == nil || len(s.rows(tableDisabled)) != 0 {
			t.Errorf("%s: %v", who, err)
		}
	}
	s.must(&SetAdmin{Account: bob, Admin: true})
	if err := disable("ada", "ada"); !errors.Is(err, ErrForbidden) {
		t.Errorf("the own account: %v", err)
	}
	if err := disable("ada", bob); err != nil {
		t.Errorf("one of two administrators: %v", err)
	}
	if err := disable(bob, "ada"); !errors.Is(err, ErrForbidden) {
		t.Errorf("the last one who is not disabled: %v", err)
	}
	if err := s.view().MayClose("ada"); !errors.Is(err, ErrForbidden) {
		t.Errorf("the last one who is not disabled closes the account: %v", err)
	}
	s.must(&SetDisabled{Account: bob, At: 6})
	if err := s.view().MayClose("ada"); err != nil {
		t.Errorf("one of two closes the account: %v", err)
	}
}

// SetDisabled is ErrUnavailable below feature level DisableLevel, and works from that level on.
func TestAccountsAreDisabledFromOneLevelOn(t *testing.T) {
	m := signedIn(t)
	set(t, m.memory, levelKey, key(nil).u64(uint64(DisableLevel-1)))
	m.refused(&SetDisabled{Account: bob, On: true, At: 1}, ErrUnavailable)
	m.must(&RaiseLevel{FeatureLevel: DisableLevel})
	m.must(&SetDisabled{Account: bob, On: true, At: 1})
}

// After any history of keys, sessions and disabled accounts, exactly the credentials of accounts that
// are there and not disabled change something, and each command applied twice equals once.
func TestAnyHistoryOfDisabledAccounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := found(rt)
		m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
		people := []AccountID{alice, bob, "carl", "dora"}
		for _, a := range people[2:] {
			m.must(&OpenAccount{Account: Account{ID: a, Email: string(a) + "@example.org"}, Allowance: Unlimited})
		}
		for _, a := range people {
			m.must(&SetPassword{Account: a, Hash: "hash"})
		}
		w := &disabling{machine: m, keys: map[KeyID]AccountID{}, sessions: map[SessionID]AccountID{}, off: map[AccountID]bool{}}
		w.open = append(w.open, people...)
		for step := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			w.step(rt, step, rapid.SampledFrom(people).Draw(rt, "account"))
		}
	})
}

// disabling is a machine with what its accounts should have.
type disabling struct {
	*machine
	keys     map[KeyID]AccountID
	sessions map[SessionID]AccountID
	off      map[AccountID]bool
	open     []AccountID
}

// step draws one command about an account, applies it twice, and compares the outcome with what is
// expected.
func (w *disabling) step(rt *rapid.T, step int, a AccountID) {
	there := slices.Contains(w.open, a)
	var cmd Command
	var may bool
	then := func() {}
	switch rapid.IntRange(0, 6).Draw(rt, "kind") {
	case 0:
		id := KeyID(fmt.Sprintf("k%d", step))
		cmd, may = &CreateKey{Key: APIKey{ID: id, Account: a, Scope: []string{ScopeWrite}, Created: 1}}, there && !w.off[a]
		then = func() { w.keys[id] = a }
	case 1:
		begin := session(SessionID(fmt.Sprintf("s%d", step)), 10)
		begin.Session.Account = a
		cmd, may = begin, there && !w.off[a]
		then = func() { w.sessions[begin.Session.ID] = a }
	case 2:
		id := KeyID(fmt.Sprintf("k%d", rapid.IntRange(0, step).Draw(rt, "key")))
		owner := w.keys[id]
		cmd, may = &ByKey{Key: id, Change: create(a, RequestID(fmt.Sprintf("p%d", step)), contentA)}, owner == a && !w.off[a]
	case 3:
		id := SessionID(fmt.Sprintf("s%d", rapid.IntRange(0, step).Draw(rt, "session")))
		owner := w.sessions[id]
		cmd, may = &BySession{Session: id, Change: create(a, RequestID(fmt.Sprintf("p%d", step)), contentA)}, owner == a
	case 4:
		cmd, may = &SetDisabled{Account: a, On: true, At: 7}, there && a != alice // local commands act as alice
		then = func() {
			w.off[a] = true
			for id, owner := range w.sessions {
				if owner == a {
					delete(w.sessions, id)
				}
			}
		}
	case 5:
		cmd, may = &SetDisabled{Account: a, At: 8}, there
		then = func() { w.off[a] = false }
	case 6:
		if a != "dora" || !there {
			return
		}
		cmd, may = &CloseAccount{Account: a}, true
		then = func() {
			w.open, w.off[a] = slices.DeleteFunc(w.open, func(o AccountID) bool { return o == a }), false
			for id, owner := range w.keys {
				if owner == a {
					delete(w.keys, id)
				}
			}
			for id, owner := range w.sessions {
				if owner == a {
					delete(w.sessions, id)
				}
			}
		}
	}
	op := opOf(uint64(1000 + step))
	_, err := w.applyOp(op, cmd)
	if (err == nil) != may {
		rt.Fatalf("step %d: %+v: %v", step, cmd, err)
	}
	if err == nil {
		then()
	}
	rows := w.rows()
	if _, again := w.applyOp(op, cmd); (again == nil) != may || !slices.Equal(w.rows(), rows) {
		rt.Fatalf("step %d: %+v applied twice: %v", step, cmd, again)
	}
	for _, a := range []AccountID{alice, bob, "carl", "dora"} {
		if since, err := w.view().Disabled(a); err != nil || (since != 0) != w.off[a] {
			rt.Fatalf("step %d: %s is disabled at %d, %v", step, a, since, err)
		}
	}
}
