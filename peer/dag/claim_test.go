package dag_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/peer/peertest"
	"github.com/ipfs/go-cid"
)

// steps counts the calls that take blocks over.
type steps struct {
	peertest.DAGStore
	calls chan int
}

func (s steps) Adopt(ctx context.Context, reference string, cids []cid.Cid) ([]cid.Cid, error) {
	s.calls <- len(cids)
	return s.DAGStore.Adopt(ctx, reference, cids)
}

func (s steps) TakeOver(ctx context.Context, reference string, cids []cid.Cid) (uint64, []cid.Cid, error) {
	s.calls <- len(cids)
	return s.DAGStore.TakeOver(ctx, reference, cids)
}

// With Here set, Fetch takes a DAG over with the same blocks as without, in fewer calls of the store. If a block is
// missing that nobody gives, both fail with ErrNotFound.
func TestADAGThatIsHereIsTakenOver(t *testing.T) {
	sizes := make([]int, 3*dag.LinksPerNode)
	for i := range sizes {
		sizes[i] = 1 + i%7 // many are the same
	}
	sizes[5] = 3 << 20
	for _, missing := range []int{0, 1} {
		t.Run(fmt.Sprintf("%d missing", missing), func(t *testing.T) {
			store := peertest.NewStore()
			root, _, _ := joined(t, store.DAGStore(), sizes...)
			all := store.BlocksOf("reference")
			if missing > 0 {
				if err := store.DeleteBlock(t.Context(), all[len(all)/2]); err != nil {
					t.Fatal(err)
				}
			}
			var limits dag.Limits
			if missing > 0 {
				limits.Idle = 10 * time.Millisecond // nobody will give it
			}
			fetch := func(here bool, reference string) (dag.Result, int, error) {
				calls := make(chan int, 1<<16)
				got, err := dag.Fetch(t.Context(), dag.FetchRequest{
					Root: root, Reference: reference, Store: steps{store.DAGStore(), calls}, Here: here, Limits: limits,
				})
				return got, len(calls), err
			}
			small, often, err := fetch(false, "small")
			large, seldom, lerr := fetch(true, "large")
			if missing > 0 {
				if !errors.Is(err, dag.ErrNotFound) || !errors.Is(lerr, dag.ErrNotFound) {
					t.Errorf("%v; of what is said to be here %v", err, lerr)
				}
				return
			}
			if err != nil || lerr != nil || large.Blocks != small.Blocks || large.Bytes != small.Bytes || int(large.Blocks) != len(all) {
				t.Fatalf("%+v, %v; of what is said to be here %+v, %v", small, err, large, lerr)
			}
			if seldom >= often {
				t.Errorf("%d calls instead of %d", seldom, often)
			}
			a, b := store.BlocksOf("small"), store.BlocksOf("large")
			for _, of := range [][]cid.Cid{a, b} {
				slices.SortFunc(of, func(x, y cid.Cid) int { return slices.Compare(x.Bytes(), y.Bytes()) })
			}
			if !slices.EqualFunc(a, b, cid.Cid.Equals) {
				t.Errorf("%d blocks are owned instead of %d", len(b), len(a))
			}
		})
	}
}
