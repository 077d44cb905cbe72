package wire

import "github.com/holdfast-ipfs/holdfast/consensus/state"

// drains returns the commands about drained members, IndexPins and PackNames.
func drains() []state.Command {
	return []state.Command{
		&state.SetDrain{Node: "node", On: true, At: 300}, &state.IndexPins{From: "P\x00\x01a", Most: 1024}, &state.PackNames{From: "P\x00\x01a", Most: 1024},
	}
}
