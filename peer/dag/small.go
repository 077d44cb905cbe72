package dag

import (
	"context"
	"errors"
	"fmt"
	"sync"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// Bounds of the blocks that a fetch keeps in memory while they may be the whole DAG. Only a
// crash loses these blocks.
const (
	smallBytes  = 64 << 10
	smallBlocks = 32
)

// completer is an optional method of a Store that stores the last blocks of a reference and
// marks it complete, atomically and at the cost of one write.
type completer interface {
	Complete(ctx context.Context, reference string, blks []blocks.Block, bytes, count uint64) error
}

// small has the blocks that a fetch keeps in memory.
type small struct {
	// mu guards the fields below. It is held during flush, so that no caller regards a block as
	// stored while it is still being stored.
	mu      sync.Mutex
	flushed bool // blocks are no longer kept in memory: the DAG is larger than the bounds, or the fetch has failed
	blks    []blocks.Block
	bytes   int
}

// find returns a block that is kept in memory, or nil.
func (s *small) find(c cid.Cid) blocks.Block {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.blks {
		if b.Cid().Equals(c) {
			return b
		}
	}
	return nil
}

// gather keeps a block in memory and returns true. If the DAG is too large for that, it returns
// false, and the caller must store the block. The first such block makes gather store the blocks
// that are in memory.
func (f *fetch) gather(b blocks.Block) (bool, error) {
	if f.whole == nil {
		return false, nil
	}
	s := &f.small
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flushed {
		return false, nil
	}
	n := len(b.RawData())
	if s.bytes+n <= smallBytes && len(s.blks) < smallBlocks {
		s.blks = append(s.blks, b)
		s.bytes += n
		return true, nil
	}
	return false, f.flush(f.ctx)
}

// flush stores the blocks in memory. The caller holds mu.
func (f *fetch) flush(ctx context.Context) error {
	s := &f.small
	blks := s.blks
	s.flushed, s.blks = true, nil
	if len(blks) == 0 {
		return nil
	}
	if err := f.req.Store.Put(ctx, f.req.Reference, blks); err != nil {
		return fmt.Errorf("%w: put: %w", ErrStore, err)
	}
	return nil
}

// complete stores a DAG that is completely in memory and marks it complete.
func (f *fetch) complete() error {
	s := &f.small
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.blks) == 0 {
		return nil
	}
	if err := f.whole.Complete(f.ctx, f.req.Reference, s.blks, f.result.Bytes, f.result.Blocks); err != nil {
		return fmt.Errorf("%w: complete: %w", ErrStore, err)
	}
	s.flushed, s.blks = true, nil
	return nil
}

// keep stores the blocks in memory after the fetch has failed, because the provider of the next
// attempt may have only the other blocks. It returns failed.
func (f *fetch) keep(ctx context.Context, failed error) error {
	f.small.mu.Lock()
	defer f.small.mu.Unlock()
	if err := f.flush(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(failed, err)
	}
	return failed
}
