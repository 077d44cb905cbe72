package state

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func identity(account AccountID, subject string) Identity {
	return Identity{Issuer: "https://id.example", Subject: subject, Account: account, Email: string(account) + "@example.org", Linked: 5}
}

func (m *machine) identities(account AccountID) (subjects []string) {
	m.t.Helper()
	all, err := m.view().Identities(account)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, v := range all {
		subjects = append(subjects, v.Subject)
	}
	slices.Sort(subjects)
	return subjects
}

// begins returns a session of an account that an identity or a link begins.
func begins(account AccountID, id SessionID, by IdentityID, link LinkID) *BeginSession {
	return &BeginSession{Session: Session{ID: id, Account: account, Created: 10, Expires: 1010, Idle: 100}, Identity: by, Link: link}
}

// An identity belongs to one account, begins sessions of that account only, and is removed by that account only.
// It stays if it is the only way to sign in. An account has at most MaxIdentities identities.
func TestAnIdentityIsOfOneAccount(t *testing.T) {
	m := signedIn(t)
	first, second := identity(bob, "1"), identity(bob, "2")
	m.must(&LinkIdentity{first})
	m.must(&LinkIdentity{first}) // the same again
	before := m.rows()
	large := first
	large.Subject = string(make([]byte, maxSubject+1))
	other := identity(alice, "1")
	for name, tc := range map[string]struct {
		cmd  Command
		want error
	}{
		"of another account":        {&LinkIdentity{other}, ErrExists},
		"of no account":             {&LinkIdentity{identity("nobody", "3")}, ErrNotFound},
		"without a subject":         {&LinkIdentity{identity(bob, "")}, ErrInvalid},
		"too large":                 {&LinkIdentity{large}, ErrInvalid},
		"another's session":         {begins(alice, "s", first.ID(), ""), ErrUnauthorized},
		"a session of none":         {begins(bob, "s", second.ID(), ""), ErrUnauthorized},
		"a session by nothing":      {begins(bob, "s", "", ""), ErrNotFound},
		"another's is removed":      {&UnlinkIdentity{alice, first.ID()}, ErrNotFound},
		"none is removed":           {&UnlinkIdentity{bob, second.ID()}, ErrNotFound},
		"the only way is removed":   {&UnlinkIdentity{bob, first.ID()}, ErrForbidden},
		"an account of its address": {&SignUp{Account: Account{ID: "new", Email: "bob@example.org"}, Identity: identity("new", "9")}, ErrExists},
		"an account of its subject": {&SignUp{Account: Account{ID: "new", Email: "new@example.org"}, Identity: identity("new", "1")}, ErrExists},
		"an account of another":     {&SignUp{Account: Account{ID: "new", Email: "new@example.org"}, Identity: identity("bob", "9")}, ErrInvalid},
		"an account by nothing":     {&SignUp{Account: Account{ID: "new", Email: "new@example.org"}}, ErrInvalid},
		"an account by no link":     {&SignUp{Account: Account{ID: "new", Email: "new@example.org"}, Link: "none"}, ErrNotFound},
	} {
		if _, err := m.apply(tc.cmd); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !slices.Equal(m.rows(), before) {
		t.Error("what was refused has changed something")
	}
	m.must(begins(bob, "s1", first.ID(), ""))
	m.must(&LinkIdentity{second})
	m.must(&UnlinkIdentity{bob, first.ID()})
	if got := m.identities(bob); !slices.Equal(got, []string{"2"}) {
		t.Errorf("bob has %q", got)
	}
	if _, err := m.view().Identity(first.ID()); !errors.Is(err, ErrNotFound) {
		t.Errorf("an identity that was removed: %v", err)
	}
	m.must(&LinkIdentity{other}) // it is free now
	m.must(&UnlinkIdentity{alice, other.ID()})
	for i := range MaxIdentities {
		m.must(&LinkIdentity{identity(alice, fmt.Sprint("a", i))})
	}
	if _, err := m.apply(&LinkIdentity{identity(alice, "more")}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("more than the most: %v", err)
	}
	m.must(&CloseAccount{Account: bob})
	if rows := m.rows(tableIdentity, tableIdentityOf); len(rows) != 2*MaxIdentities {
		t.Errorf("after an account was closed there are %d rows of identities", len(rows))
	}
}

// SignUp opens an account with the given allowance and role, and its identity begins sessions of that account.
func TestAPersonSignsUp(t *testing.T) {
	m := signedIn(t)
	ann := Account{ID: "ann", Email: "ann@example.org", Created: 1}
	m.must(&SignUp{Account: ann, Allowance: 7, Identity: identity("ann", "1"), Admin: true})
	if q, err := m.view().Quota("ann"); err != nil || q.Allowance != 7 {
		t.Errorf("the quota is %+v, %v", q, err)
	}
	if admin, err := m.view().Admin("ann"); err != nil || !admin {
		t.Errorf("an administrator: %v, %v", admin, err)
	}
	m.must(begins("ann", "s1", (&Identity{Issuer: "https://id.example", Subject: "1"}).ID(), ""))
}

func invitation(id LinkID, email string, expires Millis) OneTimeLink {
	return OneTimeLink{ID: id, Purpose: ForSignUp, Email: email, Expires: expires}
}

// A one-time link works once and for what it was made; a new one for the same takes its place.
func TestALinkWorksOnce(t *testing.T) {
	m := signedIn(t)
	proof := PasswordProof("hash")
	m.must(&AddOneTimeLink{Link: invitation("i1", "ann@example.org", 100)})
	m.must(&AddOneTimeLink{Link: invitation("i2", "ann@example.org", 100)})
	m.must(&AddOneTimeLink{Link: OneTimeLink{ID: "p1", Purpose: ForPassword, Account: alice, Proof: proof, Expires: 100}})
	m.must(&AddOneTimeLink{Link: OneTimeLink{ID: "s1", Purpose: ForSession, Account: alice, Proof: proof, Expires: 100}})
	ann := Account{ID: "ann", Email: "ann@example.org", PasswordHash: "h", Created: 1}
	eve := Account{ID: "eve", Email: "eve@example.org", Created: 1}
	before := m.rows()
	for name, tc := range map[string]struct {
		cmd  Command
		want error
	}{
		"one that was replaced":         {&SignUp{Account: ann, Link: "i1"}, ErrNotFound},
		"of another address":            {&SignUp{Account: eve, Link: "i2"}, ErrNotFound},
		"for a password":                {&SignUp{Account: ann, Link: "p1"}, ErrNotFound},
		"an invitation for a password":  {&ResetPassword{Link: "i2", Account: alice, Hash: "x"}, ErrNotFound},
		"of another account":            {&ResetPassword{Link: "p1", Account: bob, Hash: "x"}, ErrNotFound},
		"no password":                   {&ResetPassword{Link: "p1", Account: alice}, ErrInvalid},
		"a session by the wrong link":   {begins(alice, "s", "", "p1"), ErrNotFound},
		"a session of another account":  {begins(bob, "s", "", "s1"), ErrNotFound},
		"an invitation of who is there": {&AddOneTimeLink{Link: invitation("i3", "bob@example.org", 100)}, ErrExists},
		"a link of nobody":              {&AddOneTimeLink{Link: OneTimeLink{ID: "x", Purpose: ForPassword, Account: "nobody", Expires: 1}}, ErrNotFound},
		"a link for nothing":            {&AddOneTimeLink{Link: OneTimeLink{ID: "x", Account: alice, Expires: 1}}, ErrInvalid},
		"a link for both":               {&AddOneTimeLink{Link: OneTimeLink{ID: "x", Purpose: ForSignUp, Email: "a@b", Account: alice, Expires: 1}}, ErrInvalid},
		"a link without an end":         {&AddOneTimeLink{Link: invitation("x", "x@example.org", 0)}, ErrInvalid},
	} {
		if _, err := m.apply(tc.cmd); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !slices.Equal(m.rows(), before) {
		t.Error("what was refused has changed something")
	}
	m.must(begins(alice, "session", "", "s1"))
	if _, err := m.apply(begins(alice, "again", "", "s1")); !errors.Is(err, ErrNotFound) {
		t.Errorf("a second session: %v", err)
	}
	m.must(&SignUp{Account: ann, Link: "i2"})
	if _, err := m.view().OneTimeLink("i2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an invitation that was used: %v", err)
	}
	m.must(&ResetPassword{Link: "p1", Account: alice, Hash: "changed"})
	if a, err := m.view().Account(alice); err != nil || a.PasswordHash != "changed" || len(m.sessions()) != 0 {
		t.Errorf("alice is %+v with %q, %v", a, m.sessions(), err)
	}
	if rows := m.rows(tableOneTime); len(rows) != 0 {
		t.Errorf("%d links are left", len(rows))
	}
}

// Links that can be used are listed, and one that is removed opens nothing.
func TestALinkIsRemoved(t *testing.T) {
	m := signedIn(t)
	for _, l := range []OneTimeLink{
		invitation("i", "ann@example.org", 100),
		{ID: "p", Purpose: ForPassword, Account: bob, Proof: PasswordProof(""), Expires: 100},
		{ID: "over", Purpose: ForPassword, Account: alice, Proof: PasswordProof("another"), Expires: 100},
	} {
		m.must(&AddOneTimeLink{Link: l})
	}
	listed := func() (ids []LinkID) {
		t.Helper()
		all, err := m.view().OneTimeLinks()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			ids = append(ids, l.ID)
		}
		return ids
	}
	if got := listed(); !slices.Equal(got, []LinkID{"i", "p"}) {
		t.Errorf("the links are %q", got)
	}
	m.must(&RemoveOneTimeLink{ID: "p"})
	if got := listed(); !slices.Equal(got, []LinkID{"i"}) {
		t.Errorf("after one was removed they are %q", got)
	}
	for _, cmd := range []Command{&RemoveOneTimeLink{ID: "p"}, &RemoveOneTimeLink{ID: "x"}, &ResetPassword{Link: "p", Account: bob, Hash: "x"}} {
		if _, err := m.apply(cmd); !errors.Is(err, ErrNotFound) {
			t.Errorf("%T: %v", cmd, err)
		}
	}
}

// A one-time link ends with another password of its account, with the account, and with its own time. Without room
// for another link, AddOneTimeLink is rejected.
func TestWhatEndsALink(t *testing.T) {
	m := signedIn(t)
	add := func(id LinkID, account AccountID, hash string) {
		m.must(&AddOneTimeLink{Link: OneTimeLink{ID: id, Purpose: ForPassword, Account: account, Proof: PasswordProof(hash), Expires: 100}})
	}
	add("a", alice, "hash")
	add("b", bob, "")
	m.must(&SetPassword{Account: alice, Hash: "changed"})
	if _, err := m.view().OneTimeLink("a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("after the password has changed: %v", err)
	}
	if _, err := m.apply(&ResetPassword{Link: "a", Account: alice, Hash: "x"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("after the password has changed: %v", err)
	}
	m.must(&CloseAccount{Account: bob})
	if rows := m.rows(tableOneTime); len(rows) != 1 {
		t.Errorf("after an account was closed there are %d links", len(rows))
	}
	for i := range MaxOneTimeLinks - 1 {
		m.must(&AddOneTimeLink{Link: invitation(LinkID(fmt.Sprint("i", i)), fmt.Sprint(i, "@example.org"), 100)})
	}
	more := &AddOneTimeLink{Link: invitation("more", "more@example.org", 200), Over: 99}
	if _, err := m.apply(more); !errors.Is(err, ErrTooLarge) {
		t.Errorf("more than the most: %v", err)
	}
	more.Over = 100
	m.must(more)
	if rows := m.rows(tableOneTime); len(rows) != 1 {
		t.Errorf("after their end there are %d links", len(rows))
	}
}
