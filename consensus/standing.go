package consensus

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/transport"
)

// ballots is Raft's transport, with which a node that should not lead asks
// nobody for a vote. It still votes, and hears a leader: whoever can lead is
// elected as fast as ever.
type ballots struct {
	*transport.Raft
	unfit func() (why string, heirs []state.NodeID)
	beats *heartbeats
}

var _ raft.WithPreVote = ballots{}

// Consumer implements raft.Transport.
func (b ballots) Consumer() <-chan raft.RPC { return b.beats.loop }

// SetHeartbeatHandler implements raft.Transport.
func (b ballots) SetHeartbeatHandler(handle func(raft.RPC)) {
	b.Raft.SetHeartbeatHandler(b.beats.guarded(handle))
}

// stands is nil when this node may ask for votes.
func (b ballots) stands() error {
	if why, _ := b.unfit(); why != "" {
		return fmt.Errorf("consensus: this node does not stand for election: %s", why)
	}
	return nil
}

// RequestVote implements raft.Transport.
func (b ballots) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if err := b.stands(); err != nil {
		return err
	}
	return b.Raft.RequestVote(id, target, args, resp)
}

// RequestPreVote implements raft.WithPreVote.
func (b ballots) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := b.stands(); err != nil {
		return err
	}
	return b.Raft.RequestPreVote(id, target, args, resp)
}

// unfit tells why this node should not lead now, and who could, best first. An
// empty reason means that it may.
func (n *Node) unfit() (why string, heirs []state.NodeID) {
	if n.opts.Standing != nil {
		why, heirs = n.opts.Standing()
	}
	switch took := n.fsm.applying(); {
	case n.disk.refusedLately():
		why = "the disk of its Raft log is full"
	case took > slowWrite:
		why = fmt.Sprintf("its state has not taken a change for %s", took.Round(time.Second))
	case len(heirs) == 0:
		why = "" // nobody is better off, and somebody must lead
	}
	return why, heirs
}

// keepStanding hands leadership over while this node should not lead.
func (n *Node) keepStanding(ctx context.Context) error {
	every := time.NewTicker(diskCheck)
	defer every.Stop()
	said := false
	for turn := 0; ; {
		select {
		case <-every.C:
		case <-ctx.Done():
			return nil
		}
		why, heirs := n.unfit()
		if why == "" || !n.IsLeader() || n.otherVoters() == 0 {
			said = false
			continue
		}
		if !said {
			n.log.WarnContext(ctx, "handing leadership over", "why", why)
			said = true
		}
		if err := n.handOverTo(ctx, heirs, turn); err != nil {
			n.log.DebugContext(ctx, "leadership is not handed over yet", "err", err)
			turn++
		}
	}
}

// handOverTo makes one of the heirs lead, another one each turn; any voter, when
// none of them votes.
func (n *Node) handOverTo(ctx context.Context, heirs []state.NodeID, turn int) error {
	roles := n.Roles()
	heirs = slices.DeleteFunc(slices.Clone(heirs), func(id state.NodeID) bool {
		return id == n.opts.ID || roles[id] != roleVoter
	})
	if len(heirs) == 0 {
		return n.HandOver(ctx)
	}
	heir := heirs[turn%len(heirs)]
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	return n.await(ctx, n.raft.LeadershipTransferToServer(raft.ServerID(heir), raft.ServerAddress(heir)))
}
