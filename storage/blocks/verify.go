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

// Verify returns whether the store has all of blks with the same bytes. It reads each
// block, which costs about as much as storing it. A damaged block counts as missing from
// then on, as after Get, until a Put stores it again. The caller must have verified the
// hashes of blks.
func (s *Store) Verify(ctx context.Context, blks []blocks.Block) (all bool, err error) {
	all, _, err = s.compare(ctx, blks)
	return all, err
}

// compare does the same as Verify. It also returns the blocks that it has found damaged. The index
// may still list them as stored, because the damage could not be recorded or Compact has moved them
// meanwhile.
func (s *Store) compare(ctx context.Context, blks []blocks.Block) (all bool, found rotten, err error) {
	all = true
	var memory []byte // of the largest block so far
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
		if !ok || e.segment == 0 { // the normal case, which costs no memory
			all = false
			continue
		}
		stored, err := s.bytes(ctx, c, false, lend)
		if err == nil && !bytes.Equal(stored, b.RawData()) {
			_, err = s.bytes(ctx, c, true, lend) // by its hash, which shows whose bytes are good
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

// rotten has the hashes of damaged blocks; nil: none.
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
