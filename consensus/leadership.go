package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/transport"
)

// ballots is Raft's transport with two checks: it sends no vote requests while this node should
// not lead (see Options.Eligibility), and no entries in a term in which this node no longer
// leads. The node still votes for others and follows a leader.
type ballots struct {
	*transport.Raft
	unfit func() (why string, heirs []state.NodeID)
	beats *heartbeats
}

var _ raft.WithPreVote = ballots{}

func (n *Node) ballots() ballots { return ballots{Raft: n.transport, unfit: n.unfit, beats: n.beats} }

// Consumer implements raft.Transport.
func (b ballots) Consumer() <-chan raft.RPC { return b.beats.loop }

// SetHeartbeatHandler implements raft.Transport.
func (b ballots) SetHeartbeatHandler(handle func(raft.RPC)) {
	b.Raft.SetHeartbeatHandler(b.beats.guarded(handle))
}

// errLeadsNot is the error for a message that was prepared in a term in which this node no
// longer leads.
var errLeadsNot = errors.New("consensus: this node does not lead in that term any more")

// AppendEntries implements raft.Transport.
func (b ballots) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if !b.maySend(args) {
		return errLeadsNot
	}
	return b.Raft.AppendEntries(id, target, args, resp)
}

// AppendEntriesPipeline implements raft.Transport.
func (b ballots) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := b.Raft.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return leadersPipeline{p, b}, nil
}

// leadersPipeline is a pipeline that sends entries only while this node leads.
type leadersPipeline struct {
	raft.AppendPipeline
	ballots ballots
}

// AppendEntries implements raft.AppendPipeline.
func (p leadersPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if !p.ballots.maySend(args) {
		return nil, errLeadsNot
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}

// maySend returns true if a message with entries may be sent to a follower. Raft builds the
// message outside of its main loop, entry by entry. If this node loses leadership meanwhile, it
// may replace entries of its log, so the message could mix two logs, and a follower that does not
// know the new term would accept it. The message is consistent if this node still leads in the
// term of the message.
func (b ballots) maySend(args *raft.AppendEntriesRequest) bool {
	heartbeat := args.PrevLogEntry == 0 && len(args.Entries) == 0
	return heartbeat || b.beats.leads(args.Term)
}

// mayCampaign returns an error with the reason if this node should not ask for votes, and
// otherwise nil.
func (b ballots) mayCampaign() error {
	if why, _ := b.unfit(); why != "" {
		return fmt.Errorf("consensus: this node does not stand for election: %s", why)
	}
	return nil
}

// RequestVote implements raft.Transport.
func (b ballots) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if err := b.mayCampaign(); err != nil {
		return err
	}
	return b.Raft.RequestVote(id, target, args, resp)
}

// RequestPreVote implements raft.WithPreVote.
func (b ballots) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := b.mayCampaign(); err != nil {
		return err
	}
	return b.Raft.RequestPreVote(id, target, args, resp)
}

// unfit returns the reason why this node should not lead now, and the members that could lead
// instead, best first. The reason is empty if this node may lead.
func (n *Node) unfit() (why string, heirs []state.NodeID) {
	if n.opts.Eligibility != nil {
		why, heirs = n.opts.Eligibility()
	}
	switch took := n.fsm.applying(); {
	case n.disk.refusedLately():
		why = "the disk of its Raft log is full"
	case took > slowWrite:
		why = fmt.Sprintf("its state has not taken a change for %s", took.Round(time.Second))
	case len(heirs) == 0:
		why = "" // no other member is better, and the cluster needs a leader
	}
	return why, heirs
}

// keepEligible hands leadership over to another member when this node leads and should not. It
// runs until ctx ends.
func (n *Node) keepEligible(ctx context.Context) error {
	logged, attempt := false, 0
	return each(ctx, diskCheck, func() error {
		why, heirs := n.unfit()
		if why == "" || !n.IsLeader() || n.otherVoters() == 0 {
			logged = false
			return nil
		}
		if !logged {
			n.log.WarnContext(ctx, "this node hands leadership over", "why", why)
			logged = true
		}
		if err := n.handOverTo(ctx, heirs, attempt); err != nil {
			n.log.DebugContext(ctx, "cannot hand leadership over yet", "err", err)
			attempt++
		}
		return nil
	})
}

// handOverTo transfers leadership to one of the heirs that vote, chosen by the number of the
// attempt, so that each attempt tries another one. If no heir is a voter, Raft chooses the next
// leader.
func (n *Node) handOverTo(ctx context.Context, heirs []state.NodeID, attempt int) error {
	roles := n.Roles()
	heirs = slices.DeleteFunc(slices.Clone(heirs), func(id state.NodeID) bool {
		return id == n.opts.ID || roles[id] != roleVoter
	})
	if len(heirs) == 0 {
		return n.HandOver(ctx)
	}
	heir := heirs[attempt%len(heirs)]
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	// Raft takes no writes during the transfer, which lasts as long as a snapshot to the heir.
	// So the heir must be able to catch up from the log.
	at, err := n.appliedOn(ctx, raftID(heir))
	if err != nil {
		return err
	}
	first, err := n.opts.Log.FirstIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if commit := n.raft.CommitIndex(); at+promoteLag < commit || at+1 < first {
		return fmt.Errorf("consensus: hand over leadership: %s has applied %d of %d, and the log begins at %d", heir, at, commit, first)
	}
	return n.await(ctx, n.raft.LeadershipTransferToServer(raft.ServerID(heir), raft.ServerAddress(heir)))
}

// heir returns the best next leader among the voters that answer within heirTimeout. found is
// false if no voter answers. Raft itself would choose the voter that had the longest log when
// it last answered. That voter may be down, or may refuse leadership because its disk is full.
func (n *Node) heir(ctx context.Context) (id state.NodeID, found bool) {
	ctx, cancel := context.WithTimeout(ctx, heirTimeout)
	defer cancel()
	said := make(chan claim, n.otherVoters())
	asked := 0
	for id, role := range n.Roles() {
		if id == n.opts.ID || role != roleVoter || asked == cap(said) {
			continue
		}
		asked++
		n.waits.Go(func() {
			at, err := n.appliedOn(ctx, raftID(id))
			said <- claim{id: id, applied: at, tight: n.opts.Tight != nil && n.opts.Tight(id), err: err}
		})
	}
	best, found := choose(said, asked, n.raft.CommitIndex)
	return best.id, found
}

// claim is the answer of one voter to the question how far it has applied the log, used to choose
// the next leader.
type claim struct {
	id      state.NodeID
	applied uint64
	tight   bool // one of the voter's disks is almost full
	err     error
}

// betterThan returns true if c is the better choice for the next leader: a voter with free disk
// space is better than one without, then the voter with the higher applied index.
func (c claim) betterThan(other claim) bool {
	if c.tight != other.tight {
		return other.tight
	}
	return c.applied > other.applied
}

// choose reads up to asked claims from said and returns the best one; found is false if all of
// them are errors. It returns early with the first claim of a voter that has disk space and is at
// most promoteLag entries behind commit. Each voter that was asked sends exactly one claim.
func choose(said <-chan claim, asked int, commit func() uint64) (best claim, found bool) {
	for range asked {
		c := <-said
		if c.err != nil {
			continue
		}
		if !found || c.betterThan(best) {
			best, found = c, true
		}
		if !best.tight && best.applied+promoteLag >= commit() {
			break
		}
	}
	return best, found
}
