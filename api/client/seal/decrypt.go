package seal

import (
	"bytes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"

	"lukechampine.com/blake3"
)

// MaxWhole is the default maximum size in bytes of content that is encrypted in one piece. A
// reader has all of such content in memory, because it may return no byte before it has
// authenticated the whole.
const MaxWhole = 64 << 20

// Options select what [Open] accepts. The zero value is the strictest.
type Options struct {
	// Path is the path that the object must have. It detects a server that answers with another
	// object of the same owner. An empty Path accepts any path.
	Path string
	// Bare accepts an object without private metadata. Such an object has no content hash, no name
	// and no chunks, and its size is known only at the end of the content.
	Bare bool
	// MaxWhole is the maximum size in bytes of content that is encrypted in one piece. 0 means
	// the default, the constant MaxWhole.
	MaxWhole int64
}

// Content is an encrypted object with an opened header, ready for decryption.
type Content struct {
	key        DataKey
	h          *header
	m          Metadata
	storageKey string
	layout     layout
	bare       bool
	maxWhole   int64
}

// Open opens the header h of the object that the server stores under storageKey; with opens its
// data key. The error is one of the errors of headers and keys, [ErrMetadata], [ErrNoMetadata] or
// [ErrWrongObject].
func Open(with Opener, h Header, storageKey string, o Options) (*Content, error) {
	parsed, err := parseHeader(h)
	if err != nil {
		return nil, err
	}
	c := &Content{h: parsed, storageKey: storageKey, bare: parsed.Metadata == nil, maxWhole: MaxWhole}
	if o.MaxWhole > 0 {
		c.maxWhole = o.MaxWhole
	}
	if c.key, err = with.open(parsed, storageKey); err != nil {
		return nil, err
	}
	if c.bare {
		if !o.Bare || o.Path != "" {
			return nil, ErrNoMetadata
		}
		return c, nil
	}
	if c.m, err = parsed.Metadata.open(c.key); err != nil {
		return nil, err
	}
	if o.Path != "" && o.Path != c.m.Path {
		return nil, fmt.Errorf("%w: it has %.64q", ErrWrongObject, c.m.Path)
	}
	c.layout = layout{c.m.Size, c.m.chunks.size}
	if c.layout.chunk > 0 && (!parsed.bound() || !bytes.Equal(parsed.Nonce, make([]byte, nonceSize))) {
		return nil, fmt.Errorf("%w: chunks need version %d and a nonce of zeros", ErrHeader, versionBound)
	}
	if c.layout.chunk == 0 && c.m.Size > c.maxWhole {
		return nil, fmt.Errorf("%w: %d bytes in one piece, at most %d", ErrTooLarge, c.m.Size, c.maxWhole)
	}
	return c, nil
}

// Metadata returns the private metadata, which is empty for a bare object.
func (c *Content) Metadata() Metadata { return c.m }

// DataKey returns the data key of this object. It opens this object alone, so it can be shared.
func (c *Content) DataKey() DataKey { return c.key }

// Size returns the length of the ciphertext in bytes. The second result is false for a bare
// object, whose header does not contain the size.
func (c *Content) Size() (int64, bool) { return c.layout.sealed(), !c.bare }

// Chunked reports whether the content is encrypted in chunks, so that a range can be decrypted
// alone.
func (c *Content) Chunked() bool { return c.layout.chunk > 0 }

// Range returns the offset and the length of the ciphertext from which length bytes of the
// plaintext at offset can be decrypted. The error is [ErrRange] for a bare object, or if the
// bytes are not all inside the content.
func (c *Content) Range(offset, length int64) (start, size int64, err error) {
	chunks, err := c.layout.cover(offset, length)
	if err != nil {
		return 0, 0, err
	}
	start, size = c.layout.bytes(chunks)
	return start, size, nil
}

// Reader returns a reader of the plaintext. ciphertext is the whole content. The reader
// authenticates each chunk before it returns bytes of the chunk. It returns io.EOF only if the
// content is complete and has its content hash. After any other error, which is one of the errors
// of content, discard the bytes that were read before.
func (c *Content) Reader(ciphertext io.Reader) io.Reader {
	r := c.decrypting(ciphertext, span{0, c.layout.count()}, 0, c.layout.size)
	r.hash = blake3.New(32, nil)
	return r
}

// RangeReader returns a reader of length bytes of the plaintext at offset. ciphertext is the
// range that [Content.Range] returned. The reader authenticates each chunk, but cannot check the
// content hash. The error is [ErrRange].
func (c *Content) RangeReader(ciphertext io.Reader, offset, length int64) (io.Reader, error) {
	chunks, err := c.layout.cover(offset, length)
	if err != nil {
		return nil, err
	}
	r := c.decrypting(ciphertext, chunks, offset-chunks.first*c.layout.chunk, length)
	if c.layout.chunk == 0 {
		r.hash = blake3.New(32, nil) // the range is the whole content
	}
	return r, nil
}

// decrypting is a reader that decrypts content chunk by chunk.
type decrypting struct {
	pieces // of plaintext

	c      *Content
	src    io.Reader
	chunks span           // chunks that are not read yet
	hash   *blake3.Hasher // hash of the plaintext; nil for a range
	skip   int64          // plaintext bytes before the range that are still to be dropped
	take   int64          // plaintext bytes of the range that are still to be returned

	aead             cipher.AEAD
	prefix           string // prefix of the additional data of each chunk
	buf, plain, aad  []byte
	first            int64 // first chunk of the range
	started, checked bool  // begin was called; end has returned io.EOF
}

// decrypting returns a reader of the plaintext of chunks that drops the first skip bytes and then
// returns take bytes.
func (c *Content) decrypting(ciphertext io.Reader, chunks span, skip, take int64) *decrypting {
	r := &decrypting{c: c, src: ciphertext, chunks: chunks, skip: skip, take: take}
	r.more = r.fill
	return r
}

// begin creates the cipher and the buffers. Only its first call has an effect.
func (r *decrypting) begin() {
	if r.started {
		return
	}
	r.started, r.first, r.aead, r.prefix = true, r.chunks.first, r.c.key.aead(), chunkPrefix(r.c.storageKey)
	if r.c.layout.chunk > 0 {
		size := min(r.c.layout.chunk, r.c.layout.size)
		r.buf, r.plain = make([]byte, size+ChunkOverhead), make([]byte, size)
	}
}

// fill decrypts the next chunk into ready, or sets err. It is the function more of pieces.
func (r *decrypting) fill() {
	r.begin()
	if r.chunks.first >= r.chunks.last {
		r.err = r.end()
		return
	}
	var plain []byte
	var err error
	if r.c.layout.chunk == 0 {
		plain, err = r.whole()
	} else {
		plain, err = r.chunk(r.chunks.first)
	}
	if err != nil {
		r.err = err
		return
	}
	r.chunks.first++
	if r.hash != nil {
		mustWrite(r.hash, plain)
	}
	if r.c.bare {
		r.ready = plain
		return
	}
	if r.chunks.first == r.chunks.last { // Read returns the last bytes after end has checked the content
		if err := r.end(); !errors.Is(err, io.EOF) {
			r.err = err
			return
		}
	}
	r.ready = r.cut(plain)
}

// cut returns the part of the decrypted chunk plain that is inside the range.
func (r *decrypting) cut(plain []byte) []byte {
	plain = plain[r.skip:]
	plain = plain[:min(int64(len(plain)), r.take)]
	r.skip, r.take = 0, r.take-int64(len(plain))
	return plain
}

// end returns io.EOF if the source has ended and, for a read of the whole content, the content
// hash is right. Otherwise it returns ErrTrailing, ErrHash or the error of the source.
func (r *decrypting) end() error {
	if r.checked {
		return io.EOF
	}
	var more [1]byte
	if n, err := io.ReadFull(r.src, more[:]); n > 0 {
		return ErrTrailing
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	if r.hash != nil && !r.c.bare && [32]byte(r.hash.Sum(nil)) != r.c.m.Hash {
		return ErrHash
	}
	r.checked = true
	return io.EOF
}

// whole reads and decrypts content that is encrypted in one piece.
func (r *decrypting) whole() ([]byte, error) {
	limit := r.c.layout.sealed()
	if r.c.bare {
		limit = r.c.maxWhole + tagSize
	}
	sealed, err := readUpTo(r.src, limit, !r.c.bare)
	if err != nil {
		return nil, err
	}
	if len(sealed) < tagSize || (!r.c.bare && int64(len(sealed)) < limit) {
		return nil, ErrTruncated
	}
	if r.c.h.bound() {
		r.aad = append(r.aad, aadContent+r.c.storageKey...)
	}
	plain, err := r.aead.Open(sealed[:0], r.c.h.Nonce, sealed, r.aad)
	if err != nil {
		return nil, ErrContent
	}
	return plain, nil
}

// readUpTo reads at most limit bytes of src. With exact, the size of the content is known to be
// limit; the result is shorter if src ends earlier. Without exact, a longer src is ErrTooLarge.
func readUpTo(src io.Reader, limit int64, exact bool) ([]byte, error) {
	if exact {
		buf := make([]byte, limit)
		n, err := io.ReadFull(src, buf)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
		return buf[:n], err
	}
	buf, err := io.ReadAll(io.LimitReader(src, limit+1))
	if int64(len(buf)) > limit {
		return nil, fmt.Errorf("%w: content in one piece, at most %d bytes", ErrTooLarge, limit-tagSize)
	}
	return buf, err
}

// chunk reads and decrypts chunk i.
func (r *decrypting) chunk(i int64) ([]byte, error) {
	sealed := r.buf[:r.c.layout.plainOf(i)+ChunkOverhead]
	if _, err := io.ReadFull(r.src, sealed); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, r.truncated(i)
	} else if err != nil {
		return nil, err
	}
	return r.opened(sealed, i)
}

// truncated returns the error for a source that ends within chunk i.
func (r *decrypting) truncated(i int64) error {
	return fmt.Errorf("%w: in chunk %d of %d", ErrTruncated, i, r.c.layout.count())
}

// opened decrypts sealed as chunk i. The plaintext is valid until the next call.
func (r *decrypting) opened(sealed []byte, i int64) ([]byte, error) {
	plain, err := r.openAs(sealed, i)
	if err != nil {
		return nil, r.misplaced(sealed, i)
	}
	return plain, nil
}

func (r *decrypting) openAs(sealed []byte, i int64) ([]byte, error) {
	r.aad = appendChunkAAD(r.aad[:0], r.prefix, i)
	return r.aead.Open(r.plain[:0], sealed[:nonceSize], sealed[nonceSize:], r.aad)
}

// maxPlaces is how many chunks before and after its place misplaced tries as the true place of a
// chunk.
const maxPlaces = 512

// misplaced returns the error for a chunk that cannot be decrypted as chunk i: ErrChunkRepeated
// or ErrChunkMoved if it is another chunk of this object, and ErrChunk otherwise.
func (r *decrypting) misplaced(sealed []byte, i int64) error {
	count := r.c.layout.count()
	for j := max(0, i-maxPlaces); j < min(count, i+maxPlaces+1); j++ {
		if j == i || r.c.layout.plainOf(j) != r.c.layout.plainOf(i) {
			continue
		}
		if _, err := r.openAs(sealed, j); err != nil {
			continue
		}
		if j < i && j >= r.first {
			return fmt.Errorf("%w: chunk %d is at place %d", ErrChunkRepeated, j, i)
		}
		return fmt.Errorf("%w: chunk %d is at place %d", ErrChunkMoved, j, i)
	}
	return fmt.Errorf("%w: at place %d of %d", ErrChunk, i, count)
}

// Decrypt decrypts an object that fits in memory, and returns its plaintext and private metadata.
// path is the path that the object must have; empty accepts any path.
func Decrypt(with Opener, h Header, storageKey, path string, ciphertext []byte) ([]byte, Metadata, error) {
	c, err := Open(with, h, storageKey, Options{Path: path, MaxWhole: int64(len(ciphertext))})
	if err != nil {
		return nil, Metadata{}, err
	}
	out := bytes.NewBuffer(make([]byte, 0, min(c.m.Size, int64(len(ciphertext)))))
	if _, err := io.Copy(out, c.Reader(bytes.NewReader(ciphertext))); err != nil {
		return nil, Metadata{}, err
	}
	return out.Bytes(), c.m, nil
}
