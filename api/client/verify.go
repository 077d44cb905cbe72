package client

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"lukechampine.com/blake3"
	"lukechampine.com/blake3/bao"
)

// Hash is a BLAKE3 hash of 32 bytes.
type Hash [32]byte

// String returns the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash parses a BLAKE3 hash of 64 hexadecimal digits.
func ParseHash(text string) (h Hash, err error) {
	data, err := hex.DecodeString(text)
	if err != nil || len(data) != len(h) {
		return h, fmt.Errorf("%q is not a BLAKE3 hash of 64 hexadecimal digits", text)
	}
	return Hash(data), nil
}

// VerifyError means that a node sent bytes without the expected hash. The client has written none
// of the wrong bytes.
type VerifyError struct {
	Object   string // s3://bucket/key
	Endpoint string // URL of the node that sent the bytes
	Offset   int64  // offset of the first unverified byte
	Reason   string
}

func (e *VerifyError) Error() string {
	return fmt.Sprintf("%s does not have its BLAKE3 hash from byte %d on: %s: the node %s sent it", e.Object, e.Offset, e.Reason, e.Endpoint)
}

// ErrNoHash means that a download cannot be verified: the cluster does not know the hash of the
// object, and the caller gave none.
var ErrNoHash = errors.New("no BLAKE3 hash is known")

// Reasons for a VerifyError.
const (
	reasonBytes     = "wrong bytes or a wrong proof"
	reasonSize      = "another size"
	reasonTruncated = "truncated"
	reasonLonger    = "more bytes than asked for"
	reasonHash      = "another hash"
)

// decodeSlice decodes a Bao slice and writes its content to w: n bytes from the offset off, of an
// object of size bytes with the hash root. It verifies each chunk of 1 KiB before it writes the
// chunk. It returns the number of bytes written. reason is "" unless the slice is wrong; err is
// an error of body or w.
func decodeSlice(w io.Writer, body io.Reader, off, n, size int64, root Hash) (written int64, reason string, err error) {
	in := &noting{from: bufio.NewReaderSize(body, ioBuffer)}
	var header [8]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return 0, reasonTruncated, in.failed
	}
	if binary.LittleEndian.Uint64(header[:]) != uint64(size) {
		return 0, reasonSize, nil
	}
	count := &counting{to: w}
	out := bufio.NewWriterSize(count, ioBuffer)
	from := io.MultiReader(bytes.NewReader(header[:]), in)
	ok, err := bao.DecodeSlice(out, from, 0, uint64(off), uint64(n), root)
	if flushed := out.Flush(); flushed != nil { // all buffered bytes are verified
		return count.n, "", flushed
	}
	switch {
	case in.failed != nil:
		return count.n, "", in.failed
	case err != nil:
		return count.n, reasonTruncated, nil
	case !ok:
		return count.n, reasonBytes, nil
	}
	if extra, _ := in.Read(make([]byte, 1)); extra > 0 {
		return count.n, reasonLonger, nil
	}
	return count.n, "", in.failed
}

// ioBuffer is the size of the buffers for copying streams, in bytes.
const ioBuffer = 64 << 10

// noting is a reader that stores the first error of from other than io.EOF.
type noting struct {
	from   io.Reader
	failed error
}

func (r *noting) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed = &bodyError{err}
	}
	return n, err
}

// counting is a writer that counts the bytes written through it.
type counting struct {
	to io.Writer
	n  int64
}

func (w *counting) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.n += int64(n)
	return n, err
}

// emptyHash is the BLAKE3 hash of empty content.
var emptyHash = Hash(blake3.Sum256(nil))
