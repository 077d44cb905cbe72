package seal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"lukechampine.com/blake3"
)

// Object describes an object that is to be encrypted.
type Object struct {
	StorageKey  string // key under which the server stores the object
	Path        string // name of the object; see [CheckPath]
	ContentType string
	Created     time.Time // zero means the time of the call of [New]
	Modified    time.Time // zero means the time of the call of [New]
	User        map[string]string
	// Unknown is the Unknown field of the [Metadata] of the object that this one replaces, so that
	// its members are not lost.
	Unknown map[string]json.RawMessage
	// Digest is the digest of the plaintext. Nil means a stream, whose size and hash are known only
	// at its end. The header of a stream is complete only after the upload, and a stream is always
	// encrypted in chunks.
	Digest *Digest
	// Folder is the key of the folder of the object, or of a folder above. Everybody with this key can
	// open the data key. With nil only the owner can.
	Folder *FolderKey
	// Bound authenticates the storage key together with content in one piece (header version 4), so
	// that a server cannot store it under another key. Content in chunks is always bound.
	Bound bool
}

// Digest is the size in bytes and the BLAKE3 hash of a plaintext.
type Digest struct {
	Size int64
	Hash [32]byte
}

// DigestOf reads r to its end and returns its digest. A caller that encrypts a file reads it
// twice, first for the digest, because an upload sends the header before the content.
func DigestOf(r io.Reader) (Digest, error) {
	h := blake3.New(32, nil)
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, make([]byte, ChunkSize))
	if err != nil {
		return Digest{}, err
	}
	return Digest{n, [32]byte(h.Sum(nil))}, nil
}

// Encryption encrypts one object for one upload; each upload has its own data key. [Resume]
// returns the Encryption of an interrupted upload. If the digest is known, the methods of
// Encryption are safe for concurrent use.
type Encryption struct {
	key        DataKey
	h          header
	m          Metadata
	storageKey string
	known      bool // the digest is known
	chunked    bool
}

// New starts the encryption of the object o for the public key to. The error is an error of
// [CheckPath], [ErrTooLarge] if the size or the metadata is too large, [ErrPathScope] if o.Folder
// is not above the path, or [ErrIdentity] if to is the zero value.
func New(to PublicKey, o Object) (*Encryption, error) {
	if err := CheckPath(o.Path); err != nil {
		return nil, err
	}
	e := &Encryption{key: newDataKey(), storageKey: o.StorageKey, known: o.Digest != nil}
	now := time.Now()
	e.m = Metadata{Path: o.Path, ContentType: o.ContentType, Created: orElse(o.Created, now), Modified: orElse(o.Modified, now), User: o.User, Unknown: o.Unknown}
	if e.known {
		if o.Digest.Size < 0 || o.Digest.Size > maxSize {
			return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, o.Digest.Size)
		}
		e.m.Size, e.m.Hash = o.Digest.Size, o.Digest.Hash
	}
	e.chunked = !e.known || e.m.Size > ChunkSize
	e.h = header{Version: versionPlain, Nonce: make([]byte, nonceSize)}
	if !e.chunked {
		e.h.Nonce = random(nonceSize)
	}
	if e.chunked || o.Bound {
		e.h.Version = versionBound
	}
	if to.Hybrid() {
		e.h.Version += versionHybrid
	}
	var err error
	if e.h.Wrapped, err = wrapKey(to, e.key, []byte(aadDataKey)); err != nil {
		return nil, err
	}
	if o.Folder != nil {
		folder, err := o.Folder.Folder(parent(o.Path))
		if err != nil {
			return nil, err
		}
		e.h.Folder = folder.wrap(e.key, o.StorageKey)
	}
	if !e.known { // check that the header fits for the largest stream
		largest := *e
		largest.m.Size = maxSize
		return e, largest.finish()
	}
	return e, e.finish()
}

func orElse(t, other time.Time) time.Time {
	if t.IsZero() {
		return other
	}
	return t
}

// Resume returns the Encryption of an interrupted upload with a known digest, from the header of
// that upload. [Encryption.ReaderFrom] then encrypts the chunks that the server does not have
// yet.
func Resume(with Opener, h Header, storageKey string) (*Encryption, error) {
	content, err := Open(with, h, storageKey, Options{})
	if err != nil {
		return nil, err
	}
	return &Encryption{
		key: content.key, h: *content.h, m: content.m, storageKey: storageKey, known: true, chunked: content.m.chunks.size > 0,
	}, nil
}

// finish encrypts the private metadata into the header.
func (e *Encryption) finish() (err error) {
	if e.chunked {
		e.m.chunks = chunking{ChunkSize, chunksOf(e.m.Size, ChunkSize)}
	}
	if e.h.Metadata, err = e.m.seal(e.key); err != nil {
		return err
	}
	_, err = e.h.encode()
	return err
}

// Header returns the encryption header. For a stream, the error is [ErrUnfinished] until the reader
// of the stream has returned io.EOF.
func (e *Encryption) Header() (Header, error) {
	if !e.known {
		return "", ErrUnfinished
	}
	return e.h.encode()
}

// Digest returns the digest of the plaintext. For a stream, the error is [ErrUnfinished] until the
// reader has returned io.EOF.
func (e *Encryption) Digest() (Digest, error) {
	if !e.known {
		return Digest{}, ErrUnfinished
	}
	return Digest{e.m.Size, e.m.Hash}, nil
}

// Size returns the length of the ciphertext in bytes. The second result is false for a stream
// that has not ended.
func (e *Encryption) Size() (int64, bool) { return e.layout().sealed(), e.known }

// Chunks returns the number of chunks, or 0 for content in one piece.
func (e *Encryption) Chunks() int64 { return e.m.chunks.count }

func (e *Encryption) layout() layout {
	if !e.chunked {
		return layout{size: e.m.Size}
	}
	return layout{e.m.Size, ChunkSize}
}

// Reader returns a reader of the ciphertext of all of src. It needs the memory of one chunk. If
// src does not match the digest, it returns [ErrSourceChanged] before the last chunk, so that the
// upload fails. For a stream, call Reader only once.
func (e *Encryption) Reader(src io.Reader) io.Reader {
	r := e.encrypting(src)
	r.hash = blake3.New(32, nil)
	return r
}

// ReaderFrom returns a reader of the ciphertext of count chunks from chunk first on, or of all
// chunks from there if count is 0. src must be at the first byte of the plaintext of that chunk,
// first*ChunkSize. Each call encrypts with new nonces, so a caller may send a part again.
// ReaderFrom checks only the size; a caller that encrypts a file in parts must check that the file
// has not changed. The error is [ErrRange] if there are no such chunks, and [ErrUnfinished] for a
// stream.
func (e *Encryption) ReaderFrom(src io.Reader, first, count int64) (io.Reader, error) {
	total := e.layout().count()
	if !e.known {
		return nil, ErrUnfinished
	}
	if first < 0 || first > total || count < 0 || count > total-first {
		return nil, fmt.Errorf("%w: chunks %d to %d of %d", ErrRange, first, first+count, total)
	}
	if count == 0 {
		count = total - first
	}
	if !e.chunked { // the header has the only nonce: it must encrypt only this plaintext
		return e.Reader(src), nil
	}
	r := e.encrypting(src)
	r.next, r.until, r.part = first, first+count, true
	return r, nil
}

// encrypting is a reader that encrypts plaintext chunk by chunk.
type encrypting struct {
	pieces // of ciphertext

	e      *Encryption
	src    io.Reader
	hash   *blake3.Hasher // hash of the plaintext; nil for a part
	prefix string         // prefix of the additional data of each chunk
	part   bool           // the reader encrypts only the chunks from next up to until
	next   int64          // index of the next chunk
	until  int64          // chunk after the last; only for a part
	read   int64          // plaintext bytes that were read

	aead interface {
		Seal(dst, nonce, plaintext, additionalData []byte) []byte
	}
	buf, aad []byte
}

// encrypting returns a reader of the ciphertext that begins at the first chunk.
func (e *Encryption) encrypting(src io.Reader) *encrypting {
	r := &encrypting{e: e, src: src, prefix: chunkPrefix(e.storageKey)}
	r.more = r.fill
	return r
}

// fill encrypts the next chunk into ready, or sets err. It is the function more of pieces.
func (r *encrypting) fill() {
	l := r.e.layout()
	if r.aead == nil {
		r.aead = r.e.key.aead()
		size := int64(ChunkSize)
		if r.e.known {
			size = min(size, max(1, l.size))
		}
		r.buf = make([]byte, nonceSize+size, nonceSize+size+tagSize)
	}
	if r.e.known {
		r.fillKnown(l)
	} else {
		r.fillStream()
	}
}

func (r *encrypting) fillKnown(l layout) {
	end := l.count()
	if r.part {
		end = r.until
	}
	if r.next >= end {
		r.err = io.EOF
		if r.next == 0 { // an empty stream has no chunks
			r.err = r.check()
		}
		return
	}
	want := l.size
	if l.chunk > 0 {
		want = l.plainOf(r.next)
	}
	plain := r.buf[nonceSize : nonceSize+want]
	if _, err := io.ReadFull(r.src, plain); err != nil {
		r.err = sourceError(err)
		return
	}
	r.take(plain)
	if r.next+1 == l.count() {
		if err := r.check(); !errors.Is(err, io.EOF) {
			r.err = err
			return
		}
	}
	r.seal(plain, l.chunk == 0)
}

// mustWrite writes b to a hash. Writing to a hash cannot fail.
func mustWrite(h *blake3.Hasher, b []byte) {
	if _, err := h.Write(b); err != nil {
		panic("seal: " + err.Error())
	}
}

// sourceError converts an error of reading the plaintext: io.EOF before the expected end becomes
// ErrSourceChanged.
func sourceError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrSourceChanged
	}
	return err
}

// check returns io.EOF if the source has ended and matches the digest, and ErrSourceChanged if it
// does not.
func (r *encrypting) check() error {
	var more [1]byte
	if n, err := io.ReadFull(r.src, more[:]); n > 0 {
		return ErrSourceChanged
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	if !r.part && !bytes.Equal(r.hash.Sum(nil), r.e.m.Hash[:]) {
		return ErrSourceChanged
	}
	return io.EOF
}

func (r *encrypting) take(plain []byte) {
	r.read += int64(len(plain))
	if r.hash != nil {
		mustWrite(r.hash, plain)
	}
}

func (r *encrypting) fillStream() {
	n, err := io.ReadFull(r.src, r.buf[nonceSize:])
	if n > 0 && r.read+int64(n) > maxSize {
		err = fmt.Errorf("%w: stream", ErrTooLarge)
	} else if n > 0 && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) {
		plain := r.buf[nonceSize : nonceSize+n]
		r.take(plain)
		r.seal(plain, false)
		if err == nil {
			return
		}
		err = io.EOF
	}
	if r.err = err; !errors.Is(err, io.EOF) {
		return
	}
	r.e.m.Size, r.e.m.Hash = r.read, [32]byte(r.hash.Sum(nil))
	if err := r.e.finish(); err != nil {
		r.err, r.ready = err, nil
		return
	}
	r.e.known = true
}

// seal encrypts plain in place and sets ready. plain is in buf after the space for a nonce.
// single is true for content in one piece, whose nonce is in the header.
func (r *encrypting) seal(plain []byte, single bool) {
	if single {
		r.aad = r.aad[:0]
		if r.e.h.bound() {
			r.aad = append(r.aad, aadContent+r.e.storageKey...)
		}
		r.ready = r.aead.Seal(plain[:0], r.e.h.Nonce, plain, r.aad)
	} else {
		nonce := r.buf[:nonceSize]
		randomInto(nonce)
		r.aad = appendChunkAAD(r.aad[:0], r.prefix, r.next)
		r.aead.Seal(plain[:0], nonce, plain, r.aad)
		r.ready = r.buf[:nonceSize+len(plain)+tagSize]
	}
	r.next++
}

// Encrypt encrypts an object that fits in memory, and returns its ciphertext and header. It
// computes the digest of o from plaintext.
func Encrypt(to PublicKey, o Object, plaintext []byte) ([]byte, Header, error) {
	o.Digest = &Digest{int64(len(plaintext)), blake3.Sum256(plaintext)}
	e, err := New(to, o)
	if err != nil {
		return nil, "", err
	}
	size, _ := e.Size()
	out := bytes.NewBuffer(make([]byte, 0, size))
	if _, err := io.Copy(out, e.Reader(bytes.NewReader(plaintext))); err != nil {
		return nil, "", err
	}
	h, err := e.Header()
	return out.Bytes(), h, err
}
