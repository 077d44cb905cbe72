package state

import (
	"encoding/binary"
	"fmt"
	"strings"
)

func (c *fsck) node() error {
	if read(c, func(n *Node) key { return nodeKey(n.ID) }) != nil {
		c.counts(nodeCount, aCounter, 1)
	}
	return nil
}

func (c *fsck) drain() error {
	v := read(c, func(v *Drain) key { return drainKey(v.Node) })
	if v == nil {
		return nil
	}
	c.counts(drainCount, aCounter, 1)
	return c.ofMember()
}

func (c *fsck) ticket() error {
	if read(c, func(t *Ticket) key { return ticketKey(t.ID) }) != nil {
		c.counts(ticketCount, aCounter, 1)
	}
	return nil
}

// ofMember reports the current row if the node in its key is no member.
func (c *fsck) ofMember() error {
	id, _, err := readPart[NodeID](c.k[1:])
	if !c.parsed(err) {
		return nil
	}
	return c.needs(nodeKey(id), "member "+string(id))
}

func (c *fsck) numberOfMember() error {
	c.number()
	return c.ofMember()
}

func (c *fsck) quarantine() error {
	if read(c, func(q *Quarantine) key { return quarantineKey(q.Node) }) == nil {
		return nil
	}
	return c.ofMember()
}

func (c *fsck) checkRow() error {
	read(c, func(v *Check) key { return checkKey(v.Index) })
	return nil
}

// meta checks a record or a counter of the whole cluster.
func (c *fsck) meta() error {
	name := string(c.k[1:])
	group, _, _ := strings.Cut(name, "/")
	switch {
	case name == string(clusterKey[1:]):
		read(c, here[Cluster](c))
	case name == string(levelKey[1:]):
		c.number()
	case name == string(replacedKey[1:]):
		if at, ok := c.number(); ok && at > c.index {
			c.differs(fmt.Sprint(at), fmt.Sprintf("at most the index of the state, %d", c.index))
		}
	case name == string(opNext[1:]):
		c.operations()
	case name == string(signingKey[1:]):
		read(c, here[signingKeys](c))
	case name == string(auditKey[1:]):
		read(c, here[auditHead](c))
	case name == string(meteringKey[1:]):
		read(c, here[metering](c))
	case name == string(indexingKey[1:]):
		read(c, here[indexing](c))
	case name == string(packingKey[1:]):
		read(c, here[packingNames](c))
	case name == string(shortCount[1:]), name == string(nodeCount[1:]), name == string(ticketCount[1:]), name == string(drainCount[1:]),
		name == string(unhashedCount[1:]), group == "pins", group == "held", group == "wanted", len(name) == len("signed")+8 && name[:len("signed")] == "signed":
		c.counter()
	case group == "sole":
		if at, ok := c.number(); ok && at > c.index {
			c.differs(fmt.Sprint(at), fmt.Sprintf("at most the index of the state, %d", c.index))
		}
		id, _, err := readPart[NodeID](c.k[len("Msole/"):])
		if !c.parsed(err) {
			return nil
		}
		return c.needs(nodeKey(id), "member "+string(id))
	default:
		c.differs(valueText(c.v), "nothing: there is no such record")
	}
	return nil
}

// operations checks the record about the remembered operations.
func (c *fsck) operations() {
	c.tally.number(c.k, numberOfOps, c.ops.next-c.ops.first, true)
	if c.ops.bounded {
		c.tally.number(c.k, bytesOfOps, c.ops.bytes, true)
	}
}

// auditRow checks a row of the audit log: its place, and that its hash follows from the row before.
func (c *fsck) auditRow() error {
	row, hash, err := decodeAuditRow(c.v)
	if err != nil || len(c.k) != 9 {
		c.differs(valueText(c.v), fmt.Sprintf("an audit row (%v)", err))
		return nil
	}
	seq := binary.BigEndian.Uint64(c.k[1:])
	switch want := auditHash(c.audit.Hash, c.v[auditHashBytes:]); {
	case seq != c.audit.Next || row.Seq != seq:
		c.differs(fmt.Sprintf("row %d", row.Seq), fmt.Sprintf("row %d", c.audit.Next))
	case hash != want:
		c.differs(fmt.Sprintf("hash %x", hash), fmt.Sprintf("hash %x", want))
	}
	c.audit.Next, c.audit.Hash = seq+1, hash
	return nil
}

// endAudit compares the last row of the audit log with the extent of the log.
func (c *fsck) endAudit() error {
	head, err := readAuditHead(c.r)
	if err != nil {
		return nil //nolint:nilerr // its own row is reported, and noting has errors of the reader
	}
	c.k = auditKey
	if c.audit.Next != head.Next || c.audit.Hash != head.Head && head.Next != head.First {
		c.differs(fmt.Sprintf("rows before %d, and hash %x", head.Next, head.Head), fmt.Sprintf("rows before %d, and hash %x", c.audit.Next, c.audit.Hash))
	}
	return nil
}
