package bao

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"lukechampine.com/blake3/guts"
)

// Limits and sizes of encoding.
const (
	// group is the number of bytes of content whose tree is built in memory at once.
	group = 1 << 20
	// maxSpans is the largest number of chaining values in an Index. They take 2 MiB, and suffice
	// for one value per group of a content of 64 GiB. For larger content, each value covers more
	// bytes.
	maxSpans = 1 << 16
	// readSize is the number of bytes that are read at once to build an Index.
	readSize = 256 << 10
	// header is the size in bytes of the length field at the start of every encoding.
	header = 8
	// writeSize is the size of one write in bytes. It is small, so that a slow reader makes
	// visible progress and is not mistaken for one that has disconnected.
	writeSize = 256 << 10
)

// ErrChanged means that the content has changed since its Index was built.
var ErrChanged = errors.New("bao: the content is not what was hashed")

// Index has the upper levels of the BLAKE3 tree of some content. Every encoding needs them for
// the hashes over bytes that the encoding does not contain.
type Index struct {
	size  uint64 // size of the whole content in bytes
	at    uint64 // offset of the first byte that this index covers
	count uint64 // number of bytes that this index covers
	span  uint64 // number of bytes that each of cvs covers, a power of two; the last may cover fewer
	most  int    // largest length of cvs, at least 2
	cvs   []words
}

// NewIndex reads size bytes of content from r and builds the Index. Its errors are those of r,
// and io.ErrUnexpectedEOF if the content ends early.
func NewIndex(r io.Reader, size uint64) (*Index, error) {
	return newIndex(r, size, maxSpans)
}

func newIndex(r io.Reader, size uint64, most int) (*Index, error) {
	x := &Index{size: size, count: size, most: most}
	return x, x.read(r)
}

// read builds the index from the next x.count bytes of r.
func (x *Index) read(r io.Reader) error {
	for x.span = group; (x.count+x.span-1)/x.span > uint64(x.most); {
		x.span *= 2
	}
	h := NewHasher(0)
	buf := make([]byte, min(readSize, x.count))
	for done := uint64(0); ; {
		n := min(x.span, x.count-done)
		h.reset(x.at + done)
		for left := n; left > 0; {
			piece := buf[:min(left, uint64(len(buf)))]
			if _, err := io.ReadFull(r, piece); err != nil {
				return fmt.Errorf("read content: %w", short(err))
			}
			_, _ = h.Write(piece) // it never fails
			left -= uint64(len(piece))
		}
		x.cvs = append(x.cvs, h.value(x.at == 0 && n == x.size))
		if done += n; done == x.count {
			return nil
		}
	}
}

// value returns the chaining value of the written bytes, or the root hash if they are the whole
// content.
func (h *Hasher) value(whole bool) words {
	if h.finish(); h.at == 0 && !whole {
		// finish has made the root of it
		return h.trees.join(0)
	}
	return h.top
}

func short(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Sum returns the BLAKE3 hash of the content.
func (x *Index) Sum() [HashSize]byte {
	cv := x.value(x.at, x.count)
	return hashOf(&cv)
}

// Weight returns about how many bytes of memory the index takes in a cache, including the cache's
// own data for the entry.
func (x *Index) Weight() int { return 512 + HashSize*cap(x.cvs) }

// Memory returns about how many bytes of memory an encoding and its Index need while the encoding
// is written, for content of the given size. slice selects the encoding of a slice instead of the
// whole tree. The memory of the content itself is not included.
func Memory(size uint64, slice bool) int64 {
	data := min(size, group)
	spans := (size + group - 1) / group
	if spans > maxSpans {
		spans = 2 * maxSpans // of the Index, and of one below it
	}
	n := batch + data + (data/Chunk+spans)*2*HashSize // nodes are two values, and what grows has room for more
	if slice {
		n += data
	}
	return int64(n)
}

// value returns the chaining value of the subtree of count bytes at offset at.
func (x *Index) value(at, count uint64) words {
	if count <= x.span {
		return x.cvs[(at-x.at)/x.span]
	}
	left := half(count)
	return parent(x.value(at, left), x.value(at+left, count-left), x.flags(at, count))
}

// flags returns the BLAKE3 flags of the tree node over count bytes at offset at: the root flag if
// that is the whole content, else 0.
func (x *Index) flags(at, count uint64) uint32 {
	if at == 0 && count == x.size {
		return guts.FlagRoot
	}
	return 0
}

// half returns how many of the count bytes of a node are in its left subtree. count must be
// greater than Chunk.
func half(count uint64) uint64 { return 1 << (bits.Len64(count-1) - 1) }

// Encoding is a Bao encoding that is computed while it is written.
type Encoding struct {
	index    *Index
	content  io.ReadSeeker
	from, to uint64 // requested range of bytes [from, to)
	data     bool   // the encoding contains the chunks of the requested bytes

	buf, out []byte
	lead     []byte // length field, until it is written together with the first data
	written  int64
}

// Outboard returns the encoding of the whole tree without the content: the length of the content,
// followed for each node by the chaining values of its two children, parents first.
func (x *Index) Outboard(content io.ReadSeeker) *Encoding {
	return &Encoding{index: x, content: content, to: x.size}
}

// Slice returns the encoding of the chunks with count bytes from start on, with the hashes that
// verify them. Bytes after the end of the content are ignored. As the format requires, there is
// always at least one chunk: a count of 0 means 1, and a start after the end means the last byte.
func (x *Index) Slice(content io.ReadSeeker, start, count uint64) *Encoding {
	end := start + max(count, 1)
	if end < start || end > x.size {
		end = x.size
	}
	if start >= x.size {
		start = x.size - min(x.size, 1)
	}
	return &Encoding{index: x, content: content, from: start, to: end, data: true}
}

// Size returns the number of bytes of the encoding.
func (e *Encoding) Size() int64 { return header + e.below(0, e.index.size) }

// below returns the size of the encoded subtree of count bytes at offset at.
func (e *Encoding) below(at, count uint64) int64 {
	if !e.wants(at, count) {
		return 0
	}
	if count <= Chunk || e.from <= at && at+count <= e.to {
		n := int64((count+Chunk-1)/Chunk-1) * 2 * HashSize
		if e.data {
			n += int64(count)
		}
		return n
	}
	left := half(count)
	return 2*HashSize + e.below(at, left) + e.below(at+left, count-left)
}

// wants returns whether the encoding contains any of the count bytes at offset at.
func (e *Encoding) wants(at, count uint64) bool { return at < e.to && e.from < at+count }

// WriteTo implements io.WriterTo. It reads the needed content again, or twice if the content is
// larger than 64 GiB, and uses a few MiB of memory. For content of up to 1 MiB it writes nothing
// before it has read all of the content. Errors: those of w and of the content, and ErrChanged.
func (e *Encoding) WriteTo(w io.Writer) (int64, error) {
	e.written = 0
	e.lead = binary.LittleEndian.AppendUint64(e.lead[:0], e.index.size)
	err := e.subtree(w, e.index, 0, e.index.size)
	if err == nil {
		err = e.write(w, e.begin()) // of an encoding that has nothing else
	}
	return e.written, err
}

// begin returns the empty buffer for the next write. For the first write, the buffer already
// contains the length field.
func (e *Encoding) begin() []byte {
	out := append(e.out[:0], e.lead...)
	e.lead = e.lead[:0]
	return out
}

func (e *Encoding) write(w io.Writer, p []byte) error {
	for len(p) > 0 {
		n, err := w.Write(p[:min(len(p), writeSize)])
		e.written += int64(n)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// subtree writes the subtree of count bytes at offset at. x has the upper levels of the tree.
func (e *Encoding) subtree(w io.Writer, x *Index, at, count uint64) error {
	switch {
	case !e.wants(at, count):
		return nil
	case count > x.span:
		left := half(count)
		l, r := x.value(at, left), x.value(at+left, count-left)
		e.out = appendWords(appendWords(e.begin(), &l), &r)
		if err := e.write(w, e.out); err != nil {
			return err
		}
		if err := e.subtree(w, x, at, left); err != nil {
			return err
		}
		return e.subtree(w, x, at+left, count-left)
	}
	if _, err := e.content.Seek(int64(at), io.SeekStart); err != nil {
		return fmt.Errorf("seek in content: %w", err)
	}
	if count <= group {
		return e.group(w, x, at, count)
	}
	lower := &Index{size: x.size, at: at, count: count, most: x.most}
	if err := lower.read(e.content); err != nil {
		return err
	}
	if lower.value(at, count) != x.value(at, count) {
		return ErrChanged
	}
	return e.subtree(w, lower, at, count)
}

// group writes the subtree of the next count bytes of the content.
func (e *Encoding) group(w io.Writer, x *Index, at, count uint64) error {
	if e.buf == nil {
		e.buf = make([]byte, min(group, e.index.size)+batch)
	}
	data := e.buf[:count]
	if _, err := io.ReadFull(e.content, data); err != nil {
		return fmt.Errorf("read content: %w", short(err))
	}
	out, cv := e.build(e.begin(), data, at)
	e.out = out
	if cv != x.value(at, count) {
		return ErrChanged
	}
	return e.write(w, out)
}

// build appends to out the encoded subtree of data, which is at offset at, and returns its
// chaining value. The capacity of data must be at least batch.
func (e *Encoding) build(out, data []byte, at uint64) ([]byte, words) {
	count := uint64(len(data))
	if !e.wants(at, count) {
		h := NewHasher(at)
		_, _ = h.Write(data)
		return out, h.value(false)
	}
	flags := e.index.flags(at, count)
	if count > 2*Chunk {
		var l, r words
		here, left := len(out), half(count)
		out = append(out, make([]byte, 2*HashSize)...)
		out, l = e.build(out, data[:left], at)
		out, r = e.build(out, data[left:], at+left)
		appendWords(appendWords(out[:here], &l), &r)
		return out, parent(l, r, flags)
	}
	// Two chunks are hashed at the same time, and the result has the values of both.
	node := guts.CompressBuffer((*[batch]byte)(data[:batch]), len(data), &guts.IV, at/Chunk, 0)
	if count > Chunk {
		l, r := words(node.Block[:8]), words(node.Block[8:])
		out = appendWords(appendWords(out, &l), &r)
	}
	for ; e.data && len(data) > 0; at += Chunk {
		chunk := data[:min(Chunk, len(data))]
		if e.wants(at, uint64(len(chunk))) {
			out = append(out, chunk...)
		}
		data = data[len(chunk):]
	}
	node.Flags |= flags
	return out, guts.ChainingValue(node)
}
