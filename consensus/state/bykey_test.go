package state

import (
	"errors"
	"testing"
)

// Only a key of the account that may write and is not revoked changes pins. Any other key gets ErrUnauthorized,
// whatever the change would be answered without a key.
func TestOnlyALivingKeyOfTheAccountChangesItsPins(t *testing.T) {
	m := found(t)
	for _, k := range []APIKey{
		{ID: "writes", Account: alice, Scope: []string{ScopeRead, ScopeWrite}, Created: 1},
		{ID: "reads", Account: alice, Scope: []string{ScopeRead}, Created: 1},
		{ID: "bob's", Account: bob, Scope: []string{ScopeWrite}, Created: 1},
		{ID: "revoked", Account: alice, Scope: []string{ScopeWrite}, Created: 1},
	} {
		m.must(&CreateKey{Key: k})
	}
	m.must(&RevokeKey{ID: "revoked"})
	m.must(create(alice, "there", contentA))
	for _, change := range []struct {
		name string
		cmd  Command
		then string // what is left of the pins "there" and "new"
	}{
		{"create", create(alice, "new", contentB), "queued queued"},
		{"replace", replace(alice, "there", "new", contentB), "gone queued"},
		{"delete", &DeletePin{Account: alice, ID: "there"}, "gone gone"},
		// What it would be answered without a key tells nothing either.
		{"delete what is not there", &DeletePin{Account: alice, ID: "absent"}, ""},
	} {
		t.Run(change.name, func(t *testing.T) {
			for _, key := range []KeyID{"reads", "bob's", "revoked", "unknown", ""} {
				if _, err := m.apply(&ByKey{Key: key, Change: change.cmd}); !errors.Is(err, ErrUnauthorized) {
					t.Errorf("key %q: %v", key, err)
				}
				if m.status(alice, "there") != "queued" || m.status(alice, "new") != "gone" {
					t.Errorf("key %q has changed a pin", key)
				}
			}
			fork := &machine{memory: m.fork(), t: m.t, index: m.index, op: m.op}
			_, err := fork.apply(&ByKey{Key: "writes", Change: change.cmd})
			if change.then == "" {
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("a living key: %v", err)
				}
				return
			}
			if got := fork.status(alice, "there") + " " + fork.status(alice, "new"); err != nil || got != change.then {
				t.Errorf("a living key: %s, %v, want %s", got, err, change.then)
			}
		})
	}
}
