package bao

import (
	"hash"
	"math/bits"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/guts"
)

// maxHashSize is the longest output that multihashes of BLAKE3 have, in bytes (go-multihash,
// register/blake3).
const maxHashSize = 128

// NewHash returns a BLAKE3 hash of a number of bytes, -1 for HashSize; false for one
// that multihashes do not know. The hash of HashSize bytes is made in place, by full
// batches where they are: the library hands what is longer than a chunk to goroutines,
// which costs more than hashing where a block is small or the processors have other work.
func NewHash(size int) (hash.Hash, bool) {
	switch {
	case size == -1 || size == HashSize:
		return new(inPlace), true
	case size <= 0 || size > maxHashSize:
		return nil, false
	}
	return blake3.New(size, nil), true
}

// maxHeight is above the height, in batches, of any content that can be counted.
const maxHeight = 64 - 14

// inPlace is a BLAKE3 hash of content that begins with the first byte written.
type inPlace struct {
	n     int // bytes that are not hashed: in first, or if there is more in rest.buf
	first [Chunk]byte
	rest  *rest // nil: nothing has needed it yet
}

// rest is what content of more than a chunk takes.
type rest struct {
	chunk uint64           // of the first byte of buf: a multiple of guts.MaxSIMD
	below [maxHeight]words // subtrees of 2^i batches; bit i of the batches so far says which are there
	buf   [batch]byte
}

// Size implements hash.Hash.
func (h *inPlace) Size() int { return HashSize }

// BlockSize implements hash.Hash.
func (h *inPlace) BlockSize() int { return guts.BlockSize }

// Reset implements hash.Hash.
func (h *inPlace) Reset() { h.n, h.rest = 0, nil }

// Write implements io.Writer. It never fails.
func (h *inPlace) Write(p []byte) (int, error) {
	length := len(p)
	if h.rest == nil {
		if h.n+len(p) <= Chunk {
			h.n += copy(h.first[h.n:], p)
			return length, nil
		}
		h.rest = new(rest)
		copy(h.rest.buf[:], h.first[:h.n])
	}
	r := h.rest
	for len(p) > 0 { // the last batch stays: it may be the root
		if h.n == batch {
			r.add(&r.buf)
			h.n = 0
		}
		for h.n == 0 && len(p) > batch {
			r.add((*[batch]byte)(p))
			p = p[batch:]
		}
		n := copy(r.buf[h.n:], p)
		h.n += n
		p = p[n:]
	}
	return length, nil
}

// add hashes a batch that more follows.
func (r *rest) add(p *[batch]byte) {
	cv := guts.ChainingValue(guts.CompressBuffer(p, batch, &guts.IV, r.chunk, 0))
	height := bits.TrailingZeros64(^(r.chunk / guts.MaxSIMD))
	for i := range height {
		cv = parent(r.below[i], cv, 0)
	}
	r.below[height] = cv
	r.chunk += guts.MaxSIMD
}

// Sum implements hash.Hash.
func (h *inPlace) Sum(b []byte) []byte {
	cv := h.top()
	sum := hashOf(&cv)
	return append(b, sum[:]...)
}

func (h *inPlace) top() words {
	r := h.rest
	if r == nil {
		node := guts.CompressChunk(h.first[:h.n], &guts.IV, 0, 0)
		node.Flags |= guts.FlagRoot
		return guts.ChainingValue(node)
	}
	node := guts.CompressBuffer(&r.buf, h.n, &guts.IV, r.chunk, 0)
	if r.chunk == 0 {
		node.Flags |= guts.FlagRoot
	}
	cv := guts.ChainingValue(node)
	for left := r.chunk / guts.MaxSIMD; left != 0; left &= left - 1 {
		flags := uint32(0)
		if left&(left-1) == 0 {
			flags = guts.FlagRoot
		}
		cv = parent(r.below[bits.TrailingZeros64(left)], cv, flags)
	}
	return cv
}
