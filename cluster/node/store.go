package node

import (
	"github.com/holdfast-ipfs/holdfast/consensus"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// ordered adapts kv.Store to the interface consensus.Store.
type ordered struct{ *kv.Store }

// Begin implements consensus.Store.
func (o ordered) Begin() consensus.Tx { return o.Store.Begin() }

// View implements consensus.Store.
func (o ordered) View() consensus.Snapshot { return o.Store.View() }
