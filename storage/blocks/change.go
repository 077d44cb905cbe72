package blocks

import (
	"encoding/binary"
	"math"

	"github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// change is the effect of a run of records on the index: one transaction, and the changes
// of the counts in memory. Live writes and recovery use the same code.
type change struct {
	tx      *kv.Tx
	loads   map[uint32]load // changes of the loads of segments, to be added
	totals  totals          // changes of the totals, to be added
	opened  map[uint64]bool // incarnations that now need a sweep
	turned  map[uint64]bool // incarnations whose blocks must be counted again
	removed []uint32        // segments whose files were removed
	step    int             // number of blocks that a seal counts at once
	born    uint64          // incarnations from this position on begin in this change
	seals   bool            // this change also seals the reference
	hiding  bool            // the seal in this change is hidden
	hid     uint64          // number of entries that this change made hidden for the seal
	coming  bool            // references that begin in this change will be sealed hidden
}

// change starts a change of the index. The index may already have its records.
func (s *Store) change() *change {
	return &change{
		tx: s.index.Begin(), step: s.opts.countStep, born: math.MaxUint64,
		loads: make(map[uint32]load), opened: make(map[uint64]bool), turned: make(map[uint64]bool),
	}
}

// of returns where to read the index entries of an incarnation. For an incarnation that began
// in this change, the index has no entries yet, because a position is never used twice.
func (c *change) of(inc uint64) getter {
	if inc >= c.born {
		return own{c.tx}
	}
	return c.tx
}

// own reads only what a transaction has written itself.
type own struct{ tx *kv.Tx }

// Get returns a value that the transaction has written.
func (o own) Get(key []byte) (value []byte, ok bool, err error) { return o.tx.GetOwn(key) }

// add counts a live record, or a part of a record, in a segment; sub subtracts it again.
// Segment 0 means that there is no record.
func (c *change) add(segment uint32, bytes int64) {
	l := c.loads[segment]
	c.loads[segment] = load{l.records + 1, l.bytes + bytes}
}

func (c *change) sub(segment uint32, bytes int64) {
	l := c.loads[segment]
	c.loads[segment] = load{l.records - 1, l.bytes - bytes}
}

// apply adds the effect of a record in segment to the change.
func (c *change) apply(rec record, segment uint32) error {
	switch rec.kind {
	case kindBlock:
		return c.block(rec.hash, uint32(len(rec.data)), segment, uint32(rec.off))
	case kindReference:
		return c.addBlocks(rec.inc, rec.reference, rec.refs, segment)
	case kindSeal, kindHidden:
		return c.seal(rec.inc, rec.reference, rec.sealed, segment)
	default:
		return c.drop(rec.inc, rec.reference, segment)
	}
}

// block records that the bytes of hash are at the offset off in segment. An earlier location
// becomes garbage, because the newest location is a copy by Compact or a repair and therefore
// right.
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

// entryOf returns the index entry of the reference to which a record of inc belongs, a new
// one if there is none. dead is true if the record belongs to a dropped incarnation.
func (c *change) entryOf(inc uint64, reference string, segment uint32) (e referenceEntry, dead bool, err error) {
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
	e, ok, err = getReference(c.tx, reference)
	if err != nil || !ok || e.inc == inc {
		e.inc = inc
		return e, false, err
	}
	// Two incarnations at once: the drop between them was lost to damage. The older one was
	// dropped all the same.
	if e.inc > inc {
		x = droppedEntry{reference: reference}
		c.opened[inc] = true
		if err := c.kill(&x, inc, segment); err != nil {
			return e, true, err
		}
		return e, true, c.tx.Set(droppedKey(inc), x.encode())
	}
	return referenceEntry{inc: inc}, false, c.drop(e.inc, reference, 0)
}

// outdate records that segment has a record of a live reference that a later record has
// replaced. Only the drop of the reference needs this fact.
func (c *change) outdate(o *referenceEntry, reference string, segment uint32) error {
	key := deadKey(segment, o.inc)
	if _, ok, err := c.tx.Get(key); err != nil || ok {
		return err
	}
	o.outdated++
	return c.tx.Set(key, []byte(reference))
}

// kill records that segment holds a dead record of inc, unless the drop record is in the
// same segment and is removed together with it.
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

func (c *change) addBlocks(inc uint64, reference string, refs []blockRef, segment uint32) error {
	o, dead, err := c.entryOf(inc, reference, segment)
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
		isNew, err := c.addBlock(&o, reference, r, segment)
		if err != nil {
			return err
		}
		if isNew {
			o.blocks++
			o.bytes += uint64(r.size)
		}
	}
	return c.tx.Set(referenceKey(reference), o.encode())
}

func (c *change) addBlock(o *referenceEntry, reference string, r blockRef, segment uint32) (isNew bool, err error) {
	key := blockRefKey(o.inc, r.hash)
	v, ok, err := c.of(o.inc).Get(key)
	if err != nil {
		return false, err
	}
	if ok {
		at, err := decodeBlockRefEntry(key, v)
		if err != nil || at.segment == segment {
			return false, err
		}
		c.sub(at.segment, refBytes(r.hash))
		c.add(segment, refBytes(r.hash))
		if err := c.outdate(o, reference, at.segment); err != nil {
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
	if err := c.tx.Set(key, blockRefEntry{segment, hidden}.encode()); err != nil {
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

func (c *change) seal(inc uint64, reference string, sealed Sealed, segment uint32) error {
	o, dead, err := c.entryOf(inc, reference, segment)
	if err != nil || dead {
		return err
	}
	if o.doubted() && o.blocks < sealed.Blocks { // a copy of the revoked seal
		return c.moveDoubt(&o, reference, segment)
	}
	counted := c.hiding && o.sealSegment == 0 && c.hid == o.blocks
	if o.sealed.Hidden != sealed.Hidden && !counted {
		err = c.turn(inc, reference, sealed.Hidden)
	} else if o.sealSegment == 0 {
		err = c.close(inc)
	}
	if err != nil {
		return err
	}
	was, err := c.trust(o, reference)
	if err != nil {
		return err
	}
	if was != 0 {
		c.sub(was, sealRecordBytes(reference))
		if was != segment {
			if err := c.outdate(&o, reference, was); err != nil {
				return err
			}
		}
	}
	c.add(segment, sealRecordBytes(reference))
	o.sealSegment, o.sealed = segment, sealed
	return c.tx.Set(referenceKey(reference), o.encode())
}

// doubtful returns up to limit references that are sealed and have fewer blocks than their
// seals declare.
func (c *change) doubtful(from, end []byte, limit int) (references []string, err error) {
	err = c.tx.Scan(from, end, false, func(key, value []byte) (bool, error) {
		o, err := decodeReferenceEntry(key, value)
		if err == nil && o.sealSegment != 0 && o.blocks < o.sealed.Blocks {
			references = append(references, string(key[1:]))
		}
		return len(references) < limit, err
	})
	return references, err
}

// doubt revokes the seal of a reference. The counts of its blocks stay as the seal declared
// them. The record of the seal stays until the reference is sealed again, so that a rebuilt
// index doubts the reference again.
func (c *change) doubt(reference string) error {
	o, _, err := getReference(c.tx, reference)
	if err != nil {
		return err
	}
	d := doubtEntry{o.sealed.Blocks - o.blocks, o.sealSegment}
	o.sealSegment = 0
	if err := c.tx.Set(openKey(o.inc), nil); err != nil {
		return err
	}
	if err := c.tx.Set(doubtKey(reference), d.encode()); err != nil {
		return err
	}
	return c.tx.Set(referenceKey(reference), o.encode())
}

// moveDoubt notes that the record of the revoked seal is in another segment now.
func (c *change) moveDoubt(o *referenceEntry, reference string, segment uint32) error {
	d, err := getDoubt(c.tx, reference)
	if err != nil || d.segment == segment {
		return err
	}
	if d.segment != 0 {
		c.sub(d.segment, sealRecordBytes(reference))
		if err := c.outdate(o, reference, d.segment); err != nil {
			return err
		}
	}
	c.add(segment, sealRecordBytes(reference))
	d.segment = segment
	if err := c.tx.Set(doubtKey(reference), d.encode()); err != nil {
		return err
	}
	return c.tx.Set(referenceKey(reference), o.encode())
}

// trust ends a doubt, because the reference is sealed again or dropped. It returns the segment
// of the last seal, or 0 if there is none.
func (c *change) trust(o referenceEntry, reference string) (segment uint32, err error) {
	segment, err = o.sealIn(c.tx, reference)
	if err != nil || !o.doubted() {
		return segment, err
	}
	return segment, c.tx.Delete(doubtKey(reference))
}

// close records that an incarnation is complete.
func (c *change) close(inc uint64) error {
	key := openKey(inc)
	if inc >= c.born {
		if _, open, err := c.tx.GetOwn(key); err != nil || !open {
			return err
		}
	}
	return c.tx.Delete(key)
}

// turn begins to make the entries of an incarnation hidden or visible. Most references have few
// blocks, and for these turn also completes the change.
func (c *change) turn(inc uint64, reference string, hidden bool) error {
	if err := c.tx.Set(openKey(inc), uncounted(reference, nil)); err != nil {
		return err
	}
	done, err := c.count(inc, reference, nil, hidden, c.step)
	if !done {
		c.turned[inc] = true
	}
	return err
}

// count changes up to limit entries of an incarnation to hidden or visible, starting after
// a hash. An open entry in the index marks the rest, also after a crash. Blocks that are
// added meanwhile are counted when they arrive.
func (c *change) count(inc uint64, reference string, from multihash.Multihash, hidden bool, limit int) (done bool, err error) {
	prefix := blockRefPrefix(inc)
	lower := prefix
	if len(from) > 0 {
		lower = append(blockRefKey(inc, from), 0)
	}
	type found struct {
		hash multihash.Multihash
		at   blockRefEntry
	}
	var refs []found
	err = c.tx.Scan(lower, after(prefix), false, func(key, v []byte) (bool, error) {
		at, err := decodeBlockRefEntry(key, v)
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
		if err := c.tx.Set(blockRefKey(inc, r.hash), r.at.encode()); err != nil {
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
	return false, c.tx.Set(openKey(inc), uncounted(reference, refs[len(refs)-1].hash))
}

// drop ends an incarnation. Its entries are swept later, in steps. Segment 0 means that
// there is no drop record.
func (c *change) drop(inc uint64, reference string, segment uint32) error {
	x, ok, err := getDropped(c.of(inc), inc)
	if err != nil {
		return err
	}
	if ok { // a copy, or the first record of a known drop that recovery reads
		if err := c.dropRecord(&x, inc, segment); err != nil {
			return err
		}
		return c.settle(inc, x)
	}
	x = droppedEntry{reference: reference}
	o, ok, err := getReference(c.tx, reference)
	if err != nil {
		return err
	}
	if ok && o.inc == inc {
		x.segments = o.outdated
		was, err := c.trust(o, reference)
		if err != nil {
			return err
		}
		if was != 0 {
			c.sub(was, sealRecordBytes(reference))
			if err := c.kill(&x, inc, was); err != nil {
				return err
			}
		}
		if err := c.tx.Delete(referenceKey(reference)); err != nil {
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

// dropRecord notes that the drop record is in segment. The records there that it kills are
// removed together with it.
func (c *change) dropRecord(x *droppedEntry, inc uint64, segment uint32) error {
	if x.segment != 0 {
		c.sub(x.segment, dropRecordBytes(x.reference))
	}
	c.add(segment, dropRecordBytes(x.reference))
	x.segment = segment
	key := deadKey(segment, inc)
	if _, ok, err := c.tx.Get(key); err != nil || !ok {
		return err
	}
	x.segments--
	return c.tx.Delete(key)
}

// sweep removes up to limit entries of a dropped incarnation, and the blocks that no other
// reference includes. It writes no record, because after a crash it starts again.
func (c *change) sweep(inc uint64, limit int) (freed uint64, done bool, err error) {
	x, ok, err := getDropped(c.tx, inc)
	if err != nil || !ok || x.swept {
		return 0, true, err
	}
	prefix := blockRefPrefix(inc)
	type dead struct {
		hash multihash.Multihash
		at   blockRefEntry
	}
	var found []dead
	err = c.tx.Scan(prefix, after(prefix), false, func(key, v []byte) (bool, error) {
		at, err := decodeBlockRefEntry(key, v)
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
		if err := c.tx.Delete(blockRefKey(inc, d.hash)); err != nil {
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

// free removes a block without references.
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

// settle stores x, or deletes the stored value if no dead record of its drop is left.
func (c *change) settle(inc uint64, x droppedEntry) error {
	if !x.swept || x.segments > 0 {
		return c.tx.Set(droppedKey(inc), x.encode())
	}
	if x.segment != 0 {
		c.sub(x.segment, dropRecordBytes(x.reference))
	}
	return c.tx.Delete(droppedKey(inc))
}

// lose marks the bytes of hash at this location as damaged.
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

// gone notes that the file of a segment was removed. Drop records that were needed only for its
// dead records are no longer needed.
func (c *change) gone(segment uint32) error {
	prefix := deadPrefix(segment)
	references := make(map[uint64]string) // key: incarnation
	err := c.tx.Scan(prefix, after(prefix), false, func(key, reference []byte) (bool, error) {
		if len(key) != len(prefix)+8 {
			return false, badEntry(key)
		}
		references[binary.BigEndian.Uint64(key[len(prefix):])] = string(reference)
		return true, nil
	})
	if err != nil {
		return err
	}
	for inc, reference := range references {
		if err := c.tx.Delete(deadKey(segment, inc)); err != nil {
			return err
		}
		if err := c.forgotten(inc, reference); err != nil {
			return err
		}
	}
	return c.tx.Delete(segmentKey(segment))
}

// forgotten notes that one segment fewer holds dead or outdated records of inc.
func (c *change) forgotten(inc uint64, reference string) error {
	x, ok, err := getDropped(c.tx, inc)
	if err != nil {
		return err
	}
	if ok {
		x.segments -= min(x.segments, 1)
		return c.settle(inc, x)
	}
	o, ok, err := getReference(c.tx, reference)
	if err != nil || !ok || o.inc != inc {
		return err
	}
	o.outdated -= min(o.outdated, 1)
	return c.tx.Set(referenceKey(reference), o.encode())
}

// orphans frees the blocks that recovery has found and that no reference includes.
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
