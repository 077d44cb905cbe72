package ingest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// Protocol is the protocol by which a node puts content on another node. One stream carries one
// put after the other:
//
//	frame  = kind:byte length:uint32 body
//	begin  = version:byte id:16 bytes            a new put
//	block  = cid bytes                           any number of them
//	end    = root count:uvarint { node }         no more blocks; the listed nodes may have the rest
//	renew  =                                     asks for the current epoch
//	done   = outcome:byte                        the last frame of a put
//	kept   = epoch:uint64 bytes:uvarint blocks:uvarint   answers end and renew
//	refused = code:uint16 text                   ends the put
//	working =                                    the receiver is still processing end
//
// where cid, root and node are preceded by their length as a uvarint. Integers are big-endian;
// length is that of the body. testdata has examples. A receiver rejects a version that it does
// not know.
const Protocol = "/holdfast/put/1"

const version = 1

// Kinds of frames: those from the node that puts content, and then the answers to it.
const (
	kindBegin byte = 1
	kindBlock byte = 2
	kindEnd   byte = 3
	kindRenew byte = 4
	kindDone  byte = 5

	kindKept    byte = 65
	kindRefused byte = 66
	kindWorking byte = 67
)

// Outcomes of a put.
const (
	outcomeCommitted byte = 1
	outcomeGivenUp   byte = 2
)

// Limits of frames.
const (
	maxBlock   = 2 << 20 // bytes of a block, as in bitswap
	maxCID     = 256
	maxNode    = 128
	maxSources = 16
	maxText    = 512

	headBytes  = 5
	beginBytes = 1 + 16
	maxEnd     = 3*binary.MaxVarintLen64 + maxCID + maxSources*(binary.MaxVarintLen64+maxNode)
	// firstBytes is the largest number of bytes that is allocated for a frame before its first
	// byte arrives.
	firstBytes = 64 << 10
)

// errFrame is wrapped by every error about malformed frames.
var errFrame = errors.New("malformed frame")

// putID identifies a put on a node that stores content for another node.
type putID [16]byte

// end is the body of the frame that follows the last block of a put.
type end struct {
	root    cid.Cid
	sources []state.NodeID // nodes that may have the blocks that were not sent
}

// kept is the answer of a node that has stored the content: its epoch and the size of the DAG.
type kept struct {
	epoch         uint64
	bytes, blocks uint64
}

// head appends the head of a frame and returns the index at which its body begins.
func head(dst []byte, kind byte) ([]byte, int) {
	dst = append(dst, kind, 0, 0, 0, 0)
	return dst, len(dst)
}

func closed(dst []byte, body int) []byte {
	binary.BigEndian.PutUint32(dst[body-4:], uint32(len(dst)-body))
	return dst
}

func appendBegin(dst []byte, id putID) []byte {
	dst, body := head(dst, kindBegin)
	dst = append(dst, version)
	return closed(append(dst, id[:]...), body)
}

// appendBlockHead appends the part of a block's frame that precedes the bytes of the block.
func appendBlockHead(dst []byte, b block.Block) []byte {
	dst, body := head(dst, kindBlock)
	key := b.Cid().KeyString()
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	dst = append(dst, key...)
	binary.BigEndian.PutUint32(dst[body-4:], uint32(len(dst)-body+len(b.RawData())))
	return dst
}

func appendEnd(dst []byte, e end) []byte {
	dst, body := head(dst, kindEnd)
	dst = binary.AppendUvarint(dst, uint64(e.root.ByteLen()))
	dst = append(dst, e.root.KeyString()...)
	sources := e.sources[:min(len(e.sources), maxSources)]
	dst = binary.AppendUvarint(dst, uint64(len(sources)))
	for _, id := range sources {
		dst = binary.AppendUvarint(dst, uint64(len(id)))
		dst = append(dst, id...)
	}
	return closed(dst, body)
}

func appendBare(dst []byte, kind byte) []byte {
	dst, body := head(dst, kind)
	return closed(dst, body)
}

func appendDone(dst []byte, outcome byte) []byte {
	dst, body := head(dst, kindDone)
	return closed(append(dst, outcome), body)
}

func appendKept(dst []byte, k kept) []byte {
	dst, body := head(dst, kindKept)
	dst = binary.BigEndian.AppendUint64(dst, k.epoch)
	dst = binary.AppendUvarint(dst, k.bytes)
	return closed(binary.AppendUvarint(dst, k.blocks), body)
}

func appendRefused(dst []byte, code state.Code, text string) []byte {
	dst, body := head(dst, kindRefused)
	dst = binary.BigEndian.AppendUint16(dst, uint16(code))
	return closed(append(dst, text[:min(len(text), maxText)]...), body)
}

// frame is a received frame. Its body is newly allocated.
type frame struct {
	kind byte
	body []byte
}

// bounds has the largest body size in bytes by kind of frame.
var bounds = map[byte]int{
	kindBegin: beginBytes, kindBlock: binary.MaxVarintLen64 + maxCID + maxBlock, kindEnd: maxEnd, kindRenew: 0, kindDone: 1,
	kindKept: 8 + 2*binary.MaxVarintLen64, kindRefused: 2 + maxText, kindWorking: 0,
}

// readHead reads the head of a frame. If the stream ends between two frames, it returns io.EOF
// unwrapped.
func readHead(r *bufio.Reader) (kind byte, length int, err error) {
	var b [headBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return 0, 0, io.EOF
		}
		return 0, 0, fmt.Errorf("%w: %w", errFrame, err)
	}
	n := binary.BigEndian.Uint32(b[1:])
	most, known := bounds[b[0]]
	if !known || n > uint32(most) {
		return 0, 0, fmt.Errorf("%w: kind %d with %d bytes", errFrame, b[0], n)
	}
	return b[0], int(n), nil
}

// readBody reads the body of a frame, of n bytes. It allocates memory only as bytes arrive.
func readBody(r io.Reader, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	body := make([]byte, min(n, firstBytes))
	got := 0
	for {
		if _, err := io.ReadFull(r, body[got:]); err != nil {
			return nil, fmt.Errorf("%w: %w", errFrame, noEOF(err))
		}
		if got = len(body); got == n {
			return body, nil
		}
		more := make([]byte, n)
		copy(more, body)
		body = more
	}
}

func readFrame(r *bufio.Reader) (frame, error) {
	kind, n, err := readHead(r)
	if err != nil {
		return frame{}, err
	}
	body, err := readBody(r, n)
	return frame{kind, body}, err
}

// noEOF replaces io.EOF by io.ErrUnexpectedEOF, for a stream that ends inside a frame. It returns
// other errors unchanged.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func parseBegin(body []byte) (id putID, err error) {
	if len(body) < 1 || body[0] != version {
		return id, fmt.Errorf("%w: a version that is not known here", errFrame)
	}
	if len(body) != beginBytes {
		return id, fmt.Errorf("%w: begin of %d bytes", errFrame, len(body))
	}
	return putID(body[1:]), nil
}

// chunk splits b into a piece that is preceded by its length, of at most most bytes, and the
// rest.
func chunk(b []byte, most uint64) (piece, rest []byte, err error) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size == 0 || size > most || size > uint64(len(b)-n) {
		return nil, nil, fmt.Errorf("%w: a length", errFrame)
	}
	return b[n : n+int(size)], b[n+int(size):], nil
}

func parseCID(b []byte) (cid.Cid, []byte, error) {
	piece, rest, err := chunk(b, maxCID)
	if err != nil {
		return cid.Undef, nil, err
	}
	c, err := cid.Cast(piece)
	if err != nil {
		return cid.Undef, nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return c, rest, nil
}

// parseBlock returns the block in a body after it has verified the hash. The block refers to the
// memory of body.
func parseBlock(body []byte) (block.Block, error) {
	c, data, err := parseCID(body)
	if err != nil {
		return nil, err
	}
	if len(data) > maxBlock {
		return nil, fmt.Errorf("%w: block of %d bytes", errFrame, len(data))
	}
	sum, err := c.Prefix().Sum(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errFrame, c, err)
	}
	if !sum.Equals(c) {
		return nil, fmt.Errorf("%w: %s", errBadBlock, c)
	}
	b, err := block.NewBlockWithCid(data, c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return hashed{b}, nil
}

// errBadBlock is the error for bytes that do not match their CID.
var errBadBlock = errors.New("block does not match its hash")

// hashed is a block whose hash this node has computed or verified. The store does not verify it
// again, because hashing takes as long as receiving the block.
type hashed struct{ block.Block }

// HashChecked returns true: the bytes are known to match the CID.
func (hashed) HashChecked() bool { return true }

func parseEnd(body []byte) (e end, err error) {
	if e.root, body, err = parseCID(body); err != nil {
		return end{}, err
	}
	count, n := binary.Uvarint(body)
	if n <= 0 || count > maxSources {
		return end{}, fmt.Errorf("%w: count of sources", errFrame)
	}
	body = body[n:]
	for range count {
		var id []byte
		if id, body, err = chunk(body, maxNode); err != nil {
			return end{}, err
		}
		e.sources = append(e.sources, state.NodeID(id))
	}
	if len(body) > 0 {
		return end{}, fmt.Errorf("%w: %d bytes too many", errFrame, len(body))
	}
	return e, nil
}

func parseDone(body []byte) (outcome byte, err error) {
	if len(body) != 1 || body[0] != outcomeCommitted && body[0] != outcomeGivenUp {
		return 0, fmt.Errorf("%w: outcome", errFrame)
	}
	return body[0], nil
}

func parseKept(body []byte) (k kept, err error) {
	if len(body) < 8 {
		return kept{}, fmt.Errorf("%w: kept", errFrame)
	}
	k.epoch = binary.BigEndian.Uint64(body)
	body = body[8:]
	for _, v := range []*uint64{&k.bytes, &k.blocks} {
		x, n := binary.Uvarint(body)
		if n <= 0 {
			return kept{}, fmt.Errorf("%w: kept", errFrame)
		}
		*v, body = x, body[n:]
	}
	if len(body) > 0 {
		return kept{}, fmt.Errorf("%w: %d bytes too many", errFrame, len(body))
	}
	return k, nil
}

// parseRefused returns the error of a frame refused as a *state.Error. A code that is not
// expected in a put becomes another one.
func parseRefused(body []byte) error {
	if len(body) < 2 {
		return fmt.Errorf("%w: refused", errFrame)
	}
	code := state.Code(binary.BigEndian.Uint16(body))
	switch code {
	case state.CodeNoSpace, state.CodeLimited, state.CodeInvalid:
	default:
		code = state.CodeUnavailable
	}
	return state.Errorf(code, "%s", body[2:])
}
