package blocks

import (
	"encoding/binary"
	"fmt"

	"github.com/multiformats/go-multihash"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// The index, in storage/kv, says where each block is and who references it. It
// is a function of the segments and can be thrown away. Keys begin with a
// letter; numbers are big endian:
//
//	b hash             -> segment, offset, size, references (uint32 each), and
//	                      where it is not 0, how many of the references are
//	                      hidden; segment 0: referenced, but its bytes are not here
//	o owner            -> incarnation, seal's segment, counts, segments with
//	                      outdated records, and a byte where it is sealed hidden,
//	                      or is going to be
//	r inc hash         -> segment of the reference, and a byte where it is hidden
//	u inc              -> an incarnation that is not whole: it is not sealed, or
//	                      it is dropped and has references left; or its seal was
//	                      changed and not all references say what it says: then
//	                      the owner and the last hash that does
//	x inc              -> a dropped incarnation whose drop record is needed
//	y segment inc      -> owner, if not yet dropped: the segment holds dead or
//	                      outdated records of the incarnation
//	z hash             -> during recovery: a block seen before any reference
//	d                  -> during recovery: seals are to be looked at
//	d owner            -> its seal was taken back, and it has none since: blocks it lacked then, segment of the seal
//	s segment          -> live records and their bytes
//	m                  -> how far into the segments the index reaches; totals
//
// A drop record is needed until no segment holds a record that it kills, or
// recovery from the segments would bring the owner back to life. Among them are
// those that were outdated before the drop: a seal that another replaced, and
// what a compaction has copied without getting to remove the segment.
//
// A reference is hidden when its owner is sealed hidden. References that were there
// before the seal are counted in steps, and until the last of them the incarnation
// is not whole: so nothing of it shows before all of it does, and all of it is hidden
// at once. Of an owner that is known to become hidden they are hidden as they come; the
// segments do not say that, and without it the seal counts them. Version 3 knew nothing hidden, and is else the same.
const (
	indexVersion  = 4
	oldestVersion = 3

	keyBlock   = 'b'
	keyOwner   = 'o'
	keyRef     = 'r'
	keyOpen    = 'u'
	keyDropped = 'x'
	keyDead    = 'y'
	keyOrphan  = 'z'
	keyDoubt   = 'd'
	keySegment = 's'
	keyMeta    = 'm'
)

func blockKey(hash multihash.Multihash) []byte {
	return append(append(make([]byte, 0, 1+len(hash)), keyBlock), hash...)
}

func orphanKey(hash multihash.Multihash) []byte {
	return append(append(make([]byte, 0, 1+len(hash)), keyOrphan), hash...)
}

func ownerKey(owner string) []byte {
	return append(append(make([]byte, 0, 1+len(owner)), keyOwner), owner...)
}

func refPrefix(inc uint64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 9), keyRef), inc)
}

func refKey(inc uint64, hash multihash.Multihash) []byte {
	b := append(make([]byte, 0, 9+len(hash)), keyRef)
	return append(binary.BigEndian.AppendUint64(b, inc), hash...)
}

func doubtKey(owner string) []byte {
	return append(append(make([]byte, 0, 1+len(owner)), keyDoubt), owner...)
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

// after returns the smallest key above all that begin with prefix.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// sparse returns true for the keys that are mostly looked up without being found: new blocks
// and new owners.
func sparse(key []byte) bool {
	return len(key) > 0 && (key[0] == keyBlock || key[0] == keyOwner)
}

// sparseAfter tells where behind a key that is not sparse the next such one may be.
func sparseAfter(key []byte) []byte {
	switch {
	case len(key) == 0 || key[0] < keyBlock:
		return []byte{keyBlock}
	case key[0] < keyOwner:
		return []byte{keyOwner}
	default:
		return []byte{0xff} // no key begins with it
	}
}

func badEntry(key []byte) error {
	return fmt.Errorf("%w: index entry %q", kv.ErrCorrupt, key)
}

type blockEntry struct {
	segment, off, size uint32
	refs, hidden       uint32 // hidden are among refs
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

// refEntry is one reference of an owner.
type refEntry struct {
	segment uint32
	hidden  bool // counted among the block's hidden ones
}

func (e refEntry) encode() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 5), e.segment)
	if e.hidden {
		b = append(b, 1)
	}
	return b
}

func decodeRefEntry(key, v []byte) (refEntry, error) {
	if len(v) != 4 && len(v) != 5 {
		return refEntry{}, badEntry(key)
	}
	return refEntry{binary.BigEndian.Uint32(v), len(v) == 5}, nil
}

// uncounted is the value of an incarnation whose references are being counted as
// its seal says, up to a hash.
func uncounted(owner string, upTo multihash.Multihash) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(owner)+len(upTo)), uint16(len(owner)))
	return append(append(b, owner...), upTo...)
}

// getUncounted undoes uncounted; ok is false for an incarnation that is counted.
func getUncounted(g getter, inc uint64) (owner string, upTo multihash.Multihash, ok bool, err error) {
	key := openKey(inc)
	v, ok, err := g.Get(key)
	if err != nil || !ok || len(v) == 0 {
		return "", nil, false, err
	}
	r := reader{b: append([]byte(nil), v...)}
	owner = string(r.take(int(r.uint(2))))
	if r.bad || owner == "" {
		return "", nil, false, badEntry(key)
	}
	return owner, r.b, true, nil
}

type ownerEntry struct {
	inc           uint64
	sealSegment   uint32 // 0: not sealed
	bytes, blocks uint64 // as referenced so far
	sealed        Sealed // declares blocks without a segment: the seal was taken back
	outdated      uint32 // segments that hold outdated records
}

func (e ownerEntry) encode() []byte {
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

func decodeOwnerEntry(key, v []byte) (ownerEntry, error) {
	if len(v) != 48 && len(v) != 49 {
		return ownerEntry{}, badEntry(key)
	}
	n := func(at int) uint64 { return binary.BigEndian.Uint64(v[at:]) }
	return ownerEntry{n(0), binary.BigEndian.Uint32(v[8:]), n(12), n(20), Sealed{n(28), n(36), len(v) == 49}, binary.BigEndian.Uint32(v[44:])}, nil
}

// doubted tells whether the owner was sealed and its seal was taken back.
func (e ownerEntry) doubted() bool { return e.sealSegment == 0 && e.sealed.Blocks > 0 }

// sealIn is the segment of the owner's last seal, which may have been taken back; 0: it has
// none.
func (e ownerEntry) sealIn(from getter, owner string) (uint32, error) {
	if !e.doubted() {
		return e.sealSegment, nil
	}
	d, err := getDoubt(from, owner)
	return d.segment, err
}

// doubtEntry is what is known of a seal that was taken back.
type doubtEntry struct {
	lacked  uint64 // blocks, then
	segment uint32 // of its record
}

func (e doubtEntry) encode() []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(make([]byte, 0, 12), e.lacked), e.segment)
}

// getDoubt returns the zero value where there is no doubt.
func getDoubt(from getter, owner string) (e doubtEntry, err error) {
	key := doubtKey(owner)
	v, ok, err := from.Get(key)
	if err != nil || !ok {
		return e, err
	}
	return decodeDoubtEntry(key, v)
}

func decodeDoubtEntry(key, v []byte) (doubtEntry, error) {
	r := reader{b: v}
	e := doubtEntry{lacked: r.uint(8)}
	if len(v) > 8 { // else its record is not kept: a store before this one took it back
		e.segment = uint32(r.uint(4))
	}
	if r.bad {
		return e, badEntry(key)
	}
	return e, nil
}

// says tells whether the owner is sealed with just that declaration.
func (e ownerEntry) says(sealed Sealed) bool {
	return e.sealSegment != 0 && e.sealed == e.declares(sealed)
}

// declares returns the declaration to store: with no more blocks than the owner references. A
// caller may count blocks by CID, and several CIDs can name one block or contain it inline. A
// seal of more blocks than references would count as one that has lost references.
func (e ownerEntry) declares(sealed Sealed) Sealed {
	sealed.Blocks = min(sealed.Blocks, e.blocks)
	return sealed
}

func (e ownerEntry) info(owner string) OwnerInfo {
	if e.sealSegment != 0 {
		return OwnerInfo{Owner: owner, Sealed: true, Hidden: e.sealed.Hidden, Bytes: e.sealed.Bytes, Blocks: e.sealed.Blocks}
	}
	return OwnerInfo{Owner: owner, Bytes: e.bytes, Blocks: e.blocks}
}

type droppedEntry struct {
	segment  uint32 // of the drop record; 0: there is none
	segments uint32 // other segments that hold dead or outdated records
	swept    bool   // no reference is left in the index
	owner    string
}

func (e droppedEntry) encode() []byte {
	b := binary.BigEndian.AppendUint32(nil, e.segment)
	b = binary.BigEndian.AppendUint32(b, e.segments)
	swept := byte(0)
	if e.swept {
		swept = 1
	}
	return append(append(b, swept), e.owner...)
}

func decodeDroppedEntry(key, v []byte) (droppedEntry, error) {
	if len(v) < 9 {
		return droppedEntry{}, badEntry(key)
	}
	return droppedEntry{binary.BigEndian.Uint32(v), binary.BigEndian.Uint32(v[4:]), v[8] == 1, string(v[9:])}, nil
}

// load is what a segment still holds that is needed.
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
	segment uint32 // the index covers all before off in this segment
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

// getter is what a kv view, transaction and store have in common.
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

func getOwner(g getter, owner string) (ownerEntry, bool, error) {
	key := ownerKey(owner)
	v, ok, err := g.Get(key)
	if err != nil || !ok {
		return ownerEntry{}, false, err
	}
	e, err := decodeOwnerEntry(key, v)
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
