package state

import (
	"encoding/binary"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

func fenceKey(n NodeID) key { return part(table(tableFence), n) }

// Fence sets the lowest epoch of a node that counts: later entries ignore holdings that the node reported
// in lower epochs. So no such holding can make an entry refer to content again, once the node has applied
// the fence and nothing in the state refers to the content. An epoch that is not above the present one
// changes nothing.
//
// Errors: ErrNotFound if the node is not a member.
type Fence struct {
	Node  NodeID
	Epoch uint64
}

// Code implements Command.
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

// fence raises the first valid epoch of a node.
func fence(tx Tx, n NodeID, epoch uint64) error {
	now, err := counter(tx, fenceKey(n))
	if err != nil || epoch <= now {
		return err
	}
	return tx.Set(fenceKey(n), binary.BigEndian.AppendUint64(nil, epoch))
}

// fenceJoined raises the fence of a node that joins, also again, above every epoch that it
// can have had: each epoch except the first cost a log entry. Below feature level 3 epochs
// are not used.
func fenceJoined(tx Tx, n NodeID, e *entry) error {
	level, err := levelOf(tx)
	if err != nil || level < 3 {
		return err
	}
	return fence(tx, n, e.index)
}

// FenceOf returns the lowest epoch of a node that counts, or 0 if the node has no fence.
func (v View) FenceOf(n NodeID) (uint64, error) { return counter(v.r, fenceKey(n)) }
