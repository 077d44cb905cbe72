package state

import "encoding/binary"

// soleKey returns the key of the row with the index of the last entry that made a node the only
// holder of a pinned root.
func soleKey(n NodeID) key { return part(metaKey("sole/"), n) }

// noteSole records the index of the entry if the root is pinned and exactly one member holds it.
// RemoveNode compares it with the index of the proposer's earlier check, which could not see this
// root. Below feature level 4, copies on former members count as holders too.
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
