package node

import (
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/gossip"
)

// The status of a member that was heard is that of gossip, and of one that was not heard yet depends on its
// connection.
func TestWhoWasNotHeardYetIsWhatItsConnectionSays(t *testing.T) {
	for _, tc := range []struct {
		state            gossip.State
		heard, connected bool
		want             string
	}{
		{gossip.Alive, true, false, "alive"},
		{gossip.Suspect, true, true, "suspect"},
		{gossip.Down, true, true, "down"},
		{gossip.Suspect, false, true, "alive"}, // joined just now
		{gossip.Alive, false, true, "alive"},
		{gossip.Down, false, true, "suspect"}, // perhaps another program with its identity
		{gossip.Suspect, false, false, "suspect"},
		{gossip.Alive, false, false, "suspect"}, // it is waited for
		{gossip.Down, false, false, "down"},     // in vain
	} {
		if got := seems(tc.state, tc.heard, tc.connected); got != tc.want {
			t.Errorf("%s, heard %t, connected %t: %s, want %s", tc.state, tc.heard, tc.connected, got, tc.want)
		}
	}
}
