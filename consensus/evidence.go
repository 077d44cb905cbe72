package consensus

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Bounds of asking whether a leader is gone.
const (
	// askGoneTimeout is how long this node waits for one answer.
	askGoneTimeout = time.Second
	// askGoneAgain is the pause before a leader is asked again that neither answers nor
	// refuses. The system accepts connections for a process until all of the process has ended.
	askGoneAgain = 50 * time.Millisecond
)

// streamEnded causes a question to the leader whether it still leads, because the stream of its
// beats has ended.
func (n *Node) streamEnded(from string) {
	if n.detector != nil && state.NodeID(from) == n.detector.follows().leader {
		n.doubt(state.NodeID(from))
	}
}

// doubt causes a question to a leader whether it still leads.
func (n *Node) doubt(leader state.NodeID) {
	select {
	case n.doubted <- leader:
	default: // it is asked already
	}
}

// askWhetherGone looks for evidence that the leader has stopped, whenever there is a doubt,
// until ctx ends.
func (n *Node) askWhetherGone(ctx context.Context) error {
	for {
		select {
		case leader := <-n.doubted:
			n.askGone(ctx, leader)
		case <-ctx.Done():
			return nil
		}
	}
}

// askGone asks a leader until the leader answers, its address refuses the connection, or other
// evidence exists.
func (n *Node) askGone(ctx context.Context, leader state.NodeID) {
	followed := n.detector.follows()
	patience, _ := n.detector.current()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	again := time.NewTimer(askGoneAgain)
	defer again.Stop()
	for now := followed; now.leader == leader && now.term == followed.term; now = n.detector.follows() {
		gone, known := n.leadsNoMore(ctx, leader, now.term)
		if gone {
			n.log.InfoContext(ctx, "the leader no longer leads", "leader", leader, "term", now.term)
			n.detector.leaderGone(leader, now.term)
		}
		if known {
			return
		}
		again.Reset(askGoneAgain)
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// leadsNoMore asks a leader whether it still leads. known is false if the leader neither
// answers nor refuses the connection.
func (n *Node) leadsNoMore(ctx context.Context, leader state.NodeID, term uint64) (gone, known bool) {
	ctx, cancel := context.WithTimeout(ctx, askGoneTimeout)
	defer cancel()
	switch leads, err := n.forwards.number(ctx, leader, askLeads, nil); {
	case err == nil:
		return leads < term, true
	case errors.Is(err, state.ErrInvalid): // its release does not know the question
		return false, true
	default:
		gone = n.opts.Refused != nil && n.opts.Refused(err)
		return gone, gone
	}
}

// raftFollows returns the leader that Raft follows.
func (n *Node) raftFollows() following {
	leader, _ := n.Leader()
	return following{leader: leader, term: n.raft.CurrentTerm(), contact: n.raft.LastContact()}
}
