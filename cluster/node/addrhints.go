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

// A member is looked for at each address of --join while it is not connected: for the
// first time after hintFirst, which what is known of its addresses has to find it in, then
// after pauses that double, up to hintMost.
const (
	addrHintFirst = time.Second
	addrHintMost  = 15 * time.Second
	addrHintDial  = 10 * time.Second // of one look
	maxAddrHints  = 64
)

// errOtherCluster says that an address of --join is one of another cluster.
var errOtherCluster = errors.New("a member of another cluster is there")

// addrHints are the addresses that the settings name to join at, also those of tickets, but
// for this node's own. To a member they say where others may be, when all have moved.
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

// hintedID is the member that an address names.
func hintedID(addr string) state.NodeID {
	_, id, _ := strings.Cut(addr, "/p2p/")
	return state.NodeID(id)
}

// find looks for members at the addresses of --join until ctx ends, then returns nil.
// Nothing is joined there, and nobody is believed who does not prove to be the member
// that the address names, or to know this cluster's secret.
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

// findAt is find for one address.
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

// allConnected tells whether nobody is missing whom a hint could help to find.
func (n *Node) allConnected() bool {
	return !slices.ContainsFunc(n.members.Nodes(), func(m state.Node) bool {
		return m.ID != n.self.ID && !n.peer.Connected(string(m.ID))
	})
}

// askAddr asks at an address whether the member that it names is there, by its cluster host,
// and has the peer find it there from now on. Of one that is not known here yet, which
// joined while this node was down, it takes where the known ones are.
func (n *Node) askAddr(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, addrHintDial)
	defer cancel()
	// The identity of whom it reaches is the one in addr, and that it opens the stream of
	// joiners for this secret says that it knows it too.
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

// saidAddrs are the addresses that a member last said it has; none if it was not heard of.
func (n *Node) saidAddrs(id state.NodeID) []string {
	s, _, _ := n.gossip.Table().Get(id)
	return s.ClusterAddrs
}

// places are where a member may be: where it says itself that it is, and where its record
// says so. It may have moved and reach no leader that could write that down, while
// somebody else passes on what it says.
func places(m state.Node, said []string) []string {
	said = slices.DeleteFunc(slices.Clone(said), func(a string) bool {
		return hintedID(a) != m.ID || slices.Contains(m.ClusterAddrs, a)
	})
	return append(said, m.ClusterAddrs...)
}
