package ingest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
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

// The bytes of blocks that a block store still has after a cancelled put do not change.
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

// The memory for blocks that wait for a slow node is freed when the put ends, whether it is committed or not.
func TestWhatALateNodeWasNotGivenIsGivenBack(t *testing.T) {
	for _, committed := range []bool{false, true} {
		t.Run(fmt.Sprint(committed), func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				works := w.hang("b")
				// It has a batch, another waits there, one is on its way, and the last waits here.
				const size = 4*DefaultBatch - ChunkSize
				for seed := range 8 { // what the end finds first is left to chance
					body := bytes.NewReader(bytesOf(byte(seed), size))
					s, err := w.node("a").Store(w.Context(), body, Placement{Nodes: w.all, Copies: 2})
					if err != nil {
						t.Fatal(err)
					}
					s.Done(committed)
				}
				<-time.After(2 * moveTimeout)
				close(works)
				w.wantClean()
			})
		})
	}
}

// The bodies that wait for a node that hangs hold at most their part of the memory, and further bodies are stored.
func TestANodeThatHangsHoldsLittleMemory(t *testing.T) {
	const memory, bodies = 16 << 20, 64
	bubble(t, 3, func(w *world) {
		works := w.hang("b")
		for seed := range bodies {
			s, err := w.node("a").Store(w.Context(), bytes.NewReader(bytesOf(byte(seed), ChunkSize)), Placement{Nodes: w.all, Copies: 2})
			if err != nil {
				t.Fatal(err)
			}
			s.Done(true)
		}
		<-time.After(2 * cutTimeout)
		if n, most := w.node("a").openTo("b"), memory/latePart/ChunkSize; n > most {
			t.Errorf("%d bodies of %d wait for a node that hangs, want %d at the most", n, bodies, most)
		}
		<-time.After(2 * fenceEvery)
		close(works)
		w.wantClean()
	}, func(o *Options) { o.Memory = memory })
}

// openTo counts the streams of a node to another one.
func (n *node) openTo(to state.NodeID) (open int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.wires {
		if c.remote == address(to) && c.SetReadDeadline(time.Time{}) == nil {
			open++
		}
	}
	return open
}
