package blocks

import (
	"encoding/binary"
	"math"

	"github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// change is what a run of records does to the index: one transaction, and what
// it adds to the counts that are kept in memory. Live writes and recovery use
// the same change, so recovery is the normal path.
type change struct {
	tx      *kv.Tx
	loads   map[uint32]load // to be added
	totals  totals          // to be added
	opened  map[uint64]bool // incarnations that now need a sweep
	turned  map[uint64]bool // incarnations whose references are to be counted anew
	removed []uint32        // segments whose files are gone
	step    int             // references that a seal counts at once
	born    uint64          // incarnations from this one on began in this change
	seals   bool            // a seal of what is referenced follows, in this change
	hiding  bool            // and it is a hidden one
	hid     uint64          // references that were made hidden for it
	coming  bool            // owners that begin now are going to be sealed hidden
}

// change begins one. The records that it enters may be known to the index.
func (s *Store) change() *change {
	return &change{
		tx: s.index.Begin(), step: s.opts.countStep, born: math.MaxUint64,
		loads: make(map[uint32]load), opened: make(map[uint64]bool), turned: make(map[uint64]bool),
	}
}

// of is where to look for what the index says of an incarnation. Of one that
// began in this change it says nothing yet: a position is never used again.
func (c *change) of(inc uint64) getter {
	if inc >= c.born {
		return own{c.tx}
	}
	return c.tx
}

// own is a transaction without the store below it.
type own struct{ tx *kv.Tx }

// Get returns what the transaction has written.
func (o own) Get(key []byte) (value []byte, ok bool, err error) { return o.tx.GetOwn(key) }

// add counts one live record, or part of one, in a segment; sub takes it away.
// Segment 0 stands for no record.
func (c *change) add(segment uint32, bytes int64) {
	l := c.loads[segment]
	c.loads[segment] = load{l.records + 1, l.bytes + bytes}
}

func (c *change) sub(segment uint32, bytes int64) {
	l := c.loads[segment]
	c.loads[segment] = load{l.records - 1, l.bytes - bytes}
}

// apply enters the record that stands in segment.
func (c *change) apply(rec record, segment uint32) error {
	switch rec.kind {
	case kindBlock:
		return c.block(rec.hash, uint32(len(rec.data)), segment, uint32(rec.off))
	case kindReference:
		return c.references(rec.inc, rec.owner, rec.refs, segment)
	case kindSeal, kindHidden:
		return c.seal(rec.inc, rec.owner, rec.sealed, segment)
	default:
		return c.drop(rec.inc, rec.owner, segment)
	}
}

// block says that the bytes of hash are at off in segment. An earlier place is
// garbage from now on: the newest wins, because it is a compaction's copy, or
// a repair.
func (c *change) block(hash multihash.Multihash, size, segment, off uint32) error {
	e, ok, err := getBlock(c.tx, hash)
	if err != nil {
		return err
	}
	switch {
	case !ok:
		if err := c.tx.Set(orphanKey(hash), nil); err != nil {
			return err
		}
		c.located(size, +1)
	case e.segment == 0:
		c.totals.missing--
		c.located(size, +1)
	case e.segment == segment && e.off == off:
		return nil
	default:
		c.sub(e.segment, blockRecordBytes(hash, e.size))
	}
	c.add(segment, blockRecordBytes(hash, size))
	e.segment, e.off, e.size = segment, off, size
	return c.tx.Set(blockKey(hash), e.encode())
}

func (c *change) located(size uint32, n int64) {
	c.totals.blocks += n
	c.totals.bytes += n * int64(size)
}

// owner returns the entry for a record of inc, a new one if there is none.
// dead says that the record belongs to an incarnation that was dropped.
func (c *change) owner(inc uint64, owner string, segment uint32) (e ownerEntry, dead bool, err error) {
	x, ok, err := getDropped(c.of(inc), inc)
	if err != nil {
		return e, false, err
	}
	if ok {
		if err := c.kill(&x, inc, segment); err != nil {
			return e, true, err
		}
		return e, true, c.tx.Set(droppedKey(inc), x.encode())
	}
	e, ok, err = getOwner(c.tx, owner)
	if err != nil || !ok || e.inc == inc {
		e.inc = inc
		return e, false, err
	}
	// Two incarnations at once: the drop between them was lost to damage. The
	// older is gone all the same.
	if e.inc > inc {
		x = droppedEntry{owner: owner}
		c.opened[inc] = true
		if err := c.kill(&x, inc, segment); err != nil {
			return e, true, err
		}
		return e, true, c.tx.Set(droppedKey(inc), x.encode())
	}
	return ownerEntry{inc: inc}, false, c.drop(e.inc, owner, 0)
}

// outdate notes that segment holds a record of a living owner that a later one
// replaced. Only a drop has to know.
func (c *change) outdate(o *ownerEntry, owner string, segment uint32) error {
	key := deadKey(segment, o.inc)
	if _, ok, err := c.tx.Get(key); err != nil || ok {
		return err
	}
	o.outdated++
	return c.tx.Set(key, []byte(owner))
}

// kill notes that segment holds a dead record of inc, unless the drop record
// is in the same segment and goes away together with it.
func (c *change) kill(x *droppedEntry, inc uint64, segment uint32) error {
	if segment == x.segment {
		return nil
	}
	key := deadKey(segment, inc)
	if _, ok, err := c.tx.Get(key); err != nil || ok {
		return err
	}
	x.segments++
	return c.tx.Set(key, nil)
}

func (c *change) references(inc uint64, owner string, refs []ref, segment uint32) error {
	o, dead, err := c.owner(inc, owner, segment)
	if err != nil || dead {
		return err
	}
	if o.blocks == 0 && o.sealSegment == 0 && !c.seals {
		if err := c.tx.Set(openKey(inc), nil); err != nil {
			return err
		}
		o.sealed.Hidden = c.coming
	}
	for _, r := range refs {
		isNew, err := c.reference(&o, owner, r, segment)
		if err != nil {
			return err
		}
		if isNew {
			o.blocks++
			o.bytes += uint64(r.size)
		}
	}
	return c.tx.Set(ownerKey(owner), o.encode())
}

func (c *change) reference(o *ownerEntry, owner string, r ref, segment uint32) (isNew bool, err error) {
	key := refKey(o.inc, r.hash)
	v, ok, err := c.of(o.inc).Get(key)
	if err != nil {
		return false, err
	}
	if ok {
		at, err := decodeRefEntry(key, v)
		if err != nil || at.segment == segment {
			return false, err
		}
		c.sub(at.segment, refBytes(r.hash))
		c.add(segment, refBytes(r.hash))
		if err := c.outdate(o, owner, at.segment); err != nil {
			return false, err
		}
		at.segment = segment
		return false, c.tx.Set(key, at.encode())
	}
	hidden := o.sealed.Hidden
	if c.hiding && o.sealSegment == 0 {
		hidden = true
		c.hid++
	}
	c.add(segment, refBytes(r.hash))
	if err := c.tx.Set(key, refEntry{segment, hidden}.encode()); err != nil {
		return false, err
	}
	e, ok, err := getBlock(c.tx, r.hash)
	switch {
	case err != nil:
		return false, err
	case !ok:
		e.size = r.size
		c.totals.missing++
	case e.refs == 0:
		if err := c.tx.Delete(orphanKey(r.hash)); err != nil {
			return false, err
		}
	}
	e.refs++
	if hidden {
		e.hidden++
	}
	return true, c.tx.Set(blockKey(r.hash), e.encode())
}

func (c *change) seal(inc uint64, owner string, sealed Sealed, segment uint32) error {
	o, dead, err := c.owner(inc, owner, segment)
	if err != nil || dead {
		return err
	}
	if o.doubted() && o.blocks < sealed.Blocks { // a copy of the seal that was taken back
		return c.moveDoubt(&o, owner, segment)
	}
	counted := c.hiding && o.sealSegment == 0 && c.hid == o.blocks
	if o.sealed.Hidden != sealed.Hidden && !counted {
		err = c.turn(inc, owner, sealed.Hidden)
	} else if o.sealSegment == 0 {
		err = c.close(inc)
	}
	if err != nil {
		return err
	}
	was, err := c.trust(o, owner)
	if err != nil {
		return err
	}
	if was != 0 {
		c.sub(was, sealRecordBytes(owner))
		if was != segment {
			if err := c.outdate(&o, owner, was); err != nil {
				return err
			}
		}
	}
	c.add(segment, sealRecordBytes(owner))
	o.sealSegment, o.sealed = segment, sealed
	return c.tx.Set(ownerKey(owner), o.encode())
}

// doubtful lists up to limit owners that are sealed and refer to fewer blocks than they
// declare.
func (c *change) doubtful(from, end []byte, limit int) (owners []string, err error) {
	err = c.tx.Scan(from, end, false, func(key, value []byte) (bool, error) {
		o, err := decodeOwnerEntry(key, value)
		if err == nil && o.sealSegment != 0 && o.blocks < o.sealed.Blocks {
			owners = append(owners, string(key[1:]))
		}
		return len(owners) < limit, err
	})
	return owners, err
}

// doubt says that an owner is not sealed after all. Its references stay counted as the
// seal said, and that there was one is known until there is another: its record stays, so
// that an index which is made anew doubts it again.
func (c *change) doubt(owner string) error {
	o, _, err := getOwner(c.tx, owner)
	if err != nil {
		return err
	}
	d := doubtEntry{o.sealed.Blocks - o.blocks, o.sealSegment}
	o.sealSegment = 0
	if err := c.tx.Set(openKey(o.inc), nil); err != nil {
		return err
	}
	if err := c.tx.Set(doubtKey(owner), d.encode()); err != nil {
		return err
	}
	return c.tx.Set(ownerKey(owner), o.encode())
}

// moveDoubt says that the seal that was taken back stands in another segment now.
func (c *change) moveDoubt(o *ownerEntry, owner string, segment uint32) error {
	d, err := getDoubt(c.tx, owner)
	if err != nil || d.segment == segment {
		return err
	}
	if d.segment != 0 {
		c.sub(d.segment, sealRecordBytes(owner))
		if err := c.outdate(o, owner, d.segment); err != nil {
			return err
		}
	}
	c.add(segment, sealRecordBytes(owner))
	d.segment = segment
	if err := c.tx.Set(doubtKey(owner), d.encode()); err != nil {
		return err
	}
	return c.tx.Set(ownerKey(owner), o.encode())
}

// trust ends a doubt, for the owner is sealed again, or dropped, and returns the segment of
// its last seal; 0: it has none.
func (c *change) trust(o ownerEntry, owner string) (segment uint32, err error) {
	segment, err = o.sealIn(c.tx, owner)
	if err != nil || !o.doubted() {
		return segment, err
	}
	return segment, c.tx.Delete(doubtKey(owner))
}

// close says that an incarnation is whole.
func (c *change) close(inc uint64) error {
	key := openKey(inc)
	if inc >= c.born {
		if _, open, err := c.tx.GetOwn(key); err != nil || !open {
			return err
		}
	}
	return c.tx.Delete(key)
}

// turn begins to make the references of an incarnation hidden, or not. Most owners
// have few, and are done with that.
func (c *change) turn(inc uint64, owner string, hidden bool) error {
	if err := c.tx.Set(openKey(inc), uncounted(owner, nil)); err != nil {
		return err
	}
	done, err := c.count(inc, owner, nil, hidden, c.step)
	if !done {
		c.turned[inc] = true
	}
	return err
}

// count changes up to limit references of an incarnation to hidden or visible, beginning after
// a hash. An open entry marks the rest, also after a crash. Blocks that the owner gets
// meanwhile are counted when they arrive.
func (c *change) count(inc uint64, owner string, from multihash.Multihash, hidden bool, limit int) (done bool, err error) {
	prefix := refPrefix(inc)
	lower := prefix
	if len(from) > 0 {
		lower = append(refKey(inc, from), 0)
	}
	type found struct {
		hash multihash.Multihash
		at   refEntry
	}
	var refs []found
	err = c.tx.Scan(lower, after(prefix), false, func(key, v []byte) (bool, error) {
		at, err := decodeRefEntry(key, v)
		if err != nil {
			return false, err
		}
		refs = append(refs, found{append(multihash.Multihash(nil), key[len(prefix):]...), at})
		return len(refs) < limit, nil
	})
	if err != nil {
		return false, err
	}
	for _, r := range refs {
		if r.at.hidden == hidden {
			continue
		}
		r.at.hidden = hidden
		if err := c.tx.Set(refKey(inc, r.hash), r.at.encode()); err != nil {
			return false, err
		}
		e, ok, err := getBlock(c.tx, r.hash)
		if err != nil {
			return false, err
		}
		if !ok || !hidden && e.hidden == 0 {
			return false, badEntry(blockKey(r.hash))
		}
		if hidden {
			e.hidden++
		} else {
			e.hidden--
		}
		if err := c.tx.Set(blockKey(r.hash), e.encode()); err != nil {
			return false, err
		}
	}
	if len(refs) < limit {
		return true, c.tx.Delete(openKey(inc))
	}
	return false, c.tx.Set(openKey(inc), uncounted(owner, refs[len(refs)-1].hash))
}

// drop ends an incarnation. Its references are swept afterwards, in steps.
// Segment 0 means that no drop record exists.
func (c *change) drop(inc uint64, owner string, segment uint32) error {
	x, ok, err := getDropped(c.of(inc), inc)
	if err != nil {
		return err
	}
	if ok { // a copy, or the first that recovery meets of a known drop
		if err := c.dropRecord(&x, inc, segment); err != nil {
			return err
		}
		return c.settle(inc, x)
	}
	x = droppedEntry{owner: owner}
	o, ok, err := getOwner(c.tx, owner)
	if err != nil {
		return err
	}
	if ok && o.inc == inc {
		x.segments = o.outdated
		was, err := c.trust(o, owner)
		if err != nil {
			return err
		}
		if was != 0 {
			c.sub(was, sealRecordBytes(owner))
			if err := c.kill(&x, inc, was); err != nil {
				return err
			}
		}
		if err := c.tx.Delete(ownerKey(owner)); err != nil {
			return err
		}
	}
	if segment != 0 {
		if err := c.dropRecord(&x, inc, segment); err != nil {
			return err
		}
	}
	c.opened[inc] = true
	if err := c.tx.Set(openKey(inc), nil); err != nil {
		return err
	}
	return c.tx.Set(droppedKey(inc), x.encode())
}

// dropRecord notes that the drop record is in segment, where what it kills now
// goes away together with it.
func (c *change) dropRecord(x *droppedEntry, inc uint64, segment uint32) error {
	if x.segment != 0 {
		c.sub(x.segment, dropRecordBytes(x.owner))
	}
	c.add(segment, dropRecordBytes(x.owner))
	x.segment = segment
	key := deadKey(segment, inc)
	if _, ok, err := c.tx.Get(key); err != nil || !ok {
		return err
	}
	x.segments--
	return c.tx.Delete(key)
}

// sweep removes up to limit references of a dropped incarnation, and the blocks
// that nobody else references. It writes no record: after a crash it is done
// again.
func (c *change) sweep(inc uint64, limit int) (freed uint64, done bool, err error) {
	x, ok, err := getDropped(c.tx, inc)
	if err != nil || !ok || x.swept {
		return 0, true, err
	}
	prefix := refPrefix(inc)
	type dead struct {
		hash multihash.Multihash
		at   refEntry
	}
	var found []dead
	err = c.tx.Scan(prefix, after(prefix), false, func(key, v []byte) (bool, error) {
		at, err := decodeRefEntry(key, v)
		if err != nil {
			return false, err
		}
		found = append(found, dead{append(multihash.Multihash(nil), key[len(prefix):]...), at})
		return len(found) < limit, nil
	})
	if err != nil {
		return 0, false, err
	}
	for _, d := range found {
		c.sub(d.at.segment, refBytes(d.hash))
		if err := c.kill(&x, inc, d.at.segment); err != nil {
			return 0, false, err
		}
		if err := c.tx.Delete(refKey(inc, d.hash)); err != nil {
			return 0, false, err
		}
		n, err := c.unreference(d.hash, d.at.hidden)
		if err != nil {
			return 0, false, err
		}
		freed += n
	}
	if x.swept = len(found) < limit; x.swept {
		if err := c.tx.Delete(openKey(inc)); err != nil {
			return freed, true, err
		}
	}
	return freed, x.swept, c.settle(inc, x)
}

func (c *change) unreference(hash multihash.Multihash, hidden bool) (freed uint64, err error) {
	e, ok, err := getBlock(c.tx, hash)
	if err != nil {
		return 0, err
	}
	if !ok || e.refs == 0 || hidden && e.hidden == 0 {
		return 0, badEntry(blockKey(hash))
	}
	if hidden {
		e.hidden--
	}
	if e.refs--; e.refs > 0 {
		return 0, c.tx.Set(blockKey(hash), e.encode())
	}
	return c.free(hash, e)
}

// free removes a block that has no reference.
func (c *change) free(hash multihash.Multihash, e blockEntry) (freed uint64, err error) {
	if e.segment == 0 {
		c.totals.missing--
	} else {
		c.sub(e.segment, blockRecordBytes(hash, e.size))
		c.located(e.size, -1)
		freed = uint64(e.size)
	}
	return freed, c.tx.Delete(blockKey(hash))
}

// settle stores x, or forgets it when its drop record has no dead record left
// to kill.
func (c *change) settle(inc uint64, x droppedEntry) error {
	if !x.swept || x.segments > 0 {
		return c.tx.Set(droppedKey(inc), x.encode())
	}
	if x.segment != 0 {
		c.sub(x.segment, dropRecordBytes(x.owner))
	}
	return c.tx.Delete(droppedKey(inc))
}

// lose says that the bytes of hash at this place are no good.
func (c *change) lose(hash multihash.Multihash, segment, off uint32) error {
	e, ok, err := getBlock(c.tx, hash)
	if err != nil || !ok || e.segment != segment || e.off != off {
		return err
	}
	c.sub(segment, blockRecordBytes(hash, e.size))
	c.located(e.size, -1)
	c.totals.missing++
	e.segment, e.off = 0, 0
	return c.tx.Set(blockKey(hash), e.encode())
}

// gone says that the file of a segment is removed: drops that were needed for
// its dead records alone are needed no longer.
func (c *change) gone(segment uint32) error {
	prefix := deadPrefix(segment)
	owners := make(map[uint64]string) // by incarnation
	err := c.tx.Scan(prefix, after(prefix), false, func(key, owner []byte) (bool, error) {
		if len(key) != len(prefix)+8 {
			return false, badEntry(key)
		}
		owners[binary.BigEndian.Uint64(key[len(prefix):])] = string(owner)
		return true, nil
	})
	if err != nil {
		return err
	}
	for inc, owner := range owners {
		if err := c.tx.Delete(deadKey(segment, inc)); err != nil {
			return err
		}
		if err := c.forgotten(inc, owner); err != nil {
			return err
		}
	}
	return c.tx.Delete(segmentKey(segment))
}

// forgotten says that one segment less holds dead or outdated records of inc.
func (c *change) forgotten(inc uint64, owner string) error {
	x, ok, err := getDropped(c.tx, inc)
	if err != nil {
		return err
	}
	if ok {
		x.segments -= min(x.segments, 1)
		return c.settle(inc, x)
	}
	o, ok, err := getOwner(c.tx, owner)
	if err != nil || !ok || o.inc != inc {
		return err
	}
	o.outdated -= min(o.outdated, 1)
	return c.tx.Set(ownerKey(owner), o.encode())
}

// orphans frees the blocks that recovery met and that no reference names.
func (c *change) orphans(limit int) (done bool, err error) {
	var hashes []multihash.Multihash
	err = c.tx.Scan([]byte{keyOrphan}, []byte{keyOrphan + 1}, false, func(key, _ []byte) (bool, error) {
		hashes = append(hashes, append(multihash.Multihash(nil), key[1:]...))
		return len(hashes) < limit, nil
	})
	if err != nil {
		return false, err
	}
	for _, hash := range hashes {
		if err := c.tx.Delete(orphanKey(hash)); err != nil {
			return false, err
		}
		e, ok, err := getBlock(c.tx, hash)
		if err != nil {
			return false, err
		}
		if ok && e.refs == 0 {
			if _, err := c.free(hash, e); err != nil {
				return false, err
			}
		}
	}
	return len(hashes) < limit, nil
}
