package client

import (
	"io"
	"math/bits"
	"sync"

	"lukechampine.com/blake3/guts"
)

// hashPiece is the number of bytes that a rangeHash hashes at once, a power of two.
const hashPiece = 256 << 10

// rangeHash computes the BLAKE3 hash of content whose ranges arrive in any order. Each range is a
// subtree of the hash tree (section 2.1 of the BLAKE3 specification), so each range is hashed by
// itself while it arrives. A rangeHash is safe for concurrent use.
type rangeHash struct {
	step int64 // bytes of a range, a power of two of at least guts.ChunkSize; the last range may be shorter

	mu  sync.Mutex
	cvs [][8]uint32 // chaining values of the ranges
}

// newRangeHash returns a rangeHash for content of size bytes in ranges of step bytes. size must
// be above step, because content of one range has no subtrees.
func newRangeHash(size, step int64) *rangeHash {
	return &rangeHash{step: step, cvs: make([][8]uint32, (size+step-1)/step)}
}

// sum returns the hash of the whole content. All ranges must have been hashed.
func (h *rangeHash) sum() Hash {
	h.mu.Lock()
	defer h.mu.Unlock()
	root := parent(h.cvs)
	root.Flags |= guts.FlagRoot
	out := guts.WordsToBytes(guts.CompressNode(root))
	return Hash(out[:len(Hash{})])
}

// read hashes the range at the offset off by reading it from stored. It is for a range that an
// earlier call has downloaded.
func (h *rangeHash) read(stored io.Reader, off int64) error {
	w := h.writer(off)
	_, err := io.Copy(w, stored)
	w.end()
	return err
}

// parent returns the parent node of at least two subtrees, given by their chaining values. All
// subtrees but the last have the same size, so the left child covers the largest power of two of
// them that leaves some for the right.
func parent(cvs [][8]uint32) guts.Node {
	left := 1 << (bits.Len(uint(len(cvs)-1)) - 1)
	return guts.ParentNode(above(cvs[:left]), above(cvs[left:]), &guts.IV, 0)
}

func above(cvs [][8]uint32) [8]uint32 {
	if len(cvs) == 1 {
		return cvs[0]
	}
	return guts.ChainingValue(parent(cvs))
}

// subtree returns the chaining value of data. chunk is the index of the BLAKE3 chunk of the whole
// content with which data begins.
func subtree(data []byte, chunk uint64) [8]uint32 {
	if len(data) <= guts.ChunkSize {
		return guts.ChainingValue(guts.CompressChunk(data, &guts.IV, chunk, 0))
	}
	if len(data)&(len(data)-1) == 0 {
		return guts.ChainingValue(guts.CompressEigentree(data, &guts.IV, chunk, 0))
	}
	left := 1 << (bits.Len(uint(len(data)-1)) - 1)
	right := subtree(data[left:], chunk+uint64(left/guts.ChunkSize))
	return guts.ChainingValue(guts.ParentNode(subtree(data[:left], chunk), right, &guts.IV, 0))
}

// rangeWriter hashes one range, whose bytes are written in order.
type rangeWriter struct {
	hash *rangeHash
	off  int64       // offset of the next piece in the content
	at   int64       // number of the range
	buf  []byte      // first bytes of the next piece, which is not complete yet
	cvs  [][8]uint32 // chaining values of the pieces
}

// writer returns a writer that hashes the range at the offset off. The caller calls end after the
// last byte.
func (h *rangeHash) writer(off int64) *rangeWriter {
	return &rangeWriter{hash: h, off: off, at: off / h.step}
}

// Write implements io.Writer. It hashes complete pieces in p directly and copies only the rest.
func (w *rangeWriter) Write(p []byte) (int, error) {
	written, piece := len(p), int(min(hashPiece, w.hash.step))
	for len(p) > 0 {
		if len(w.buf) == 0 && len(p) >= piece {
			w.add(p[:piece])
			p = p[piece:]
			continue
		}
		if w.buf == nil {
			w.buf = make([]byte, 0, piece)
		}
		n := min(piece-len(w.buf), len(p))
		w.buf = append(w.buf, p[:n]...)
		p = p[n:]
		if len(w.buf) == piece {
			w.add(w.buf)
			w.buf = w.buf[:0]
		}
	}
	return written, nil
}

func (w *rangeWriter) add(piece []byte) {
	w.cvs = append(w.cvs, subtree(piece, uint64(w.off/guts.ChunkSize)))
	w.off += int64(len(piece))
}

// end stores the chaining value of the range in the rangeHash. The range must have at least one
// byte.
func (w *rangeWriter) end() {
	if len(w.buf) > 0 {
		w.add(w.buf)
	}
	w.hash.mu.Lock()
	defer w.hash.mu.Unlock()
	w.hash.cvs[w.at] = above(w.cvs)
}
