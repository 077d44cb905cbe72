package blocks

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	blocks "github.com/ipfs/go-block-format"
	ipld "github.com/ipfs/go-ipld-format"
	"github.com/multiformats/go-multihash"
)

// Verify compares the stored blocks with blks and reports whether the store has all of
// them. It reads each block, which costs about as much as storing it. A bad block is
// missing from then on, as after Get, until a Put stores it again. The bytes of blks must
// be verified by the caller.
func (s *Store) Verify(ctx context.Context, blks []blocks.Block) (all bool, err error) {
	all, _, err = s.compare(ctx, blks)
	return all, err
}

// compare is Verify, and returns which blocks it found to be no good: what the index
// says of those is not to be trusted, for that may not have been noted, and Compact may
// have moved them meanwhile.
func (s *Store) compare(ctx context.Context, blks []blocks.Block) (all bool, found rotten, err error) {
	all = true
	var memory []byte // of the largest yet
	lend := func(n int) []byte {
		if cap(memory) < n {
			memory = make([]byte, n)
		}
		return memory[:n]
	}
	for _, b := range blks {
		c := b.Cid()
		if isIdentity(c) {
			continue
		}
		e, ok, err := getBlock(s.index, c.Hash())
		if err != nil {
			return false, nil, fmt.Errorf("blocks: verify %s: %w", c, s.readError(err))
		}
		if !ok || e.segment == 0 { // which is the rule, and costs no memory
			all = false
			continue
		}
		stored, err := s.bytes(ctx, c, false, lend)
		if err == nil && !bytes.Equal(stored, b.RawData()) {
			_, err = s.bytes(ctx, c, true, lend) // by its hash, which tells whose bytes are good
		}
		switch {
		case errors.Is(err, ErrCorrupt):
			found.add(c.Hash())
			all = false
		case ipld.IsNotFound(err):
			all = false
		case err != nil:
			return false, nil, err
		}
	}
	return all, found, nil
}

// rotten are the hashes of blocks that were found to be no good; nil is none.
type rotten map[string]struct{}

func (r *rotten) add(hash multihash.Multihash) {
	if *r == nil {
		*r = make(rotten)
	}
	(*r)[string(hash)] = struct{}{}
}

func (r rotten) has(hash multihash.Multihash) bool {
	_, ok := r[string(hash)]
	return ok
}
