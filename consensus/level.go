package consensus

import (
	"context"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// askLevels is how often the leader asks members that have not said in their
// records what they understand.
const askLevels = 30 * time.Second

// Level returns the feature level of the cluster. It is unknown before this node has
// caught up, because until then its state is an old one.
func (n *Node) Level() (level state.Level, known bool) { return n.fsm.level(), n.hasCaughtUp() }

// raiseLevel lets the cluster go to the newest level that every member
// understands, also those that are down: what is proposed from then on would
// stop a member that does not. It tells whether it has.
func (n *Node) raiseLevel(ctx context.Context, nodes []state.Node) (bool, error) {
	now, want := n.fsm.level(), state.NewestLevel
	if now >= want {
		return false, nil
	}
	silent := false // somebody's record is of a release that tells no level
	for _, node := range nodes {
		if node.Level == 0 {
			silent = true
		} else {
			want = min(want, node.Level)
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
			if node.Level == 0 {
				want = min(want, n.levelOf(ctx, node.ID))
			}
		}
		if want <= now {
			return false, nil
		}
	}
	n.log.InfoContext(ctx, "every member supports a higher feature level: leader raises that of the cluster", "from", now, "to", want)
	_, err := n.propose(ctx, &state.RaiseLevel{Level: want})
	return err == nil, err
}

// levelOf asks a member what it understands: nothing new if it does not know
// the question, or does not answer.
func (n *Node) levelOf(ctx context.Context, id state.NodeID) state.Level {
	if id == n.opts.ID {
		return state.NewestLevel
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	level, err := n.forwards.number(ctx, id, askLevel, nil)
	if err != nil {
		n.log.DebugContext(ctx, "member does not report its feature level", "node", id, "err", err)
		return 0
	}
	return state.Level(min(level, uint64(state.NewestLevel)))
}

// ownEligibility acts on what the local state says of this node: that it may vote,
// that it has to begin again, and what checks have found.
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
