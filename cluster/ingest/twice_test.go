package ingest

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A node confirms content only if it has every block, also if it drops the blocks of a broken attempt while the put
// is sent again. The stream of the put breaks after the first blocks, and the put comes over another stream under the
// same name.
func TestABlockThatTheFirstAttemptTakesAwayIsNotCounted(t *testing.T) {
	for _, self := range []bool{true, false} {
		bubble(t, 3, func(w *world) {
			a, b := w.node("a"), w.node("b")
			nodes := []state.NodeID{"b"}
			if self {
				nodes = []state.NodeID{"a", "b"}
			}
			for range 2 { // there is a stream
				s, err := a.Store(context.Background(), bytes.NewReader(bytesOf(1, 2<<20)), Placement{Nodes: nodes, Copies: len(nodes)})
				if err != nil {
					t.Fatal(err)
				}
				s.Done(true)
			}
			<-time.After(time.Second)
			var puts, drops atomic.Int32
			b.store.before(func(_ context.Context, op, reference string) error {
				if !strings.HasPrefix(reference, ReferencePrefix) {
					return nil
				}
				switch op {
				case "put":
					if puts.Add(1) == 1 {
						a.cut()
					}
				case "drop":
					if drops.Add(1) == 1 {
						for wait := 0; puts.Load() < 3 && wait < 5000; wait++ {
							<-time.After(time.Millisecond)
						}
						<-time.After(time.Millisecond)
					}
				}
				return nil
			})
			data := bytesOf(2, 8<<20+7)
			s, err := a.Store(context.Background(), bytes.NewReader(data), Placement{Nodes: nodes, Copies: len(nodes)})
			if err != nil || drops.Load() == 0 {
				t.Fatalf("self %t: %d puts, %d drops, %v", self, puts.Load(), drops.Load(), err)
			}
			w.wantKept(s, data, nodes...)
			s.Done(true)
			b.store.before(nil)
		}, func(o *Options) {
			if o.Self == "b" {
				o.Batch = ChunkSize // it stores the first block before all of the first message has come
			}
		})
	}
}
