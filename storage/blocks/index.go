package blocks

import (
	"encoding/binary"
	"fmt"

	"github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// The index, in storage/kv, has the location of each block and the entries of each
// reference. It is derived from the segments and can be rebuilt. Keys begin with a letter;
// numbers are big endian:
//
//	b hash             -> segment, offset, size, reference count (uint32 each), and
//	                      if not 0, how many of the references are hidden;
//	                      segment 0: the block has references but is missing
//	o reference        -> incarnation, segment of the seal, counts, number of segments
//	                      with outdated records, and a byte if it is sealed hidden,
//	                      or will be
//	r inc hash         -> entry: segment of the record, and a byte if it is hidden
//	u inc              -> an incarnation that is not complete: it is not sealed; or
//	                      it is dropped and has entries left; or its entries are
//	                      being marked as hidden or visible: then the reference and
//	                      the hash up to which they are marked
//	x inc              -> a dropped incarnation whose drop record is needed
//	y segment inc      -> reference, if not dropped yet: the segment has dead or
//	                      outdated records of the incarnation
//	z hash             -> during recovery: a block without a reference so far
//	d                  -> during recovery: the seals must be checked
//	d reference        -> its seal was revoked, and there was none since: number of
//	                      blocks missing then, segment of the seal
//	s segment          -> number and size of its live records
//	m                  -> position up to which the index is complete; totals
//
// An incarnation (inc) is one life of a reference, from its first record to its drop. A drop
// record must be kept as long as any segment has a record of the dropped incarnation;
// otherwise recovery from the segments would restore the reference. Such records include
// those that were outdated before the drop: a seal that a later one replaced, and records
// that a compaction copied before it was interrupted.
//
// If a reference is sealed as hidden, its entries are marked as hidden. Entries from before
// the seal are marked in steps, and the incarnation is not complete until all are marked. So
// all its blocks become visible or hidden at the same moment. If it is known in advance that
// a reference will be hidden, its entries are marked when they are added. The segments do
// not record that; after a recovery the seal marks the entries. Version 3 had no hidden
// references and is otherwise the same.
const (
	indexVersion  = 4
	oldestVersion = 3

	keyBlock     = 'b'
	keyReference = 'o'
	keyBlockRef  = 'r'
	keyOpen      = 'u'
	keyDropped   = 'x'
	keyDead      = 'y'
	keyOrphan    = 'z'
	keyDoubt     = 'd'
	keySegment   = 's'
	keyMeta      = 'm'
)

func blockKey(hash multihash.Multihash) []byte {
	return append(append(make([]byte, 0, 1+len(hash)), keyBlock), hash...)
}

func orphanKey(hash multihash.Multihash) []byte {
	return append(append(make([]byte, 0, 1+len(hash)), keyOrphan), hash...)
}

func referenceKey(reference string) []byte {
	return append(append(make([]byte, 0, 1+len(reference)), keyReference), reference...)
}

func blockRefPrefix(inc uint64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 9), keyBlockRef), inc)
}

func blockRefKey(inc uint64, hash multihash.Multihash) []byte {
	b := append(make([]byte, 0, 9+len(hash)), keyBlockRef)
	return append(binary.BigEndian.AppendUint64(b, inc), hash...)
}

func doubtKey(reference string) []byte {
	return append(append(make([]byte, 0, 1+len(reference)), keyDoubt), reference...)
}

func openKey(inc uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{keyOpen}, inc)
}

func droppedKey(inc uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{keyDropped}, inc)
}

func deadPrefix(segment uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{keyDead}, segment)
}

func deadKey(segment uint32, inc uint64) []byte {
	return binary.BigEndian.AppendUint64(deadPrefix(segment), inc)
}

func segmentKey(segment uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{keySegment}, segment)
}

// after returns the smallest key that is larger than all keys with this prefix.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// sparse returns true for keys that transactions often look up and seldom find: those of new blocks
// and new references. It is the function Is of kv.Sparse.
func sparse(key []byte) bool {
	return len(key) > 0 && (key[0] == keyBlock || key[0] == keyReference)
}

// sparseAfter returns, for a key that is not sparse, the smallest key after it that can be sparse.
// It is the function After of kv.Sparse.
func sparseAfter(key []byte) []byte {
	switch {
	case len(key) == 0 || key[0] < keyBlock:
		return []byte{keyBlock}
	case key[0] < keyReference:
		return []byte{keyReference}
	default:
		return []byte{0xff} // no key begins with it
	}
}

func badEntry(key []byte) error {
	return fmt.Errorf("%w: index entry %q", kv.ErrCorrupt, key)
}

type blockEntry struct {
	segment, off, size uint32
	refs, hidden       uint32 // number of references that include the block, and how many of them are hidden
}

func (e blockEntry) encode() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 20), e.segment)
	b = binary.BigEndian.AppendUint32(b, e.off)
	b = binary.BigEndian.AppendUint32(b, e.size)
	b = binary.BigEndian.AppendUint32(b, e.refs)
	if e.hidden == 0 {
		return b
	}
	return binary.BigEndian.AppendUint32(b, e.hidden)
}

func decodeBlockEntry(key, v []byte) (blockEntry, error) {
	if len(v) != 16 && len(v) != 20 {
		return blockEntry{}, badEntry(key)
	}
	e := blockEntry{
		segment: binary.BigEndian.Uint32(v), off: binary.BigEndian.Uint32(v[4:]),
		size: binary.BigEndian.Uint32(v[8:]), refs: binary.BigEndian.Uint32(v[12:]),
	}
	if len(v) == 20 {
		e.hidden = binary.BigEndian.Uint32(v[16:])
	}
	if e.hidden > e.refs {
		return blockEntry{}, badEntry(key)
	}
	return e, nil
}

// blockRefEntry is the index entry of one block of a reference.
type blockRefEntry struct {
	segment uint32
	hidden  bool // the reference counts as hidden in the entry of the block
}

func (e blockRefEntry) encode() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 5), e.segment)
	if e.hidden {
		b = append(b, 1)
	}
	return b
}

func decodeBlockRefEntry(key, v []byte) (blockRefEntry, error) {
	if len(v) != 4 && len(v) != 5 {
		return blockRefEntry{}, badEntry(key)
	}
	return blockRefEntry{binary.BigEndian.Uint32(v), len(v) == 5}, nil
}

// uncounted returns the index value for an incarnation (one life of a reference) whose blocks are
// being marked as hidden or visible. upTo is the last hash that has been marked.
func uncounted(reference string, upTo multihash.Multihash) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(reference)+len(upTo)), uint16(len(reference)))
	return append(append(b, reference...), upTo...)
}

// getUncounted reads the value that uncounted has made. ok is false if the blocks of the
// incarnation are all marked as its seal says.
func getUncounted(g getter, inc uint64) (reference string, upTo multihash.Multihash, ok bool, err error) {
	key := openKey(inc)
	v, ok, err := g.Get(key)
	if err != nil || !ok || len(v) == 0 {
		return "", nil, false, err
	}
	r := reader{b: append([]byte(nil), v...)}
	reference = string(r.take(int(r.uint(2))))
	if r.bad || reference == "" {
		return "", nil, false, badEntry(key)
	}
	return reference, r.b, true, nil
}

type referenceEntry struct {
	inc           uint64
	sealSegment   uint32 // 0 means not sealed
	bytes, blocks uint64 // size and number of its blocks so far
	sealed        Sealed // if it declares blocks but sealSegment is 0, the seal was revoked
	outdated      uint32 // number of segments with outdated records
}

func (e referenceEntry) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 49), e.inc)
	b = binary.BigEndian.AppendUint32(b, e.sealSegment)
	for _, n := range []uint64{e.bytes, e.blocks, e.sealed.Bytes, e.sealed.Blocks} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = binary.BigEndian.AppendUint32(b, e.outdated)
	if e.sealed.Hidden {
		b = append(b, 1)
	}
	return b
}

func decodeReferenceEntry(key, v []byte) (referenceEntry, error) {
	if len(v) != 48 && len(v) != 49 {
		return referenceEntry{}, badEntry(key)
	}
	n := func(at int) uint64 { return binary.BigEndian.Uint64(v[at:]) }
	return referenceEntry{n(0), binary.BigEndian.Uint32(v[8:]), n(12), n(20), Sealed{n(28), n(36), len(v) == 49}, binary.BigEndian.Uint32(v[44:])}, nil
}

// doubted returns whether the reference was sealed and its seal was revoked later.
func (e referenceEntry) doubted() bool { return e.sealSegment == 0 && e.sealed.Blocks > 0 }

// sealIn returns the segment with the record of the last seal of the reference, even if that seal
// was revoked; 0 if there is none.
func (e referenceEntry) sealIn(from getter, reference string) (uint32, error) {
	if !e.doubted() {
		return e.sealSegment, nil
	}
	d, err := getDoubt(from, reference)
	return d.segment, err
}

// doubtEntry describes a revoked seal.
type doubtEntry struct {
	lacked  uint64 // number of blocks that were missing when the seal was revoked
	segment uint32 // segment of the record of the seal
}

func (e doubtEntry) encode() []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(make([]byte, 0, 12), e.lacked), e.segment)
}

// getDoubt returns the index entry about the revoked seal of a reference, or the zero value if
// there is none.
func getDoubt(from getter, reference string) (e doubtEntry, err error) {
	key := doubtKey(reference)
	v, ok, err := from.Get(key)
	if err != nil || !ok {
		return e, err
	}
	return decodeDoubtEntry(key, v)
}

func decodeDoubtEntry(key, v []byte) (doubtEntry, error) {
	r := reader{b: v}
	e := doubtEntry{lacked: r.uint(8)}
	if len(v) > 8 { // else an older release revoked it and did not keep its record
		e.segment = uint32(r.uint(4))
	}
	if r.bad {
		return e, badEntry(key)
	}
	return e, nil
}

// says reports whether the reference is sealed with exactly this declaration.
func (e referenceEntry) says(sealed Sealed) bool {
	return e.sealSegment != 0 && e.sealed == e.declares(sealed)
}

// declares returns the declaration to store for a seal, with at most as many blocks as the
// reference has. A caller may count blocks by CID, and several CIDs can name the same block, or
// contain it as an identity hash. If the stored number were too large, the reference would look as
// if it had lost blocks.
func (e referenceEntry) declares(sealed Sealed) Sealed {
	sealed.Blocks = min(sealed.Blocks, e.blocks)
	return sealed
}

func (e referenceEntry) info(reference string) ReferenceInfo {
	if e.sealSegment != 0 {
		return ReferenceInfo{Reference: reference, Sealed: true, Hidden: e.sealed.Hidden, Bytes: e.sealed.Bytes, Blocks: e.sealed.Blocks}
	}
	return ReferenceInfo{Reference: reference, Bytes: e.bytes, Blocks: e.blocks}
}

type droppedEntry struct {
	segment   uint32 // segment of the drop record; 0 means that there is none
	segments  uint32 // number of other segments with dead or outdated records
	swept     bool   // the index has no entries of the reference any more
	reference string
}

func (e droppedEntry) encode() []byte {
	b := binary.BigEndian.AppendUint32(nil, e.segment)
	b = binary.BigEndian.AppendUint32(b, e.segments)
	swept := byte(0)
	if e.swept {
		swept = 1
	}
	return append(append(b, swept), e.reference...)
}

func decodeDroppedEntry(key, v []byte) (droppedEntry, error) {
	if len(v) < 9 {
		return droppedEntry{}, badEntry(key)
	}
	return droppedEntry{binary.BigEndian.Uint32(v), binary.BigEndian.Uint32(v[4:]), v[8] == 1, string(v[9:])}, nil
}

// load is the number of live records in a segment, and their size in bytes.
type load struct{ records, bytes int64 }

func (l load) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(l.records))
	return binary.BigEndian.AppendUint64(b, uint64(l.bytes))
}

func decodeLoad(key, v []byte) (load, error) {
	if len(v) != 16 {
		return load{}, badEntry(key)
	}
	return load{int64(binary.BigEndian.Uint64(v)), int64(binary.BigEndian.Uint64(v[8:]))}, nil
}

// totals are sums over all blocks of the index.
type totals struct{ blocks, bytes, missing int64 }

type meta struct {
	segment uint32 // the index is complete up to off in this segment
	off     int64
	totals  totals
}

func (m meta) encode() []byte {
	b := binary.BigEndian.AppendUint32([]byte{indexVersion}, m.segment)
	for _, n := range []int64{m.off, m.totals.blocks, m.totals.bytes, m.totals.missing} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func decodeMeta(v []byte) (meta, error) {
	if len(v) > 0 && v[0] > indexVersion {
		return meta{}, durable.Newer("the index of the blocks", uint64(v[0]), indexVersion)
	}
	if len(v) != 37 || v[0] < oldestVersion || v[0] > indexVersion {
		return meta{}, badEntry([]byte{keyMeta})
	}
	n := func(at int) int64 { return int64(binary.BigEndian.Uint64(v[at:])) }
	return meta{binary.BigEndian.Uint32(v[1:]), n(5), totals{n(13), n(21), n(29)}}, nil
}

// getter is the common part of a kv view, a transaction and a store.
type getter interface {
	Get(key []byte) (value []byte, ok bool, err error)
}

func getBlock(g getter, hash multihash.Multihash) (blockEntry, bool, error) {
	key := blockKey(hash)
	v, ok, err := g.Get(key)
	if err != nil || !ok {
		return blockEntry{}, false, err
	}
	e, err := decodeBlockEntry(key, v)
	return e, err == nil, err
}

func getReference(g getter, reference string) (referenceEntry, bool, error) {
	key := referenceKey(reference)
	v, ok, err := g.Get(key)
	if err != nil || !ok {
		return referenceEntry{}, false, err
	}
	e, err := decodeReferenceEntry(key, v)
	return e, err == nil, err
}

func getDropped(g getter, inc uint64) (droppedEntry, bool, error) {
	key := droppedKey(inc)
	v, ok, err := g.Get(key)
	if err != nil || !ok {
		return droppedEntry{}, false, err
	}
	e, err := decodeDroppedEntry(key, v)
	return e, err == nil, err
}
