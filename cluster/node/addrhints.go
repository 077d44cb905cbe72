package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"golang.org/x/sync/errgroup"
)

// While a member is not connected, this node dials each address of --join. The first attempt
// comes after addrHintFirst, because the known addresses of the member usually work sooner. The
// pauses between later attempts double up to addrHintMost. At most maxAddrHints addresses are
// tried.
const (
	addrHintFirst = time.Second
	addrHintMost  = 15 * time.Second
	addrHintDial  = 10 * time.Second // time limit of one attempt
	maxAddrHints  = 64
)

// errOtherCluster means that the peer at an address of --join is a member of another cluster.
var errOtherCluster = errors.New("a member of another cluster is there")

// addrHints returns the addresses in the --join settings, including those in tickets, without
// this node's own addresses. If all members got new addresses while this node was down, it finds
// them at these addresses.
func (n *Node) addrHints() []string {
	var addrs []string
	for _, where := range n.opts.Config.Cluster.Join {
		ticket, ok := members.ParseTicket(where)
		switch {
		case ok:
			addrs = append(addrs, ticket.Addrs...)
		case strings.HasPrefix(where, "/"):
			addrs = append(addrs, where)
		}
	}
	addrs = slices.DeleteFunc(addrs, func(a string) bool { return hintedID(a) == n.self.ID })
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	return addrs[:min(len(addrs), maxAddrHints)]
}

// hintedID returns the peer id in a multiaddr, or "" if it has none.
func hintedID(addr string) state.NodeID {
	_, id, _ := strings.Cut(addr, "/p2p/")
	return state.NodeID(id)
}

// find dials the addresses of --join while members are not connected, until ctx ends, and then
// returns nil. It never joins a cluster. It trusts only a peer that proves two things: it has the
// identity in the address, and it knows this cluster's secret.
func (n *Node) find(ctx context.Context) error {
	var g errgroup.Group
	for _, addr := range n.addrHints() {
		g.Go(func() error {
			n.findAt(ctx, addr)
			return nil
		})
	}
	return g.Wait()
}

// findAt does the work of find for one address. It returns when ctx ends.
func (n *Node) findAt(ctx context.Context, addr string) {
	pause, tries := backoff.New(addrHintFirst, addrHintMost), 0
	timer := time.NewTimer(pause.NextBackOff())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if n.peer.Connected(string(hintedID(addr))) || n.allConnected() {
			pause.Reset()
			tries = 0
			timer.Reset(addrHintMost)
			continue
		}
		err := n.askAddr(ctx, addr)
		tries++
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			n.logger.InfoContext(ctx, "found a member at an address of --join", "addr", addr)
		case tries&(tries-1) == 0: // the 1st, 2nd, 4th, 8th
			level := slog.LevelInfo // that a member is away is warned of elsewhere
			if errors.Is(err, errOtherCluster) {
				level = slog.LevelWarn
			}
			n.logger.Log(ctx, level, "no member of this cluster found at an address of --join, trying again", "addr", addr, "tries", tries, "err", err)
		}
		timer.Reset(pause.NextBackOff())
	}
}

// allConnected returns whether all other members are connected.
func (n *Node) allConnected() bool {
	return !slices.ContainsFunc(n.members.Nodes(), func(m state.Node) bool {
		return m.ID != n.self.ID && !n.peer.Connected(string(m.ID))
	})
}

// askAddr dials the cluster host at addr. If a known member answers there, the peer uses addr for
// that member from now on. An unknown member may have joined while this node was down. Then
// askAddr asks it for its list of members, and the peer uses the addresses in that list for the
// members that this node knows. askAddr returns errOtherCluster if the peer belongs to another
// cluster.
func (n *Node) askAddr(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, addrHintDial)
	defer cancel()
	// The handshake proves the identity in addr. The peer accepts the join stream for this
	// secret, so it knows the secret too.
	conn, hangUp, err := n.dialJoin(ctx, n.secret, addr)
	if err != nil {
		return err
	}
	defer hangUp()
	if n.members.Is(string(hintedID(addr))) {
		return n.peer.AddrHint(addr)
	}
	deadline, _ := ctx.Deadline()
	m, err := members.AskMembership(conn, deadline, n.self.ID)
	if err != nil {
		return fmt.Errorf("it is not known here, and does not say who else is a member: %w", err)
	}
	if m.ClusterID != n.clusterID {
		return errOtherCluster
	}
	for _, known := range m.Members {
		if known.ID == n.self.ID || !n.members.Is(string(known.ID)) {
			continue
		}
		for _, addr := range known.ClusterAddrs {
			if hintedID(addr) != known.ID {
				continue
			}
			if err := n.peer.AddrHint(addr); err != nil {
				return err
			}
		}
	}
	return nil
}

// saidAddrs returns the cluster addresses in the newest gossip sample of a member; nil without a
// sample.
func (n *Node) saidAddrs(id state.NodeID) []string {
	s, _, _ := n.gossip.Table().Get(id)
	return s.ClusterAddrs
}

// places returns all cluster addresses at which m may be reached: first said, the addresses in
// its newest sample, then those in its record. The sample may be newer: a member whose address
// changed cannot update its record without a leader, but its samples arrive through other
// members.
func places(m state.Node, said []string) []string {
	said = slices.DeleteFunc(slices.Clone(said), func(a string) bool {
		return hintedID(a) != m.ID || slices.Contains(m.ClusterAddrs, a)
	})
	return append(said, m.ClusterAddrs...)
}
