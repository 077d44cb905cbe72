package blocks

import (
	"encoding/binary"
	"math"

	"github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// change is the effect of consecutive records on the index: one transaction, and the changes of the
// counts in memory. Writes and recovery use the same code. An incarnation is one life of a
// reference, from its first record to its drop. Its entries are the rows of the index for its
// blocks.
type change struct {
	tx      *kv.Tx
	loads   map[uint32]load // by how much the loads of segments change
	totals  totals          // by how much the totals of the store change
	freed   Freed           // blocks that lost their last reference; the files are counted in removed
	opened  map[uint64]bool // dropped incarnations whose entries must be removed
	turned  map[uint64]bool // incarnations whose blocks must still be marked as hidden or visible
	removed []uint32        // segments whose files were removed
	step    int             // number of blocks that one step marks as hidden or visible
	born    uint64          // incarnations that begin at this position or later began in this change
	seals   bool            // this change also seals the reference
	hiding  bool            // this change seals the reference as hidden
	hid     uint64          // number of blocks that this change has marked as hidden for the seal
	coming  bool            // references that begin in this change will later be sealed as hidden
}

// change starts a change of the index. The records may be in the index already, because recovery
// can read them twice.
func (s *Store) change() *change {
	return &change{
		tx: s.index.Begin(), step: s.opts.countStep, born: math.MaxUint64,
		loads: make(map[uint32]load), opened: make(map[uint64]bool), turned: make(map[uint64]bool),
	}
}

// of returns the reader for the index entries of an incarnation (one life of a reference). If the
// incarnation began in this change, the index has no entries of it, so it is enough to read what
// the transaction itself has written.
func (c *change) of(inc uint64) getter {
	if inc >= c.born {
		return own{c.tx}
	}
	return c.tx
}

// own reads only what its transaction has written.
type own struct{ tx *kv.Tx }

// Get returns a value that the transaction has written.
func (o own) Get(key []byte) (value []byte, ok bool, err error) { return o.tx.GetOwn(key) }

// add counts a live record, or a part of a record, in a segment; sub undoes it. Segment 0 means
// that there is no record, and is counted without effect.
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

// block sets the location of the block with this hash to the offset off in segment. If the block
// had another location, the bytes there become garbage: a later record is a copy by Compact or a
// repair, and therefore right.
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

// entryOf returns the index entry of the reference to which a record of the incarnation inc
// belongs, or a new entry if there is none. dead is true if the incarnation has already been
// dropped, so that the record has no effect.
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

// outdate records that segment contains a record of a live reference that a later record has
// replaced. When the reference is dropped, its drop record must be kept as long as such records
// exist.
func (c *change) outdate(o *referenceEntry, reference string, segment uint32) error {
	key := deadKey(segment, o.inc)
	if _, ok, err := c.tx.Get(key); err != nil || ok {
		return err
	}
	o.outdated++
	return c.tx.Set(key, []byte(reference))
}

// kill records that segment contains a record of the dropped incarnation inc, so that the drop
// record must be kept as long as this segment exists. It does nothing if the drop record is in the
// same segment, because both are then removed together.
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

// doubtful returns up to limit references whose keys are between from and end, that are sealed and
// have fewer blocks than their seals declare.
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

// doubt revokes the seal of a reference, because the reference has lost blocks. The number of
// blocks that the seal declared stays in the index. The record of the seal stays in its segment
// until the reference is sealed again, so that an index that is rebuilt from the segments revokes
// the seal too.
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

// moveDoubt records that Compact has copied the record of the revoked seal to another segment.
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

// trust deletes the index entry about a revoked seal, because the reference is being sealed again
// or dropped. It returns the segment with the record of the last seal, or 0 if there is none.
func (c *change) trust(o referenceEntry, reference string) (segment uint32, err error) {
	segment, err = o.sealIn(c.tx, reference)
	if err != nil || !o.doubted() {
		return segment, err
	}
	return segment, c.tx.Delete(doubtKey(reference))
}

// close deletes the index entry that marks an incarnation (one life of a reference) as not
// complete.
func (c *change) close(inc uint64) error {
	key := openKey(inc)
	if inc >= c.born {
		if _, open, err := c.tx.GetOwn(key); err != nil || !open {
			return err
		}
	}
	return c.tx.Delete(key)
}

// turn begins to mark all blocks of an incarnation as hidden or visible. For references with few
// blocks, which most are, turn also completes this. Otherwise later calls of count continue.
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

// count marks up to limit blocks of an incarnation as hidden or visible, those after the hash from,
// and changes the number of hidden references of each block. done is true if no blocks are left.
// The index stores how far it has come, so that it continues after a crash. Blocks that are added
// meanwhile are marked when they are added.
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

// drop ends an incarnation (one life of a reference). sweep removes its index entries later, in
// steps. segment is the segment with the drop record, or 0 if there is none.
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

// dropRecord records that segment contains the drop record of inc. Records of inc in the same
// segment no longer matter, because they are removed together with the drop record.
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

// sweep removes up to limit index entries of a dropped incarnation, and the blocks that no other
// reference includes. freed is the size of these blocks in bytes. done is true if no entries are
// left. sweep writes no record to the journal, because after a crash it simply starts again.
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

// free removes a block without references from the index and returns its size in bytes, or 0 if its
// bytes were missing.
func (c *change) free(hash multihash.Multihash, e blockEntry) (freed uint64, err error) {
	if e.segment == 0 {
		c.totals.missing--
	} else {
		c.sub(e.segment, blockRecordBytes(hash, e.size))
		c.located(e.size, -1)
		freed = uint64(e.size)
		c.freed.Blocks++
		c.freed.Bytes += freed
	}
	return freed, c.tx.Delete(blockKey(hash))
}

// settle stores x, the index entry of a dropped incarnation. If no segment contains a record of the
// incarnation any more, its drop record is no longer needed, and settle deletes the entry instead.
func (c *change) settle(inc uint64, x droppedEntry) error {
	if !x.swept || x.segments > 0 {
		return c.tx.Set(droppedKey(inc), x.encode())
	}
	if x.segment != 0 {
		c.sub(x.segment, dropRecordBytes(x.reference))
	}
	return c.tx.Delete(droppedKey(inc))
}

// lose marks the block with this hash as missing, if the index has it at this location, because its
// bytes there are damaged.
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

// gone records that the file of a segment was removed. Drop records that were needed only because
// of records in this segment are then no longer needed.
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

// forgotten records that one segment fewer contains dead or outdated records of the incarnation
// inc.
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

// orphans removes up to limit blocks that recovery has found in the segments and that no reference
// includes. done is true if no such blocks are left.
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
