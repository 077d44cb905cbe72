package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/consensus"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer"
	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"golang.org/x/sync/errgroup"
)

// ErrRemoved is the error of Run or Open if this node was removed from its cluster. If the
// settings have a new ticket, Open joins again as a new member with the old identity and blocks.
var ErrRemoved = consensus.ErrRemoved

// The file removedFile exists if this node was removed from its cluster. The file is empty until
// the node has moved the cluster's data away, and contains hasLeft after that.
const (
	removedFile = "removed"
	hasLeft     = "left\n"
)

// Limits for a node that knows no leader and asks whether it is still a member. It may have been
// removed while it was down or disconnected.
const (
	removalAsked = 5 * time.Second // time without a leader before the first question, and pause between two questions
	removalDial  = 5 * time.Second // time limit of one question to one member
	// removalAskers is the largest number of addresses that are asked at the same time.
	removalAskers = 16
)

// errTicketNeeded is the ErrRemoved that tells the operator how a removed node can join again.
var errTicketNeeded = fmt.Errorf("%w: to join again, start it with --join and a new ticket of `holdfast token` (its blocks stay), or on an empty data folder", ErrRemoved)

// errNoTicket is the error of a removed node whose --join entry is an address instead of a new
// ticket.
var errNoTicket = errors.New("a node that was removed joins by a new ticket, not by an address")

// wasRemoved returns whether the node of this folder was removed and has not become a
// member again.
func (n *Node) wasRemoved() bool {
	_, gone := os.Stat(n.folder.file(removedFile))
	return gone == nil
}

// sayRemoved adds to an error of join that this node was removed from its cluster, if that is so.
// Often --join still has the old ticket or address.
func (n *Node) sayRemoved(err error) error {
	if !n.wasRemoved() {
		return err
	}
	// It is no ErrRemoved: to try once more would end in the same.
	return fmt.Errorf("%v: %w", errTicketNeeded, err) //nolint:errorlint // see above
}

// noteRemoved creates removedFile, which tells the next Open that this node is no longer a
// member.
func (n *Node) noteRemoved() error {
	return durable.WriteFile(n.folder.file(removedFile), nil, 0o600)
}

// leaveBehind prepares a removed node to join again. If the settings have a ticket, it moves the
// state and the Raft log to asideDir and deletes membersFile. Otherwise it returns ErrRemoved. It
// does not accept an address with the cluster secret instead of a ticket: both are in many
// command lines, so a removed node would return at its next start. If the node is a member after
// all, leaveBehind only deletes removedFile. For a node that was not removed it does nothing.
//
// The Raft log goes too, so that the new store has no vote until the leader has seen it catch up,
// like the store of any new member (ADR 7). The epoch in the state invalidates puts from before
// the removal (ADR 23). The blocks remain; the tracker deletes unwanted blocks later.
//
// If a crash interrupts leaveBehind, the next Open repeats it. After it has completed, a repeated
// call changes nothing, and the node joins.
func (n *Node) leaveBehind(ctx context.Context) error {
	said, err := os.ReadFile(n.folder.file(removedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", removedFile, err)
	}
	left := string(said) == hasLeft
	if member, err := n.isMemberAgain(ctx, left); err != nil {
		return err
	} else if member {
		return n.forgetRemoval()
	}
	if !slices.ContainsFunc(n.opts.Config.Cluster.Join, isTicket) {
		return errTicketNeeded
	}
	if left {
		return nil
	}
	if err := n.moveAside(rebuild{Folders: []string{stateDir, raftDir}, Reason: ErrRemoved.Error()}, slog.LevelInfo); err != nil {
		return err
	}
	if err := durable.RemoveAll(n.folder.file(membersFile)); err != nil {
		return fmt.Errorf("leave the cluster: %w", err)
	}
	return durable.WriteFile(n.folder.file(removedFile), []byte(hasLeft), 0o600)
}

// isMemberAgain returns whether a node with a removedFile is a member after all. left is true if
// the file contains hasLeft. Then the node is a member if membersFile exists, because join has
// written it before a crash. If left is false, the node asks members: it may have read about an
// earlier removal while it was disconnected. A damaged membersFile counts as existing if left is
// true, and as missing otherwise.
func (n *Node) isMemberAgain(ctx context.Context, left bool) (bool, error) {
	known, err := n.folder.seed()
	if errors.Is(err, errSeedUnread) {
		return left, nil
	}
	if err != nil || known == nil || left {
		return known != nil, err
	}
	secret, err := n.folder.secret()
	if err != nil || secret == nil {
		return false, err
	}
	key, err := n.folder.identity()
	if err != nil {
		return false, err
	}
	id, err := peer.IDOf(key)
	if err != nil {
		return false, fmt.Errorf("%s: %w", n.folder.file(IdentityFile), err)
	}
	m, _, _ := n.askMembers(ctx, known, secret, state.NodeID(id))
	return m.Member, nil
}

func isTicket(where string) bool {
	_, ok := members.ParseTicket(where)
	return ok
}

// forgetRemoval deletes removedFile, because this node is a member again.
func (n *Node) forgetRemoval() error {
	if err := durable.RemoveAll(n.folder.file(removedFile)); err != nil {
		return fmt.Errorf("join again: %w", err)
	}
	return nil
}

// watchRemoval asks members while this node knows no leader, and returns ErrRemoved, which stops
// the node, if a member answers that this node is not a member. Raft tells a node of its removal
// only if it is running and reachable at that time. watchRemoval returns nil when ctx ends.
func (n *Node) watchRemoval(ctx context.Context) error {
	tick := time.NewTicker(removalAsked)
	defer tick.Stop()
	for alone := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, led := n.consensus.Leader(); led {
			alone = false
			continue
		}
		if alone && n.isRemoved(ctx) {
			return ErrRemoved
		}
		alone = true
	}
}

// isRemoved asks the members and returns true if one answers that this node is not a member any
// more. If this node is a member, it accepts the members in the answer: nodes that joined while
// it was disconnected, one of which may be the leader, can connect to it now.
func (n *Node) isRemoved(ctx context.Context) bool {
	m, by, answered := n.askMembers(ctx, newSeed(n.clusterID, n.members.Nodes()), n.secret, n.self.ID)
	if answered && m.Member && n.members.Is(string(by)) {
		n.members.Vouch(m)
	}
	return answered && !m.Member
}

// askMembers asks the members in known, and then at the addresses of --join, whether the node id
// is a member. It returns the first answer from this cluster and the member that gave it;
// answered is false if there is none.
func (n *Node) askMembers(ctx context.Context, known *seed, secret []byte, id state.NodeID) (m members.Membership, by state.NodeID, answered bool) {
	var addrs []string
	for _, m := range known.Members {
		if m.ID != string(id) {
			addrs = append(addrs, m.ClusterAddrs...)
		}
	}
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	for _, addr := range n.addrHints() {
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	at, m := firstAnswer(ctx, addrs, func(ctx context.Context, addr string) (members.Membership, bool) {
		m, err := n.askMembership(ctx, addr, secret, id)
		if err == nil && m.ClusterID == known.ClusterID {
			return m, true
		}
		n.logger.DebugContext(ctx, "asked a member whether this node still is one", "addr", addr, "err", err)
		return m, false
	})
	return m, hintedID(at), at != ""
}

// firstAnswer calls ask for the addresses, up to removalAskers at a time, because an address
// whose node is down takes the full time limit. It returns the first answer for which ask
// returned true, and its address. at is "" if there is none.
func firstAnswer[T any](ctx context.Context, addrs []string, ask func(ctx context.Context, addr string) (T, bool)) (at string, answer T) {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex // of at and answer
	var asking errgroup.Group
	asking.SetLimit(removalAskers)
	for _, addr := range addrs {
		asking.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			if got, ok := ask(ctx, addr); ok {
				mu.Lock()
				defer mu.Unlock()
				if at == "" {
					at, answer = addr, got
					cancel()
				}
			}
			return nil
		})
	}
	_ = asking.Wait() // they return none
	cancel()
	return at, answer
}

// askMembership asks the member at addr whether the node id is a member of its cluster. secret is
// the cluster secret.
func (n *Node) askMembership(ctx context.Context, addr string, secret []byte, id state.NodeID) (members.Membership, error) {
	ctx, cancel := context.WithTimeout(ctx, removalDial)
	defer cancel()
	conn, hangUp, err := n.dialJoin(ctx, secret, addr)
	if err != nil {
		return members.Membership{}, err
	}
	defer hangUp()
	deadline, _ := ctx.Deadline()
	return members.AskMembership(conn, deadline, id)
}
