package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ipfs/go-cid"
)

// The protocol "/holdfast/blocks/1" transfers blocks between members. The client sends requests on
// a stream, one after the other:
//
//	request  = length:uint32 count:uvarint { cidLength:uvarint cid }
//	response = { status:byte [ length:uint32 bytes ] }   one per CID, in order
//
// Integers are big-endian. A length is the number of bytes after it. Length and bytes of a block
// follow only the status statusFound. TestBlockFramesKeepTheirBytes fails if the bytes of a frame
// change.
const (
	blocksProtocol = "/holdfast/blocks/1"

	statusAbsent = 0 // not stored on this node
	statusFound  = 1
	statusFailed = 2 // stored on this node, but cannot be read

	// MaxBlock is the maximum size of a block that is sent or accepted, in bytes.
	MaxBlock = 2 << 20

	maxRequestCIDs  = 64
	maxCIDLength    = 256
	maxRequestFrame = binary.MaxVarintLen64 + maxRequestCIDs*(binary.MaxVarintLen64+maxCIDLength)
)

var errFrame = errors.New("malformed frame")

// appendRequest appends to dst the frame that requests cids, which may have at most maxRequestCIDs
// elements.
func appendRequest(dst []byte, cids []cid.Cid) ([]byte, error) {
	if len(cids) == 0 || len(cids) > maxRequestCIDs {
		return nil, fmt.Errorf("%w: %d CIDs in a request", errFrame, len(cids))
	}
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.AppendUvarint(dst, uint64(len(cids)))
	for _, c := range cids {
		if c.ByteLen() == 0 || c.ByteLen() > maxCIDLength {
			return nil, fmt.Errorf("%w: CID of %d bytes", errFrame, c.ByteLen())
		}
		dst = binary.AppendUvarint(dst, uint64(c.ByteLen()))
		dst = append(dst, c.KeyString()...)
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst, nil
}

// readRequest reads one request. It returns io.EOF if the client has closed the stream.
func readRequest(r io.Reader) ([]cid.Cid, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > maxRequestFrame {
		return nil, fmt.Errorf("%w: request of %d bytes", errFrame, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("request: %w", noEOF(err))
	}
	return parseRequest(body)
}

func parseRequest(body []byte) ([]cid.Cid, error) {
	count, n := binary.Uvarint(body)
	if n <= 0 || count == 0 || count > maxRequestCIDs {
		return nil, fmt.Errorf("%w: CID count", errFrame)
	}
	body = body[n:]
	cids := make([]cid.Cid, 0, count)
	for range count {
		size, n := binary.Uvarint(body)
		if n <= 0 || size == 0 || size > maxCIDLength || size > uint64(len(body)-n) {
			return nil, fmt.Errorf("%w: CID length", errFrame)
		}
		c, err := cid.Cast(body[n : n+int(size)])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errFrame, err)
		}
		cids = append(cids, c)
		body = body[n+int(size):]
	}
	if len(body) != 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", errFrame, len(body))
	}
	return cids, nil
}

// writeBlock writes the response for a CID that was found.
func writeBlock(w io.Writer, data []byte) error {
	var head [5]byte
	head[0] = statusFound
	binary.BigEndian.PutUint32(head[1:], uint32(len(data)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// readResponse reads the response for one CID. data is nil unless status is statusFound;
// its memory comes from lend.
func readResponse(r io.Reader, lend func(bytes int) []byte) (status byte, data []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return 0, nil, fmt.Errorf("response: %w", noEOF(err))
	}
	switch status = head[0]; status {
	case statusAbsent, statusFailed:
		return status, nil, nil
	case statusFound:
	default:
		return 0, nil, fmt.Errorf("%w: status %d", errFrame, status)
	}
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, fmt.Errorf("response: %w", noEOF(err))
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > MaxBlock {
		return 0, nil, fmt.Errorf("%w: block of %d bytes", errFrame, n)
	}
	data = lend(int(n))
	if _, err := io.ReadFull(r, data); err != nil {
		return 0, nil, fmt.Errorf("response: %w", noEOF(err))
	}
	return status, data, nil
}

// noEOF returns io.ErrUnexpectedEOF instead of io.EOF, for a stream that ended in the middle of a
// frame. It returns other errors unchanged.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
