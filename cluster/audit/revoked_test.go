package audit

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// RevokedKeys returns the keys of an account that were revoked within 30 days, the newest first, with time and actor.
// It has no keys of others or of an earlier account with the same address.
func TestRevokedKeys(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	st := clustertest.New(t, clustertest.Setup{Nodes: clustertest.Members("n1")})
	st.Apply(t, &state.RaiseLevel{FeatureLevel: state.NewestFeatureLevel})
	l := New(Options{State: st, Now: func() time.Time { return now }})
	open := func(id state.AccountID, email string, created time.Time) {
		st.Apply(t, &state.OpenAccount{Account: state.Account{ID: id, Email: email, Created: state.MillisOf(created)}, Allowance: state.Unlimited})
	}
	revoke := func(id state.KeyID, of state.AccountID, name string, at time.Time, by state.Actor) {
		st.Apply(t, &state.CreateKey{Key: state.APIKey{ID: id, Account: of, Name: name, Scope: []string{state.ScopeRead, state.ScopeWrite}}})
		st.Apply(t, &state.Audited{By: by, At: state.MillisOf(at), Change: &state.RevokeKey{ID: id}})
	}
	operator := state.Actor{Kind: state.ActorOperator}
	open("old", "ann@example.org", now.Add(-20*24*time.Hour))
	revoke("k0", "old", "of an earlier account", now.Add(-3*time.Hour), operator)
	st.Apply(t, &state.CloseAccount{Account: "old"})
	open("ann", "ann@example.org", now.Add(-2*time.Hour))
	open("joann", "joann@example.org", now.Add(-50*24*time.Hour))
	revoke("k1", "joann", "of long ago", now.Add(-31*24*time.Hour), operator)
	revoke("k2", "joann", "ann@example.org, laptop", now.Add(-time.Hour), operator)
	revoke("k3", "ann", "a, b", now.Add(-time.Minute), operator)
	revoke("k4", "ann", "", now, state.Actor{Kind: state.ActorSession, Account: "ann", Email: "ann@example.org"})
	for account, want := range map[state.AccountID][]RevokedKey{
		"ann": {
			{"k4", "", "storage:read storage:write", now, "ann@example.org"},
			{"k3", "a, b", "storage:read storage:write", now.Add(-time.Minute), "operator"},
		},
		"joann": {{"k2", "ann@example.org, laptop", "storage:read storage:write", now.Add(-time.Hour), "operator"}},
	} {
		got, err := l.RevokedKeys(t.Context(), account, 10)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %+v, %v", account, got, err)
		}
		for i := range want {
			same := got[i].Since.Equal(want[i].Since)
			got[i].Since = want[i].Since
			if !same || got[i] != want[i] {
				t.Errorf("%s: %+v, want %+v", account, got[i], want[i])
			}
		}
	}
	if got, err := l.RevokedKeys(t.Context(), "ann", 1); err != nil || len(got) != 1 || got[0].ID != "k4" {
		t.Errorf("one: %+v, %v", got, err)
	}
	if _, err := l.RevokedKeys(t.Context(), "old", 1); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("a closed account: %v", err)
	}
}
