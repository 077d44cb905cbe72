// Package bao computes the BLAKE3 tree of content: its hash while the content arrives,
// also from pieces that arrive separately, and the Bao encodings of content that can
// be read again. With an encoding, a client that knows the hash verifies bytes as they
// arrive.
//
// BLAKE3 hashes chunks of 1 KiB and joins them in a binary tree whose left subtrees
// always hold a power of two of chunks (BLAKE3 paper, section 2.1). A chaining value
// is the result of a subtree, which its parent joins. It depends on the position of
// the subtree in the content. The Bao format is that of github.com/oconnor663/bao,
// docs/spec.md.
//
// Imports: lukechampine.com/blake3.
// Never:   anything of ours.
package bao

import (
	"encoding/binary"
	"math/bits"
	"sync"

	"lukechampine.com/blake3/guts"
)

const (
	// Chunk is the size of a leaf of the tree, in bytes.
	Chunk = guts.ChunkSize
	// HashSize is the number of bytes of a hash and of a chaining value.
	HashSize = 32
	// MaxTrees is the largest number of subtrees of a piece of content: on each side of the middle of the
	// piece, one subtree for each of the 40 heights of the tree of 2^50 bytes.
	MaxTrees = 2 * 40

	batch = guts.MaxSIMD * Chunk // number of bytes that are hashed together

	cacheLine = 64 // bytes
)

// words is a chaining value in the form of the compression function.
type words = [8]uint32

func wordsOf(b []byte) (cv words) {
	for i := range cv {
		cv[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return cv
}

func appendWords(b []byte, cv *words) []byte {
	for _, w := range cv {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func hashOf(cv *words) (h [HashSize]byte) {
	appendWords(h[:0], cv)
	return h
}

// parent returns the chaining value over two adjacent subtrees.
func parent(l, r words, flags uint32) words {
	return guts.ChainingValue(guts.ParentNode(l, r, &guts.IV, flags))
}

// subtree is the chaining value of a run of 2^height chunks, whose first index is a multiple of
// 2^height. The last subtree of a content may be shorter.
type subtree struct {
	first  uint64 // index of the first chunk
	height int
	cv     words
}

// forest is a list of consecutive subtrees. Two neighbours that form a larger subtree are joined
// only when the next subtree arrives, because the root of a tree is hashed differently.
type forest []subtree

func (f *forest) push(t subtree) {
	f.settle()
	*f = append(*f, t)
}

// settle joins the last two subtrees while they form a larger one.
func (f *forest) settle() {
	for all := *f; len(all) > 1; all = *f {
		l, r := &all[len(all)-2], &all[len(all)-1]
		if l.height != r.height || l.first>>l.height&1 != 0 {
			return
		}
		l.cv = parent(l.cv, r.cv, 0)
		l.height++
		*f = all[:len(all)-1]
	}
}

// join returns the chaining value over all subtrees in the list. flags are those of the topmost
// node.
func (f forest) join(flags uint32) words {
	last := len(f) - 1
	cv := f[last].cv
	for i := last - 1; i >= 0; i-- {
		above := uint32(0)
		if i == 0 {
			above = flags
		}
		cv = parent(f[i].cv, cv, above)
	}
	return cv
}

// Hasher computes the BLAKE3 tree of a piece of content. It implements io.Writer.
type Hasher struct {
	at    uint64 // index, in the content, of the piece's first chunk
	next  uint64 // index of the chunk that has the first byte of buf
	n     int    // number of bytes in buf
	trees forest
	done  bool
	top   words // chaining value of all bytes, or the root hash
	// fetched is never read; it prevents the compiler from removing the reads in fetch.
	fetched byte
	// buf is nil until bytes must be buffered; then it is taken from buffers or allocated.
	buf     *[batch]byte
	buffers *Buffers // nil: each hasher allocates its own buffer
}

// Buffers is a pool of buffers, which hashers return when they have finished. Without it, each
// small object would allocate a whole buffer. The zero value is ready to use, and may be used
// concurrently.
type Buffers struct{ pool sync.Pool } // holds *[batch]byte

// NewHasher returns a Hasher like the function NewHasher, but one that uses these buffers.
func (b *Buffers) NewHasher(at uint64) *Hasher {
	h := NewHasher(at)
	h.buffers = b
	return h
}

func (b *Buffers) get() *[batch]byte {
	if b != nil {
		if buf, ok := b.pool.Get().(*[batch]byte); ok {
			return buf
		}
	}
	return new([batch]byte)
}

func (b *Buffers) put(buf *[batch]byte) {
	if b != nil && buf != nil {
		b.pool.Put(buf)
	}
}

// NewHasher returns a Hasher for a piece of content that begins at the offset at, which must be a
// multiple of Chunk.
func NewHasher(at uint64) *Hasher {
	h := &Hasher{}
	h.reset(at)
	return h
}

func (h *Hasher) reset(at uint64) {
	if at%Chunk != 0 {
		panic("bao: a piece that begins inside of a chunk")
	}
	h.at, h.next, h.n, h.done, h.trees = at/Chunk, at/Chunk, 0, false, h.trees[:0]
}

// Write implements io.Writer. It never fails.
func (h *Hasher) Write(p []byte) (int, error) {
	length := len(p)
	for len(p) > 0 {
		// Bytes that are hashed together end at a multiple of batch. The first ones wait
		// for more, because the root of the tree is hashed differently.
		room := batch - int(h.next%guts.MaxSIMD)*Chunk
		if h.n == room {
			h.flush()
			continue
		}
		if h.n == 0 && room == batch && (len(p) > batch || len(p) == batch && h.next > h.at) {
			whole := (*[batch]byte)(p)
			h.fetch(whole)
			h.add(whole, batch)
			p = p[batch:]
			continue
		}
		n := copy(h.room()[h.n:room], p)
		h.n += n
		p = p[n:]
	}
	return length, nil
}

// room returns the buffer, and allocates it at the first call. Its bytes from n on are undefined.
func (h *Hasher) room() *[batch]byte {
	if h.buf == nil {
		h.buf = h.buffers.get()
	}
	return h.buf
}

// fetch reads all bytes of p in order, so that they are in the processor's cache. The hash reads
// 16 chunks in parallel, and a processor that cannot prefetch these accesses waits for each of
// them. This would take a third of the time for a MiB that is in no cache (BenchmarkHasher).
func (h *Hasher) fetch(p *[batch]byte) {
	for i := 0; i < batch; i += cacheLine {
		h.fetched |= p[i]
	}
}

// add hashes the first n bytes of p, which form one subtree. The last chunk may be short.
func (h *Hasher) add(p *[batch]byte, n int) {
	chunks := uint64(n+Chunk-1) / Chunk
	cv := guts.ChainingValue(guts.CompressBuffer(p, n, &guts.IV, h.next, 0))
	h.trees.push(subtree{h.next, bits.Len64(chunks) - 1, cv})
	h.next += chunks
}

// flush hashes the bytes in the buffer.
func (h *Hasher) flush() {
	switch h.n {
	case 0:
		return
	case batch:
		h.add(h.buf, batch)
		h.n = 0
		return
	}
	for _, height := range guts.Eigentrees(h.next, uint64(h.n+Chunk-1)/Chunk) {
		n := min(h.n, Chunk<<height)
		h.add(h.buf, n)
		h.n = copy(h.buf[:], h.buf[n:h.n])
	}
}

// finish hashes the rest of the piece, and computes top.
func (h *Hasher) finish() {
	if h.done {
		return
	}
	h.done = true
	flags := uint32(0)
	if h.at == 0 {
		flags = guts.FlagRoot
	}
	if h.next == h.at { // all of it is in the buffer
		node := guts.CompressBuffer(h.room(), h.n, &guts.IV, h.at, 0)
		node.Flags |= flags
		h.top = guts.ChainingValue(node)
		h.flush()
	} else {
		h.flush()
		h.top = h.trees.join(flags)
	}
	h.trees.settle()
	h.buffers.put(h.buf)
	h.buf = nil
}

// Sum returns the BLAKE3 hash of the written bytes. The piece must begin at offset 0, and nothing
// may be written afterwards.
func (h *Hasher) Sum() [HashSize]byte {
	if h.at != 0 {
		panic("bao: the hash of a piece that does not begin its content")
	}
	h.finish()
	return hashOf(&h.top)
}

// Trees returns the chaining values of the subtrees of which the piece consists, one after the
// other: HashSize bytes each, at most MaxTrees of them. Nothing may be written afterwards.
func (h *Hasher) Trees() []byte {
	h.finish()
	b := make([]byte, 0, len(h.trees)*HashSize)
	for i := range h.trees {
		b = appendWords(b, &h.trees[i].cv)
	}
	return b
}

// Piece is a piece of some content, with its position and the chaining values that are known.
type Piece struct {
	At, Size uint64 // offset and size in bytes
	Trees    []byte // chaining values as Hasher.Trees returns them
}

// Join returns the BLAKE3 hash of content that consists of the given pieces in order. ok is false
// if the hash cannot be computed from their chaining values: a piece does not start where the
// previous one ends, or starts inside a chunk, or all pieces together are one subtree.
func Join(pieces []Piece) (sum [HashSize]byte, ok bool) {
	var all forest
	end := uint64(0)
	for _, p := range pieces {
		if p.Size == 0 {
			continue
		}
		if p.At != end || p.At%Chunk != 0 {
			return sum, false
		}
		end += p.Size
		first, trees := p.At/Chunk, p.Trees
		for _, height := range guts.Eigentrees(first, (p.Size+Chunk-1)/Chunk) {
			if len(trees) < HashSize {
				return sum, false
			}
			all.push(subtree{first, height, wordsOf(trees)})
			first += 1 << height
			trees = trees[HashSize:]
		}
		if len(trees) > 0 {
			return sum, false
		}
	}
	if len(all) < 2 {
		return sum, false
	}
	top := all.join(guts.FlagRoot)
	return hashOf(&top), true
}
