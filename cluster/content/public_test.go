package content

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-ipfs/holdfast/cluster/clustertest"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// opened is what the store opened.
type opened struct {
	DAG

	holders []state.NodeID // nil: each block is checked
}

func (s *store) OpenDAG(holders []state.NodeID) DAG { return opened{holders: holders} }

func (s *store) OpenVisible(_ context.Context, c cid.Cid) (DAG, error) {
	switch {
	case s.fail != nil:
		return nil, s.fail
	case !s.visible:
		return nil, state.Errorf(state.CodeNotFound, "no member shows %s", c)
	}
	return opened{}, nil
}

// Public content is a root that has a pin, read from its holders, and blocks that a member shows. Of a root that no node
// holds yet the error says so.
func TestPublicContentIsPinnedOrShown(t *testing.T) {
	root := cid.MustParse(text)
	silent := state.Errorf(state.CodeUnavailable, "a member does not answer")
	for _, tc := range []struct {
		name     string
		before   func(t *testing.T, w *world)
		holders  int // of the root; 0: each block is checked
		err      error
		fetching bool
	}{
		{"nobody has it", func(*testing.T, *world) {}, 0, state.ErrNotFound, false},
		{"pinned", func(t *testing.T, w *world) { w.pin(t, "a", "b") }, 2, nil, false},
		{"pinned with one copy", func(t *testing.T, w *world) { w.pin(t, "c") }, 1, nil, false},
		{"being fetched", func(t *testing.T, w *world) { w.pin(t) }, 0, state.ErrNotFound, true},
		{"being fetched and a part of other content", func(t *testing.T, w *world) { w.pin(t); w.store.visible = true }, 0, nil, false},
		{"a part of other content", func(_ *testing.T, w *world) { w.store.visible = true }, 0, nil, false},
		{"unpinned", func(t *testing.T, w *world) { w.pin(t, "a", "b"); w.unpin(t) }, 0, state.ErrNotFound, false},
		{"a member is silent", func(_ *testing.T, w *world) { w.store.fail = silent }, 0, state.ErrUnavailable, false},
		{"in a private bucket", func(t *testing.T, w *world) { w.put(t, clustertest.Operator, false) }, 0, state.ErrNotFound, false},
		{"in a public bucket", func(t *testing.T, w *world) { w.put(t, clustertest.Operator, true) }, 2, nil, false},
		{"in a private bucket and a part of other content", func(t *testing.T, w *world) { w.put(t, clustertest.Operator, false); w.store.visible = true }, 0, nil, false},
		{"in a private bucket and pinned", func(t *testing.T, w *world) { w.put(t, clustertest.Operator, false); w.pin(t) }, 2, nil, false},
		{"given up", func(t *testing.T, w *world) { w.pin(t); w.report(t, state.GaveUp, "a", "b", "c") }, 0, state.ErrNotFound, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.before(t, w)
			got, err := w.Public(t.Context(), root)
			if !errors.Is(err, tc.err) || errors.Is(err, ErrFetching) != tc.fetching {
				t.Fatalf("%v, want %v, fetching %v", err, tc.err, tc.fetching)
			}
			if err == nil && len(got.(opened).holders) != tc.holders {
				t.Errorf("read from %v", got)
			}
		})
	}
}
