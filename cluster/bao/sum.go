package bao

import (
	"hash"
	"slices"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/guts"
)

// maxHashSize is the longest output in bytes that a BLAKE3 multihash may have (go-multihash,
// register/blake3).
const maxHashSize = 128

// NewHash returns a BLAKE3 hash.Hash with an output of size bytes; -1 means HashSize. It returns
// false for a size that multihashes do not have. A hash of HashSize bytes is computed by the
// calling goroutine. The library, in contrast, starts goroutines for more than one chunk, which
// is slower if blocks are small or the processors are busy.
func NewHash(size int) (hash.Hash, bool) {
	switch {
	case size == -1 || size == HashSize:
		return new(inPlace), true
	case size <= 0 || size > maxHashSize:
		return nil, false
	}
	return blake3.New(size, nil), true
}

// inPlace is a BLAKE3 hash that is computed by the calling goroutine.
type inPlace struct {
	n     int // number of bytes in first
	first [Chunk]byte
	tree  *Hasher // tree of all bytes; nil while all bytes are in first
}

// Size implements hash.Hash.
func (h *inPlace) Size() int { return HashSize }

// BlockSize implements hash.Hash.
func (h *inPlace) BlockSize() int { return guts.BlockSize }

// Reset implements hash.Hash.
func (h *inPlace) Reset() { h.n, h.tree = 0, nil }

// Write implements io.Writer. It never fails.
func (h *inPlace) Write(p []byte) (int, error) {
	if h.tree == nil {
		if h.n+len(p) <= Chunk {
			h.n += copy(h.first[h.n:], p)
			return len(p), nil
		}
		h.tree = NewHasher(0) // small content does without its buffer
		_, _ = h.tree.Write(h.first[:h.n])
	}
	return h.tree.Write(p)
}

// Sum implements hash.Hash.
func (h *inPlace) Sum(b []byte) []byte {
	if h.tree != nil {
		end := *h.tree // more may be written to the tree itself
		end.trees = slices.Clone(end.trees)
		if end.buf = nil; end.n > 0 {
			copy(end.room()[:], h.tree.buf[:end.n])
		}
		sum := end.Sum()
		return append(b, sum[:]...)
	}
	node := guts.CompressChunk(h.first[:h.n], &guts.IV, 0, 0)
	node.Flags |= guts.FlagRoot
	cv := guts.ChainingValue(node)
	sum := hashOf(&cv)
	return append(b, sum[:]...)
}
