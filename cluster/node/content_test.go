package node

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

// none is a store without blocks.
type none struct{}

func (none) Get(_ context.Context, c cid.Cid) (block.Block, error) {
	return nil, ipld.ErrNotFound{Cid: c}
}

func TestAReaderAsksLastWhoFailed(t *testing.T) {
	leaf, err := dag.Leaf([]byte("some"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1, 0)
	var asked []state.NodeID
	has := map[state.NodeID]bool{"c": true}
	broken := map[state.NodeID]bool{"a": true}
	down := map[state.NodeID]bool{}
	r := &reader{
		here: none{}, order: []state.NodeID{"a", "b", "c"}, now: func() time.Time { return now },
		down: func(id state.NodeID) bool { return down[id] },
		ask: func(_ context.Context, id state.NodeID, _ cid.Cid) (block.Block, error) {
			asked = append(asked, id)
			switch {
			case broken[id]:
				return nil, errors.New("no answer")
			case has[id]:
				return leaf, nil
			default:
				return nil, nil
			}
		},
	}
	want := func(what string, found bool, order ...state.NodeID) {
		t.Helper()
		asked = nil
		b, err := r.Get(t.Context(), leaf.Cid())
		if (b != nil) != found || (err == nil) != found || !slices.Equal(asked, order) {
			t.Errorf("%s: asked %v, want %v; block %v, %v", what, asked, order, b, err)
		}
	}
	want("at first, in order", true, "a", "b", "c")
	want("then who gave it", true, "c")
	broken["c"], has["b"] = true, true
	want("c fails, and a has failed", true, "c", "b")
	want("b gave it", true, "b")
	has["b"] = false
	want("all are asked before it is not found", false, "b", "c", "a")
	now = now.Add(avoidFor)
	down["b"] = true
	want("after a while in order again, but for who is down", false, "c", "a", "b")
}
