package blocks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/multiformats/go-multihash"
)

// The segment format, version 1. Numbers are big endian. Every checksum starts from the
// random seed of the segment (the CRC32C of its salt and number) xor the offset of the
// record. So bytes inside a block can never look like a record, even if somebody chose them
// for that, and a record is invalid at any other offset.
//
//	segment  header twice, then records
//	header   "HFSEG" 0x00 0x00 0x01, number uint32, salt uint64,
//	         8 zero bytes, CRC32C uint32 (from zero) of all these
//	record   magic uint32, kind uint8, 3 zero bytes, length uint32,
//	         payload CRC uint32, CRC uint32 of the preceding 16 bytes; payload
//
// Payloads. A hash is its length uint8 and the multihash; a name is the length uint16 and
// the text of the name of a reference:
//
//	block      hash, bytes
//	reference  incarnation uint64, name, count uint16, count × (hash, size uint32)
//	drop       incarnation uint64, name
//	seal       incarnation uint64, name, bytes uint64, blocks uint64
//	hidden     as seal, for a reference that is sealed hidden
//
// An incarnation distinguishes a reference from an earlier one of the same name: it is the
// position of its first record, so it grows and is never used again. Blocks have no
// tombstones: a block without a reference is garbage.
const (
	segmentMagic     = "HFSEG\x00\x00\x01"
	segmentVersion   = 1
	headerCopyBytes  = 32
	headerBytes      = 2 * headerCopyBytes
	recordMagic      = 0xF5A3C91E
	recordHeadBytes  = 20
	maxPayloadBytes  = MaxBlockBytes + 256
	maxRefsPerRecord = 1024
	maxMultihash     = 255

	kindBlock     = 1
	kindReference = 2
	kindDrop      = 3
	kindSeal      = 4
	kindHidden    = 5 // unknown to releases before index version 4
)

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// segmentHeader returns the two copies of a segment's header.
func segmentHeader(number uint32, salt uint64) []byte {
	h := append(make([]byte, 0, headerBytes), segmentMagic...)
	h = binary.BigEndian.AppendUint32(h, number)
	h = binary.BigEndian.AppendUint64(h, salt)
	h = append(h, make([]byte, 8)...)
	h = binary.BigEndian.AppendUint32(h, crc32.Checksum(h, castagnoli()))
	return append(h, h...)
}

// parseSegmentHeader returns the seed from the first valid copy of the header.
func parseSegmentHeader(h []byte, number uint32) (seed uint32, ok bool) {
	for at := 0; at+headerCopyBytes <= len(h) && at < headerBytes; at += headerCopyBytes {
		c := h[at : at+headerCopyBytes]
		if string(c[:8]) == segmentMagic && binary.BigEndian.Uint32(c[8:]) == number &&
			binary.BigEndian.Uint32(c[28:]) == crc32.Checksum(c[:28], castagnoli()) {
			return crc32.Checksum(c[8:20], castagnoli()), true
		}
	}
	return 0, false
}

// newerSegment returns the version of a header that a newer release wrote, or 0 if the bytes
// are no such header. The checksum of a header, which is in the same place in every version,
// proves that the bytes are a header.
func newerSegment(h []byte) uint64 {
	for at := 0; at+headerCopyBytes <= len(h) && at < headerBytes; at += headerCopyBytes {
		c := h[at : at+headerCopyBytes]
		version := uint64(c[5])<<16 | uint64(c[6])<<8 | uint64(c[7])
		if string(c[:5]) == segmentMagic[:5] && version > segmentVersion && binary.BigEndian.Uint32(c[28:]) == crc32.Checksum(c[:28], castagnoli()) {
			return version
		}
	}
	return 0
}

func recordSum(seed uint32, off int64, b []byte) uint32 {
	return crc32.Update(seed^uint32(off), castagnoli(), b)
}

// beginRecord reserves the head of a record at the end of b.
func beginRecord(b []byte) []byte {
	var head [recordHeadBytes]byte
	return append(b, head[:]...)
}

// endRecord fills in the head of the record that begins at b[start] and will be at off in
// its segment.
func endRecord(b []byte, start int, seed uint32, off int64, kind byte) {
	endSummed(b, start, seed, off, kind, recordSum(seed, off, b[start+recordHeadBytes:]))
}

// endSummed does the same as endRecord if the checksum of the payload, sum, is already known.
func endSummed(b []byte, start int, seed uint32, off int64, kind byte, sum uint32) {
	head, payload := b[start:start+recordHeadBytes], b[start+recordHeadBytes:]
	binary.BigEndian.PutUint32(head, recordMagic)
	head[4] = kind
	binary.BigEndian.PutUint32(head[8:], uint32(len(payload)))
	binary.BigEndian.PutUint32(head[12:], sum)
	binary.BigEndian.PutUint32(head[16:], recordSum(seed, off, head[:16]))
}

// sumStep is the number of bytes of a block that are copied at a time. After each step its checksum
// is computed, while the bytes are still in the fastest cache of the processor.
const sumStep = 16 << 10

// appendBlock appends the payload of a block at off and returns its checksum.
func appendBlock(b []byte, seed uint32, off int64, rec record) ([]byte, uint32) {
	start := len(b)
	b = appendHash(b, rec.hash)
	sum := recordSum(seed, off, b[start:])
	for piece := range slices.Chunk(rec.data, sumStep) {
		b = append(b, piece...)
		sum = crc32.Update(sum, castagnoli(), piece)
	}
	return b, sum
}

// parseHead checks the head of a record at off.
func parseHead(head []byte, seed uint32, off int64) (kind byte, length int64, sum uint32, ok bool) {
	if binary.BigEndian.Uint32(head) != recordMagic ||
		binary.BigEndian.Uint32(head[16:]) != recordSum(seed, off, head[:16]) {
		return 0, 0, 0, false
	}
	n := binary.BigEndian.Uint32(head[8:])
	if n > maxPayloadBytes {
		return 0, 0, 0, false
	}
	return head[4], int64(n), binary.BigEndian.Uint32(head[12:]), true
}

func blockRecordBytes(hash multihash.Multihash, size uint32) int64 {
	return recordHeadBytes + 1 + int64(len(hash)) + int64(size)
}

func refBytes(hash multihash.Multihash) int64 { return 1 + int64(len(hash)) + 4 }

func sealRecordBytes(reference string) int64 {
	return recordHeadBytes + 8 + 2 + int64(len(reference)) + 16
}

func dropRecordBytes(reference string) int64 { return recordHeadBytes + 8 + 2 + int64(len(reference)) }

func appendHash(b []byte, hash multihash.Multihash) []byte {
	return append(append(b, byte(len(hash))), hash...)
}

func appendReference(b []byte, inc uint64, reference string) []byte {
	b = binary.BigEndian.AppendUint64(b, inc)
	b = binary.BigEndian.AppendUint16(b, uint16(len(reference)))
	return append(b, reference...)
}

// blockRef is one block of a reference.
type blockRef struct {
	hash multihash.Multihash
	size uint32
}

func appendRefs(b []byte, inc uint64, reference string, refs []blockRef) []byte {
	b = appendReference(b, inc, reference)
	b = binary.BigEndian.AppendUint16(b, uint16(len(refs)))
	for _, r := range refs {
		b = binary.BigEndian.AppendUint32(appendHash(b, r.hash), r.size)
	}
	return b
}

// sealKind returns the kind of the record that stores a declaration.
func sealKind(sealed Sealed) byte {
	if sealed.Hidden {
		return kindHidden
	}
	return kindSeal
}

func appendSeal(b []byte, inc uint64, reference string, sealed Sealed) []byte {
	b = appendReference(b, inc, reference)
	b = binary.BigEndian.AppendUint64(b, sealed.Bytes)
	return binary.BigEndian.AppendUint64(b, sealed.Blocks)
}

// reader decodes a payload. After a read beyond the end of the payload, bad is true, and all
// further reads return zero values.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	taken := r.b[:n:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) uint(n int) (v uint64) {
	for _, c := range r.take(n) {
		v = v<<8 | uint64(c)
	}
	return v
}

func (r *reader) hash() multihash.Multihash { return r.take(int(r.uint(1))) }

func (r *reader) reference() (inc uint64, reference string) {
	inc = r.uint(8)
	n := int(r.uint(2))
	if n == 0 || n > MaxReferenceBytes || inc == 0 {
		r.bad = true
	}
	return inc, string(r.take(n))
}

// record is a decoded record. Its slices are valid until the next record is read.
type record struct {
	kind  byte
	off   int64
	bytes int64 // size of head and payload in bytes

	inc       uint64
	reference string
	hash      multihash.Multihash // hash of the block; only for kindBlock
	data      []byte              // content of the block; only for kindBlock
	refs      []blockRef          // blocks that the record adds to the reference; only for kindReference
	sealed    Sealed              // declaration; only for kindSeal and kindHidden
}

// parsePayload decodes a payload whose checksum is right.
func parsePayload(kind byte, payload []byte) (rec record, err error) {
	r := reader{b: payload}
	rec.kind = kind
	switch kind {
	case kindBlock:
		rec.hash = r.hash()
		rec.data = r.take(len(r.b))
		r.bad = r.bad || len(rec.hash) == 0 || len(rec.data) > MaxBlockBytes
	case kindReference:
		rec.inc, rec.reference = r.reference()
		n := int(r.uint(2))
		if n > maxRefsPerRecord {
			r.bad = true
		}
		for i := 0; i < n && !r.bad; i++ {
			hash := r.hash()
			rec.refs = append(rec.refs, blockRef{hash, uint32(r.uint(4))})
			r.bad = r.bad || len(hash) == 0
		}
	case kindDrop:
		rec.inc, rec.reference = r.reference()
	case kindSeal, kindHidden:
		rec.inc, rec.reference = r.reference()
		rec.sealed.Bytes = r.uint(8)
		rec.sealed.Blocks = r.uint(8)
		rec.sealed.Hidden = kind == kindHidden
	default:
		return rec, fmt.Errorf("%w: record kind %d is unknown to this version", ErrCorrupt, kind)
	}
	if r.bad || len(r.b) != 0 {
		return rec, fmt.Errorf("%w: malformed record of kind %d", ErrCorrupt, kind)
	}
	return rec, nil
}

// span is a part of a segment without a valid record.
type span struct{ from, to int64 }

// scanWindowBytes is the number of bytes of a segment that a scan has in memory at a time.
// Every record fits into it.
const scanWindowBytes = maxPayloadBytes + recordHeadBytes + 2<<20

// scan reads the records of a segment whose header was checked before.
type scan struct {
	src  io.ReaderAt
	seed uint32
	size int64

	buf   []byte // the bytes from start on
	start int64
	bad   []span
}

// at returns the n bytes at off, or nil if the segment ends before that.
func (s *scan) at(off, n int64) ([]byte, error) {
	if off+n > s.size {
		return nil, nil
	}
	if off < s.start || off+n > s.start+int64(len(s.buf)) {
		if s.buf == nil {
			s.buf = make([]byte, min(scanWindowBytes, s.size))
		}
		want := min(int64(cap(s.buf)), s.size-off)
		s.buf, s.start = s.buf[:want], off
		if _, err := s.src.ReadAt(s.buf, off); err != nil {
			return nil, err
		}
	}
	return s.buf[off-s.start : off-s.start+n], nil
}

// one reads the record at the offset off. good is true if the whole record is valid. next is the
// offset after the record if its head is valid, and 0 otherwise.
func (s *scan) one(off int64) (rec record, next int64, good bool, err error) {
	head, err := s.at(off, recordHeadBytes)
	if head == nil || err != nil {
		return rec, 0, false, err
	}
	kind, length, sum, ok := parseHead(head, s.seed, off)
	if !ok {
		return rec, 0, false, nil
	}
	payload, err := s.at(off+recordHeadBytes, length)
	if payload == nil || err != nil {
		return rec, 0, false, err
	}
	next = off + recordHeadBytes + length
	if recordSum(s.seed, off, payload) != sum {
		return rec, next, false, nil
	}
	if rec, err = parsePayload(kind, payload); err != nil {
		return rec, next, false, nil
	}
	rec.off, rec.bytes = off, next-off
	return rec, next, true, nil
}

// each calls fn for every valid record from the offset off on, and appends the parts in between to
// s.bad. If only the payload of a record is damaged, each continues after it. If the head is
// damaged, each searches for the next valid record.
func (s *scan) each(off int64, fn func(record) error) error {
	for off < s.size {
		rec, next, good, err := s.one(off)
		if err != nil {
			return err
		}
		if good {
			if err := fn(rec); err != nil {
				return err
			}
			off = next
			continue
		}
		if next == 0 {
			if next, err = s.resync(off + 1); err != nil {
				return err
			}
		}
		if n := len(s.bad); n > 0 && s.bad[n-1].to == off {
			s.bad[n-1].to = next
		} else {
			s.bad = append(s.bad, span{off, next})
		}
		off = next
	}
	return nil
}

// resync returns the offset of the next valid record from off on, or the end of the
// segment.
func (s *scan) resync(off int64) (int64, error) {
	magic := binary.BigEndian.AppendUint32(nil, recordMagic)
	for off+recordHeadBytes <= s.size {
		n := min(s.size-off, 64<<10)
		chunk, err := s.at(off, n)
		if err != nil {
			return 0, err
		}
		i := bytes.Index(chunk, magic)
		if i < 0 {
			off += n - int64(len(magic)) + 1
			continue
		}
		off += int64(i)
		_, _, good, err := s.one(off)
		if err != nil || good {
			return off, err
		}
		off++
	}
	return s.size, nil
}

// tail returns the offset at which the unreadable end of the segment begins, or the size of the
// segment if its end is readable.
func (s *scan) tail() int64 {
	if n := len(s.bad); n > 0 && s.bad[n-1].to == s.size {
		return s.bad[n-1].from
	}
	return s.size
}
