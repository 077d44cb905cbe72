package state

import (
	"errors"
	"testing"
)

// The first administrator is opened once. An account that is closed is none, and one that is opened
// later with its id is none either.
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
