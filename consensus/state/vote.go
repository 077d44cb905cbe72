package state

import "github.com/holdfast-ipfs/holdfast/consensus/codec"

// StoreID identifies a Raft store, from its creation to its loss. A node whose disk was
// replaced has another store, and with it no vote, because the node may have forgotten its
// promises to other voters.
type StoreID string

// takeStore takes over the store in a member's record and decides whether it may get a
// vote. A store that replaces another may not until GrantVote. A release that names no
// store keeps its vote. The first record with a store says itself whether its log is
// complete.
func takeStore(node, old *Node) {
	switch {
	case node.Store == "" || old == nil:
		node.Votes = false // a joining node names its store later
	case old.Store == node.Store:
		node.Votes = old.Votes
	case old.Store != "":
		node.Votes = false
	}
}

// MayVote returns true if the node's store may get a vote. That includes a record without a store, from a
// release that does not know feature level 1.
func (v *Node) MayVote() bool { return v.Votes || v.Store == "" && v.FeatureLevel == 0 }

// GrantVote says that a member's store has caught up with the log, so that it may get a
// vote again. It has no effect if the node has another store now.
type GrantVote struct {
	Node  NodeID
	Store StoreID
}

// Code implements Command.
func (v *GrantVote) Code(c *codec.Coder) {
	codec.String(c, &v.Node, MaxIDLen)
	codec.String(c, &v.Store, MaxIDLen)
}

func (v *GrantVote) apply(tx Tx, e *entry) (Result, error) {
	node, err := get[Node](tx, nodeKey(v.Node))
	if err != nil {
		return Result{}, err
	}
	if node == nil {
		return Result{}, Errorf(CodeNotFound, "node %s is not a member", v.Node)
	}
	if in, err := has(tx, quarantineKey(v.Node)); err != nil {
		return Result{}, err
	} else if in || node.Store != v.Store {
		return Result{}, Errorf(CodeConflict, "node %s is in quarantine, or has another store", v.Node)
	}
	if node.Votes {
		return Result{}, nil
	}
	node.Votes = true
	return Result{}, putNode(tx, node, e)
}
