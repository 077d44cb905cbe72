// Package dag works on whole DAGs: it fetches a DAG into the local store, verifies a DAG, imports a
// reader as a UnixFS file and a tar stream as a UnixFS folder, opens a UnixFS file for reading of
// ranges, and writes a UnixFS folder as a tar stream. Code that follows links does not recurse, and
// limits the number of blocks, the depth, the links and the bytes, because the data comes from
// unknown peers.
//
// Imports: boxo, go-ipld-prime, go-codec-dagpb, murmur3, std.
// Never:   imports of libp2p, storage, consensus, config, cluster or api.
package dag

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ipfs/boxo/verifcid"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"
)

// Defaults and bounds of a walk, which visits every block of a DAG once. The fields of Limits
// replace the defaults.
const (
	DefaultMaxBlocks = 10_000_000
	DefaultMaxDepth  = 4_096
	DefaultIdle      = 5 * time.Minute
	DefaultTotal     = 24 * time.Hour
	DefaultRenew     = 15 * time.Second
	DefaultBuffer    = 64 << 20 // bytes of received blocks that may wait for the store

	// MaxLinks is the maximum number of links of one node.
	MaxLinks = 100_000
	// MaxBlock is the maximum size of a block in bytes. bitswap cannot transfer much larger
	// ones.
	MaxBlock = 2 << 20
)

// Kinds of errors. The errors that this package returns wrap one of these if it is the cause.
var (
	ErrNotFound         = errors.New("block not found")
	ErrStalled          = errors.New("stalled")                           // some blocks arrived, and then no block for Limits.Idle
	ErrTooLarge         = errors.New("content too large")                 // the content exceeds Limits, or a node has more than MaxLinks links
	ErrInvalidBlock     = errors.New("invalid block")                     // a block is malformed or too large, or its hash is wrong or insecure
	ErrUnsupportedCodec = errors.New("unsupported codec")                 // a CID has a codec that Links does not support
	ErrTimeout          = errors.New("time limit reached")                // the fetch took longer than Limits.Total
	ErrMemory           = errors.New("the node fetches too much at once") // too little memory is free for the fetch; a later attempt may succeed
	ErrStore            = errors.New("local store failed")
	ErrNotFile          = errors.New("not a file") // the root is neither a UnixFS file nor a raw block
	ErrIsDirectory      = errors.New("is a directory")
)

// Getter returns verified blocks. For a block that it does not have, it returns an error
// for which ipld.IsNotFound is true.
type Getter interface {
	Get(ctx context.Context, c cid.Cid) (blocks.Block, error)
}

// Limits are the limits of one walk or fetch. A zero field means the default, except MaxBytes, for
// which it means no limit.
type Limits struct {
	MaxBlocks uint64        // largest number of blocks, including those already in the store
	MaxDepth  int           // largest number of nodes on one path
	MaxBytes  uint64        // largest number of bytes, including those already in the store
	Idle      time.Duration // maximum time without a new block
	Total     time.Duration // maximum time of the whole fetch
	// Renew is the time without a new block after which the requests to the sources are
	// sent again. It doubles each time.
	Renew time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.MaxBlocks == 0 {
		l.MaxBlocks = DefaultMaxBlocks
	}
	if l.MaxDepth == 0 {
		l.MaxDepth = DefaultMaxDepth
	}
	if l.Idle == 0 {
		l.Idle = DefaultIdle
	}
	if l.Total == 0 {
		l.Total = DefaultTotal
	}
	if l.Renew == 0 {
		l.Renew = DefaultRenew
	}
	return l
}

// Result has the number of distinct blocks of a walk and their bytes. A raw leaf that
// occurs again after more than maxSeenLeaves others is counted again.
//
// The content of an identity CID is not a block. Its bytes are part of the block that links
// to it and are not counted again. If the root is an identity CID, its bytes are counted.
type Result struct {
	Bytes  uint64
	Blocks uint64
}

// checkCID returns an error for a CID whose block could not be verified or decoded. It is
// called before the block is requested.
func checkCID(c cid.Cid) error {
	if !c.Defined() {
		return fmt.Errorf("%w: undefined CID", ErrInvalidBlock)
	}
	if err := verifcid.ValidateCid(verifcid.DefaultAllowlist, c); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalidBlock, c, err)
	}
	if !supported(c.Prefix().Codec) {
		return fmt.Errorf("%w: %s has codec 0x%x", ErrUnsupportedCodec, c, c.Prefix().Codec)
	}
	return nil
}

// get reads a block and returns it under the CID c: a store with hashes as keys may return
// it with another codec.
func get(ctx context.Context, from Getter, c cid.Cid) (blocks.Block, error) {
	b, err := from.Get(ctx, c)
	if err != nil || b.Cid().Equals(c) {
		return b, err
	}
	return blocks.NewBlockWithCid(b.RawData(), c)
}

// checkHash returns an error unless the bytes of b have the hash of c.
func checkHash(c cid.Cid, b blocks.Block) error {
	sum, err := c.Prefix().Sum(b.RawData())
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalidBlock, c, err)
	}
	if !sum.Equals(c) {
		return fmt.Errorf("%w: bytes do not hash to %s", ErrInvalidBlock, c)
	}
	return nil
}

// inline returns the block inside an identity CID. The second result is false for other
// CIDs.
func inline(c cid.Cid) (blocks.Block, bool, error) {
	if c.Prefix().MhType != mh.IDENTITY {
		return nil, false, nil
	}
	d, err := mh.Decode(c.Hash())
	if err != nil {
		return nil, true, fmt.Errorf("%w: %s: %w", ErrInvalidBlock, c, err)
	}
	b, err := blocks.NewBlockWithCid(d.Digest, c)
	if err != nil {
		return nil, true, fmt.Errorf("%w: %s: %w", ErrInvalidBlock, c, err)
	}
	return b, true, nil
}

// hollow returns the block for the CID of an empty block, such as an empty file in a
// directory, and nil for others. Servers with boxo's bitswap, also Kubo, announce such a
// block but never send it.
func hollow(c cid.Cid) blocks.Block {
	p := c.Prefix()
	if sum, err := p.Sum(nil); err != nil || !sum.Equals(c) {
		return nil
	}
	b, err := blocks.NewBlockWithCid([]byte{}, c)
	if err != nil {
		return nil
	}
	return b
}

// inlineBytes returns the size of the content if root is an identity CID, else 0.
func inlineBytes(root cid.Cid) uint64 {
	b, inlined, err := inline(root)
	if !inlined || err != nil {
		return 0
	}
	return uint64(len(b.RawData()))
}
