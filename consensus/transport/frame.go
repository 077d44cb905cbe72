package transport

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/wire"
)

// MaxBody is the largest size of a frame's body in bytes: a command or an outcome, preceded by up
// to 16 bytes of a deadline or a clock reading.
const MaxBody = wire.MaxCommand + 16

// ErrFrame is wrapped by the errors about a frame that is malformed or too large.
var ErrFrame = errors.New("transport: malformed frame")

// Frame is one message. Requests and answers have the same form:
//
//	length of the rest   4 bytes, big endian
//	ID                   8 bytes
//	Kind                 1 byte
//	Budget               4 bytes, milliseconds
//	Body                 what is left
type Frame struct {
	// ID ties an answer to its request; it is unique on a stream.
	ID uint64
	// Kind is the kind of a request, or the result in an answer.
	Kind uint8
	// Budget is how long the caller waits, in whole milliseconds. Answers have no budget.
	Budget time.Duration
	Body   []byte
}

const (
	lengthBytes = 4
	headerBytes = 8 + 1 + 4
)

// AppendFrame appends the bytes of f to buf. It returns ErrFrame if the body is larger than MaxBody.
func AppendFrame(buf []byte, f Frame) ([]byte, error) {
	if len(f.Body) > MaxBody {
		return buf, fmt.Errorf("%w: a body of %d bytes, the most is %d", ErrFrame, len(f.Body), MaxBody)
	}
	budget := min(max(f.Budget.Milliseconds(), 0), math.MaxUint32)
	buf = binary.BigEndian.AppendUint32(buf, uint32(headerBytes+len(f.Body)))
	buf = binary.BigEndian.AppendUint64(buf, f.ID)
	buf = append(buf, f.Kind)
	buf = binary.BigEndian.AppendUint32(buf, uint32(budget))
	return append(buf, f.Body...), nil
}

// ReadFrame reads one frame. If the stream ends between two frames, it returns io.EOF unwrapped.
// It allocates memory only as bytes arrive, so a wrong length alone costs no memory.
func ReadFrame(r *bufio.Reader) (Frame, error) {
	var length [lengthBytes]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return Frame{}, io.EOF
		}
		return Frame{}, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n < headerBytes || n > headerBytes+MaxBody {
		return Frame{}, fmt.Errorf("%w: length %d", ErrFrame, n)
	}
	var header [headerBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return Frame{}, fmt.Errorf("%w: %w", ErrFrame, noEOF(err))
	}
	f := Frame{
		ID:     binary.BigEndian.Uint64(header[:]),
		Kind:   header[8],
		Budget: time.Duration(binary.BigEndian.Uint32(header[9:])) * time.Millisecond,
	}
	body, err := readBody(r, int(n)-headerBytes)
	if err != nil {
		return Frame{}, err
	}
	f.Body = body
	return f, nil
}

// firstBytes is the largest number of bytes that is allocated for a body before its first byte
// arrives.
const firstBytes = 64 << 10

func readBody(r io.Reader, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	body := make([]byte, min(n, firstBytes))
	got := 0
	for {
		if _, err := io.ReadFull(r, body[got:]); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFrame, noEOF(err))
		}
		if got = len(body); got == n {
			return body, nil
		}
		more := make([]byte, min(n, 2*got))
		copy(more, body)
		body = more
	}
}

// noEOF replaces io.EOF by io.ErrUnexpectedEOF, for a stream that ends inside a frame. It returns
// other errors unchanged.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
