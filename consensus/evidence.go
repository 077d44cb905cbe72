package consensus

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Time limits for asking a leader whether it still leads.
const (
	// askGoneTimeout is how long this node waits for one answer.
	askGoneTimeout = time.Second
	// askGoneAgain is the pause before a leader is asked again that has neither answered nor
	// refused the connection. While a process is being killed, the operating system still accepts
	// connections for it.
	askGoneAgain = 50 * time.Millisecond
)

// streamEnded is called when the stream of beats from a member has ended. If that member is the
// leader, this node asks it whether it still leads.
func (n *Node) streamEnded(from string) {
	if n.detector != nil && state.NodeID(from) == n.detector.follows().leader {
		n.doubt(state.NodeID(from))
	}
}

// doubt requests that askWhetherGone asks the leader whether it still leads. It does nothing if
// such a request is pending.
func (n *Node) doubt(leader state.NodeID) {
	select {
	case n.doubted <- leader:
	default: // it is asked already
	}
}

// askWhetherGone asks the leader whether it still leads, once for each call of doubt, until ctx
// ends.
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

// askGone asks a leader repeatedly whether it still leads, and reports a negative answer to the
// detector. It ends when the leader answers or its address refuses the connection, when this node
// follows another leader or term, or after the patience.
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

// leadsNoMore asks a leader once whether it still leads in the term. gone is true if it does not,
// or if its address refuses the connection. known is false if there was no answer, so that the
// caller should ask again.
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

// raftFollows returns the leader that Raft follows, with the term and the time of its last
// message.
func (n *Node) raftFollows() following {
	leader, _ := n.Leader()
	return following{leader: leader, term: n.raft.CurrentTerm(), contact: n.raft.LastContact()}
}
