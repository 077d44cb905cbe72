package state

import "encoding/binary"

// ReplaceMembers makes one node the only member of the cluster, as if all other members had been
// removed by RemoveNode. It is for a cluster whose majority is lost: a restore of a backup, or the
// recovery on a surviving member. It is no Command and no log has it: one node applies it while it
// is stopped, and all later members get the resulting state by a snapshot.
type ReplaceMembers struct {
	// Node is the new only member. If it is a member already, its time of joining and its fence
	// stay. Otherwise the fence is raised as for a node that joins.
	Node Node
	// Cluster is the new id of the cluster; empty means that the id stays.
	Cluster string
	// SealedSecret is the new value of Cluster.SealedSecret; nil means that it stays.
	SealedSecret []byte
	At           Millis // time by the clock of the node
	Action       Action // the action in the audit log: ActionClusterRestore or ActionClusterRecover
}

// replacedKey has the index at which ReplaceMembers was applied last, as 8 bytes big endian.
var replacedKey = metaKey("members-replaced")

// Apply applies the change to tx as the entry at index. It also raises the feature level to that of
// the node, removes all join tickets and writes a row of the audit log. removed are the members
// that have been removed, in the order of their keys.
//
// Errors: ErrUnavailable if the state has no cluster; ErrConflict if the node is in quarantine;
// ErrTooOld if the feature level of the cluster is above that of the node.
func (v *ReplaceMembers) Apply(tx Tx, index uint64) (removed []Node, err error) {
	e := &entry{index: index, settle: MaxSettle, fx: new(Effects)}
	cl, err := cluster(tx)
	if err != nil {
		return nil, err
	}
	level, err := levelOf(tx)
	if err != nil {
		return nil, err
	}
	if v.Node.FeatureLevel < level {
		return nil, ErrTooOld
	}
	if in, err := has(tx, quarantineKey(v.Node.ID)); err != nil {
		return nil, err
	} else if in {
		return nil, Errorf(CodeConflict, "the state of node %s differs from that of the other members: it is in quarantine", v.Node.ID)
	}
	if err := v.Node.check(); err != nil {
		return nil, err
	}
	if v.Node.FeatureLevel > level { // no other member has to understand it
		if err := raise(tx, level, v.Node.FeatureLevel, e); err != nil {
			return nil, err
		}
	}
	if removed, err = v.members(tx, e); err != nil {
		return nil, err
	}
	if v.Cluster != "" {
		cl.ID = v.Cluster
	}
	if v.SealedSecret != nil {
		cl.SealedSecret = v.SealedSecret
	}
	if err := put(tx, clusterKey, cl); err != nil {
		return nil, err
	}
	if err := tx.Set(replacedKey, binary.BigEndian.AppendUint64(nil, index)); err != nil {
		return nil, err
	}
	return removed, v.audit(tx, cl.ID)
}

// members replaces the records of the members, and removes all join tickets.
func (v *ReplaceMembers) members(tx Tx, e *entry) (removed []Node, err error) {
	nodes, err := scanAll[Node](tx, table(tableNode))
	if err != nil {
		return nil, err
	}
	node, known := v.Node, false
	for i := range nodes {
		if nodes[i].ID == node.ID {
			known, node.Joined = true, nodes[i].Joined
			continue
		}
		removed = append(removed, nodes[i])
		if err := removeNode(tx, nodes[i].ID, e); err != nil {
			return nil, err
		}
	}
	if err := endDrain(tx, node.ID); err != nil { // nobody else could keep content
		return nil, err
	}
	if !known {
		if err := fenceJoined(tx, node.ID, e); err != nil {
			return nil, err
		}
	}
	if err := putNode(tx, &node, e); err != nil {
		return nil, err
	}
	tickets, err := scanAll[Ticket](tx, table(tableTicket))
	if err != nil {
		return nil, err
	}
	for _, t := range tickets {
		if err := dropTicket(tx, t.ID); err != nil {
			return nil, err
		}
	}
	return removed, nil
}

func (v *ReplaceMembers) audit(tx Tx, id string) error {
	if level, err := levelOf(tx); err != nil || level < AuditLevel {
		return err
	}
	h, err := readAuditHead(tx)
	if err != nil {
		return err
	}
	row := &AuditRow{At: v.At, Actor: Actor{Kind: ActorOperator}, Action: v.Action, Count: 1, Target: id, Detail: "only member " + string(v.Node.ID)}
	if err := h.append(tx, row); err != nil {
		return err
	}
	return put(tx, auditKey, h)
}

// MembersReplaced returns the index at which ReplaceMembers was applied last, or 0 if it never was.
// Content that was pinned before that index may exist only on the disks of removed members, so
// nodes do not give it up.
func (v View) MembersReplaced() (index uint64, err error) { return counter(v.r, replacedKey) }
