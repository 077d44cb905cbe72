package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// What is read here is the file format of bbolt, version 2 (its docs and
// internal/common of go.etcd.io/bbolt v1.4): pages with a header of 16 bytes,
//
//	id uint64, flags uint16, count uint16, overflow pages uint32
//
// in the byte order of the machine. Pages 0 and 1 hold a checksummed meta each,
// of which the one with the newer transaction counts. Branch pages hold elements
// of 16 bytes (position uint32, key length uint32, page uint64), leaf pages
// elements of 16 bytes (flags, position, key length, value length, all uint32).
// A position counts from its element. A leaf element with flag 1 is a bucket,
// its value a root page and a sequence, 8 bytes each, and a page if root is 0.
const (
	pageHeadBytes = 16
	elementBytes  = 16
	metaSumAt     = 56 // position of the checksum in a meta: FNV-1a of the bytes before it
	metaBytes     = metaSumAt + 8
	metaMagic     = 0xED0CDAED
	boltVersion   = 2

	flagBranch = 0x01
	flagLeaf   = 0x02
	flagMeta   = 0x04
	leafBucket = 0x01

	bucketHeadBytes = 16
	maxPageBytes    = 1 << 16  // the maximum of bbolt
	maxSpanBytes    = 64 << 20 // bytes of one page with its overflow pages: several entries of the largest size
)

// walk reads a bbolt file page by page. It stops at the first part that bbolt cannot have
// written.
type walk struct {
	file     *os.File
	pageSize uint64
	pages    uint64 // number of pages in use
	seen     map[uint64]bool
	visit    func(bucket string, key, value []byte) error
}

// verify checks a whole bbolt file. bbolt has checksums only for its two meta pages and uses the
// newer one that is good. So damage in the newer meta page would silently undo the last
// transaction, which may contain a vote. If keys are out of order or pages are malformed, entries
// could disappear, or bbolt could loop forever. No process may have the file open. A missing file
// counts as good. verify calls visit for every key, except the names of buckets.
func verify(path string, visit func(bucket string, key, value []byte) error) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err // bbolt makes a new one
	}
	w := &walk{file: f, seen: map[uint64]bool{}, visit: visit}
	root, err := w.metas(info.Size())
	if err != nil {
		return err
	}
	_, err = w.page("", root, nil)
	return err
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrCorrupt, fmt.Errorf(format, args...))
}

// metas checks both metas and returns the root page of the newer one.
func (w *walk) metas(size int64) (root uint64, err error) {
	head := make([]byte, pageHeadBytes+metaBytes)
	if _, err := w.file.ReadAt(head, 0); err != nil {
		return 0, damaged("meta 0: %w", err)
	}
	w.pageSize = uint64(binary.NativeEndian.Uint32(head[pageHeadBytes+8:]))
	if w.pageSize < pageHeadBytes+metaBytes || w.pageSize > maxPageBytes || w.pageSize&(w.pageSize-1) != 0 {
		return 0, damaged("meta 0: pages of %d bytes", w.pageSize)
	}
	var newest uint64
	for i := range uint64(2) {
		if _, err := w.file.ReadAt(head, int64(i*w.pageSize)); err != nil {
			return 0, damaged("meta %d: %w", i, err)
		}
		meta := head[pageHeadBytes:]
		sum := fnv.New64a()
		_, _ = sum.Write(meta[:metaSumAt]) // a hash takes everything
		if v := binary.NativeEndian.Uint32(meta[4:]); v > boltVersion && sum.Sum64() == binary.NativeEndian.Uint64(meta[metaSumAt:]) {
			return 0, durable.Newer(w.file.Name(), uint64(v), boltVersion)
		}
		if sum.Sum64() != binary.NativeEndian.Uint64(meta[metaSumAt:]) || binary.NativeEndian.Uint32(meta) != metaMagic ||
			binary.NativeEndian.Uint64(head) != i || binary.NativeEndian.Uint16(head[8:]) != flagMeta ||
			uint64(binary.NativeEndian.Uint32(meta[8:])) != w.pageSize {
			return 0, damaged("meta %d is not as it was written", i)
		}
		if tx := binary.NativeEndian.Uint64(meta[48:]); i == 0 || tx > newest {
			newest = tx
			root, w.pages = binary.NativeEndian.Uint64(meta[16:]), binary.NativeEndian.Uint64(meta[40:])
		}
	}
	if w.pages*w.pageSize > uint64(size) {
		return 0, damaged("%d bytes, and %d pages of %d", size, w.pages, w.pageSize)
	}
	return root, nil
}

// span has the first and the last key below a page. Both are nil if there are no keys.
type span struct{ first, last []byte }

// page checks everything below one page. Every key there must be greater than after.
func (w *walk) page(bucket string, id uint64, after []byte) (keys span, err error) {
	if id < 2 || id >= w.pages || w.seen[id] {
		return keys, damaged("page %d of %d is no page, or comes twice", id, w.pages)
	}
	w.seen[id] = true
	head := make([]byte, pageHeadBytes)
	if _, err := w.file.ReadAt(head, int64(id*w.pageSize)); err != nil {
		return keys, damaged("page %d: %w", id, err)
	}
	length := (uint64(binary.NativeEndian.Uint32(head[12:])) + 1) * w.pageSize
	if binary.NativeEndian.Uint64(head) != id || length > maxSpanBytes || id+length/w.pageSize > w.pages {
		return keys, damaged("page %d has the head of another, or is too long", id)
	}
	raw := make([]byte, length)
	if _, err := w.file.ReadAt(raw, int64(id*w.pageSize)); err != nil {
		return keys, damaged("page %d: %w", id, err)
	}
	return w.elements(bucket, raw, after)
}

// elements checks the elements of one page.
func (w *walk) elements(bucket string, raw, after []byte) (keys span, err error) {
	if len(raw) < pageHeadBytes {
		return keys, damaged("a page of %d bytes", len(raw))
	}
	id, flags, count := binary.NativeEndian.Uint64(raw), binary.NativeEndian.Uint16(raw[8:]), int(binary.NativeEndian.Uint16(raw[10:]))
	if flags != flagBranch && flags != flagLeaf || pageHeadBytes+count*elementBytes > len(raw) || flags == flagBranch && count == 0 {
		return keys, damaged("page %d: %d elements of kind %#x", id, count, flags)
	}
	last := after
	for i := range count {
		at := pageHeadBytes + i*elementBytes
		e := raw[at:]
		position, keyLen, valueLen := binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:]), uint32(0)
		if flags == flagLeaf {
			position, keyLen, valueLen = binary.NativeEndian.Uint32(e[4:]), binary.NativeEndian.Uint32(e[8:]), binary.NativeEndian.Uint32(e[12:])
		}
		from := uint64(at) + uint64(position)
		if from+uint64(keyLen)+uint64(valueLen) > uint64(len(raw)) {
			return keys, damaged("page %d: element %d does not fit", id, i)
		}
		key := raw[from : from+uint64(keyLen)]
		value := raw[from+uint64(keyLen) : from+uint64(keyLen)+uint64(valueLen)]
		// The first key of a branch is at most the first one below it, which is greater
		// than all keys before; the keys of leaves rise strictly.
		if order := bytes.Compare(key, last); last != nil && (order < 0 || order == 0 && flags == flagLeaf) {
			return keys, damaged("page %d: element %d is not in order", id, i)
		}
		switch {
		case flags == flagBranch:
			below, err := w.page(bucket, binary.NativeEndian.Uint64(e[8:]), last)
			if err != nil {
				return keys, err
			}
			if below.first == nil || bytes.Compare(key, below.first) > 0 {
				return keys, damaged("page %d: element %d points to keys that are not its own", id, i)
			}
			if keys.first == nil {
				keys.first = below.first
			}
			keys.last, last = below.last, below.last
			continue
		case binary.NativeEndian.Uint32(e) == leafBucket && bucket == "":
			err = w.bucket(string(key), value)
		case binary.NativeEndian.Uint32(e) == 0 && bucket != "":
			err = w.visit(bucket, key, value)
		default:
			err = damaged("page %d: element %d of kind %#x", id, i, binary.NativeEndian.Uint32(e))
		}
		if err != nil {
			return keys, err
		}
		if keys.first == nil {
			keys.first = key
		}
		keys.last, last = key, key
	}
	return keys, nil
}

// bucket checks the bbolt bucket with a name. value is its entry in the root bucket.
func (w *walk) bucket(name string, value []byte) error {
	if len(value) < bucketHeadBytes {
		return damaged("bucket %q of %d bytes", name, len(value))
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		_, err := w.page(name, root, nil)
		return err
	}
	_, err := w.elements(name, value[bucketHeadBytes:], nil) // a small one, in its parent's page
	return err
}
