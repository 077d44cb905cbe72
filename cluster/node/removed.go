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

// ErrRemoved is the error of Run or Open when this node was removed from its cluster. If the
// node is opened with a ticket, it joins again as a new member with its old identity and
// blocks.
var ErrRemoved = consensus.ErrRemoved

// removedFile says that this node was removed from its cluster. It is empty until the node
// has deleted its data of the cluster, and contains hasLeft from then on.
const (
	removedFile = "removed"
	hasLeft     = "left\n"
)

// Times at which a node without a leader asks whether it is still a member. It may have been
// removed while it was down or disconnected.
const (
	removalAsked = 5 * time.Second // time without a leader before the first question, and between two questions
	removalDial  = 5 * time.Second // time limit of one question to one member
	// removalAskers is the number of addresses that are asked at the same time.
	removalAskers = 16
)

// errTicketNeeded says how a removed node can return.
var errTicketNeeded = fmt.Errorf("%w: to join again, start it with --join and a new ticket of `holdfast token` (its blocks stay), or on an empty data folder", ErrRemoved)

// errNoTicket is the error for a removed node that got an address instead of a new ticket.
var errNoTicket = errors.New("a node that was removed joins by a new ticket, not by an address")

// wasRemoved returns whether the node of this folder was removed and has not become a
// member again.
func (n *Node) wasRemoved() bool {
	_, gone := os.Stat(n.folder.file(removedFile))
	return gone == nil
}

// sayRemoved adds to an error of joining that this node was removed, if it was. Often --join
// still names what the node joined with before.
func (n *Node) sayRemoved(err error) error {
	if !n.wasRemoved() {
		return err
	}
	// It is no ErrRemoved: to try once more would end in the same.
	return fmt.Errorf("%v: %w", errTicketNeeded, err) //nolint:errorlint // see above
}

// noteRemoved records for the next Open that this node is no longer a member.
func (n *Node) noteRemoved() error {
	return durable.WriteFile(n.folder.file(removedFile), nil, 0o600)
}

// leaveBehind deletes the cluster data of a removed node if there is a ticket to join
// again; otherwise it returns ErrRemoved. An address and the secret are not enough: they
// are in many command lines, and a removal would not last.
//
// The Raft log is deleted with the state, so that the new store has no vote until the leader
// has seen it catch up, like that of any new member (ADR 7). The state fences what was put here
// before (ADR 23). Blocks stay; unwanted blocks are deleted later.
//
// If a crash interrupts leaveBehind, it starts again, because no member can have admitted the
// node. After it has completed there is nothing to delete, and the node joins, see join.
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

// isMemberAgain returns true if a removed node is a member after all. A node that has left is
// one if joining wrote membersFile before a crash. A node that has not left is one if members
// say so: it may have read of an earlier removal while it was disconnected. An unreadable file
// counts as missing, except that joining wrote it.
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

// forgetRemoval removes the record of a removal, because this node is a member again.
func (n *Node) forgetRemoval() error {
	if err := durable.RemoveAll(n.folder.file(removedFile)); err != nil {
		return fmt.Errorf("join again: %w", err)
	}
	return nil
}

// watchRemoval stops the node with ErrRemoved when a member says that it is not a member.
// Raft reports that only to a node that runs and is reachable.
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

// isRemoved asks the members whether this node is not a member any more. If it is a member,
// it may have been disconnected while others joined, one of which may lead now: the answer
// lets them connect.
func (n *Node) isRemoved(ctx context.Context) bool {
	m, by, answered := n.askMembers(ctx, newSeed(n.clusterID, n.members.Nodes()), n.secret, n.self.ID)
	if answered && m.Member && n.members.Is(string(by)) {
		n.members.Vouch(m)
	}
	return answered && !m.Member
}

// askMembers asks the known members, and then the addresses of --join, whether this node is
// a member. One answer for the whole cluster is enough.
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

// firstAnswer asks several addresses at a time, because one whose node is down takes the
// full time limit. It returns the first answer and its address; "": none.
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

// askMembership asks a member of the cluster with the secret about this node.
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
