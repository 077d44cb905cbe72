package consensus

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// Limits and time-outs for changes of the Raft membership.
const (
	// maxVoters is the largest number of members that vote. The other members follow without a
	// vote.
	maxVoters = 5
	// promoteLag is the largest number of entries that a member may be behind to be promoted to
	// voter or to receive the leadership.
	promoteLag = 64
	// changeTimeout is how long the leader waits for one change of the configuration.
	changeTimeout = 5 * time.Second
	// askTimeout is how long the leader waits for a member to report its index.
	askTimeout = time.Second
	// votePoll is the interval at which the leader asks a member whether it knows that it is
	// eligible to vote.
	votePoll = 10 * time.Millisecond
	// removalGrace is how long a node that seems to be removed waits for contrary information
	// from the cluster before it stops.
	removalGrace = 5 * time.Second
)

// The roles of Raft servers that Roles returns.
const (
	roleVoter    = "voter"
	roleNonvoter = "nonvoter"
)

// Roles returns "voter" or "nonvoter" for each server of the Raft
// configuration that this node knows.
func (n *Node) Roles() map[state.NodeID]string {
	roles := make(map[state.NodeID]string)
	for _, s := range n.servers() {
		roles[state.NodeID(s.ID)] = roleNonvoter
		if s.Suffrage == raft.Voter {
			roles[state.NodeID(s.ID)] = roleVoter
		}
	}
	return roles
}

// servers returns the newest Raft configuration, committed or not.
func (n *Node) servers() []raft.Server {
	future := n.raft.GetConfiguration()
	if future.Error() != nil { // Raft never answers so
		return nil
	}
	return future.Configuration().Servers
}

// voters returns the servers that vote according to the newest configuration.
func (n *Node) voters() (ids []raft.ServerID) {
	for _, s := range n.servers() {
		if s.Suffrage == raft.Voter {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

func (n *Node) otherVoters() (voters int) {
	for id, role := range n.Roles() {
		if id != n.opts.ID && role == roleVoter {
			voters++
		}
	}
	return voters
}

// reconcile moves the Raft configuration one step towards the member records in the state.
// changed is true if it has made a step; the caller should then call it again at once.
func (n *Node) reconcile(ctx context.Context) (changed bool, err error) {
	if !n.IsLeader() || n.fsm.progress.lastTerm() != n.raft.CurrentTerm() {
		return false, nil // the local state may be an old one
	}
	view, release := n.LocalView()
	defer release()
	nodes, err := view.Nodes()
	if err != nil {
		return false, err
	}
	if len(nodes) == 0 {
		return false, nil // the cluster is being founded
	}
	voting, err := electable(view, nodes)
	if err != nil {
		return false, err
	}
	members := make([]raft.ServerID, len(nodes))
	for i, node := range nodes {
		members[i] = raft.ServerID(node.ID)
	}
	servers := n.servers()
	if id, found := newcomer(members, servers); found {
		n.renewSnapshot(ctx)
		n.log.InfoContext(ctx, "leader added a member as a nonvoter", "node", id)
		return true, n.change(ctx, "add "+string(id), n.raft.AddNonvoter(id, raft.ServerAddress(id), 0, changeTimeout))
	}
	if done, err := n.revokeVotes(ctx, nodes, voting, servers); done || err != nil {
		return done, err
	}
	// Before a removal, so that a leaving leader can transfer leadership to another voter.
	if done, err := n.promote(ctx, voting, members, servers); done || err != nil {
		return done, err
	}
	if done, err := n.expel(ctx, members, servers); done || err != nil {
		return done, err
	}
	if done, err := n.demote(ctx, voting, members, servers); done || err != nil {
		return done, err
	}
	if done, err := n.raiseLevel(ctx, nodes); done || err != nil {
		return done, err
	}
	return false, n.checkDue(ctx, view)
}

// electable returns the members that are not in quarantine, by Raft id. Only these may become
// voters.
func electable(view state.View, nodes []state.Node) (map[raft.ServerID]state.Node, error) {
	in, err := view.Quarantined()
	if err != nil {
		return nil, err
	}
	voting := make(map[raft.ServerID]state.Node, len(nodes))
	for _, node := range nodes {
		if !slices.ContainsFunc(in, func(q state.Quarantine) bool { return q.Node == node.ID }) {
			voting[raftID(node.ID)] = node
		}
	}
	return voting, nil
}

func raftID(id state.NodeID) raft.ServerID { return raft.ServerID(id) }

// revokeVotes demotes a voter that is in quarantine or whose store is not eligible to vote,
// because the store was lost together with the votes that it had given. It returns true if it has
// demoted one.
func (n *Node) revokeVotes(ctx context.Context, nodes []state.Node, voting map[raft.ServerID]state.Node, servers []raft.Server) (bool, error) {
	for _, node := range nodes {
		id := raftID(node.ID)
		_, counts := voting[id]
		votes := slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == id && s.Suffrage == raft.Voter })
		if !votes || counts && node.MayVote() {
			continue
		}
		if node.ID == n.opts.ID {
			n.log.WarnContext(ctx, "this node is not eligible to vote and hands leadership over")
			return false, n.HandOver(ctx)
		}
		n.log.WarnContext(ctx, "leader demotes a member that is not eligible to vote", "node", id, "quarantine", !counts, "store", node.Store)
		return true, n.change(ctx, "demote "+string(id), n.raft.DemoteVoter(id, 0, changeTimeout))
	}
	return false, nil
}

// change waits for one change of the Raft configuration. what describes the change in the log and
// in errors.
func (n *Node) change(ctx context.Context, what string, future raft.Future) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if err := n.await(ctx, future); err != nil {
		return fmt.Errorf("membership: %s: %w", what, err)
	}
	return nil
}

// newcomer returns a member that is not in the Raft configuration yet, and whether there is one.
func newcomer(members []raft.ServerID, servers []raft.Server) (raft.ServerID, bool) {
	i := slices.IndexFunc(members, func(id raft.ServerID) bool { return !isServer(servers, id) })
	if i < 0 {
		return "", false
	}
	return members[i], true
}

func isServer(servers []raft.Server, id raft.ServerID) bool {
	return slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == id })
}

// votersFor returns how many members vote if the cluster has the given number of members. The
// result is odd, because one more voter than an odd number tolerates no more failures. The
// exception is a cluster of two, in which both vote.
func votersFor(members int) int {
	voters := min(members, maxVoters)
	if voters > 2 && voters%2 == 0 {
		voters--
	}
	return voters
}

// electorate divides the members into those that vote in the Raft configuration and the others,
// each sorted by id.
func electorate(members []raft.ServerID, servers []raft.Server) (voters, others []raft.ServerID) {
	for _, s := range servers {
		switch {
		case !slices.Contains(members, s.ID):
		case s.Suffrage == raft.Voter:
			voters = append(voters, s.ID)
		default:
			others = append(others, s.ID)
		}
	}
	slices.Sort(voters)
	slices.Sort(others)
	return voters, others
}

// gone returns whether a member has been down for so long that another member should vote in its
// place.
func (n *Node) gone(id raft.ServerID) bool {
	return n.opts.Gone != nil && id != raft.ServerID(n.opts.ID) && n.opts.Gone(state.NodeID(id))
}

// promote makes a member that has caught up a voter, if there are too few voters or if a voter is
// gone. In the second case, demote then takes the vote from the voter that is gone. Otherwise
// members that fail one after the other, days apart, would end the majority although other
// members are healthy. It first records in the state that the member is eligible, and returns
// true after each step.
func (n *Node) promote(ctx context.Context, voting map[raft.ServerID]state.Node, members []raft.ServerID, servers []raft.Server) (bool, error) {
	voters, others := electorate(members, servers)
	if voters = slices.DeleteFunc(voters, n.gone); len(voters) >= votersFor(len(voting)) {
		return false, nil
	}
	commit := n.raft.CommitIndex()
	for _, id := range others {
		node, counts := voting[id]
		if !counts || n.gone(id) || !node.MayVote() && node.Store == "" {
			continue // it has not stored its store id yet
		}
		at, err := n.appliedOn(ctx, id)
		if err != nil || at+promoteLag < commit {
			n.log.DebugContext(ctx, "member is not ready for promotion", "node", id, "applied", at, "commit", commit, "err", err)
			continue
		}
		if !node.MayVote() {
			// First in the state, so that the node itself learns of it: until then it
			// refuses to vote, whatever the configuration says.
			_, err := n.propose(ctx, &state.GrantVote{Node: node.ID, Store: node.Store})
			return err == nil, err
		}
		if err := n.voteTaken(ctx, id); err != nil {
			n.log.DebugContext(ctx, "member has not accepted its promotion", "node", id, "err", err)
			continue
		}
		n.log.InfoContext(ctx, "leader promotes a member to voter", "node", id)
		return true, n.change(ctx, "promote "+string(id), n.grantVote(id))
	}
	return false, nil
}

// grantVote makes a server a voter and proposes one more entry. The second entry is needed
// because Raft sends the entry with the promotion before it counts the new voter. Raft can
// therefore miss a fast answer to it, and learns only from the answer to the next entry that the
// server has the log. If the majority needs the new voter, the promotion would never commit
// without that entry.
func (n *Node) grantVote(id raft.ServerID) raft.Future {
	future := n.raft.AddVoter(id, raft.ServerAddress(id), 0, changeTimeout)
	n.raft.Apply(n.empty, enqueueTimeout)
	return future
}

func (n *Node) appliedOn(ctx context.Context, id raft.ServerID) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return n.forwards.number(ctx, state.NodeID(id), askApplied, nil)
}

// voteTaken waits, at most askTimeout, until a member knows that it is eligible to vote, and then
// returns nil. The leader calls it before it makes the member a Raft voter. Otherwise the member
// could go down before it knows. When it is back it could not help to elect a leader, and without
// a leader it would never learn of its eligibility.
func (n *Node) voteTaken(ctx context.Context, id raft.ServerID) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for {
		_, err := n.forwards.number(ctx, state.NodeID(id), askTerm, nil)
		if err == nil {
			return nil
		}
		if !backoff.Wait(ctx, votePoll) {
			return err
		}
	}
}

// expel removes one server that is no longer a member from the Raft configuration, and returns
// true if it did. If only this node itself is left to be removed, expel hands leadership over, so
// that the next leader removes this node.
func (n *Node) expel(ctx context.Context, members []raft.ServerID, servers []raft.Server) (bool, error) {
	// Itself last: it can remove the others first.
	servers = slices.SortedStableFunc(slices.Values(servers), func(a, b raft.Server) int {
		return cmp.Compare(n.rank(a.ID), n.rank(b.ID))
	})
	for _, s := range servers {
		if slices.Contains(members, s.ID) {
			continue
		}
		if s.ID == raft.ServerID(n.opts.ID) {
			n.log.InfoContext(ctx, "this node was removed from the cluster and hands leadership over")
			return false, n.HandOver(ctx)
		}
		n.log.InfoContext(ctx, "leader removes a Raft server that is not a member", "node", s.ID)
		return true, n.change(ctx, "remove "+string(s.ID), n.raft.RemoveServer(s.ID, 0, changeTimeout))
	}
	return false, nil
}

func (n *Node) rank(id raft.ServerID) int {
	if id == raft.ServerID(n.opts.ID) {
		return 1
	}
	return 0
}

// demote makes one voter a non-voter if there are too many voters. It chooses a voter that is
// gone or does not answer, otherwise the voter with the last id, but never the leader. It returns
// true if it has demoted one.
func (n *Node) demote(ctx context.Context, voting map[raft.ServerID]state.Node, members []raft.ServerID, servers []raft.Server) (bool, error) {
	voters, _ := electorate(members, servers)
	if len(voters) <= votersFor(len(voting)) {
		return false, nil
	}
	voters = slices.DeleteFunc(voters, func(id raft.ServerID) bool { return id == raft.ServerID(n.opts.ID) })
	chosen := voters[len(voters)-1]
	if i := slices.IndexFunc(voters, n.gone); i >= 0 {
		chosen = voters[i]
	} else {
		for _, id := range voters {
			if _, err := n.appliedOn(ctx, id); err != nil {
				chosen = id
				break
			}
		}
	}
	n.log.InfoContext(ctx, "leader demotes a voter that is not needed", "node", chosen)
	return true, n.change(ctx, "demote "+string(chosen), n.raft.DemoteVoter(chosen, 0, changeTimeout))
}

// keepMembership calls reconcile when the members or the leader change, and at intervals. It
// returns ErrRemoved when this node is no longer a member.
func (n *Node) keepMembership(ctx context.Context) error {
	every := time.NewTicker(n.timings.Reconcile)
	defer every.Stop()
	var self tenure
	var said uint64 // the newest check that was logged
	for {
		for again := true; again && ctx.Err() == nil; {
			var err error
			if again, err = n.reconcile(ctx); err != nil {
				n.log.WarnContext(ctx, "leader cannot change the Raft configuration now", "err", err)
				again = false
			}
		}
		removed, err := n.removed(ctx, &self)
		if err != nil {
			return err
		}
		if removed {
			return ErrRemoved
		}
		if err := n.ownEligibility(ctx, &said); err != nil {
			return err
		}
		_, changed := n.leaders.get()
		select {
		case <-n.fsm.members:
		case <-n.ledTerm:
		case <-changed:
		case <-every.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// tenure is what this node knows about its own membership.
type tenure struct {
	member bool      // this node has been a member since the start of the process
	absent time.Time // start of the time without membership and without news from the cluster; zero if this node is a member
	index  uint64    // applied index at that time
}

// removed returns true if this node is certainly no longer a member. Absence from the local state
// is not enough. A node that joins again and applies the log also applies its earlier removal,
// and a leader that leaves the cluster must first complete its own removal. A node that stopped
// before it applied its own member record gets that record from the leader, which may take time.
//
// So a removal counts if Raft's configuration lacks the node and the leader has no newer entries.
// It also counts if no member has answered for removalGrace, because a removed node is
// disconnected and may not have received the entry with its removal.
func (n *Node) removed(ctx context.Context, self *tenure) (bool, error) {
	view, release := n.LocalView()
	defer release()
	nodes, err := view.Nodes()
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	listed := slices.ContainsFunc(nodes, func(node state.Node) bool { return node.ID == n.opts.ID })
	self.member = self.member || listed
	_, led := n.Leader()
	_, server := n.Roles()[n.opts.ID]
	if listed || len(nodes) == 0 || led && (server || !self.member) {
		self.absent = time.Time{}
		return false, nil
	}
	if self.absent.IsZero() || self.index != view.Index() {
		self.absent, self.index = time.Now(), view.Index()
	}
	if self.member && !server {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if index, err := n.readIndex(ctx); err == nil {
			return index <= view.Index(), nil
		}
	}
	return time.Since(self.absent) > removalGrace, nil
}
