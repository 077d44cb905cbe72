package wire

import "github.com/holdfast-ipfs/holdfast/consensus/state"

// drains returns the commands about drained members.
func drains() []state.Command {
	return []state.Command{&state.SetDrain{Node: "node", On: true, At: 300}}
}
