package dag

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/ipfs/boxo/verifcid"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"github.com/ipld/go-ipld-prime/codec/dagcbor"
	"github.com/ipld/go-ipld-prime/datamodel"
	cidlink "github.com/ipld/go-ipld-prime/linking/cid"
	"github.com/ipld/go-ipld-prime/node/basicnode"
	mh "github.com/multiformats/go-multihash"
)

// This file reads CAR files, which are series of blocks: version 1
// (https://ipld.io/specs/transport/car/carv1/), and version 2
// (https://ipld.io/specs/transport/car/carv2/), which is a version 1 between a header and an index.

// Bounds of a CAR that ImportCAR reads.
const (
	// MaxCARRoots is the maximum number of roots in the header.
	MaxCARRoots = 1024
	// maxCARHeader is the maximum size of the header in bytes. Roots with a hash of 64 bytes take
	// about 75 bytes each.
	maxCARHeader = 128 << 10
	// maxCIDBytes is more than the size of any CID that verifcid allows. The largest ones have an
	// identity hash of 128 bytes.
	maxCIDBytes = 256
	// carBuffer is the size of the buffers for reading and writing, in bytes.
	carBuffer = 64 << 10
	// carV2Header is the size in bytes of the header that follows the first 11 bytes of a CARv2.
	carV2Header = 40
)

// Names of the parts of a CAR, for error texts.
const (
	carHead  = "the header"
	carBlock = "a block"
)

// ErrInvalidCAR means that a file is not a CAR, is cut off, has a bad block, or exceeds a bound of
// this package. The text of the error names the position in the file, in bytes.
var ErrInvalidCAR = errors.New("the CAR is not valid")

// CAR describes a CAR that was read.
type CAR struct {
	Roots  []cid.Cid // the distinct roots, in the order of the header
	Blocks uint64    // number of blocks, including repeated ones and those with an identity hash
	Bytes  uint64    // size of these blocks
}

// ImportCAR reads a CARv1, or the CARv1 inside a CARv2, to the end of r. It verifies each block,
// and passes the blocks to put in batches. put owns the slice and the blocks. Blocks with an
// identity hash are verified and counted, but not passed to put. The memory use does not depend on
// the size of the file.
//
// A CARv1 does not say how many blocks it has. So ImportCAR cannot detect that a file was cut off
// between two blocks; HasDAG can, because the DAG of a root is then incomplete.
//
// Errors: ErrInvalidCAR, and the errors of r, put and ctx.
func ImportCAR(ctx context.Context, r io.Reader, put func([]blocks.Block) error) (CAR, error) {
	c := carReader{source: carSource{ctx: ctx, r: r}}
	c.r = bufio.NewReaderSize(&c.source, carBuffer)
	roots, end, err := c.header()
	if err != nil {
		return CAR{}, err
	}
	car := CAR{Roots: roots}
	var batch []blocks.Block
	size := 0
	for {
		b, err := c.next(end)
		if err == io.EOF { //nolint:errorlint // what next itself returns
			break
		}
		if err != nil {
			return CAR{}, err
		}
		car.Blocks++
		car.Bytes += uint64(len(b.RawData()))
		if b.Cid().Prefix().MhType == mh.IDENTITY {
			continue
		}
		batch = append(batch, b)
		if size += len(b.RawData()); size >= importBatch || len(batch) >= importBatchBlocks {
			if err := put(batch); err != nil {
				return CAR{}, err
			}
			batch, size = nil, 0
		}
	}
	if len(batch) > 0 {
		if err := put(batch); err != nil {
			return CAR{}, err
		}
	}
	_, err = io.Copy(io.Discard, c.r) // the index of a CARv2
	return car, err
}

// carSource is a reader that remembers its error and ends with its context.
type carSource struct {
	ctx context.Context // of one ImportCAR
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (s *carSource) Read(b []byte) (n int, err error) {
	if err = s.ctx.Err(); err == nil {
		n, err = s.r.Read(b)
	}
	s.err = err
	return n, err
}

// carReader reads the parts of a CAR.
type carReader struct {
	source carSource
	r      *bufio.Reader // of source
	at     uint64        // position in the file of the next byte
}

// invalid returns an ErrInvalidCAR about the part of the file that begins at the position at.
func invalid(at uint64, format string, args ...any) error {
	return fmt.Errorf("%w: at byte %d: %w", ErrInvalidCAR, at, fmt.Errorf(format, args...))
}

// cut returns the error for the part what of the file, which begins at the position at and could not
// be read completely. If reading failed, it returns that error; otherwise the file ends too early.
func (c *carReader) cut(at uint64, what string) error {
	if err := c.source.err; err != nil && err != io.EOF { //nolint:errorlint // only io.EOF itself is the end of a file
		return err
	}
	return invalid(at, "the file ends in %s that begins here", what)
}

// header reads the header of the file. It returns the distinct roots, and the position at which the
// blocks end, which is math.MaxUint64 for the end of the file.
func (c *carReader) header() (roots []cid.Cid, end uint64, err error) {
	version, roots, err := c.headerOnly()
	switch {
	case err != nil:
		return nil, 0, err
	case version == 1:
		return roots, math.MaxUint64, nil
	case version != 2:
		return nil, 0, invalid(0, "the version is %d: versions 1 and 2 are read", version)
	}
	if end, err = c.enterV2(); err != nil {
		return nil, 0, err
	}
	at := c.at
	if version, roots, err = c.headerOnly(); err != nil {
		return nil, 0, err
	}
	if version != 1 {
		return nil, 0, invalid(at, "the CAR inside of a CARv2 has version %d, not 1", version)
	}
	if c.at > end {
		return nil, 0, invalid(at, "the header is longer than the CARv2 says")
	}
	return roots, end, nil
}

// enterV2 reads the header of a CARv2 after its first 11 bytes, and moves to the CARv1 inside. It
// returns the position in the file at which that CARv1 ends.
func (c *carReader) enterV2() (end uint64, err error) {
	at := c.at
	var h [carV2Header]byte
	if err := c.full(at, carHead, h[:]); err != nil {
		return 0, err
	}
	begin, size := binary.LittleEndian.Uint64(h[16:]), binary.LittleEndian.Uint64(h[24:])
	if begin < c.at || begin > math.MaxInt64 || size == 0 || size > math.MaxInt64 {
		return 0, invalid(at, "the header of the CARv2 puts %d bytes of blocks at byte %d", size, begin)
	}
	n, err := io.CopyN(io.Discard, c.r, int64(begin-c.at))
	c.at += uint64(n)
	if err != nil {
		return 0, c.cut(at, carHead)
	}
	return begin + size, nil
}

// headerOnly reads one header block. For version 2 and later it returns no roots.
func (c *carReader) headerOnly() (version int64, roots []cid.Cid, err error) {
	at := c.at
	size, err := c.length(at, carHead, maxCARHeader)
	if err == io.EOF { //nolint:errorlint // what length itself returns
		return 0, nil, c.cut(at, carHead)
	}
	if err != nil {
		return 0, nil, err
	}
	data := make([]byte, size)
	if err := c.full(at, carHead, data); err != nil {
		return 0, nil, err
	}
	build := basicnode.Prototype.Any.NewBuilder()
	// The budget counts about 20 bytes for a root, so it is enough for all roots.
	o := dagcbor.DecodeOptions{AllowLinks: true, MaxDepth: 4, AllocationBudget: 8 * maxCARHeader}
	if err := o.Decode(build, bytes.NewReader(data)); err != nil {
		return 0, nil, invalid(at, "this is not the header of a CAR: %w", err)
	}
	node := build.Build()
	if v, err := node.LookupByString("version"); err != nil {
		return 0, nil, invalid(at, "this is not the header of a CAR: it has no version")
	} else if version, err = v.AsInt(); err != nil {
		return 0, nil, invalid(at, "the version in the header is not a number")
	}
	if version != 1 {
		return version, nil, nil
	}
	if roots, err = rootsOf(node); err != nil {
		return 0, nil, invalid(at, "%w", err)
	}
	return version, roots, nil
}

// rootsOf returns the distinct roots in the header of a CARv1.
func rootsOf(header datamodel.Node) ([]cid.Cid, error) {
	list, err := header.LookupByString("roots")
	if err != nil || list.Kind() != datamodel.Kind_List {
		return nil, errors.New("the header has no list of roots")
	}
	switch n := list.Length(); {
	case n == 0:
		return nil, errors.New("the header names no root, so nothing could be pinned")
	case n > MaxCARRoots:
		return nil, fmt.Errorf("the header names %d roots, at most %d", n, MaxCARRoots)
	}
	var roots []cid.Cid
	seen := cid.NewSet()
	for it := list.ListIterator(); !it.Done(); {
		i, v, err := it.Next()
		if err != nil {
			return nil, err
		}
		l, err := v.AsLink()
		if err != nil {
			return nil, fmt.Errorf("root %d of the header is not a CID", i)
		}
		link, ok := l.(cidlink.Link)
		if !ok {
			return nil, fmt.Errorf("root %d of the header is not a CID", i)
		}
		if err := checkCID(link.Cid); err != nil {
			return nil, fmt.Errorf("root %d of the header: %w", i, err)
		}
		if seen.Visit(link.Cid) {
			roots = append(roots, link.Cid)
		}
	}
	return roots, nil
}

// next reads and verifies the next block. It returns io.EOF at the position end, or at the end of
// the file if end is math.MaxUint64.
func (c *carReader) next(end uint64) (blocks.Block, error) {
	if c.at == end {
		return nil, io.EOF
	}
	at := c.at
	size, err := c.length(at, carBlock, MaxBlock+maxCIDBytes)
	if err == io.EOF && end != math.MaxUint64 { //nolint:errorlint // what length itself returns
		return nil, invalid(at, "the file ends here, and the blocks end at byte %d according to the header", end)
	}
	if err != nil {
		return nil, err
	}
	if uint64(size) > end-c.at || c.at > end {
		return nil, invalid(at, "a block goes on after byte %d, where the blocks end according to the header", end)
	}
	data := make([]byte, size)
	if err := c.full(at, carBlock, data); err != nil {
		return nil, err
	}
	n, id, err := cid.CidFromBytes(data)
	if err != nil {
		return nil, invalid(at, "the block has no valid CID: %w", err)
	}
	b, err := verified(id, data[n:])
	if err != nil {
		return nil, invalid(at, "%w", err)
	}
	return b, nil
}

// verified returns the block with this CID, or an error if its hash is wrong or insecure, or if it
// is too large.
func verified(c cid.Cid, data []byte) (blocks.Block, error) {
	if err := verifcid.ValidateCid(verifcid.DefaultAllowlist, c); err != nil {
		return nil, fmt.Errorf("block %s: %w", c, err)
	}
	if len(data) > MaxBlock {
		return nil, fmt.Errorf("block %s has %d bytes, at most %d", c, len(data), MaxBlock)
	}
	b, err := blocks.NewBlockWithCid(data, c)
	if err != nil {
		return nil, err
	}
	if err := checkHash(c, b); err != nil {
		return nil, err
	}
	return checked{b}, nil
}

// length reads the length of a part of the file that begins at the position at. It returns io.EOF if
// the file ends before the length.
func (c *carReader) length(at uint64, what string, most int) (int, error) {
	n, err := binary.ReadUvarint(c)
	switch {
	case err == io.EOF: //nolint:errorlint // only io.EOF itself is the end of a file
		return 0, io.EOF
	case err != nil && err == c.source.err, err == io.ErrUnexpectedEOF: //nolint:errorlint // errors of the reader, and what ReadUvarint itself returns
		return 0, c.cut(at, what)
	case err != nil, n > uint64(most):
		return 0, invalid(at, "%s of at most %d bytes must begin here, and its length is larger", what, most)
	case n == 0:
		return 0, invalid(at, "%s must begin here, and its length is 0", what)
	}
	return int(n), nil
}

// ReadByte implements io.ByteReader.
func (c *carReader) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.at++
	}
	return b, err
}

// full fills b with the next bytes of the part what of the file, which begins at the position at.
func (c *carReader) full(at uint64, what string, b []byte) error {
	n, err := io.ReadFull(c.r, b)
	c.at += uint64(n)
	if err != nil {
		return c.cut(at, what)
	}
	return nil
}
