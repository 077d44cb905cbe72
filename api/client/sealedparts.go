package client

import (
	"context"
	"errors"
	"io"

	"github.com/holdfast-ipfs/holdfast/api/client/seal"
)

// sealedParts is the source of an encrypted multipart upload. It encrypts a part while the part
// is sent, and again on each attempt, so a part needs the memory of only one chunk.
type sealedParts struct {
	sections // parts of the plaintext; each is a whole number of chunks

	encryption *seal.Encryption
}

// sealedPartSize returns the number of plaintext bytes of each part of a file of size bytes.
func sealedPartSize(size int64) int64 {
	return (partSize(size) + seal.ChunkSize - 1) / seal.ChunkSize * seal.ChunkSize
}

func (s *sealedParts) next(number int) (part, error) {
	from := int64(number-1) * s.partSize
	if from >= s.size {
		return part{}, io.EOF
	}
	plain := s.sizeOf(number)
	chunks := (plain + seal.ChunkSize - 1) / seal.ChunkSize
	return part{
		number: number, size: plain + chunks*seal.ChunkOverhead, plain: plain,
		body: &sealing{parts: s, from: from, size: plain, first: from / seal.ChunkSize, count: chunks},
	}, nil
}

// sealedMemory is the maximum amount of ciphertext that all uploads of a client together have in
// memory, in bytes.
const sealedMemory = 32 << 20

// filled returns the part p with its ciphertext in memory, so that it has a CRC and every attempt
// sends the same bytes. It waits until memory is free. The caller calls release at the end. Parts
// that do not fit into sealedMemory, as those of files above 300 GiB, are returned unchanged.
func (c *Client) filled(ctx context.Context, p part) (full part, release func(), err error) {
	if p.crc != "" || p.size > sealedMemory {
		return p, func() {}, nil
	}
	if err := c.memory.Acquire(ctx, p.size); err != nil {
		return p, nil, err
	}
	buffer, ok := c.buffers.Get().(*[]byte)
	if !ok || int64(cap(*buffer)) < p.size {
		fresh := make([]byte, p.size)
		buffer = &fresh
	}
	release = func() {
		c.buffers.Put(buffer)
		c.memory.Release(p.size)
	}
	data := (*buffer)[:p.size]
	if _, err := io.ReadFull(p.body, data); err != nil {
		release()
		return p, nil, err
	}
	full = newPart(p.number, data)
	full.plain = p.plain
	return full, release, nil
}

// whole returns the whole file as one part.
func (s *sealedParts) whole() part {
	size, _ := s.encryption.Size()
	return part{number: 1, size: size, plain: s.size, body: &sealing{parts: s, size: s.size}}
}

func (s *sealedParts) head() journalHead {
	h := s.sections.head()
	if header, err := s.encryption.Header(); err == nil {
		h.Sealed = string(header)
	}
	return h
}

// resume continues the encryption of the upload that a journal records, so that new parts use the
// data key of the parts that are stored already. If the journal is for another file, or if its
// header cannot be opened, resume does nothing.
func (s *sealedParts) resume(with seal.Opener, bucket, key, journal string) {
	old, err := readJournal(journal)
	if err != nil || old == nil || old.Sealed == "" {
		return // the upload itself reports a journal that cannot be read
	}
	want := s.head()
	want.Bucket, want.Key, want.Sealed = bucket, key, old.Sealed
	if !old.continues(want) {
		return
	}
	if e, err := seal.Resume(with, seal.Header(old.Sealed), key); err == nil {
		s.encryption = e
	}
}

// sealing is a reader of the ciphertext of some chunks of a file. Seek to the start encrypts them
// again with new nonces.
type sealing struct {
	parts        *sealedParts
	from, size   int64 // range of the plaintext in bytes
	first, count int64 // first chunk and number of chunks; a count of 0 means the whole file

	now io.Reader // ciphertext of this attempt; nil before the first Read
}

func (s *sealing) Read(p []byte) (int, error) {
	if s.now == nil {
		src := io.NewSectionReader(s.parts.file, s.from, s.size)
		if s.count == 0 {
			s.now = s.parts.encryption.Reader(src)
		} else {
			var err error
			if s.now, err = s.parts.encryption.ReaderFrom(src, s.first, s.count); err != nil {
				return 0, err
			}
		}
	}
	return s.now.Read(p)
}

// errSeek is the error of a Seek to a position other than the start.
var errSeek = errors.New("ciphertext is read from its start")

func (s *sealing) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekStart {
		return 0, errSeek
	}
	s.now = nil
	return 0, nil
}
