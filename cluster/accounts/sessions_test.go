package accounts

import (
	"errors"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// An account lists its sessions, ends one or all but one of them, and cannot end a session of another account.
func TestSessionsAreListedAndEnded(t *testing.T) {
	w, account := newUser(t)
	first, second, third := signIn(t, w.Accounts), signIn(t, w.Accounts), signIn(t, w.Accounts)
	id := func(token string) state.SessionID {
		p, err := w.Authenticate(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		return p.Session
	}
	ids := []state.SessionID{id(first), id(second), id(third)}
	if all, err := w.Sessions(t.Context(), account.ID); err != nil || len(all) != 3 {
		t.Fatalf("there are %d sessions, %v", len(all), err)
	}
	other := w.account(t, "eve@example.org")
	if err := w.EndSession(t.Context(), other.ID, ids[0]); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a session of another account: %v", err)
	}
	if err := w.EndSession(t.Context(), account.ID, ids[0]); err != nil || w.opens(t, w.Accounts, first) || !w.opens(t, w.Accounts, second) {
		t.Errorf("one session: %v", err)
	}
	if err := w.EndSession(t.Context(), account.ID, ids[0]); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a session that has ended: %v", err)
	}
	if err := w.EndSessions(t.Context(), account.ID, ids[2]); err != nil || w.opens(t, w.Accounts, second) || !w.opens(t, w.Accounts, third) {
		t.Errorf("all but one: %v", err)
	}
	w.pass(DefaultSessionLife)
	if all, err := w.Sessions(t.Context(), account.ID); err != nil || len(all) != 0 {
		t.Errorf("of sessions that are over %d are listed, %v", len(all), err)
	}
}
