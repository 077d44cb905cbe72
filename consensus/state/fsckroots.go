package state

import (
	"bytes"
	"fmt"
)

// Names of the numbers in the records of roots and quotas.
const (
	refsOfRoot      = "pins"
	linksOfRoot     = "versions and parts"
	publicOfRoot    = "public versions"
	retainersOfRoot = "roots that keep it"

	bytesStored      = "stored bytes"
	bytesComing      = "bytes that are arriving"
	bytesOfRecords   = "bytes of records"
	bytesRetained    = "bytes of replaced content"
	creditsOf        = "credits"
	numberOfPostings = "postings"
)

// roots checks the record of a root, and computes the rows of its copies.
func (c *fsck) roots() error {
	r := read(c, func(r *Root) key { return rootKey(r.Key) })
	if r == nil {
		return nil
	}
	for _, n := range []struct {
		name string
		n    uint64
	}{{refsOfRoot, r.Refs}, {linksOfRoot, r.Links}, {publicOfRoot, r.Public}, {retainersOfRoot, r.Retainers}} {
		c.tally.number(c.k, n.name, n.n, true)
	}
	switch {
	case !r.needed():
		c.differs("a root", "nothing: no pin, version, part or replacement needs it")
	case r.Status < Queued || r.Status > Failed:
		c.differs(fmt.Sprintf("status %d", r.Status), "a known status")
	case r.Links > 0 && r.Status != Pinned:
		c.differs("status "+r.Status.String(), "status pinned, because versions or parts need it")
	case r.UnderReplicated && r.Status != Pinned:
		c.differs("status "+r.Status.String()+", under-replicated", "status pinned, or not under-replicated")
	}
	for i, cp := range r.Copies {
		if i > 0 && r.Copies[i-1].Node >= cp.Node {
			c.differs("copies out of order", "copies in the order of nodes")
		}
		c.computed(part(wantedOn(cp.Node), r.Key), []byte{byte(cp.Phase)})
		c.counts(wantedCount(cp.Node), aCounter, 1)
		if cp.Phase == Held {
			c.counts(heldKey(cp.Node), aCounter, 1)
		}
	}
	if r.Status != Pinned || r.In(Held) > 0 {
		return nil
	}
	marked, err := has(c.r, shortKey(r.Key))
	if err == nil && !marked {
		c.differs("no mark that it has too few copies", "a mark: no node holds it")
	}
	return err
}

// ofRoot returns the facts of the root in a key that consists of the root. It reports the row if
// there is no such root, and returns nil then.
func (c *fsck) ofRoot() (*rootFacts, error) {
	k, _, err := readPart[RootKey](c.k[1:])
	if !c.parsed(err) {
		return nil, nil
	}
	f, err := c.rootOf(k)
	if err != nil || f.record != nil {
		return f, err
	}
	c.differs(valueText(c.v), "nothing: there is no such root")
	return nil, nil
}

// settling checks the mark of a root whose pins are being changed. Its value is the key of the next
// pin, or nothing.
func (c *fsck) settling() error {
	f, err := c.ofRoot()
	if err != nil || f == nil || len(c.v) == 0 {
		return err
	}
	rest, ok := bytes.CutPrefix(c.v, attachedTo(f.key))
	var bad error
	takePart[AccountID](&rest, &bad)
	takePart[RequestID](&rest, &bad)
	if !ok || bad != nil || len(rest) > 0 {
		c.differs(valueText(c.v), "the key of a pin of the root")
	}
	return nil
}

// short checks the mark of a root with too few copies. How many copies a root should have depends
// on the number of members when it was last changed, so not every mark can be computed.
func (c *fsck) short() error {
	c.empty()
	c.counts(shortCount, aCounter, 1)
	f, err := c.ofRoot()
	if err != nil || f == nil {
		return err
	}
	if held := f.record.In(Held); f.record.Status != Pinned || held >= int(c.cluster.Replication) {
		c.differs("a mark", fmt.Sprintf("no mark: the root is %s and has %d copies", f.record.Status, held))
	}
	return nil
}

func (c *fsck) surplus() error {
	if at, ok := c.number(); ok && at > c.index {
		c.differs(fmt.Sprint(at), fmt.Sprintf("at most the index of the state, %d", c.index))
	}
	_, err := c.ofRoot()
	return err
}

func (c *fsck) arrivedRow() error {
	if n, ok := c.number(); ok && n == 0 {
		c.differs("0", "nothing")
	}
	f, err := c.ofRoot()
	if err == nil && f != nil && !f.settling && (f.record.Status == Pinned || f.record.Status == Failed) {
		c.differs(valueText(c.v), "nothing: the root is "+f.record.Status.String())
	}
	return err
}

// retainedRow checks the record of a replaced root that is kept.
func (c *fsck) retainedRow() error {
	v := read(c, here[retained](c))
	rest := []byte(c.k[1:])
	var err error
	replacement := takePart[RootKey](&rest, &err)
	old := takePart[RootKey](&rest, &err)
	if !c.parsed(err) || v == nil {
		return nil
	}
	c.counts(rootKey(old), retainersOfRoot, 1)
	f, err := c.of(v.Account)
	if err != nil {
		return err
	}
	if f.quota {
		c.counts(quotaKey(v.Account), bytesRetained, v.Bytes)
	}
	by, err := c.rootOf(replacement)
	if err == nil && (by.record == nil || by.record.settled()) {
		c.differs("a kept root", "nothing: its replacement is complete, has failed or does not exist")
	}
	return err
}

// chargedTo is the account and the root for which the charge was computed last, in a table.
type chargedTo struct {
	table   byte
	account AccountID
	root    RootKey
}

// rootAndAccount returns the root and the account with which the key of the row begins. ok is false if
// it begins otherwise, which is then told.
func (c *fsck) rootAndAccount() (k RootKey, a AccountID, ok bool) {
	rest := []byte(c.k[1:])
	var err error
	k = takePart[RootKey](&rest, &err)
	a = takePart[AccountID](&rest, &err)
	return k, a, c.parsed(err)
}

// chargedBefore returns whether the row before in this table was of the same account and root.
func (c *fsck) chargedBefore(k RootKey, a AccountID) bool {
	to := chargedTo{c.k[0], a, k}
	before := c.charged == to
	c.charged = to
	return before
}

// attached checks a row by which a pin is attached to a root.
func (c *fsck) attached() error {
	c.stored()
	k, a, ok := c.rootAndAccount()
	if !ok {
		return nil
	}
	c.counts(rootKey(k), refsOfRoot, 1)
	if c.chargedBefore(k, a) {
		return nil
	}
	f, err := c.rootOf(k)
	if err != nil || f.record == nil || f.record.Status != Pinned || f.settling {
		return err
	}
	if linked, err := c.linked(f.record, a); err != nil || linked {
		return err // charged for the version or part
	}
	return c.charges(a, f.record)
}

// linked returns whether a version or part of an account needs a root.
func (c *fsck) linked(r *Root, a AccountID) (linked bool, err error) {
	if r.Links == 0 {
		return false, nil
	}
	prefix := part(linksOf(r.Key), a)
	err = c.r.Scan(prefix, prefix.end(), false, func(_, _ []byte) (bool, error) {
		linked = true
		return false, nil
	})
	return linked, err
}

// charges computes what an account is charged for a pinned root.
func (c *fsck) charges(a AccountID, r *Root) error {
	f, err := c.of(a)
	if err != nil || !f.quota {
		return err
	}
	return computedRecord(c, chargeKey(a, r.Key), &charge{Bytes: r.Size, Stored: true})
}

// link checks the reference of a version or part to its root.
func (c *fsck) link() error {
	c.stored()
	k, a, ok := c.rootAndAccount()
	if !ok {
		return nil
	}
	c.counts(rootKey(k), linksOfRoot, 1)
	if isPublic(c.v) {
		c.counts(rootKey(k), publicOfRoot, 1)
	}
	if c.chargedBefore(k, a) {
		return nil
	}
	f, err := c.rootOf(k)
	if err != nil || f.record == nil {
		return err
	}
	return c.charges(a, f.record)
}

// charge checks what an account is charged for a root. The charge for content that is arriving, or
// whose pins are being changed, cannot be computed: it depends on what arrived when.
func (c *fsck) charge() error {
	v := read(c, here[charge](c))
	rest := []byte(c.k[1:])
	var err error
	a := takePart[AccountID](&rest, &err)
	k := takePart[RootKey](&rest, &err)
	if !c.parsed(err) || v == nil {
		return nil
	}
	name := bytesComing
	if v.Stored {
		name = bytesStored
	}
	c.counts(quotaKey(a), name, v.Bytes)
	f, err := c.rootOf(k)
	if err != nil {
		return err
	}
	if f.record == nil {
		c.differs(v.text(), "nothing: there is no such root")
		return nil
	}
	linked, err := c.linked(f.record, a)
	if err != nil {
		return err
	}
	if linked || f.record.Status == Pinned && !f.settling {
		c.stored()
		return nil
	}
	n, err := holdsAt(c.r, a, f.record, 1)
	switch {
	case err != nil:
		return err
	case n == 0:
		c.differs(v.text(), "nothing: the account does not reference the root")
	case v.Stored && !f.settling:
		c.differs(v.text(), "a charge for content that is arriving: the root is "+f.record.Status.String())
	case *v == charge{}:
		c.differs(v.text(), "nothing")
	}
	return nil
}

func (v *charge) text() string {
	if v.Stored {
		return fmt.Sprintf("%d stored bytes", v.Bytes)
	}
	return fmt.Sprintf("%d arriving bytes", v.Bytes)
}

// quota checks the record of what an account may store.
func (c *fsck) quota() error {
	q := read(c, here[Quota](c))
	a, _, err := readPart[AccountID](c.k[1:])
	if !c.parsed(err) || q == nil {
		return nil
	}
	f, err := c.of(a)
	if err != nil {
		return err
	}
	if !f.closing {
		c.tally.row(append(kept(c.k), quotaThere), nil, true)
		c.tally.number(c.k, creditsOf, q.Credits, true)
		c.tally.number(c.k, numberOfPostings, q.Postings, true)
	}
	for _, n := range []struct {
		name string
		n    uint64
	}{{bytesStored, q.Stored}, {bytesComing, q.Coming}, {bytesOfRecords, q.Records}, {bytesRetained, q.Retained}} {
		c.tally.number(c.k, n.name, n.n, true)
	}
	return nil
}

// quotaThere ends the key under which Fsck compares the accounts that have a quota with those that
// should have one: no row has it.
const quotaThere = '!'
