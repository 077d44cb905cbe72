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

// ballots is Raft's transport, with which a node that should not lead asks
// nobody for a vote. It still votes, and hears a leader: whoever can lead is
// elected as fast as ever.
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

// errLeadsNot says that what was to be sent was read while this node led, and it
// does no more.
var errLeadsNot = errors.New("consensus: this node does not lead in that term any more")

// AppendEntries implements raft.Transport.
func (b ballots) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if !b.mayTell(args) {
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
	return tellingPipeline{p, b}, nil
}

// tellingPipeline is a stream of entries to a follower while this node leads.
type tellingPipeline struct {
	raft.AppendPipeline
	ballots ballots
}

// AppendEntries implements raft.AppendPipeline.
func (p tellingPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if !p.ballots.mayTell(args) {
		return nil, errLeadsNot
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}

// mayTell tells whether a message to a follower may be sent. Raft puts it together
// beside its loop, entry by entry, and the loop of a leader that has lost its
// lead replaces entries: then the entry before and those after it may be of two
// logs, and a follower that has not heard of the new term would take them. While
// this node leads in that term nothing in its log is replaced, so a message that
// is ready by then is of one log.
func (b ballots) mayTell(args *raft.AppendEntriesRequest) bool {
	heartbeat := args.PrevLogEntry == 0 && len(args.Entries) == 0
	return heartbeat || b.beats.leads(args.Term)
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
	said, turn := false, 0
	return each(ctx, diskCheck, func() error {
		why, heirs := n.unfit()
		if why == "" || !n.IsLeader() || n.otherVoters() == 0 {
			said = false
			return nil
		}
		if !said {
			n.log.WarnContext(ctx, "this node hands leadership over", "why", why)
			said = true
		}
		if err := n.handOverTo(ctx, heirs, turn); err != nil {
			n.log.DebugContext(ctx, "cannot hand leadership over yet", "err", err)
			turn++
		}
		return nil
	})
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
	// While Raft waits for who is to lead it takes no writes, and does so for as long as a
	// snapshot takes to get there.
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

// heir returns the voter that is to lead next, of those that answer within heirTimeout; false
// if none does. Raft by itself hands over to the one whose log was the longest when it was
// last heard of, which may be gone, or refuse for want of room.
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

// claim is what is known of a voter that may lead next.
type claim struct {
	id      state.NodeID
	applied uint64
	tight   bool // a disk of it is nearly full
	err     error
}

// betterThan tells whether a voter is the better one to lead: one with room, then one that has
// applied more.
func (c claim) betterThan(other claim) bool {
	if c.tight != other.tight {
		return other.tight
	}
	return c.applied > other.applied
}

// choose reads as many claims as were asked for and returns the best one: at once the first
// that has room and is not far behind what is committed. It waits for all of those asked, each
// of whom says something in time, if only that it failed.
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
