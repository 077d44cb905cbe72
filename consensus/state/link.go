package state

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

func linksOf(k RootKey) key { return part(table(tableLink), k) }

func linkKey(k RootKey, a AccountID, id VersionID) key { return part(part(linksOf(k), a), id) }

// link is a reference from an object version, or an upload part, of an account to a root.
type link struct {
	root RootKey
	id   VersionID
}

// linking is a change in which a new version or part references content, and others that it
// replaces no longer do. judge checks the change, then write makes it.
type linking struct {
	account AccountID
	link
	content *Content // nil if the root exists and another link of the account refers to it
	size    uint64   // size of the version or part in bytes; not used without content
	joined  bool     // the content consists of the upload's parts, which are stored already
	public  bool     // the new link counts as public
	drops   []link
	comes   uint64 // quota weight of the record that the change creates
	goes    uint64 // quota weight of the records that the change removes

	// The following fields are results of judge.
	was     *Root
	holders []NodeID // members that have the content, with a valid report
	need    int      // number of copies that the content must have now
	full    int      // number of copies that the content should finally have
}

// judge makes all checks of the change and writes nothing. Errors: ErrExists, ErrQuota;
// ErrConflict if too few nodes still have the content.
func (l *linking) judge(tx Tx) error {
	var err error
	if l.was, err = get[Root](tx, rootKey(l.root)); err != nil {
		return err
	}
	if l.was != nil && l.was.Links > 0 {
		if taken, err := has(tx, linkKey(l.root, l.account, l.id)); err != nil {
			return err
		} else if taken {
			return Errorf(CodeExists, "there is a version %s already", l.id)
		}
	}
	if l.content == nil {
		if l.was == nil || l.was.Links == 0 {
			return Errorf(CodeConflict, "the content is not kept any more")
		}
		return l.afford(tx, l.was.Size)
	}
	if l.holders, err = holders(tx, l.content.Held); err != nil {
		return err
	}
	if l.need, l.full, err = copiesIn(tx); err != nil {
		return err
	}
	// Also for content that is pinned already: its recorded holders may be lost.
	if len(l.holders) < l.need {
		return Errorf(CodeConflict, "the content is not kept by enough nodes any more")
	}
	if l.was != nil && l.was.Status == Pinned {
		return l.afford(tx, l.was.Size)
	}
	return l.afford(tx, l.content.Bytes)
}

// holders returns the nodes with a valid report that they hold some content: the node is a
// member, and the report is not from an epoch below the node's fence.
func holders(r Reader, held []Holding) ([]NodeID, error) {
	var nodes []NodeID
	for _, h := range held {
		fence, err := counter(r, fenceKey(h.Node))
		if err != nil {
			return nil, err
		}
		if fence <= h.Epoch {
			nodes = append(nodes, h.Node)
		}
	}
	return onlyMembers(r, nodes)
}

// afford returns ErrQuota if the account may not store the content and the records that it would
// have after the change. dag is the size of the root's DAG in bytes. A change that does not
// increase the stored bytes is always allowed.
//
// The account is charged for the blocks of the DAG, but this check counts the bytes of the
// content, which the client knows. So the last change may exceed the allowance by the inner nodes
// of the DAG, about 60 bytes per MiB. If blocks repeat, the DAG is smaller than the content. A
// put is nevertheless checked by all bytes of its content, because its DAG is unknown before it
// arrives; see Incoming.
func (l *linking) afford(r Reader, dag uint64) error {
	least, most := dag, dag
	arrives := l.content != nil && !l.joined
	if l.joined {
		least = min(l.size, dag)
	} else if arrives {
		least, most = l.size, max(l.size, dag)
	}
	q, err := get[Quota](r, quotaKey(l.account))
	if err != nil || q == nil {
		return err
	}
	others := q.Used() - min(q.Used(), l.goes) + l.comes
	var now *charge
	if l.was != nil { // new content has no charge yet
		if now, err = get[charge](r, chargeKey(l.account, l.root)); err != nil {
			return err
		}
		if now != nil && (!arrives || !now.Stored || now.Bytes >= l.size) {
			others -= min(others, now.Bytes)
		}
	}
	if others > math.MaxInt64-most {
		return Errorf(CodeTooLarge, "the account stores more than can be counted")
	}
	if !q.exceeds(others + least) {
		return nil
	}
	freed, err := l.freed(r)
	if err != nil {
		return err
	}
	others -= min(others, freed)
	if !q.exceeds(others + least) {
		return nil
	}
	more := others+most > q.Used()
	if !more && now != nil && most+l.comes > freed+l.goes && !l.stays() {
		// Parts that are going may be all that the charge is for.
		if more, err = freeing(r, l.account); err != nil {
			return err
		}
	}
	if more {
		return noRoom(r, l.account, q, unfit(l.size, l.comes))
	}
	return nil
}

// stays returns whether the account certainly references the root before the change, apart from
// parts of an ended upload. Such parts do not count: they can be neither the source of a copy nor
// replaced by another change.
func (l *linking) stays() bool {
	return l.content == nil || slices.ContainsFunc(l.drops, func(d link) bool { return d.root == l.root })
}

// freed returns by how many bytes the account's use falls because the change removes links.
func (l *linking) freed(r Reader) (uint64, error) {
	going := make(map[RootKey]int, len(l.drops))
	for _, d := range l.drops {
		going[d.root]++
	}
	delete(going, l.root)
	var sum uint64
	for k, n := range going {
		c, err := get[charge](r, chargeKey(l.account, k))
		if err != nil {
			return 0, err
		}
		if c == nil {
			continue
		}
		root, err := get[Root](r, rootKey(k))
		if err != nil {
			return 0, err
		}
		if root == nil {
			return 0, fmt.Errorf("state: root %s is charged and has no record", k)
		}
		if root.Refs == 0 && root.Links <= uint64(n) { // all that there are
			sum += c.Bytes
			continue
		}
		holds, err := holdsAt(r, l.account, root, n+1)
		if err != nil {
			return 0, err
		}
		if holds <= n {
			sum += c.Bytes
		}
	}
	return sum, nil
}

// write makes the change that judge has checked. It adds the new link before it removes the old
// ones, so that content that both reference is never unreferenced.
func (l *linking) write(tx Tx, e *entry) error {
	if err := tx.Set(linkKey(l.root, l.account, l.id), linkRow(l.public)); err != nil {
		return err
	}
	bind := l.join
	switch {
	case l.was == nil:
		bind = l.found
	case l.was.Status != Pinned:
		bind = l.finish
	}
	if err := bind(tx, e); err != nil {
		return err
	}
	for _, d := range l.drops {
		if err := unlink(tx, l.account, d, e); err != nil {
			return err
		}
	}
	return nil
}

// charge counts size bytes of content against the account's quota for this root.
func (l *linking) charge(tx Tx, size uint64) error {
	q, err := get[Quota](tx, quotaKey(l.account))
	if err != nil || q == nil {
		return err
	}
	to := charge{Bytes: size, Stored: true}
	if l.was != nil {
		return setCharge(tx, l.account, q, l.root, to)
	}
	if err := to.on(q, true); err != nil {
		return err
	}
	if err := put(tx, quotaKey(l.account), q); err != nil {
		return err
	}
	return put(tx, chargeKey(l.account, l.root), &to)
}

// found creates the root record of new content, with the status pinned. It skips look-ups that
// cannot find anything, because new content is the case with the most look-ups.
func (l *linking) found(tx Tx, e *entry) error {
	root := &Root{Key: l.root, Born: e.index, Status: Pinned, Size: l.content.Bytes, Blocks: l.content.Blocks}
	root.link(l.public)
	nodes, err := onlyMembers(tx, l.content.Nodes)
	if err != nil {
		return err
	}
	if err := l.hold(tx, root, nodes, e); err != nil {
		return err
	}
	if err := l.charge(tx, root.Size); err != nil {
		return err
	}
	if root.In(Held) < l.full {
		if err := tx.Set(shortKey(root.Key), nil); err != nil {
			return err
		}
		if err := count(tx, shortCount, 1); err != nil {
			return err
		}
	}
	if len(l.holders) == 1 { // of more it is known that they are members
		if err := noteSole(tx, root, e); err != nil {
			return err
		}
	}
	e.fx.touch(root)
	return put(tx, rootKey(root.Key), root)
}

// finish handles a root that exists but is not pinned: pins wait for its content, or it has
// failed and is about to be removed. The content is here now, so the root and its pins become
// pinned.
func (l *linking) finish(tx Tx, e *entry) error {
	root := l.was
	e.fx.touch(root) // the nodes that lose it
	if root.Status == Failed {
		root.Born, root.Status, root.Detail = e.index, Queued, ""
	}
	root.Size, root.Blocks = l.content.Bytes, l.content.Blocks
	root.link(l.public)
	if err := l.hold(tx, root, root.Nodes(), e); err != nil {
		return err
	}
	if err := l.charge(tx, root.Size); err != nil {
		return err
	}
	return rejudge(tx, root, e)
}

// hold allocates a root to l.holders and then to nodes, to at most MaxCopies nodes in total;
// among nodes, those that hold the root come first. Repair removes surplus copies later.
func (l *linking) hold(tx Tx, root *Root, nodes []NodeID, e *entry) error {
	keep := slices.Clone(l.holders)
	for _, held := range []bool{true, false} {
		for _, n := range nodes {
			c := root.Copy(n)
			if (c != nil && c.Phase == Held) == held && len(keep) < MaxCopies && !slices.Contains(keep, n) {
				keep = append(keep, n)
			}
		}
	}
	if err := allocate(tx, root, keep); err != nil {
		return err
	}
	if _, err := l.held(tx, root); err != nil {
		return err
	}
	if len(root.Copies) <= l.full {
		return nil
	}
	return tx.Set(surplusKey(root.Key), binary.BigEndian.AppendUint64(nil, e.index))
}

// held sets the phase of the copies on l.holders to Held. Allocated nodes that gave up fetching
// get another attempt, because there is a source now. changed is true if a phase changed.
func (l *linking) held(tx Tx, root *Root) (changed bool, err error) {
	for i := range root.Copies {
		c := &root.Copies[i]
		phase, reason := Held, ""
		switch {
		case slices.Contains(l.holders, c.Node):
		case c.Phase == GaveUp && len(l.holders) > 0:
			phase, reason = Assigned, c.Reason
		default:
			continue
		}
		if c.Phase == phase && c.Reason == reason {
			continue
		}
		changed = true
		if err := setPhase(tx, root, c, phase, reason); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// join adds a link to a root that is pinned. The allocations remain if enough of the allocated
// nodes are among l.holders. Otherwise all of l.holders are allocated too, because it is unknown
// whether the other nodes still have the content.
func (l *linking) join(tx Tx, e *entry) error {
	root := l.was
	private := root.Private()
	if root.link(l.public); root.Private() != private {
		e.fx.touch(root) // nodes must hide it or show it
	}
	if err := l.charge(tx, root.Size); err != nil {
		return err
	}
	if l.content != nil && l.known() < l.need {
		e.fx.touch(root) // a node that loses it
		if err := l.hold(tx, root, root.Nodes(), e); err != nil {
			return err
		}
		return rejudge(tx, root, e)
	}
	changed, err := l.held(tx, root)
	if err != nil {
		return err
	}
	if changed {
		return rejudge(tx, root, e)
	}
	return put(tx, rootKey(root.Key), root)
}

// known returns how many of l.holders are allocated to the root already.
func (l *linking) known() (n int) {
	for _, h := range l.holders {
		if l.was.Copy(h) != nil {
			n++
		}
	}
	return n
}

// unlink removes one link. It also removes the root if nothing references the root any more.
func unlink(tx Tx, a AccountID, l link, e *entry) error {
	row := linkKey(l.root, a, l.id)
	value, linked, err := tx.Get(row)
	if err != nil {
		return err
	}
	root, err := get[Root](tx, rootKey(l.root))
	if err != nil {
		return err
	}
	if !linked || root == nil || root.Links == 0 {
		return fmt.Errorf("state: version %s names root %s, which does not know it", l.id, l.root)
	}
	if err := tx.Delete(row); err != nil {
		return err
	}
	private := root.Private()
	root.Links--
	if isPublic(value) {
		root.Public--
	}
	if err := unbill(tx, a, root, linksOf(root.Key), row); err != nil {
		return err
	}
	if root.needed() {
		if root.Private() != private {
			e.fx.touch(root)
		}
		return put(tx, rootKey(root.Key), root)
	}
	return keepOrRemove(tx, root, e)
}
