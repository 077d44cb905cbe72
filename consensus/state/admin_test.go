package state

import (
	"errors"
	"slices"
	"testing"
)

// OpenFirstAdmin opens an administrator only if there is none, and SetAdmin grants and withdraws the role. A
// closed account is no administrator.
func TestAdministrators(t *testing.T) {
	s := shelved(t, Unlimited)
	is := func(id AccountID) bool {
		t.Helper()
		admin, err := s.view().Admin(id)
		if err != nil {
			t.Fatal(err)
		}
		return admin
	}
	first := Account{ID: "ada", Email: "ada@example.org", Created: 1}
	s.must(&OpenFirstAdmin{Account: first, Allowance: 7})
	if !is("ada") || is(bob) {
		t.Errorf("administrators: ada %v, bob %v", is("ada"), is(bob))
	}
	second := Account{ID: "eve", Email: "eve@example.org", Created: 1}
	if _, err := s.apply(&OpenFirstAdmin{Account: second}); !errors.Is(err, ErrExists) || is("eve") {
		t.Errorf("a second first one: %v", err)
	}
	s.must(&SetAdmin{Account: bob, Admin: true})
	s.must(&SetAdmin{Account: "ada"})
	if is("ada") || !is(bob) {
		t.Errorf("administrators: ada %v, bob %v", is("ada"), is(bob))
	}
	if _, err := s.apply(&SetAdmin{Account: "nobody", Admin: true}); !errors.Is(err, ErrNotFound) {
		t.Errorf("an account that is not there: %v", err)
	}
	s.must(&CloseAccount{Account: bob})
	s.check()
	if there, err := s.view().AnyAdmin(); err != nil || there {
		t.Errorf("after the last one was closed there is one: %v, %v", there, err)
	}
}

// Users can close their own accounts, except the account of local commands and that of the only administrator.
func TestAPersonClosesTheOwnAccount(t *testing.T) {
	s := shelved(t, Unlimited)
	refused := func(id AccountID) {
		t.Helper()
		before := s.rows()
		if _, err := s.apply(&CloseOwnAccount{Account: id}); !errors.Is(err, ErrForbidden) || !errors.Is(s.view().MayClose(id), ErrForbidden) || !slices.Equal(s.rows(), before) {
			t.Errorf("%s: %v", id, err)
		}
	}
	refused(alice) // local commands act as alice
	s.must(&OpenFirstAdmin{Account: Account{ID: "ada", Email: "ada@example.org", Created: 1}})
	refused("ada")
	s.must(&SetAdmin{Account: bob, Admin: true})
	s.must(&CloseOwnAccount{Account: "ada"})
	s.check()
	refused(bob)
	s.must(&SetAdmin{Account: bob})
	s.must(&CloseOwnAccount{Account: bob})
	s.check()
	for _, id := range []AccountID{"ada", bob} {
		if _, err := s.view().Account(id); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s is still there: %v", id, err)
		}
		if _, err := s.apply(&CloseOwnAccount{Account: id}); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s again: %v", id, err)
		}
	}
}

// A setting does not give back the administrator role that an operator has withdrawn, not even to a later account
// with the same address. An operator can grant the role again.
func TestATakenAdministratorStaysTaken(t *testing.T) {
	s := shelved(t, Unlimited)
	is := func(id AccountID, want bool) {
		t.Helper()
		if got, err := s.view().Admin(id); err != nil || got != want {
			t.Errorf("%s is an administrator: %t, %v", id, got, err)
		}
	}
	b, err := s.view().Account(bob)
	if err != nil {
		t.Fatal(err)
	}
	bySetting := &DecideAdmin{Account: bob, Admin: true, BySetting: true}
	s.must(bySetting)
	is(bob, true)
	s.must(&DecideAdmin{Account: bob})
	is(bob, false)
	s.must(bySetting)
	is(bob, false)
	s.must(&CloseAccount{Account: bob})
	again := Account{ID: "bob2", Email: b.Email, Created: 5}
	s.must(&SignUp{Account: again, Identity: Identity{Issuer: "https://id.example", Subject: "b", Account: again.ID, Email: b.Email}, Admin: true})
	is(again.ID, false)
	if taken, err := s.view().AdminTaken(b.Email); err != nil || !taken {
		t.Errorf("taken: %t, %v", taken, err)
	}
	s.must(&DecideAdmin{Account: again.ID, Admin: true})
	is(again.ID, true)
	s.must(&SetAdmin{Account: again.ID}) // of a node before it knew DecideAdmin
	s.must(&DecideAdmin{Account: again.ID, Admin: true, BySetting: true})
	is(again.ID, true)
	s.check()
	for want, cmd := range map[error]*DecideAdmin{ErrNotFound: {Account: "nobody", Admin: true}, ErrInvalid: {Account: again.ID, BySetting: true}} {
		if _, err := s.apply(cmd); !errors.Is(err, want) {
			t.Errorf("%+v: %v", cmd, err)
		}
	}
	is(again.ID, true)
}
