package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/audit"
	"github.com/holdfast-ipfs/holdfast/cluster/gossip"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/consensus"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	"github.com/ipfs/go-cid"
	"golang.org/x/sync/errgroup"
)

// gossipTopic is the pubsub topic on which members publish samples of their load.
const gossipTopic = "/holdfast/samples/1"

// Intervals at which a node compares its own record in the state with its addresses and release:
// registerRetry until both are equal, registerEvery after that.
const (
	registerRetry = 200 * time.Millisecond
	registerEvery = 5 * time.Second
)

// gate decides for the peer which nodes may connect. It admits none until open is called, because
// the peer is opened before the list of members is available.
type gate struct {
	members atomic.Pointer[members.Members]
	log     atomic.Pointer[audit.Log]
}

func (g *gate) open(m *members.Members, log *audit.Log) {
	g.log.Store(log)
	g.members.Store(m)
}

// refused writes to the audit log that the cluster host has refused n connections from addr. It
// does nothing before open.
func (g *gate) refused(addr, why string, n int) {
	if log := g.log.Load(); log != nil {
		log.RefusedJoin(addr, why, n)
	}
}

func (g *gate) member(id string) bool {
	m := g.members.Load()
	return m != nil && m.Is(id)
}

func (g *gate) joiner(id string) bool {
	m := g.members.Load()
	return m != nil && m.MayJoin(id)
}

// whyNot returns the reason why a peer is refused, for the audit log. It returns "" before open,
// when every peer is refused.
func (g *gate) whyNot(id string) string {
	m := g.members.Load()
	if m == nil {
		return ""
	}
	return m.WhyNot(id)
}

// Load implements members.Gossip.
func (n *Node) Load(id state.NodeID) (members.Load, bool) {
	s, liveness, ok := n.gossip.Table().Get(id)
	// A Suspect member without any sample is not silent: it may be starting.
	silent := liveness == gossip.Down || liveness == gossip.Suspect && ok
	connected := id == n.self.ID || n.peer.Connected(string(id))
	load := members.Load{
		State: seems(liveness, ok, connected), UsedBytes: s.UsedBytes, FreeBytes: s.FreeBytes, Queue: s.Queue, Version: s.Version, Full: s.Full, Refuses: s.Refuses, Ended: s.Ends,
		Away: silent && !connected, Connected: connected, Silent: n.gossip.Table().Silent(id),
		Started: s.Start, Busy: s.Busy, Zone: s.Zone,
	}
	if id != n.self.ID {
		load.Skew = n.gossip.Table().Skew(id)
	}
	return load, ok
}

// seems returns the liveness of a member as text. s is its state in gossip. heard is true if
// gossip has a sample of it. Without a sample, as after a join, a connected member counts as
// alive, unless it has been silent so long that gossip counts it as down. Then it is suspect,
// because another process may have its identity.
func seems(s gossip.State, heard, connected bool) string {
	switch {
	case heard:
	case connected && s != gossip.Down:
		s = gossip.Alive
	case connected || s != gossip.Down:
		s = gossip.Suspect
	}
	return s.String()
}

// memberIDs returns the ids of all members. Gossip stores samples of these only.
func (n *Node) memberIDs() []state.NodeID {
	nodes := n.members.Nodes()
	ids := make([]state.NodeID, len(nodes))
	for i, m := range nodes {
		ids[i] = m.ID
	}
	return ids
}

// own returns the record of this node with its current addresses. These differ from the ones at
// the start if the node started before the network was up or if they have changed since then.
func (n *Node) own() state.Node {
	own := n.self
	own.Addrs, own.ClusterAddrs = newest(own.Addrs, n.peer.Addrs()), newest(own.ClusterAddrs, n.peer.ClusterAddrs())
	return own
}

// newest returns now, or before if both have the same addresses in any order or if now is empty.
func newest(before, now []string) []string {
	if len(now) == 0 || sameAddrs(before, now) {
		return before
	}
	return now
}

// sameAddrs returns true if a and b have the same addresses in any order. libp2p returns
// addresses of one kind in varying order.
func sameAddrs(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// measure returns the current gossip sample of this node.
func (n *Node) measure() gossip.Sample {
	usage := n.blocks.Usage()
	view, release := n.consensus.LocalView()
	defer release()
	held, _, err := view.CopiesOn(n.self.ID)
	if err != nil {
		n.logger.Error("cannot count the roots on this node", "err", err)
	}
	own := n.own()
	active, busy := n.neighbours.reported()
	return gossip.Sample{
		UsedBytes: usage.LiveBytes, FreeBytes: usage.FreeBytes, Queue: n.tracker.Queue(), Held: held,
		Version: own.Version, Zone: n.opts.Config.Node.Zone, Addrs: own.Addrs, ClusterAddrs: own.ClusterAddrs,
		Full: n.full(), Tight: n.tight(), Refuses: n.refuses(),
		Accounts: active, Busy: busy,
	}
}

// Candidates returns all members with their load, for the choice of nodes for content. Members
// count as alive unless they are down, even if they are suspect or have sent no sample yet.
func (n *Node) Candidates() []placement.Node {
	table := n.gossip.Table()
	nodes := n.members.Nodes()
	drained := n.members.Drained()
	candidates := make([]placement.Node, len(nodes))
	for i, m := range nodes {
		s, _, _ := table.Get(m.ID)
		_, down := n.alive.downSince(m.ID)
		candidates[i] = placement.Node{
			ID: m.ID, Free: s.FreeBytes, Used: s.UsedBytes, Queue: s.Queue,
			Alive: m.ID == n.self.ID || !down, Draining: drained[m.ID], Full: n.takesNothing(m.ID),
		}
	}
	return candidates
}

// takesNothing returns whether a member has no room for new content.
func (n *Node) takesNothing(id state.NodeID) bool {
	if id == n.self.ID {
		return n.full()
	}
	s, _, _ := n.gossip.Table().Get(id)
	return s.Full
}

// place chooses the nodes that should store a root during a repair. It prefers the nodes to which
// the root is allocated already, except full nodes that have no copy yet. It returns nil if the
// state cannot be read.
func (n *Node) place(root state.Root) []state.NodeID {
	view, release := n.consensus.LocalView()
	defer release()
	c, err := view.Cluster()
	if err != nil {
		n.logger.Error("cannot place a root", "root", root.Key, "err", err)
		return nil
	}
	keep := slices.DeleteFunc(root.Nodes(), func(id state.NodeID) bool {
		return root.Copy(id).Phase != state.Held && n.takesNothing(id)
	})
	return placement.Choose(root.Key, int(c.Replication), n.Candidates(), keep)
}

// moves returns whether err means that this node has no room for the root and another member has,
// so that the repair will allocate the root there.
func (n *Node) moves(root *state.Root, err error) bool {
	return errors.Is(err, blocks.ErrNoSpace) && slices.ContainsFunc(n.Candidates(), func(c placement.Node) bool {
		return c.Alive && !c.Draining && !c.Full && root.Copy(c.ID) == nil
	})
}

// down returns whether a member is down.
func (n *Node) down(id state.NodeID) bool {
	_, down := n.alive.downSince(id)
	return down
}

// others returns the members that are not down, without this node.
func (n *Node) others() (ids []state.NodeID) {
	for _, m := range n.members.Nodes() {
		if m.ID != n.self.ID && !n.down(m.ID) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// gone returns whether a member has been down for longer than the setting Repair.After, so that
// its content is copied to other nodes.
func (n *Node) gone(id state.NodeID) bool {
	since, down := n.alive.downSince(id)
	return down && time.Since(since) > n.opts.Config.Repair.After
}

// heldRoots calls fn with each root of which this node has a complete copy and which is not
// private, until fn returns false. The peer announces these roots.
func (n *Node) heldRoots(fn func(cid.Cid) bool) error {
	view, release := n.consensus.LocalView()
	defer release()
	return view.WantedOn(n.self.ID, "", func(k state.RootKey, p state.Phase) (bool, error) {
		if p != state.Held {
			return true, nil
		}
		if root, err := view.Root(k); err != nil || root.Private() {
			return err == nil, err
		}
		return fn(k.Cid()), nil
	})
}

// Run runs all parts of the node until ctx ends. It returns earlier with an error if a part
// cannot continue; the process should end then. It returns ErrRemoved if this node was removed
// from the cluster, and ErrRebuild if its copy of the state is damaged.
func (n *Node) Run(ctx context.Context) error {
	joins, err := n.peer.ListenJoin()
	if err != nil {
		return fmt.Errorf("listen for joiners: %w", err)
	}
	questions, err := n.peer.Listen(progressProtocol)
	if err != nil {
		return fmt.Errorf("listen for questions of progress: %w", err)
	}
	shown, err := n.peer.Listen(visibleProtocol)
	if err != nil {
		return fmt.Errorf("listen for questions about blocks: %w", err)
	}
	readers, err := n.peer.Listen(readProtocol)
	if err != nil {
		return fmt.Errorf("listen for readers: %w", err)
	}
	changes := n.watch.Subscribe(n.self.ID)
	defer changes.Close()
	g, ctx := errgroup.WithContext(ctx)
	for name, run := range map[string]func(context.Context) error{
		"peer":       n.peer.Run,
		"blocks":     n.blocks.Run,
		"consensus":  n.consensus.Run,
		"gossip":     n.gossip.Run,
		"tracker":    n.runTracker,
		"scrubber":   n.scrubber.Run,
		"reconciler": n.reconciler.Run,
		"repairer":   n.repairer.Run,
		"content":    n.content.Run,
		"objects":    n.objects.Run,
		"hashes":     n.objects.RunHashes,
		"ingest":     n.ingest.Run,
		"accounts":   n.accounts.Run,
		"audit":      n.audit.Run,
		"credits":    n.ledger.Run,
		"pins":       n.pins.Run,
		"pin ends":   n.pins.RunEnds,
		"payments":   n.payments.Run,
		"progress":   func(ctx context.Context) error { return n.progress.serve(ctx, questions) },
		"visible":    func(ctx context.Context) error { return n.files.visible.serve(ctx, shown) },
		"readers":    func(ctx context.Context) error { return n.files.serveReaders(ctx, readers) },
		"watch":      n.members.Watch,
		"joins":      func(ctx context.Context) error { return n.members.ServeJoin(ctx, joins) },
		"members":    func(ctx context.Context) error { return n.follow(ctx, changes) },
		"disk":       n.watchDisk,
		"damage":     n.watchDamage,
		"volumes":    n.volumes.Run,
		"removal":    n.watchRemoval,
		"hints":      n.find,
	} {
		g.Go(func() error {
			if err := run(ctx); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	err = g.Wait()
	if kerr := n.folder.keepWaiting(n.peer.Waiting()); kerr != nil {
		n.logger.Warn("the queue of announcements is lost: this node announces some content hours later", "err", kerr)
	}
	if errors.Is(err, consensus.ErrRemoved) {
		err = errors.Join(errTicketNeeded, n.noteRemoved())
	}
	return n.condemn(err)
}

// watchDisk returns an error, which stops the node, if a write of the Raft log or of blocks has
// failed: until the next start it is unknown which bytes are on the disk. It calls Options.Fatal
// before. It returns nil when ctx ends.
func (n *Node) watchDisk(ctx context.Context) error {
	select {
	case <-ctx.Done(): // what failed may have been the reason
	case <-n.log.Failed():
	case <-n.blocks.Failed():
	}
	var err error
	select {
	case <-n.log.Failed():
		err = errors.New("a write of the raft log failed, the disk cannot be trusted")
	case <-n.blocks.Failed():
		err = errors.New("a write of blocks failed, the disk cannot be trusted")
	default:
		return nil
	}
	if n.opts.Fatal != nil {
		n.opts.Fatal(err)
	}
	return err
}

// follow passes changes of the membership to the peer and to membersFile, and updates this node's
// own record in the state, until ctx ends.
func (n *Node) follow(ctx context.Context, changes *state.Subscription) error {
	known := map[state.NodeID]bool{}
	if err := n.takeMembers(known); err != nil {
		return err
	}
	tick := time.NewTicker(registerRetry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changes.C:
			if c := changes.Take(); !c.Members && !c.All {
				continue
			}
		case <-tick.C:
		}
		if err := n.takeMembers(known); err != nil {
			return err
		}
		if err := n.keepSeed(); err != nil {
			return err
		}
		if err := n.register(ctx); err != nil {
			n.logger.DebugContext(ctx, "cannot update the record of this node yet", "err", err)
			continue
		}
		tick.Reset(registerEvery)
	}
}

// takeMembers passes the members in this node's copy of the state to the gate and to the peer.
// known is the set of members that the peer knows; takeMembers updates it and makes the peer
// forget removed members.
func (n *Node) takeMembers(known map[state.NodeID]bool) error {
	for _, id := range n.members.Vouched() {
		known[id] = true // it may be removed later
	}
	if err := n.members.Refresh(); err != nil {
		return err
	}
	now := map[state.NodeID]bool{}
	for _, m := range n.members.Nodes() {
		now[m.ID] = true
		if m.ID != n.self.ID {
			known[m.ID] = true
			n.peer.SetMember(string(m.ID), places(m, n.saidAddrs(m.ID)))
		}
	}
	for id := range known {
		if !now[id] && !n.members.Is(string(id)) {
			n.peer.Forget(string(id))
			delete(known, id)
		}
	}
	return nil
}

// register proposes the command that founds the cluster, if this node is the founder and the
// cluster has no state yet. Otherwise it proposes an update of this node's record if its name,
// release or addresses have changed. It returns an error if it must be tried again later.
func (n *Node) register(ctx context.Context) error {
	if _, ok := n.consensus.Leader(); !ok {
		return state.ErrUnavailable
	}
	view, release := n.consensus.LocalView()
	_, clusterErr := view.Cluster()
	record, err := view.Node(n.self.ID)
	release()
	switch {
	case clusterErr != nil && n.founder != nil:
		_, err := n.consensus.Propose(ctx, n.founder)
		return err
	case errors.Is(err, state.ErrNotFound):
		return err // the state is not here yet, or this node was removed
	case err != nil:
		return err
	}
	level, known := n.consensus.FeatureLevel()
	if !known {
		return state.ErrUnavailable // the record may be an old one
	}
	own := n.own()
	if level < 1 {
		own = own.Before1()
	}
	own.Joined = record.Joined
	if record.Name == own.Name && record.Version == own.Version && record.FeatureLevel == own.FeatureLevel && record.Store == own.Store &&
		sameAddrs(record.Addrs, own.Addrs) && sameAddrs(record.ClusterAddrs, own.ClusterAddrs) {
		return nil
	}
	_, err = n.consensus.Propose(ctx, &state.UpdateNode{Node: own})
	return err
}

// Ready returns nil if this node is a member, has caught up with the Raft log, knows a leader and
// has the secret of the cluster. Otherwise it returns the reason.
func (n *Node) Ready() error {
	if err := n.consensus.Ready(); err != nil {
		return err
	}
	view, release := n.consensus.LocalView()
	defer release()
	if _, err := view.Cluster(); err != nil {
		return err
	}
	if _, err := view.Node(n.self.ID); err != nil {
		return err
	}
	return n.secretFits()
}
