package state

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
	"github.com/ipfs/go-cid"
)

// RootKey identifies a root by its binary CIDv1, which contains the codec and the multihash. So
// CIDv0 and CIDv1 of the same block identify the same root.
type RootKey string

// RootOf returns the key of the root with the CID c.
func RootOf(c cid.Cid) RootKey { return RootKey(cid.NewCidV1(c.Prefix().Codec, c.Hash()).KeyString()) }

// Cid returns the key as a CIDv1, or cid.Undef if the key is malformed.
func (k RootKey) Cid() cid.Cid {
	c, err := cid.Cast([]byte(k))
	if err != nil {
		return cid.Undef
	}
	return c
}

func (k RootKey) String() string {
	if c := k.Cid(); c.Defined() {
		return c.String()
	}
	return fmt.Sprintf("root(%x)", string(k))
}

// Phase is the progress of one node's copy of a root.
type Phase uint8

// The phases. The numbers are stored: never renumber.
const (
	Assigned   Phase = 1 // the node should fetch the root
	Fetching   Phase = 2 // the node is fetching the root
	Held       Phase = 3 // the copy is complete, verified and durable
	GaveUp     Phase = 4 // the node could not fetch it; the reason says why
	phaseLimit       = GaveUp
)

func (p Phase) String() string {
	switch p {
	case Assigned:
		return "assigned"
	case Fetching:
		return "fetching"
	case Held:
		return "held"
	case GaveUp:
		return "gave up"
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// Copy is the allocation of a root to one node, with the state of the node's copy.
type Copy struct {
	Node   NodeID
	Phase  Phase
	Reason string // reason of GaveUp, or of the last failed attempt; see ReasonOf
}

// Code encodes the record, or decodes it if c is a decoder.
func (v *Copy) Code(c *codec.Coder) {
	codec.String(c, &v.Node, MaxIDLen)
	codec.Uint(c, &v.Phase)
	codec.String(c, &v.Reason, MaxReasonLen)
}

// Root is the record of a DAG that the cluster stores. All pins, objects and parts with the same
// root share it.
type Root struct {
	Key       RootKey
	Born      uint64 // log index at which this record was created; changes if the root is removed and added again
	Refs      uint64 // number of attached pins
	Retainers uint64 // number of roots that have replaced this one and keep it for now; see retainReplaced
	Size      uint64 // bytes of the DAG's blocks; 0 until a copy is held
	Blocks    uint64
	Status    Status // status that the attached pins have or are being changed to, except with UnderReplicated
	Detail    string // reason of a failure; see ReasonOf
	Copies    []Copy // sorted by node
	Links     uint64 // number of objects and parts that reference it; if above 0, Status is Pinned
	Public    uint64 // number of links that count as public
	// UnderReplicated is true if pins were added while too few nodes held the pinned root. The
	// root remains pinned, but these pins are pinning until enough nodes hold it.
	UnderReplicated bool
	// Repinned is the log index at which a pin was last added after the creation of this record;
	// 0 means never.
	Repinned uint64
}

// Code encodes or decodes the record. It writes version 2 only if there are links, because
// members below feature level 3 may know only version 1; version 3 only if UnderReplicated is
// set; and version 4 only if Repinned is set.
func (v *Root) Code(c *codec.Coder) {
	version := uint64(4)
	switch {
	case c.Decoding() || v.Repinned > 0:
	case v.UnderReplicated:
		version = 3
	case v.Links > 0:
		version = 2
	default:
		version = 1
	}
	version = c.Version(version)
	codec.String(c, &v.Key, MaxCIDLen)
	codec.Uint(c, &v.Born)
	codec.Uint(c, &v.Refs)
	codec.Uint(c, &v.Retainers)
	codec.Uint(c, &v.Size)
	codec.Uint(c, &v.Blocks)
	codec.Uint(c, &v.Status)
	codec.String(c, &v.Detail, MaxReasonLen)
	codec.List(c, &v.Copies, MaxCopies, func(c *codec.Coder, v *Copy) { v.Code(c) })
	if version >= 2 {
		codec.Uint(c, &v.Links)
		codec.Uint(c, &v.Public)
	}
	if version >= 3 {
		codec.Bool(c, &v.UnderReplicated)
	}
	if version >= 4 {
		codec.Uint(c, &v.Repinned)
	}
}

// PinnedAt returns the log index at which a pin was last added to the root, or the record was
// created. A node that began to fetch earlier has not tried the origins of that pin.
func (v *Root) PinnedAt() uint64 { return max(v.Born, v.Repinned) }

// Nodes returns the nodes to which the root is allocated, in the order of their ids.
func (v *Root) Nodes() []NodeID {
	nodes := make([]NodeID, len(v.Copies))
	for i, c := range v.Copies {
		nodes[i] = c.Node
	}
	return nodes
}

// Copy returns the copy on a node, or nil if the root is not allocated to that node.
func (v *Root) Copy(n NodeID) *Copy {
	for i := range v.Copies {
		if v.Copies[i].Node == n {
			return &v.Copies[i]
		}
	}
	return nil
}

// Holders returns the nodes with a complete copy of the root, in the order of Copies, or nil if
// there are none.
func (v *Root) Holders() (nodes []NodeID) {
	for _, c := range v.Copies {
		if c.Phase == Held {
			nodes = append(nodes, c.Node)
		}
	}
	return nodes
}

// In returns the number of copies in a phase.
func (v *Root) In(p Phase) (n int) {
	for _, c := range v.Copies {
		if c.Phase == p {
			n++
		}
	}
	return n
}

// holding returns up to limit members with a complete copy of the root. It omits nodes that are
// no longer members; their copies remain on record until repair has replaced them.
func (v *Root) holding(r Reader, limit int) (nodes []NodeID, err error) {
	for _, c := range v.Copies {
		if c.Phase != Held || len(nodes) == limit {
			continue
		}
		known, err := has(r, nodeKey(c.Node))
		if err != nil {
			return nil, err
		}
		if known {
			nodes = append(nodes, c.Node)
		}
	}
	return nodes, nil
}

// enough returns whether at least need members have a complete copy of the root. Below feature
// level 4, copies on former members count too.
func (v *Root) enough(r Reader, need int) (bool, error) {
	if v.In(Held) < need {
		return false, nil
	}
	nodes, err := v.holding(r, need)
	if err != nil || len(nodes) == need {
		return err == nil, err
	}
	level, err := levelOf(r)
	return err == nil && level < 4, err
}

// judge returns the status that follows from the copies. enough means that there are enough
// complete copies. A pinned root remains pinned while it is repaired. A root fails only if all
// its nodes have given up; a root that an object references never fails, even if no node holds it
// at the moment.
func (v *Root) judge(enough bool) Status {
	held, gaveUp := v.In(Held), v.In(GaveUp)
	switch {
	case enough:
		return Pinned
	case gaveUp == len(v.Copies) && v.Links == 0:
		return Failed
	case v.Status == Pinned:
		return Pinned
	case held > 0 || v.In(Fetching) > 0:
		return Pinning
	case v.Status == Pinning:
		return Pinning // between two attempts
	}
	return Queued
}

// settled returns whether the root is pinned with enough copies or has failed, so that no pin
// waits for it.
func (v *Root) settled() bool {
	return v.Status == Failed || v.Status == Pinned && !v.UnderReplicated
}

// pins returns the status that a new pin of the root gets.
func (v *Root) pins() Status {
	if v.Status == Pinned && v.UnderReplicated {
		return Pinning
	}
	return v.Status
}

func rootKey(k RootKey) key     { return part(table(tableRoot), k) }
func attachedTo(k RootKey) key  { return part(table(tableAttached), k) }
func wantedOn(n NodeID) key     { return part(table(tableWanted), n) }
func settlingKey(k RootKey) key { return part(table(tableSettling), k) }
func shortKey(k RootKey) key    { return part(table(tableShort), k) }
func surplusKey(k RootKey) key  { return part(table(tableSurplus), k) }
func heldKey(n NodeID) key      { return part(metaKey("held/"), n) }
func wantedCount(n NodeID) key  { return part(metaKey("wanted/"), n) }
func attachedKey(p *Pin, k RootKey) key {
	return part(part(attachedTo(k), p.Account), p.ID)
}

var shortCount = metaKey("short")

// onlyMembers returns those of the nodes that are members, sorted and without duplicates.
func onlyMembers(r Reader, nodes []NodeID) ([]NodeID, error) {
	sorted := slices.Clone(nodes)
	slices.Sort(sorted)
	members := sorted[:0]
	for _, n := range slices.Compact(sorted) {
		known, err := has(r, nodeKey(n))
		if err != nil {
			return nil, err
		}
		if known {
			members = append(members, n)
		}
	}
	return members, nil
}

// attach adds the reference of a new pin to a root, and creates the root on the given nodes if it
// does not exist.
func attach(tx Tx, p *Pin, k RootKey, nodes []NodeID, e *entry) (*Root, error) {
	root, err := get[Root](tx, rootKey(k))
	if err != nil {
		return nil, err
	}
	switch {
	case root == nil:
		root = &Root{Key: k, Born: e.index, Status: Queued}
		e.firsts.note(k, p)
		if err := allocate(tx, root, nodes); err != nil {
			return nil, err
		}
	case root.Status == Failed && root.Refs == 0: // kept only for the pin that replaces it: try again
		root.Born, root.Status, root.Detail = e.index, Queued, ""
		for i := range root.Copies {
			if err := setPhase(tx, root, &root.Copies[i], Assigned, ""); err != nil {
				return nil, err
			}
		}
	case root.Status == Pinned && !root.UnderReplicated:
		if root.UnderReplicated, err = lacking(tx, root); err != nil {
			return nil, err
		}
	}
	if root.Status != Failed { // a failed root is on its way out: nothing holds on to it
		if err := root.repin(tx, e); err != nil {
			return nil, err
		}
		root.Refs++
		if err := p.hold(tx, k); err != nil {
			return nil, err
		}
	}
	e.fx.touch(root)
	if err := put(tx, rootKey(k), root); err != nil {
		return nil, err
	}
	return root, bill(tx, p.Account, root)
}

// repin sets Repinned after a pin was added. Below feature level 3 it does nothing.
func (v *Root) repin(r Reader, e *entry) error {
	if v.Born == e.index {
		return nil
	}
	level, err := levelOf(r)
	if err == nil && level >= 3 {
		v.Repinned = e.index
	}
	return err
}

// lacking returns whether a pinned root has lost so many copies that it has fewer than a root
// needs to become pinned. Below feature level 3 it returns false.
func lacking(r Reader, root *Root) (bool, error) {
	need, _, err := copiesIn(r)
	if err != nil {
		return false, err
	}
	if enough, err := root.enough(r, need); err != nil || enough {
		return false, err
	}
	level, err := levelOf(r)
	return level >= 3, err
}

// allocate sets the nodes to which a root is allocated. Nodes that were allocated before keep the
// phase of their copy.
func allocate(tx Tx, root *Root, nodes []NodeID) error {
	copies := make([]Copy, 0, len(nodes))
	for _, n := range nodes {
		c := root.Copy(n)
		if c == nil {
			c = &Copy{Node: n, Phase: Assigned}
			if err := count(tx, wantedCount(n), 1); err != nil {
				return err
			}
		}
		copies = append(copies, *c)
		if err := tx.Set(part(wantedOn(n), root.Key), []byte{byte(c.Phase)}); err != nil {
			return err
		}
	}
	for _, c := range root.Copies {
		if slices.Contains(nodes, c.Node) {
			continue
		}
		if err := count(tx, wantedCount(c.Node), -1); err != nil {
			return err
		}
		if c.Phase == Held {
			if err := count(tx, heldKey(c.Node), -1); err != nil {
				return err
			}
		}
		if err := tx.Delete(part(wantedOn(c.Node), root.Key)); err != nil {
			return err
		}
	}
	slices.SortFunc(copies, func(a, b Copy) int { return cmp.Compare(a.Node, b.Node) })
	root.Copies = copies
	return nil
}

// detach removes the reference of the pin p to root k. by is the pin that replaces p, or nil. A
// root without references is removed, unless it is kept because the root of by is not yet
// replicated; see retainReplaced.
func detach(tx Tx, p *Pin, k RootKey, by *Pin, e *entry) error {
	var replacement RootKey
	if by != nil {
		var err error
		if replacement, err = by.root(); err != nil {
			return err
		}
	}
	if attached, err := has(tx, attachedKey(p, k)); err != nil || !attached {
		return err // a failed pin holds nothing
	}
	if err := p.release(tx, k); err != nil {
		return err
	}
	root, err := get[Root](tx, rootKey(k))
	if err != nil {
		return err
	}
	if root == nil || root.Refs == 0 {
		return fmt.Errorf("state: pin %s is attached to root %s, which does not know it", p.ID, k)
	}
	root.Refs--
	if err := unbillPin(tx, p, root); err != nil {
		return err
	}
	if replacement != "" && replacement != k && root.Refs == 0 {
		if err := retainReplaced(tx, p.Account, root, replacement); err != nil {
			return err
		}
	}
	return keepOrRemove(tx, root, e)
}

// needed returns whether a pin, an object, a part or a replacement still needs the root.
func (v *Root) needed() bool { return v.Refs+v.Retainers+v.Links > 0 }

// Private returns whether only members may read the content: objects or parts reference it, none
// of them in a public bucket, and no pin does.
func (v *Root) Private() bool { return v.Refs == 0 && v.Links > 0 && v.Public == 0 }

// keepOrRemove stores a changed root, or removes it if nothing needs it any more.
func keepOrRemove(tx Tx, root *Root, e *entry) error {
	e.fx.touch(root)
	if root.needed() {
		return put(tx, rootKey(root.Key), root)
	}
	if err := allocate(tx, root, nil); err != nil {
		return err
	}
	if err := markShort(tx, root.Key, false); err != nil {
		return err
	}
	for _, k := range []key{rootKey(root.Key), settlingKey(root.Key), arrivedKey(root.Key), surplusKey(root.Key)} {
		if err := tx.Delete(k); err != nil {
			return err
		}
	}
	if root.Status == Pinned && !root.UnderReplicated {
		return nil // it released the roots that it replaced when it got this status
	}
	return releaseRetained(tx, root.Key, e)
}

// markShort sets or removes the mark of a root with fewer copies than it should have.
func markShort(tx Tx, k RootKey, short bool) error {
	was, err := has(tx, shortKey(k))
	if err != nil || was == short {
		return err
	}
	if short {
		if err := tx.Set(shortKey(k), nil); err != nil {
			return err
		}
		return count(tx, shortCount, 1)
	}
	if err := tx.Delete(shortKey(k)); err != nil {
		return err
	}
	return count(tx, shortCount, -1)
}

// rejudge computes the status of a root whose copies have changed, stores the root, and changes
// the status of its pins.
func rejudge(tx Tx, root *Root, e *entry) error {
	need, full, err := copiesIn(tx)
	if err != nil {
		return err
	}
	enough, err := root.enough(tx, need)
	if err != nil {
		return err
	}
	was, late := root.Status, root.UnderReplicated
	root.Status = root.judge(enough)
	root.UnderReplicated = root.UnderReplicated && root.Status == Pinned && !enough
	if root.Status == Failed {
		root.Detail = failure(root)
	}
	short := root.Status == Pinned && root.In(Held) < full
	if err := markShort(tx, root.Key, short); err != nil {
		return err
	}
	if err := noteSole(tx, root, e); err != nil {
		return err
	}
	e.fx.touch(root)
	if err := put(tx, rootKey(root.Key), root); err != nil {
		return err
	}
	if root.Status == was && root.UnderReplicated == late {
		return nil
	}
	if err := tx.Set(settlingKey(root.Key), nil); err != nil {
		return err
	}
	if root.settled() {
		if err := tx.Delete(arrivedKey(root.Key)); err != nil {
			return err
		}
		if err := releaseRetained(tx, root.Key, e); err != nil {
			return err
		}
	}
	return settleFrom(tx, root, nil, e)
}

// settle continues to change the pins of a root to the root's status, if the root has the mark for
// it.
func settle(tx Tx, k RootKey, e *entry) error {
	from, settling, err := tx.Get(settlingKey(k))
	if err != nil || !settling {
		return err
	}
	root, err := get[Root](tx, rootKey(k))
	if err != nil {
		return err
	}
	if root == nil {
		return tx.Delete(settlingKey(k))
	}
	return settleFrom(tx, root, from, e)
}

// settleFrom changes the pins of a root to the root's status, or to failed if their account cannot
// afford the content, beginning with the key from; nil means the first pin. It changes at most as
// many pins as the entry may; the mark then has the key at which SettleRoots continues.
func settleFrom(tx Tx, root *Root, from key, e *entry) error {
	k := root.Key
	pins, next, err := pinsToSettle(tx, root, from, e)
	if err != nil {
		return err
	}
	e.settle -= len(pins)
	refs := root.Refs
	for _, p := range pins {
		if root.Status == Pinned && p.exceeds(root.Size) {
			if err := letGo(tx, p, root, p.tooLarge(root.Size)); err != nil {
				return err
			}
			continue
		}
		if root.Status == Pinned {
			if ok, err := affordCharge(tx, p.Account, k, charge{Bytes: root.Size, Stored: true}); err != nil {
				return err
			} else if !ok {
				if err := letGo(tx, p, root, tooMuch(root.Size)); err != nil {
					return err
				}
				continue
			}
		}
		// A pin whose turn comes while the root is under-replicated stays pinning; all such
		// pins become pinned together.
		if p.Status != root.Status && !root.UnderReplicated {
			if err := movePin(tx, p, root.Status, OwnReason(root.Detail, p.Origins)); err != nil {
				return err
			}
		}
		if root.Status == Failed {
			if err := p.release(tx, k); err != nil {
				return err
			}
			root.Refs--
			if err := unbillPin(tx, p, root); err != nil {
				return err
			}
		}
	}
	if next != nil {
		e.fx.Settling = true
		if err := tx.Set(settlingKey(k), next); err != nil {
			return err
		}
	} else if err := tx.Delete(settlingKey(k)); err != nil {
		return err
	}
	if root.Refs != refs || root.Status == Failed {
		return keepOrRemove(tx, root, e)
	}
	return nil
}

// pinsToSettle returns the attached pins of a root from a key on, as many as the entry may change,
// and the key of the next pin, or nil at the end.
func pinsToSettle(tx Tx, root *Root, from key, e *entry) (pins []*Pin, next []byte, err error) {
	if len(from) == 0 {
		if p, err := e.firsts.only(tx, root); err != nil || p != nil && e.settle > 0 {
			return []*Pin{p}, nil, err
		}
		from = attachedTo(root.Key)
	}
	return attachedPins(tx, attachedTo(root.Key), from, e.settle)
}

// attachedPins returns up to limit pins with index rows under prefix, from a key on, and the key
// of the next row, or nil at the end.
func attachedPins(tx Tx, prefix, from key, limit int) (pins []*Pin, next []byte, err error) {
	var at []Pin
	err = tx.Scan(from, prefix.end(), false, func(k, _ []byte) (bool, error) {
		if len(at) == limit {
			next = slices.Clone(k)
			return false, nil
		}
		account, rest, err := readPart[AccountID](k[len(prefix):])
		if err != nil {
			return false, err
		}
		id, _, err := readPart[RequestID](rest)
		at = append(at, Pin{Account: account, ID: id})
		return err == nil, err
	})
	if err != nil {
		return nil, nil, err
	}
	for _, a := range at {
		p, err := findPin(tx, a.Account, a.ID)
		if err != nil {
			return nil, nil, err
		}
		if p == nil {
			return nil, nil, fmt.Errorf("state: pin %s is attached and does not exist", a.ID)
		}
		pins = append(pins, p)
	}
	return pins, next, nil
}
