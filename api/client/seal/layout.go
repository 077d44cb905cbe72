package seal

import (
	"fmt"
	"strconv"
)

// ChunkSize is the number of plaintext bytes of a chunk. Content of at most this size is encrypted
// in one piece.
const ChunkSize = 262144

// ChunkOverhead is the number of bytes by which an encrypted chunk is longer than its plaintext:
// the nonce before it and the tag after it.
const ChunkOverhead = nonceSize + tagSize

// Limits of content that a reader accepts, in bytes, so that a chunk fits in memory and sizes do not
// overflow.
const (
	maxChunkSize = 16 << 20
	maxSize      = 1 << 50
)

// Prefixes of the additional authenticated data of content.
const (
	aadContent = "fula:v4:content:" // + storage key
	aadChunk   = "fula:v4:chunk:"   // + storage key + ":" + index
)

func (c chunking) check(size int64) error {
	if c.size < 1 || c.size > maxChunkSize || size < 0 || size > maxSize || c.count != chunksOf(size, c.size) {
		return fmt.Errorf("%d chunks of %d bytes do not make %d bytes", c.count, c.size, size)
	}
	return nil
}

func chunksOf(size, chunk int64) int64 { return (size + chunk - 1) / chunk }

// layout maps offsets of the plaintext to offsets of the ciphertext.
type layout struct {
	size  int64 // bytes of the plaintext
	chunk int64 // plaintext bytes of a chunk; 0 if the content is in one piece
}

func (l layout) count() int64 {
	if l.chunk == 0 {
		return 1
	}
	return chunksOf(l.size, l.chunk)
}

// sealed returns the length of the whole ciphertext in bytes.
func (l layout) sealed() int64 {
	if l.chunk == 0 {
		return l.size + tagSize
	}
	return l.size + l.count()*ChunkOverhead
}

// plainOf returns the number of plaintext bytes of chunk i.
func (l layout) plainOf(i int64) int64 { return min(l.chunk, l.size-i*l.chunk) }

// span is a range of chunks, from first up to and excluding last.
type span struct{ first, last int64 }

// cover returns the chunks that contain length bytes of the plaintext at offset. The error is
// ErrRange if the bytes are not all inside the content.
func (l layout) cover(offset, length int64) (span, error) {
	if offset < 0 || length < 1 || offset > l.size || length > l.size-offset {
		return span{}, fmt.Errorf("%w: %d bytes at %d of %d", ErrRange, length, offset, l.size)
	}
	if l.chunk == 0 {
		return span{0, 1}, nil
	}
	return span{offset / l.chunk, (offset+length-1)/l.chunk + 1}, nil
}

// bytes returns the offset and the length of the chunks s in the ciphertext, in bytes.
func (l layout) bytes(s span) (offset, length int64) {
	if l.chunk == 0 {
		return 0, l.sealed()
	}
	step := l.chunk + ChunkOverhead
	return s.first * step, min(s.last*step, l.sealed()) - s.first*step
}

// appendChunkAAD appends the additional authenticated data of chunk i to dst. prefix is the
// result of chunkPrefix.
func appendChunkAAD(dst []byte, prefix string, i int64) []byte {
	return strconv.AppendInt(append(dst, prefix...), i, 10)
}

func chunkPrefix(storageKey string) string { return aadChunk + storageKey + ":" }
