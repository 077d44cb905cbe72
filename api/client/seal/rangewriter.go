package seal

import (
	"errors"
	"io"
)

// RangeWriter is a writer that decrypts a range of chunked content and writes the plaintext to
// another writer. Unlike [Content.RangeReader] it needs no goroutine for a source that writes,
// and it reads each chunk into the buffer in which it decrypts the chunk. [Content.RangeWriter]
// returns a RangeWriter.
type RangeWriter struct {
	r      *decrypting
	to     io.Writer
	filled int   // bytes of the chunk that are in the buffer of r
	err    error // the first error; every later call returns it
}

// RangeWriter returns a writer that decrypts length bytes of the plaintext at offset, and writes
// them to w. The caller writes the range of the ciphertext that [Content.Range] returned, and
// then calls Close. Each chunk is authenticated before its bytes are written to w. The error is
// [ErrRange] for bytes outside the content, and for content without chunks.
func (c *Content) RangeWriter(w io.Writer, offset, length int64) (*RangeWriter, error) {
	chunks, err := c.layout.cover(offset, length)
	if err != nil {
		return nil, err
	}
	if !c.Chunked() {
		return nil, ErrRange
	}
	r := c.decrypting(nil, chunks, offset-chunks.first*c.layout.chunk, length)
	r.begin()
	return &RangeWriter{r: r, to: w}, nil
}

// Write implements io.Writer. Its errors are those of content, and those of the writer of the
// plaintext.
func (w *RangeWriter) Write(p []byte) (written int, err error) {
	for len(p) > 0 && w.err == nil {
		n := copy(w.space(), p)
		w.take(n)
		p, written = p[n:], written+n
	}
	return written, w.err
}

// ReadFrom implements io.ReaderFrom. It reads src directly into the buffer in which a chunk is
// decrypted. After an error of src, a later call can continue with the next byte.
func (w *RangeWriter) ReadFrom(src io.Reader) (read int64, err error) {
	for w.err == nil {
		n, err := src.Read(w.space())
		w.take(n)
		read += int64(n)
		if errors.Is(err, io.EOF) {
			return read, w.err
		}
		if err != nil && w.err == nil {
			return read, err
		}
	}
	return read, w.err
}

// Close returns the first error of the writes, or [ErrTruncated] if the range is not complete, or
// nil. It does not close the writer of the plaintext.
func (w *RangeWriter) Close() error {
	if w.err == nil && w.r.chunks.first < w.r.chunks.last {
		w.err = w.r.truncated(w.r.chunks.first)
	}
	return w.err
}

// space returns the part of the buffer for the next bytes of ciphertext. After the last chunk it
// returns a buffer of one byte, so that surplus bytes are detected.
func (w *RangeWriter) space() []byte {
	r := w.r
	if r.chunks.first >= r.chunks.last {
		return make([]byte, 1)
	}
	return r.buf[w.filled : r.c.layout.plainOf(r.chunks.first)+ChunkOverhead]
}

// take counts n bytes that the caller has stored in space. If they complete the chunk, take
// decrypts it and writes the plaintext.
func (w *RangeWriter) take(n int) {
	r := w.r
	switch {
	case n == 0:
		return
	case r.chunks.first >= r.chunks.last:
		w.err = ErrTrailing
		return
	}
	w.filled += n
	sealed := r.buf[:r.c.layout.plainOf(r.chunks.first)+ChunkOverhead]
	if w.filled < len(sealed) {
		return
	}
	plain, err := r.opened(sealed, r.chunks.first)
	if err != nil {
		w.err = err
		return
	}
	w.filled = 0
	r.chunks.first++
	if _, err := w.to.Write(r.cut(plain)); err != nil {
		w.err = err
	}
}
