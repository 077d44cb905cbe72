package state

import (
	"encoding/binary"
	"slices"
)

// soleKey has the index of the last entry that left a node as the only holder of content
// that counts as kept.
func soleKey(n NodeID) key { return part(metaKey("sole/"), n) }

// noteSole notes it of a member, should one alone hold the root from this entry on: whoever
// has looked before what it alone holds has not seen that.
func noteSole(tx Tx, root *Root, e *entry) error {
	if root.Status != Pinned || root.In(Held) != 1 {
		return nil
	}
	i := slices.IndexFunc(root.Copies, func(c Copy) bool { return c.Phase == Held })
	n := root.Copies[i].Node
	if known, err := has(tx, nodeKey(n)); err != nil || !known {
		return err
	}
	return tx.Set(soleKey(n), binary.BigEndian.AppendUint64(nil, e.index))
}
