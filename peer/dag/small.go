package dag

import (
	"context"
	"errors"
	"fmt"
	"sync"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// Bounds of what a fetch holds back from the store in the hope that it is the
// whole DAG. What is held back is not lost by anything but a crash.
const (
	smallBytes  = 64 << 10
	smallBlocks = 32
)

// completer is what a Store has as well when it can store the last blocks of an
// owner and mark it complete, both or nothing, at the cost of one of them.
type completer interface {
	Complete(ctx context.Context, owner string, blks []blocks.Block, bytes, count uint64) error
}

// small is what a fetch holds back.
type small struct {
	// mu guards the rest. The flush is under it, so that nobody takes a block
	// that is being stored for one that is.
	mu      sync.Mutex
	flushed bool // the DAG is larger, or has not come whole
	blks    []blocks.Block
	bytes   int
}

// find returns a block that is held back, nil for another.
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

// gather holds a block back, or returns false for one that is to be stored. The
// first of those has what was held back stored before.
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

// flush stores what was held back. The caller has the lock.
func (f *fetch) flush(ctx context.Context) error {
	s := &f.small
	blks := s.blks
	s.flushed, s.blks = true, nil
	if len(blks) == 0 {
		return nil
	}
	if err := f.req.Store.Put(ctx, f.req.Owner, blks); err != nil {
		return fmt.Errorf("%w: put: %w", ErrStore, err)
	}
	return nil
}

// complete stores a DAG that was held back whole, and marks it complete.
func (f *fetch) complete() error {
	s := &f.small
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.blks) == 0 {
		return nil
	}
	if err := f.whole.Complete(f.ctx, f.req.Owner, s.blks, f.result.Bytes, f.result.Blocks); err != nil {
		return fmt.Errorf("%w: complete: %w", ErrStore, err)
	}
	s.flushed, s.blks = true, nil
	return nil
}

// keep stores what was held back of a fetch that failed, for the next attempt:
// it may meet a provider that has only the other half.
func (f *fetch) keep(ctx context.Context, failed error) error {
	f.small.mu.Lock()
	defer f.small.mu.Unlock()
	if err := f.flush(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(failed, err)
	}
	return failed
}
