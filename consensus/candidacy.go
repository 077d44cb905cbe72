package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Time limits of a candidacy, in which this node asks the other voters for consent and then
// starts an election.
const (
	// candidacyTimeout is how long a candidate waits for the answers of the other voters.
	candidacyTimeout = 2 * time.Second
	// handTimeout is how long a candidate waits until its own Raft has processed the request to
	// start an election. After a longer wait, the reason for the election may no longer exist.
	handTimeout = 200 * time.Millisecond
)

// errNoConsent means that a voter has rejected the candidacy: it sees no reason to elect another
// leader, or has promised its consent to another candidate.
var errNoConsent = errors.New("it does not agree")

// watchLeader makes this node stand for election whenever its detector finds a reason, until
// ctx ends.
func (n *Node) watchLeader(ctx context.Context) error {
	if n.detector == nil {
		return nil
	}
	var work sync.WaitGroup
	defer work.Wait()
	tick := time.NewTicker(detectorStep)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			n.detector.step(time.Now())
		case <-n.detector.ready:
		case <-ctx.Done():
			return nil
		}
		if why := n.detector.stand(n.voterIDs()); why != "" {
			work.Go(func() {
				began := time.Now()
				err := n.stand(ctx, why)
				n.detector.stood(time.Since(began))
				if err != nil {
					n.log.DebugContext(ctx, "this node starts no election", "why", why, "err", err)
				}
			})
		}
	}
}

// mayStand returns nil if this node may stand for election, and otherwise the reason why not: it
// leads, has no vote, has a hanging disk, or should not lead now.
func (n *Node) mayStand() error {
	if n.IsLeader() {
		return errors.New("it leads")
	}
	// Without a vote of its own it would raise the term but could not win.
	if r := n.eligibility.read(); !r.votes || n.raft.CurrentTerm()+1 <= r.after {
		return errNoVote
	}
	if took := n.disk.writing(); took > slowWrite {
		return errors.New("its disk hangs")
	}
	return n.ballots().mayCampaign()
}

// stand sends a Raft pre-vote request to the other voters. If a majority consents, stand makes
// this node's Raft start the election. why is the reason, for the log.
func (n *Node) stand(ctx context.Context, why string) error {
	if err := n.mayStand(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, candidacyTimeout)
	defer cancel()
	term, leader := n.raft.CurrentTerm(), n.detector.follows().leader
	index, of := n.lastEntry()
	ask := raft.RequestPreVoteRequest{RPCHeader: n.rpcHeader(), Term: term + 1, LastLogIndex: index, LastLogTerm: of}
	voters := n.voters()
	others := slices.DeleteFunc(slices.Clone(voters), func(id raft.ServerID) bool {
		return id == raftID(n.opts.ID) || id == raftID(leader) && why == whySilent
	})
	if err := n.consents.reach(ctx, others, len(voters)/2, func(ctx context.Context, id raft.ServerID) error {
		return n.askConsent(ctx, id, ask)
	}, n.waits.Go); err != nil {
		return fmt.Errorf("no majority for it: %w", err)
	}
	if !n.detector.stands(term) {
		return errors.New("the reason is over")
	}
	n.log.InfoContext(ctx, "this node starts an election", "why", why, "leader", leader, "term", term+1)
	return n.timeOut(ctx, term)
}

// askConsent sends one voter the pre-vote request, and returns nil if the voter consents.
func (n *Node) askConsent(ctx context.Context, id raft.ServerID, ask raft.RequestPreVoteRequest) error {
	answer := make(chan error, 1)
	n.waits.Go(func() {
		var resp raft.RequestPreVoteResponse
		err := n.transport.RequestPreVote(id, raft.ServerAddress(id), &ask, &resp)
		if err == nil && !resp.Granted {
			err = errNoConsent
		}
		answer <- err
	})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// timeOut makes this node's Raft start an election at once, as Raft does after a leadership
// transfer: it skips the pre-vote, and voters that still know a leader may vote for this node.
// term is the current term.
func (n *Node) timeOut(ctx context.Context, term uint64) error {
	ctx, cancel := context.WithTimeout(ctx, handTimeout)
	defer cancel()
	if n.raft.State() == raft.Candidate {
		// A candidate that waits for the end of a lost election starts no other one. A
		// message of a leader without a name ends that wait and has no other effect. It has
		// a later term, because one of the same term does not move a candidate that was
		// told to stand.
		if err := n.beats.offer(ctx, raft.RPC{Command: &raft.AppendEntriesRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}, Term: term + 1,
		}}); err != nil {
			return err
		}
	}
	return n.beats.offer(ctx, raft.RPC{Command: &raft.TimeoutNowRequest{RPCHeader: n.rpcHeader()}})
}

// consent handles the vote requests of other candidates by this node's failure detector instead
// of Raft's timers. It answers pre-vote requests itself (answered is true). All other requests go
// on to Raft. If this node has promised its consent to a candidate, consent marks the vote
// request of that candidate like one after a leadership transfer, because Raft may still believe
// that the old leader leads.
func (n *Node) consent(rpc raft.RPC) (on raft.RPC, answered bool) {
	if n.detector == nil {
		return rpc, false
	}
	switch ask := rpc.Command.(type) {
	case *raft.RequestPreVoteRequest:
		rpc.Respond(n.preVote(ask), nil)
		return rpc, true
	case *raft.RequestVoteRequest:
		if !ask.LeadershipTransfer && n.detector.agree(state.NodeID(ask.ID), n.voterIDs()) {
			agreed := *ask
			agreed.LeadershipTransfer = true
			rpc.Command = &agreed
		}
	}
	return rpc, false
}

// preVote answers a pre-vote request by Raft's rules, except that the failure detector and not
// Raft's timer decides whether the current leader is alive.
func (n *Node) preVote(ask *raft.RequestPreVoteRequest) *raft.RequestPreVoteResponse {
	resp := &raft.RequestPreVoteResponse{RPCHeader: n.rpcHeader(), Term: n.raft.CurrentTerm()}
	from := state.NodeID(ask.ID)
	voters := n.voterIDs()
	index, of := n.lastEntry()
	mine := n.eligibility.read()
	switch {
	case !mine.votes || ask.Term <= mine.after || n.disk.writing() > slowWrite: // it could not vote
	case ask.Term < resp.Term, !slices.Contains(voters, from) && len(voters) > 0:
	case of > ask.LastLogTerm, of == ask.LastLogTerm && index > ask.LastLogIndex:
	default:
		resp.Term = max(resp.Term, ask.Term)
		resp.Granted = n.detector.agree(from, voters)
		// The candidate may have evidence that this node lacks: a leader that was killed
		// before it opened a stream to this node.
		if leader := n.detector.follows().leader; !resp.Granted && leader != "" && leader != n.opts.ID {
			n.doubt(leader)
		}
	}
	return resp
}

// lastEntry returns the index and the term of the last entry of this node's log. It parses them
// from Raft's statistics, the only source that needs no disk access.
func (n *Node) lastEntry() (index, term uint64) {
	stats := n.raft.Stats()
	number := func(name string) uint64 {
		v, err := strconv.ParseUint(stats[name], 10, 64)
		if err != nil {
			panic(fmt.Sprintf("consensus: Raft's %s: %v", name, err)) // another release of the library
		}
		return v
	}
	index, term = number("last_log_index"), number("last_log_term")
	if snapshot := number("last_snapshot_index"); snapshot > index { // as Raft compares them
		index, term = snapshot, number("last_snapshot_term")
	}
	return index, term
}

func (n *Node) rpcHeader() raft.RPCHeader {
	return raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.opts.ID),
		Addr: n.transport.EncodePeer(raftID(n.opts.ID), raft.ServerAddress(n.opts.ID)),
	}
}

// voterIDs returns the voters, in the order in which they stand for election.
func (n *Node) voterIDs() []state.NodeID {
	var ids []state.NodeID
	for _, id := range n.voters() {
		ids = append(ids, state.NodeID(id))
	}
	slices.Sort(ids)
	return ids
}
