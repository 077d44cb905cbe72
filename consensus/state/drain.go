package state

import "github.com/holdfast-ipfs/holdfast/consensus/codec"

// DrainLevel is the lowest feature level with members that are being drained.
const DrainLevel FeatureLevel = 10

// Drain records that a member is being drained: it should store no content, and repair moves its
// content to other members. It remains a member until RemoveNode.
type Drain struct {
	Node  NodeID
	Since Millis // time by the clock of the proposer
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Drain) Code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &v.Node, MaxIDLen)
	codec.Int(c, &v.Since)
}

func drainKey(id NodeID) key { return part(table(tableDrain), id) }

var drainCount = metaKey("drains")

// SetDrain begins or ends the drain of a member. If the member has the requested status already,
// nothing changes. The command needs feature level DrainLevel.
//
// Errors: ErrNotFound if the node is not a member; ErrConflict if no other member would keep
// content.
type SetDrain struct {
	Node NodeID
	On   bool
	At   Millis
}

// Code implements Command. It encodes the command, or decodes it if c is a decoder.
func (v *SetDrain) Code(c *codec.Coder) {
	codec.String(c, &v.Node, MaxIDLen)
	codec.Bool(c, &v.On)
	codec.Int(c, &v.At)
}

func (v *SetDrain) apply(tx Tx, e *entry) (Result, error) {
	if err := needsLevel(tx, DrainLevel, "the drain of a member needs feature level %d"); err != nil {
		return Result{}, err
	}
	if known, err := has(tx, nodeKey(v.Node)); err != nil {
		return Result{}, err
	} else if !known {
		return Result{}, Errorf(CodeNotFound, "node %s is not a member", v.Node)
	}
	if drains, err := has(tx, drainKey(v.Node)); err != nil || drains == v.On {
		return Result{}, err
	}
	e.fx.Members = true
	if !v.On {
		return Result{}, endDrain(tx, v.Node)
	}
	keeping, err := keepingMembers(tx)
	if err != nil {
		return Result{}, err
	}
	if keeping <= 1 {
		return Result{}, Errorf(CodeConflict, "node %s is the last member that keeps content: no other member could take it", v.Node)
	}
	if err := count(tx, drainCount, 1); err != nil {
		return Result{}, err
	}
	return Result{}, put(tx, drainKey(v.Node), &Drain{Node: v.Node, Since: v.At})
}

// endDrain removes the record of the drain of a member, if there is one.
func endDrain(tx Tx, id NodeID) error {
	drains, err := has(tx, drainKey(id))
	if err != nil || !drains {
		return err
	}
	if err := count(tx, drainCount, -1); err != nil {
		return err
	}
	return tx.Delete(drainKey(id))
}

// keepingMembers returns the number of members that are not being drained.
func keepingMembers(r Reader) (uint64, error) {
	members, err := counter(r, nodeCount)
	if err != nil {
		return 0, err
	}
	drains, err := counter(r, drainCount)
	return members - min(drains, members), err
}

// Drains returns the members that are being drained, in the order of their ids.
func (v View) Drains() ([]Drain, error) {
	return scanAll[Drain](v.r, table(tableDrain))
}

// Drain returns the drain of a member, or nil if it is not being drained.
func (v View) Drain(id NodeID) (*Drain, error) { return get[Drain](v.r, drainKey(id)) }

// Copies returns how many copies a root should have: the replication of the cluster, or the number of
// members that are not being drained if that is smaller.
func (v View) Copies() (int, error) {
	_, full, err := copiesIn(v.r)
	return full, err
}
