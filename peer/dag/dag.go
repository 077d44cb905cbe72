// Package dag works on whole DAGs: it fetches one into the local store, verifies one,
// imports a reader as UnixFS, and opens a UnixFS file for ranged reads. It does not
// recurse over data from unknown peers, and limits each walk in blocks, depth, links and
// bytes.
//
// Imports: boxo, go-ipld-prime, go-codec-dagpb, std.
// Never:   libp2p, storage, consensus, config, cluster, api.
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

// Bounds of a walk, unless Limits says otherwise.
const (
	DefaultMaxBlocks = 10_000_000
	DefaultMaxDepth  = 4_096
	DefaultIdle      = 5 * time.Minute
	DefaultTotal     = 24 * time.Hour
	DefaultRenew     = 15 * time.Second
	DefaultBuffer    = 64 << 20 // bytes that wait for the store

	// MaxLinks is how many links one node may have.
	MaxLinks = 100_000
	// MaxBlock is the largest block that is taken, in bytes: bitswap cannot
	// carry much more.
	MaxBlock = 2 << 20
)

// What can be wrong with a DAG. Every error of this package that has one of
// these reasons wraps it.
var (
	ErrNotFound         = errors.New("block not found")
	ErrStalled          = errors.New("stalled")
	ErrTooLarge         = errors.New("content too large")
	ErrInvalidBlock     = errors.New("invalid block")
	ErrUnsupportedCodec = errors.New("unsupported codec")
	ErrTimeout          = errors.New("time limit reached")
	ErrMemory           = errors.New("the node fetches too much at once") // another time it may fit
	ErrStore            = errors.New("local store failed")
	ErrNotFile          = errors.New("not a file")
	ErrIsDirectory      = errors.New("is a directory")
)

// Getter returns verified blocks. If it does not have a block, ipld.IsNotFound is true for
// its error.
type Getter interface {
	Get(ctx context.Context, c cid.Cid) (blocks.Block, error)
}

// Limits bound one walk; a zero field takes the default, except MaxBytes,
// where it means no limit.
type Limits struct {
	MaxBlocks uint64        // blocks, also those that are here already
	MaxDepth  int           // nodes on a path
	MaxBytes  uint64        // bytes, also those that are here already
	Idle      time.Duration // without one new block
	Total     time.Duration // for the whole fetch
	// Renew is the first pause without a new block after which the sources
	// begin anew; it doubles each time.
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

// Result tells what a walk found: distinct blocks and their bytes. A raw leaf
// that occurs again after more than maxSeenLeaves others is counted again.
//
// What is inside an identity CID is no block. Its bytes are those of the block that
// links to it, and are not counted twice; those of the root, which nothing links to,
// count by themselves.
type Result struct {
	Bytes  uint64
	Blocks uint64
}

// checkCID refuses what cannot be verified or decoded, before anything is
// asked for.
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

// get reads a block under the name that it was asked by: a store that is keyed
// by hash may answer with another codec.
func get(ctx context.Context, from Getter, c cid.Cid) (blocks.Block, error) {
	b, err := from.Get(ctx, c)
	if err != nil || b.Cid().Equals(c) {
		return b, err
	}
	return blocks.NewBlockWithCid(b.RawData(), c)
}

// checkHash tells whether b is really the block named c.
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

// inline returns the block that an identity CID carries in itself.
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

// hollow returns the block if it has no bytes, as an empty file in a folder; nil of
// another. Whoever serves by boxo's bitswap, Kubo too, says that he has it and never
// sends it.
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

// inlineBytes are the bytes of a root that is inside its own CID; 0 of another.
func inlineBytes(root cid.Cid) uint64 {
	b, inlined, err := inline(root)
	if !inlined || err != nil {
		return 0
	}
	return uint64(len(b.RawData()))
}
