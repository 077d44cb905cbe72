package consensus

import (
	"context"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// askLevels is the interval at which the leader asks members for the feature level that their
// records do not name.
const askLevels = 30 * time.Second

// FeatureLevel returns the feature level of the cluster. known is false until this node has
// caught up once after its start, because its local state may be old until then.
func (n *Node) FeatureLevel() (level state.FeatureLevel, known bool) {
	return n.fsm.level(), n.hasCaughtUp()
}

// raiseLevel raises the cluster to the highest feature level that all members support, including
// members that are down. A member of an older release would stop at a command of a higher level.
// The result is true if the level was raised.
func (n *Node) raiseLevel(ctx context.Context, nodes []state.Node) (bool, error) {
	now, want := n.fsm.level(), state.NewestFeatureLevel
	if now >= want {
		return false, nil
	}
	silent := false // a record is of a release without feature levels
	for _, node := range nodes {
		if node.FeatureLevel == 0 {
			silent = true
		} else {
			want = min(want, node.FeatureLevel)
		}
	}
	if want <= now {
		return false, nil
	}
	if silent {
		if time.Since(n.askedLevels) < askLevels {
			return false, nil
		}
		n.askedLevels = time.Now()
		for _, node := range nodes {
			if node.FeatureLevel == 0 {
				want = min(want, n.levelOf(ctx, node.ID))
			}
		}
		if want <= now {
			return false, nil
		}
	}
	n.log.InfoContext(ctx, "every member supports a higher feature level: leader raises that of the cluster", "from", now, "to", want)
	_, err := n.propose(ctx, &state.RaiseLevel{FeatureLevel: want})
	return err == nil, err
}

// levelOf asks a member for the highest feature level that it supports. It returns 0 for a member
// of a release without this request, or that does not answer.
func (n *Node) levelOf(ctx context.Context, id state.NodeID) state.FeatureLevel {
	if id == n.opts.ID {
		return state.NewestFeatureLevel
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	level, err := n.forwards.number(ctx, id, askLevel, nil)
	if err != nil {
		n.log.DebugContext(ctx, "member does not report its feature level", "node", id, "err", err)
		return 0
	}
	return state.FeatureLevel(min(level, uint64(state.NewestFeatureLevel)))
}

// ownEligibility applies to this node what the local state contains about it: whether its store
// may vote, the results of state checks, and whether it restarted without its state. said is the
// index of the last check whose result was processed.
func (n *Node) ownEligibility(ctx context.Context, said *uint64) error {
	view, release := n.LocalView()
	defer release()
	if err := n.takeVote(view); err != nil {
		return err
	}
	if err := n.watchChecks(ctx, view, said); err != nil {
		return err
	}
	return n.outOfService(ctx)
}
