package state

import "github.com/holdfast-ipfs/holdfast/consensus/codec"

// StoreID identifies a Raft store (log, term and vote) on one disk. A node whose disk was
// replaced has a store with another id, which is not eligible to vote at first, because the node
// may have forgotten votes that it has given.
type StoreID string

// takeStore sets Votes in a member's new record node, which is whether its store is eligible to
// vote. old is the previous record, or nil. The store of a new member, and a store that replaces
// another one, are not eligible until GrantVote. If the store is the same, its eligibility does
// not change. If the previous record has no store, the value that the new record proposes
// remains.
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

// MayVote returns true if the node's store is eligible to vote. A record of a release below
// feature level 1, which names no store, counts as eligible.
func (v *Node) MayVote() bool { return v.Votes || v.Store == "" && v.FeatureLevel == 0 }

// GrantVote makes a member's store eligible to vote, because it has caught up with the log.
// Errors: ErrNotFound without such a member; ErrConflict if the member has another store now or
// is in quarantine.
type GrantVote struct {
	Node  NodeID
	Store StoreID
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
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
