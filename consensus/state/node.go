package state

import (
	"cmp"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Node is the record of a cluster member. The record alone decides on membership; the Raft
// configuration and the filter for peer connections follow it.
type Node struct {
	ID           NodeID
	Name         string
	Addrs        []string // public multiaddrs, each ending /p2p/<ID>
	ClusterAddrs []string // multiaddrs of the cluster host, each ending /p2p/<ID>
	Version      string   // release that the node runs
	Joined       Millis

	FeatureLevel FeatureLevel // highest feature level that its release supports; 0 if unknown
	Store        StoreID      // id of its Raft store; empty before level 1
	Votes        bool         // the store is eligible to vote; see GrantVote
}

// Code encodes or decodes the record. It writes version 2 only if a field of version 2 is set,
// because members below feature level 1 cannot read version 2.
func (v *Node) Code(c *codec.Coder) {
	version := uint64(2)
	if !c.Decoding() && v.FeatureLevel == 0 && v.Store == "" && !v.Votes {
		version = 1
	}
	version = c.Version(version)
	codec.String(c, &v.ID, MaxIDLen)
	codec.String(c, &v.Name, MaxIDLen)
	codec.Strings(c, &v.Addrs, MaxAddrs, MaxAddrLen)
	codec.Strings(c, &v.ClusterAddrs, MaxAddrs, MaxAddrLen)
	codec.String(c, &v.Version, MaxIDLen)
	codec.Int(c, &v.Joined)
	if version >= 2 {
		codec.Uint(c, &v.FeatureLevel)
		codec.String(c, &v.Store, MaxIDLen)
		codec.Bool(c, &v.Votes)
	}
}

// Before1 returns the record without the fields that level 1 added.
func (v *Node) Before1() Node {
	old := *v
	old.FeatureLevel, old.Store, old.Votes = 0, "", false
	return old
}

func (v *Node) check() error {
	if v.ID == "" || len(v.ID) > MaxIDLen || len(v.Name) > MaxIDLen || len(v.Version) > MaxIDLen || len(v.Store) > MaxIDLen ||
		len(v.Addrs) > MaxAddrs || len(v.ClusterAddrs) > MaxAddrs {
		return Errorf(CodeInvalid, "node record out of bounds")
	}
	for _, a := range slices.Concat(v.Addrs, v.ClusterAddrs) {
		if len(a) > MaxAddrLen {
			return Errorf(CodeInvalid, "an address of %d bytes", len(a))
		}
	}
	return nil
}

// understands returns ErrConflict if the node's release does not support the feature level of the
// cluster, because it could not read the log.
func (v *Node) understands(r Reader) error {
	level, err := levelOf(r)
	if err == nil && v.FeatureLevel < level {
		err = Errorf(CodeConflict, "the cluster is at level %d, and release %q of node %s understands %d: upgrade the node",
			level, v.Version, v.ID, v.FeatureLevel)
	}
	return err
}

// Short returns the last characters of the id, which distinguish the members of a cluster. The
// first characters of all ids are equal.
func (id NodeID) Short() string {
	const end = 8
	if len(id) <= end+len("...") {
		return string(id)
	}
	return "..." + string(id[len(id)-end:])
}

func nodeKey(id NodeID) key { return part(table(tableNode), id) }

var nodeCount = metaKey("nodes")

func putNode(tx Tx, v *Node, e *entry) error {
	known, err := has(tx, nodeKey(v.ID))
	if err != nil {
		return err
	}
	if !known {
		if err := count(tx, nodeCount, 1); err != nil {
			return err
		}
	}
	e.fx.Members = true
	return put(tx, nodeKey(v.ID), v)
}

// UpdateNode replaces the facts that a member reports about itself, such as its addresses, name
// and release.
type UpdateNode struct{ Node Node }

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *UpdateNode) Code(c *codec.Coder) { v.Node.Code(c) }

func (v *UpdateNode) apply(tx Tx, e *entry) (Result, error) {
	if err := v.Node.check(); err != nil {
		return Result{}, err
	}
	old, err := get[Node](tx, nodeKey(v.Node.ID))
	if err != nil {
		return Result{}, err
	}
	if old == nil {
		return Result{}, Errorf(CodeNotFound, "node %s is not a member", v.Node.ID)
	}
	if err := v.Node.understands(tx); err != nil {
		return Result{}, err
	}
	node := v.Node
	node.Joined = old.Joined
	takeStore(&node, old)
	return Result{}, putNode(tx, &node, e)
}

// Ticket allows one node to join. The node gets a secret, from which it derives a key pair; the
// ID is the peer id of that key. So the state contains nothing with which somebody could join.
type Ticket struct {
	ID      NodeID
	Created Millis
	Expires Millis
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Ticket) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.ID, MaxIDLen)
	codec.Int(c, &v.Created)
	codec.Int(c, &v.Expires)
}

var ticketCount = metaKey("tickets")

func ticketKey(id NodeID) key { return part(table(tableTicket), id) }

// CreateTicket adds a ticket that is valid until Expires. It also removes expired tickets.
type CreateTicket struct {
	Ticket Ticket
	// Expired is the time by which a ticket must have expired to be removed. The proposer chooses
	// a time that most members' clocks have passed, so that a single wrong clock ends no ticket
	// of another node. 0 means that no ticket may be removed.
	Expired Millis
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *CreateTicket) Code(c *codec.Coder) {
	v.Ticket.Code(c)
	if c.More() {
		codec.Int(c, &v.Expired)
	}
}

func (v *CreateTicket) apply(tx Tx, e *entry) (Result, error) {
	t := v.Ticket
	if t.ID == "" || t.Expires <= t.Created {
		return Result{}, Errorf(CodeInvalid, "a ticket needs an id and an end after its beginning")
	}
	var expired []NodeID
	open := false
	prefix := table(tableTicket)
	err := tx.Scan(prefix, prefix.end(), false, func(_, value []byte) (bool, error) {
		old, err := decode[Ticket](value)
		switch {
		case err != nil:
			return false, err
		case old.Expires <= v.Expired:
			expired = append(expired, old.ID)
		case old.ID == t.ID:
			open = true
		}
		return true, nil
	})
	if err != nil {
		return Result{}, err
	}
	if open {
		return Result{}, Errorf(CodeExists, "a join ticket %s is open already", t.ID)
	}
	n, err := counter(tx, ticketCount)
	if err != nil {
		return Result{}, err
	}
	if n-uint64(len(expired)) >= MaxTickets {
		return Result{}, Errorf(CodeTooLarge, "%d join tickets are open", n)
	}
	for _, id := range expired {
		if err := dropTicket(tx, id); err != nil {
			return Result{}, err
		}
	}
	e.fx.Members = true
	if err := count(tx, ticketCount, 1); err != nil {
		return Result{}, err
	}
	return Result{}, put(tx, ticketKey(t.ID), &t)
}

func dropTicket(tx Tx, id NodeID) error {
	if err := count(tx, ticketCount, -1); err != nil {
		return err
	}
	return tx.Delete(ticketKey(id))
}

// JoinNode makes a node a member and removes its ticket. An empty Ticket means that the node has
// proved that it knows the cluster secret. If the node is a member already, only its addresses
// change. At is the time of the admitting member; if the ticket has expired by then, the node is
// rejected and the ticket remains.
type JoinNode struct {
	Node   Node
	Ticket NodeID
	At     Millis
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *JoinNode) Code(c *codec.Coder) {
	v.Node.Code(c)
	codec.String(c, &v.Ticket, MaxIDLen)
	codec.Int(c, &v.At)
}

func (v *JoinNode) apply(tx Tx, e *entry) (Result, error) {
	if err := v.Node.check(); err != nil {
		return Result{}, err
	}
	old, err := get[Node](tx, nodeKey(v.Node.ID))
	if err != nil {
		return Result{}, err
	}
	if err := v.Node.understands(tx); err != nil {
		return Result{}, err
	}
	node := v.Node
	takeStore(&node, old)
	node.Joined = v.At
	if old != nil {
		node.Joined = old.Joined
	} else if n, err := counter(tx, nodeCount); err != nil {
		return Result{}, err
	} else if n >= MaxNodes {
		return Result{}, Errorf(CodeTooLarge, "the cluster has its most members, %d", MaxNodes)
	}
	if v.Ticket != "" {
		t, err := get[Ticket](tx, ticketKey(v.Ticket))
		if err != nil {
			return Result{}, err
		}
		if t == nil || t.Expires <= v.At {
			return Result{}, Errorf(CodeUnauthorized, "the join ticket is spent, expired or unknown")
		}
		if err := dropTicket(tx, v.Ticket); err != nil {
			return Result{}, err
		}
	}
	if old == nil {
		if err := fenceJoined(tx, node.ID, e); err != nil {
			return Result{}, err
		}
	}
	return Result{}, putNode(tx, &node, e)
}

// lastKeeperLevel is the feature level from which on RemoveNode is rejected for the last member
// that is not being drained. Older releases accept it, and all members must decide alike.
const lastKeeperLevel FeatureLevel = 11

// leavesKeeper returns ErrConflict if the node is the last member that is not being drained, so
// that without it no member would store content.
func leavesKeeper(r Reader, id NodeID) error {
	level, err := levelOf(r)
	if err != nil || level < lastKeeperLevel {
		return err
	}
	drained, err := has(r, drainKey(id))
	if err != nil || drained {
		return err
	}
	keeping, err := keepingMembers(r)
	if err == nil && keeping <= 1 {
		err = Errorf(CodeConflict, "all other members are being drained, and no member would keep content without node %s: end a drain first (peers drain NODE --cancel)", id)
	}
	return err
}

// RemoveNode ends a node's membership. The node's allocations remain on record until PlaceRoots
// replaces them, so that the state still shows which copies were lost.
//
// Errors: ErrNotFound; ErrInvalid for the only member; ErrConflict if the members differ from Of,
// if the node has become the only holder of some content after At, or if all other members are
// being drained.
type RemoveNode struct {
	ID NodeID
	// Of lists the members on which the proposer based its check that no content is lost without
	// this node. If the members have changed since, the command is rejected: two nodes that are
	// removed at once could together be the only holders of content. Of is empty if the proposer
	// has not checked.
	Of []NodeID
	// At is the log index of the state in which the proposer found that this node is not the only
	// holder of any content. 0 if the proposer has not checked.
	At uint64
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *RemoveNode) Code(c *codec.Coder) {
	codec.String(c, &v.ID, MaxIDLen)
	if c.More() {
		codec.Strings(c, &v.Of, MaxNodes, MaxIDLen)
	}
	if c.More() {
		codec.Uint(c, &v.At)
	}
}

func (v *RemoveNode) apply(tx Tx, e *entry) (Result, error) {
	known, err := has(tx, nodeKey(v.ID))
	if err != nil {
		return Result{}, err
	}
	if !known {
		return Result{}, Errorf(CodeNotFound, "node %s is not a member", v.ID)
	}
	n, err := counter(tx, nodeCount)
	if err != nil {
		return Result{}, err
	}
	if n == 1 {
		return Result{}, Errorf(CodeInvalid, "the last member cannot be removed")
	}
	if err := leavesKeeper(tx, v.ID); err != nil {
		return Result{}, err
	}
	if len(v.Of) > 0 {
		nodes, err := scanAll[Node](tx, table(tableNode))
		if err != nil {
			return Result{}, err
		}
		if !slices.EqualFunc(nodes, v.Of, func(n Node, id NodeID) bool { return n.ID == id }) {
			return Result{}, Errorf(CodeConflict, "another member joined or was removed at the same moment: try again")
		}
	}
	if v.At > 0 {
		if sole, err := counter(tx, soleKey(v.ID)); err != nil {
			return Result{}, err
		} else if sole > v.At {
			return Result{}, Errorf(CodeConflict, "at the same moment node %s became the only holder of something: try again", v.ID)
		}
	}
	return Result{}, removeNode(tx, v.ID, e)
}

// removeNode removes the record of a member and what the state has about the member, except its
// allocations.
func removeNode(tx Tx, id NodeID, e *entry) error {
	e.fx.Members = true
	if err := count(tx, nodeCount, -1); err != nil {
		return err
	}
	if err := endDrain(tx, id); err != nil {
		return err
	}
	for _, k := range []key{quarantineKey(id), fenceKey(id), soleKey(id), countedKey(id)} {
		if err := tx.Delete(k); err != nil {
			return err
		}
	}
	return tx.Delete(nodeKey(id))
}

// Node returns a member by its id, or ErrNotFound. The caller must not change its address slices.
func (v View) Node(id NodeID) (Node, error) {
	if v.members != nil {
		at, known := slices.BinarySearchFunc(v.members.nodes, id, func(n Node, id NodeID) int { return orderOf(n.ID, id) })
		if known {
			return v.members.nodes[at], nil
		}
		return Node{}, Errorf(CodeNotFound, "node %s is not a member", id)
	}
	n, err := get[Node](v.r, nodeKey(id))
	if err != nil {
		return Node{}, err
	}
	if n == nil {
		return Node{}, Errorf(CodeNotFound, "node %s is not a member", id)
	}
	return *n, nil
}

// Nodes returns all members in the order of their keys. The caller must not change their address
// slices.
func (v View) Nodes() ([]Node, error) {
	if v.members != nil {
		return slices.Clone(v.members.nodes), nil
	}
	return scanAll[Node](v.r, table(tableNode))
}

// orderOf compares two node ids in the order of the keys of nodes: by length first, then by
// bytes.
func orderOf(a, b NodeID) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// Tickets returns the join tickets on record, including expired ones.
func (v View) Tickets() ([]Ticket, error) { return scanAll[Ticket](v.r, table(tableTicket)) }

func scanAll[T any, P record[T]](r Reader, prefix key) ([]T, error) {
	var all []T
	err := r.Scan(prefix, prefix.end(), false, func(_, value []byte) (bool, error) {
		v, err := decode[T, P](value)
		if err != nil {
			return false, err
		}
		all = append(all, *v)
		return true, nil
	})
	return all, err
}

// scanPage returns up to limit records with keys in [from, to), and whether there are more.
func scanPage[T any, P record[T]](r Reader, from, to key, limit int) (page []T, more bool, err error) {
	err = r.Scan(from, to, false, func(_, value []byte) (bool, error) {
		if more = len(page) >= limit; more {
			return false, nil
		}
		v, err := decode[T, P](value)
		if err != nil {
			return false, err
		}
		page = append(page, *v)
		return true, nil
	})
	return page, more, err
}
