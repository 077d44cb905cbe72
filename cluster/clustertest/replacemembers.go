package clustertest

import (
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// ReplaceMembers applies v, as a restore of a backup does while the node is stopped. It fails the
// test if v is rejected.
func (s *State) ReplaceMembers(tb testing.TB, v state.ReplaceMembers) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := &transaction{snapshot: snapshot{s.root, s.reads, nil}, seed: s.seed}
	if _, err := v.Apply(tx, s.index+1); err != nil {
		tb.Fatal(err)
	}
	s.root, s.index = tx.root, s.index+1
}
