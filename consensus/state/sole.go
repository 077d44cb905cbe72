package state

import "encoding/binary"

// soleKey returns the index of the last entry that left a node as the only holder of content
// that counts as kept.
func soleKey(n NodeID) key { return part(metaKey("sole/"), n) }

// noteSole records for a node that from this entry on it is the only holder of some root,
// because an earlier check of the roots of the node could not see that. Below feature level 4
// any other recorded copy counts as a holder.
func noteSole(tx Tx, root *Root, e *entry) error {
	if root.Status != Pinned {
		return nil
	}
	nodes, err := root.holding(tx, 2)
	if err != nil || len(nodes) != 1 {
		return err
	}
	if root.In(Held) > 1 {
		if level, err := levelOf(tx); err != nil || level < 4 {
			return err
		}
	}
	return tx.Set(soleKey(nodes[0]), binary.BigEndian.AppendUint64(nil, e.index))
}
