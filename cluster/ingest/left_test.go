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
)

// What puts leave and a full disk has no room to take back is dropped when there is
// some, without a restart; and a node can stop before that.
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
