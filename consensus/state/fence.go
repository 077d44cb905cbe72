package state

import (
	"encoding/binary"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

func fenceKey(n NodeID) key { return part(table(tableFence), n) }

// Fence sets the lowest epoch of a node whose reports are valid: later log entries ignore content
// that the node has reported in lower epochs. After the node has applied the fence, no entry can
// therefore reference such content anew, and the node may delete it if nothing references it. If
// Epoch is not above the present one, nothing changes.
//
// Errors: ErrNotFound if the node is not a member.
type Fence struct {
	Node  NodeID
	Epoch uint64
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *Fence) Code(c *codec.Coder) {
	codec.String(c, &v.Node, MaxIDLen)
	codec.Uint(c, &v.Epoch)
}

func (v *Fence) apply(tx Tx, _ *entry) (Result, error) {
	if known, err := has(tx, nodeKey(v.Node)); err != nil {
		return Result{}, err
	} else if !known {
		return Result{}, Errorf(CodeNotFound, "node %s is not a member", v.Node)
	}
	return Result{}, fence(tx, v.Node, v.Epoch)
}

// fence raises the lowest valid epoch of a node.
func fence(tx Tx, n NodeID, epoch uint64) error {
	now, err := counter(tx, fenceKey(n))
	if err != nil || epoch <= now {
		return err
	}
	return tx.Set(fenceKey(n), binary.BigEndian.AppendUint64(nil, epoch))
}

// fenceJoined raises the fence of a node that joins, perhaps again, above every epoch that the
// node can have used before. The index of the entry is such a value, because each epoch except
// the first has cost a log entry. Below feature level 3 there are no epochs.
func fenceJoined(tx Tx, n NodeID, e *entry) error {
	level, err := levelOf(tx)
	if err != nil || level < 3 {
		return err
	}
	return fence(tx, n, e.index)
}

// FenceOf returns the lowest valid epoch of a node, or 0 if the node has no fence.
func (v View) FenceOf(n NodeID) (uint64, error) { return counter(v.r, fenceKey(n)) }
