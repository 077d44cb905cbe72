package ingest

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"

	block "github.com/ipfs/go-block-format"
)

// late is a store that ends with its context while it still has what it was given, as one
// does that has it queued.
type late struct {
	*store
	mu  sync.Mutex
	has []block.Block
}

func (l *late) take(ctx context.Context, blks []block.Block) error {
	l.mu.Lock()
	l.has = append(l.has, blks...)
	l.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

func (l *late) Put(ctx context.Context, _ string, blks []block.Block) error { return l.take(ctx, blks) }

func (l *late) PutAndSeal(ctx context.Context, _ string, blks []block.Block, _, _ uint64) (bool, error) {
	return false, l.take(ctx, blks)
}

func TestMemoryThatAStoreMayStillUseIsNotUsedAgain(t *testing.T) {
	forSizes(t, func(t *testing.T, data []byte) {
		var stores []*late
		bubble(t, 3, func(w *world) {
			ctx, cancel := context.WithCancel(w.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := w.node("a").Store(ctx, bytes.NewReader(data), Placement{Nodes: w.all, Copies: 2})
				ended <- err
			}()
			synctest.Wait()
			cancel()
			if err := <-ended; err == nil {
				t.Error("stored")
			}
		}, func(o *Options) {
			l := &late{store: o.Blocks.(*store)}
			o.Blocks = l
			stores = append(stores, l)
		})
		for _, l := range stores { // whose nodes have ended
			if len(l.has) == 0 {
				t.Error("a store was given nothing")
			}
			for _, b := range l.has {
				if sum, err := b.Cid().Prefix().Sum(b.RawData()); err != nil || !sum.Equals(b.Cid()) {
					t.Errorf("%d bytes of a block are others now: %v", len(b.RawData()), err)
				}
			}
		}
	})
}
