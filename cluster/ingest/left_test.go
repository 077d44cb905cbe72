package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	block "github.com/ipfs/go-block-format"
)

// What puts left on a full disk is dropped when there is room again, with a restart of the node or without one.
func TestWhatCouldNotBeDroppedIsDroppedLater(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart: %v", restart), func(t *testing.T) {
			bubble(t, 2, func(w *world) {
				var full atomic.Bool
				full.Store(true)
				for _, id := range w.all {
					w.node(id).store.before(func(ctx context.Context, op, reference string) error {
						if op != "drop" || !strings.HasPrefix(reference, ReferencePrefix) || !full.Load() {
							return nil
						}
						if !backoff.Wait(ctx, 20*time.Second) { // as patient as storage/blocks is
							return ctx.Err()
						}
						return errors.New("no space left")
					})
				}
				for seed := range byte(3) {
					s, err := w.node("a").Store(w.Context(), bytes.NewReader(bytesOf(seed, 8<<20)), Placement{Nodes: w.all, Copies: 2})
					if err != nil {
						t.Fatal(err)
					}
					s.Done(true)
				}
				<-time.After(time.Hour)
				for _, id := range w.all {
					if left := w.node(id).store.arriving(); len(left) != 3 {
						t.Fatalf("node %s: %d are left on a full disk", id, len(left))
					}
				}
				if restart {
					w.node("b").stop()
				}
				full.Store(false)
				if restart {
					w.node("b").start()
				}
				<-time.After(20*time.Second + maxDropPause)
				w.wantClean()
			})
		})
	}
}

// A node that starts drops the references that earlier puts left, and begins a new epoch.
func TestLeftoversAreDropped(t *testing.T) {
	bubble(t, 1, func(w *world) {
		n := w.node("a")
		n.stop()
		leaf, err := dag.Leaf([]byte("left"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1500 {
			if err := n.store.Put(w.Context(), ReferencePrefix+string(rune(i)), []block.Block{leaf}); err != nil {
				t.Fatal(err)
			}
		}
		before := n.fences.now()
		n.start()
		w.wantClean()
		if n.fences.now() != before+1 || !n.leases.fenced {
			t.Errorf("epoch %d, it was %d", n.fences.now(), before)
		}
	})
}
