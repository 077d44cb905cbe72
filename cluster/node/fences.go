package node

import (
	"context"

	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
	"github.com/holdfast-ipfs/holdfast/consensus"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// fences reads and raises the epoch of this node in the replicated state. A put that began in an
// earlier epoch is rejected. It implements ingest.Fences.
type fences struct {
	self  state.NodeID
	state *consensus.Node
}

// Epoch implements ingest.Fences. It waits until the node has caught up with the Raft log.
func (f *fences) Epoch(ctx context.Context) (uint64, error) {
	select {
	case <-f.state.CaughtUp():
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	level, _ := f.state.FeatureLevel() // it is known now
	if level < tracker.LeaseFeatureLevel {
		return 0, state.Errorf(state.CodeUnavailable, "the cluster is at level %d, and epochs are of level %d", level, tracker.LeaseFeatureLevel)
	}
	view, release, err := f.state.View(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	return view.FenceOf(f.self)
}

// Raise implements ingest.Fences.
func (f *fences) Raise(ctx context.Context, epoch uint64) error {
	_, err := f.state.Propose(ctx, &state.Fence{Node: f.self, Epoch: epoch})
	return err
}
