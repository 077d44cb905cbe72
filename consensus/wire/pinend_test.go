package wire

import (
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// pinEnds returns the commands of level 10 for pins with an end or a bound.
func pinEnds() []state.Command {
	until := state.Pin{
		ID: "request", Account: "account", Created: 1_700_000_000_000, Status: state.Queued, CID: content.String(), Until: 1_700_000_000_300, MaxBytes: 1 << 40,
	}
	bounded, ending := until, until
	bounded.Until, ending.MaxBytes = 0, 0
	return []state.Command{
		&state.EndPins{Now: 300},
		&state.CreatePin{Pin: until, Nodes: []state.NodeID{"node"}},
		&state.ReplacePin{Old: "old", Pin: bounded, Nodes: []state.NodeID{"node"}},
		&state.ByKey{Key: "jti", Change: &state.CreatePin{Pin: ending}},
		&state.CreateOnce{Key: state.Hash{3}, Change: &state.BySession{Session: "session", Change: &state.CreatePin{Pin: ending}}, By: 7, At: 8, Lasts: 300},
	}
}

// EndPins and every command with a pin that has an end or a size bound need feature level PinsEndLevel. A member
// below that level cannot read such a pin.
func TestPinsWithAnEndAreOfLevel10(t *testing.T) {
	for _, cmd := range pinEnds() {
		if got := FeatureLevelOf(cmd); got != state.PinsEndLevel {
			t.Errorf("%T is of level %d", cmd, got)
		}
	}
}
