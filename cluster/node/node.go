// Package node assembles one node from its parts. It opens storage, the IPFS peer and consensus,
// which do not import each other, passes them to the use cases in the other packages of cluster,
// runs all parts, and closes them in order. One process can run two nodes, because there are no
// globals.
//
// Imports: all of cluster, config, consensus, peer and storage.
// Never:   api, HTTP, flags, the environment.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/cluster/audit"
	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/credits"
	"github.com/holdfast-ipfs/holdfast/cluster/gossip"
	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/cluster/integrity"
	"github.com/holdfast-ipfs/holdfast/cluster/members"
	"github.com/holdfast-ipfs/holdfast/cluster/objects"
	"github.com/holdfast-ipfs/holdfast/cluster/openid"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
	"github.com/holdfast-ipfs/holdfast/cluster/upkeep"
	"github.com/holdfast-ipfs/holdfast/cluster/uploads"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/consensus"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/cache"
	"github.com/holdfast-ipfs/holdfast/peer"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	"github.com/holdfast-ipfs/holdfast/storage/datastore"
	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
	"github.com/holdfast-ipfs/holdfast/storage/nodemeta"
	"github.com/holdfast-ipfs/holdfast/storage/raftlog"
	"github.com/holdfast-ipfs/holdfast/storage/volume"
	"github.com/prometheus/client_golang/prometheus"
)

// snapshotsKept is how many Raft snapshots of the state remain on disk.
const snapshotsKept = 2

// Options are the settings and dependencies of a Node.
type Options struct {
	Config     config.Config // Config.Data is the path of the node's data folder
	Version    string        // version of this release
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil means no metrics
	Processors int                   // number of processors for this process; 0 means the number that runs Go code

	// HostOptions are options for every libp2p host, and ClusterOptions for the cluster hosts
	// only. Tests use them for a simulated network.
	HostOptions, ClusterOptions []peer.HostOption
	// Fatal is called if a write failed, so that the content of the disk is unknown. Run ends
	// with the same error right after the call. Fatal may end the process at once, because an
	// orderly end would make nothing safer. Nil means no call.
	Fatal func(error)
	// Timings are the timings of Raft. For zero values the settings or the defaults of consensus
	// apply.
	Timings consensus.Timings
	// PinState wraps the interface through which package pins calls consensus. Tests use it to
	// add a bug and to show that they find that bug. Nil means no wrapper.
	PinState func(pins.State) pins.State
	// RaftLog wraps the log of Raft. Tests use it to simulate a disk that is slow, that fails, or
	// that loses data which it has acknowledged. Nil means no wrapper.
	RaftLog func(consensus.Log) consensus.Log
	// StateStore wraps the store of the replicated state, for the same reason. Nil means no
	// wrapper.
	StateStore func(consensus.Store) consensus.Store
	// SpaceOf measures the disk of a folder. Tests simulate a full disk. Nil means
	// durable.SpaceOf.
	SpaceOf func(path string) (durable.Space, error)
	// RaftNetwork and GossipTopic wrap the networks of Raft and of gossip. Tests use them to
	// interrupt only one of the two. Nil means no wrapper.
	RaftNetwork func(consensus.Network) consensus.Network
	GossipTopic func(gossip.Topic) gossip.Topic
	// Now is the clock of this node. Tests use clocks that are wrong. Nil means time.Now.
	// Durations are measured without it.
	Now func() time.Time
	// Facilitator settles the payments of the paid gateway. Nil means a client of the facilitator
	// in Config. If Config has no paid gateway either, this node sells nothing.
	Facilitator payments.Facilitator
	// CollectEvery is the interval of two tasks: the compaction of the block store, and the
	// tracker's audit, which finds content that the state does not want on this node. Tests set
	// it. Zero means the defaults.
	CollectEvery time.Duration
}

// Node is one open node with all its parts. Open creates it.
type Node struct {
	opts   Options
	self   state.Node
	logger *slog.Logger

	// The next fields are storage, peer and consensus, in the order in which they are opened. The
	// elements of closers are closed in the reverse order.
	folder    folder
	volumes   *volume.Watch
	store     *kv.Store
	log       *raftlog.Log
	blocks    *blocks.Store
	nodeMeta  *nodemeta.Store
	settled   *nodemeta.Store // settlements of payments
	peer      *peer.Peer
	consensus *consensus.Node
	watch     *state.Watch
	closers   []io.Closer

	known     *seed  // content of membersFile
	unnoted   bool   // membersFile could not be written, because the disk was full
	clusterID string // id of the cluster
	secret    []byte // the cluster secret

	founder *state.InitCluster // command that founds the cluster; nil unless this node is the founder
	gossip  *gossip.Gossip
	// neighbours exchanges the load of accounts by gossip.
	neighbours *Neighbours
	alive      *liveness
	heard      atomic.Pointer[gossip.Table] // table of gossip; nil until gossip has started
	tracker    *tracker.Tracker
	scrubber   *integrity.Scrubber
	reconciler *tracker.Reconciler
	repairer   *tracker.Repairer
	progress   *progress
	files      *files

	members   *members.Members
	pins      *pins.Pins
	accounts  *accounts.Accounts
	audit     *audit.Log
	ledger    *credits.Ledger
	providers *openid.Providers
	content   *content.Content
	uploads   *uploads.Uploads
	objects   *objects.Objects
	payments  *payments.Payments
	ingest    *ingest.Ingest
	upkeep    *upkeep.Upkeep

	backingUp sync.Mutex   // locked while a backup is read
	backedUp  atomic.Int64 // when one was last read to its end, in seconds since 1970; 0: not since the start
}

// Pins returns the service for pins.
func (n *Node) Pins() *pins.Pins { return n.pins }

// Accounts returns the service for accounts and API keys.
func (n *Node) Accounts() *accounts.Accounts { return n.accounts }

// Audit returns the audit log.
func (n *Node) Audit() *audit.Log { return n.audit }

// Ledger returns the service for credits.
func (n *Node) Ledger() *credits.Ledger { return n.ledger }

// Providers returns the OpenID providers at which people sign in.
func (n *Node) Providers() *openid.Providers { return n.providers }

// Members returns the service for the membership of nodes.
func (n *Node) Members() *members.Members { return n.members }

// TwoVotes returns the text of the warning for a cluster with two voters.
func (n *Node) TwoVotes() string { return members.TwoVotes }

// Content returns the service that imports and reads files.
func (n *Node) Content() *content.Content { return n.content }

// Uploads returns the service that stores and pins what users send.
func (n *Node) Uploads() *uploads.Uploads { return n.uploads }

// Objects returns the service of the object gateway.
func (n *Node) Objects() *objects.Objects { return n.objects }

// Payments returns the service of the paid gateway. Without a facilitator it sells nothing, but
// it still lists and cleans up what other nodes have sold.
func (n *Node) Payments() *payments.Payments { return n.payments }

// Ingest returns the component that stores content on several nodes.
func (n *Node) Ingest() *ingest.Ingest { return n.ingest }

// Integrity returns the service that verifies stored blocks.
func (n *Node) Integrity() *integrity.Scrubber { return n.scrubber }

// Replica returns this node's copy of the replicated state.
func (n *Node) Replica() *consensus.Node { return n.consensus }

// Open opens the node whose data folder is opts.Config.Data. If the folder is new, Open first
// founds a cluster or joins one. It waits up to JoinTimeout for the file of cluster.join_file, up
// to JoinTimeout for the cluster that it joins, and for free space on a full disk; it does not wait for a leader. The caller must call Run, and
// Close after Run. Open returns ErrRebuild if the copy of the state is damaged; the next Open
// rebuilds it. It returns ErrRemoved if the node was removed from its cluster and the settings
// have no ticket to join again.
func Open(ctx context.Context, opts Options) (n *Node, err error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	providers, err := openProviders(opts.Config, opts.Now)
	if err != nil {
		return nil, err
	}
	n = &Node{opts: opts, logger: foldLines(opts.Logger), folder: folder{opts.Config.Data}, watch: new(state.Watch), providers: providers}
	defer func() {
		if err != nil {
			err = errors.Join(n.condemn(err), n.Close())
			n = nil
		}
	}()
	if err := n.openFolder(); err != nil {
		return n, err
	}
	if err := n.setAsideCondemned(); err != nil {
		return n, err
	}
	if err := n.readJoinFile(ctx); err != nil {
		return n, err
	}
	if err := n.leaveBehind(ctx); err != nil {
		return n, err
	}
	if err := n.openStorage(ctx); err != nil {
		return n, err
	}
	if err := n.checkFolder(); err != nil {
		return n, err
	}
	gate := new(gate)
	if err := n.openPeer(ctx, gate); err != nil {
		return n, err
	}
	secret, known, err := n.enter(ctx)
	if err != nil {
		return n, err
	}
	if err := n.checkAlone(ctx, secret, known); err != nil {
		return n, err
	}
	if err := n.openReplica(known); err != nil {
		return n, err
	}
	n.known, n.clusterID, n.secret = known, known.ClusterID, secret
	if err := n.openUseCases(secret, known, gate); err != nil {
		return n, err
	}
	return n, n.checkSecret()
}

// StoreMemory returns the memory in bytes that the ordered store of the state holds.
func (n *Node) StoreMemory() uint64 { return n.store.MemoryBytes() }

func (n *Node) openFolder() error {
	if err := durable.MkdirAll(n.folder.path, 0o700); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	lock, err := durable.Lock(n.folder.file(lockFile))
	if err != nil {
		return fmt.Errorf("data folder %s: %w", n.folder.path, err)
	}
	n.closers = append(n.closers, lock)
	if err := n.folder.checkFormat(); err != nil {
		return err
	}
	if _, err := os.Stat(n.folder.file(restoringFile)); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("a restore into %s was interrupted: repeat it with holdfast restore", n.folder.path))
	}
	n.folder.narrow(n.opts.Logger)
	return nil
}

func (n *Node) openStorage(ctx context.Context) error {
	err := n.openVolumes()
	if err != nil {
		return fmt.Errorf("watch disks: %w", err)
	}
	// A full disk is waited for, but not after the end.
	stop := context.AfterFunc(ctx, func() { _ = n.volumes.Close() })
	defer stop()
	c := n.opts.Config.Storage
	// Both can be opened again over a copy that was set aside, see openReplica.
	if err := n.openStore(); err != nil {
		return err
	}
	n.closers = append(n.closers, closerFunc(func() error { return n.store.Close() }))
	if err := n.openLog(); err != nil {
		return err
	}
	n.closers = append(n.closers, closerFunc(func() error { return n.log.Close() }))
	n.blocks, err = blocks.Open(n.folder.file(blocksDir), blocks.Options{
		SegmentBytes: segmentBytes(uint64(c.SegmentSize), n.reserveFor(blocksDir)), Logger: n.logger, Room: n.roomForBlocks, Full: func() { n.volumes.Full(blocksDir) },
		CompactEvery: n.opts.CollectEvery,
	})
	if err != nil {
		return fmt.Errorf("open blocks: %w", err)
	}
	n.closers = append(n.closers, n.blocks)
	if n.nodeMeta, err = nodemeta.Open(n.folder.file(nodeMetaFile), n.logger); err != nil {
		return fmt.Errorf("open node-local metadata: %w", err)
	}
	n.closers = append(n.closers, n.nodeMeta)
	if n.settled, err = nodemeta.Open(n.folder.file(settledFile), n.logger); err != nil {
		return fmt.Errorf("open settlements: %w", err)
	}
	n.closers = append(n.closers, n.settled)
	return nil
}

func (n *Node) storeOptions() kv.Options {
	return kv.Options{
		Logger: n.logger, CacheBytes: int64(n.opts.Config.Storage.Cache), Full: func() { n.volumes.Full(stateDir) },
		Sparse: &kv.Sparse{Is: state.Sparse, After: state.SparseAfter}, Passing: state.Passing,
	}
}

// closerFunc is a function as an io.Closer.
type closerFunc func() error

// Close implements io.Closer.
func (f closerFunc) Close() error { return f() }

func (n *Node) openPeer(ctx context.Context, gate *gate) error {
	key, err := n.folder.identity()
	if err != nil {
		return err
	}
	c := n.opts.Config.Peer
	waiting, err := n.folder.waiting()
	if err != nil {
		n.logger.WarnContext(ctx, "the queue of announcements is lost: this node announces some content hours later", "err", err)
	}
	stores := datastore.Open(n.folder.file(datastoreDir), datastore.Options{
		Logger: n.logger, Full: func() { n.volumes.Full(datastoreDir) },
		Tight: func() bool { return n.volumes.Level(datastoreDir) == volume.Tight },
	})
	n.closers = append(n.closers, stores)
	n.peer, err = peer.Open(ctx, peer.Options{
		Key:                 key,
		Listen:              c.Listen,
		ClusterListen:       c.ClusterListen,
		ClusterAnnounce:     c.ClusterAnnounce,
		Announce:            c.Announce,
		Bootstrap:           c.Bootstrap,
		Routing:             c.Routing,
		Members:             gate.member,
		Joiners:             gate.joiner,
		Refused:             gate.whyNot,
		Told:                gate.refused,
		Blocks:              n.blocks.Blockstore(),
		AllowBlock:          n.maySee(gate),
		Roots:               n.heldRoots,
		Waiting:             waiting,
		Datastores:          stores,
		ServeRate:           int64(c.ServeRate),
		AllowPrivateOrigins: c.AllowPrivateOrigins,
		HostOptions:         n.opts.HostOptions,
		ClusterOptions:      n.opts.ClusterOptions,
		Registerer:          n.opts.Registerer,
		Logger:              n.logger,
	})
	var taken *peer.ListenError
	if errors.As(err, &taken) {
		flag := "--listen"
		if taken.Cluster {
			flag = "--cluster-listen"
		}
		return fmt.Errorf("%s %s: %w", flag, taken.Addr, taken.Err)
	}
	if err != nil {
		return fmt.Errorf("open peer: %w", err)
	}
	n.closers = append(n.closers, n.peer)
	name := n.opts.Config.Node.Name
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return fmt.Errorf("name of the host: %w", err)
		}
	}
	n.self = state.Node{
		ID: state.NodeID(n.peer.ID()), Name: name, Version: n.opts.Version,
		Addrs: n.peer.Addrs(), ClusterAddrs: n.peer.ClusterAddrs(), Joined: state.MillisOf(n.opts.Now()),
		FeatureLevel: state.NewestFeatureLevel,
	}
	return nil
}

func (n *Node) openConsensus(known *seed) error {
	snapshots, err := raftlog.OpenSnapshots(n.folder.file(raftDir), snapshotsKept, n.logger)
	if err != nil {
		return fmt.Errorf("open snapshots: %w", err)
	}
	var log consensus.Log = n.log
	if n.opts.RaftLog != nil {
		log = n.opts.RaftLog(log)
	}
	var store consensus.Store = ordered{n.store}
	if n.opts.StateStore != nil {
		store = n.opts.StateStore(store)
	}
	var network consensus.Network = n.peer
	if n.opts.RaftNetwork != nil {
		network = n.opts.RaftNetwork(network)
	}
	n.consensus, err = consensus.Open(consensus.Options{
		ID:            n.self.ID,
		Store:         store,
		Log:           log,
		Stable:        n.log,
		Snapshots:     snapshots,
		CheckpointDir: n.folder.file(raftDir, "checkpoints"),
		Network:       network,
		Watch:         n.watch,
		Timings:       n.timings(),
		Logger:        n.logger,
		Registerer:    n.opts.Registerer,
		NoSpace:       refusedByFullDisk,
		Eligibility:   n.eligibility,
		Tight:         n.tightElsewhere,
		Gone:          n.gone,
		Refused:       peer.Refused,
	})
	if err != nil {
		return fmt.Errorf("open consensus: %w", err)
	}
	n.closers = append(n.closers, n.consensus)
	if known.Founder && !n.consensus.HasState() {
		if err := n.consensus.Bootstrap(); err != nil {
			return fmt.Errorf("found cluster: %w", err)
		}
	}
	n.self.Store, n.self.Votes = n.consensus.Store()
	return nil
}

// timings returns the timings in the options. The settings replace the check interval and the
// heartbeat if they are zero in the options.
func (n *Node) timings() consensus.Timings {
	t := n.opts.Timings
	t.Check = cmp.Or(t.Check, n.opts.Config.Storage.StateCheck)
	t.Heartbeat = cmp.Or(t.Heartbeat, time.Duration(n.opts.Config.Cluster.Heartbeat))
	t.Adaptive = t.Adaptive || t.Heartbeat == 0
	return t
}

func (n *Node) openUseCases(secret []byte, known *seed, gate *gate) error {
	topic, err := n.peer.Topic(gossipTopic, gossip.NewGate(time.Now).Accept)
	if err != nil {
		return fmt.Errorf("join gossip: %w", err)
	}
	n.audit = audit.New(audit.Options{State: n.consensus, Now: n.opts.Now, Agreed: n.agreed, Logger: n.opts.Logger})
	charges := n.opts.Config.Credits
	n.ledger = credits.New(credits.Options{
		State: n.consensus, Now: n.opts.Now, Agreed: n.agreed, Logger: n.opts.Logger, Grace: charges.Grace, Period: charges.Period,
		Rate: uint64(max(0, charges.GBMonth)), Requests: uint64(max(0, charges.MillionRequests)), //nolint:gosec // not negative
	})
	n.members, err = members.New(members.Options{
		Self: n.self, Own: n.own, State: n.consensus, Gossip: n, Secret: secret,
		JoinID: joinID, Seed: known.nodes(), Fits: n.secretFits, Now: n.opts.Now, Agreed: n.agreed, Logger: n.logger,
		GoneAfter: n.opts.Config.Repair.After,
		Refused:   func(joiner, why string) { n.audit.RefusedJoin("", "peer "+joiner+": "+why, 1) },
	})
	if err != nil {
		return err
	}
	gate.open(n.members, n.audit)
	var samples gossip.Topic = topic
	if n.opts.GossipTopic != nil {
		samples = n.opts.GossipTopic(samples)
	}
	n.gossip = gossip.New(gossip.Options{
		Self: n.self.ID, Topic: samples, Measure: n.measure, Members: n.memberIDs, Now: n.opts.Now, Logger: n.logger,
	})
	n.neighbours = &Neighbours{self: n.self.ID, heard: n.gossip.Table().All, hurry: n.gossip.Hurry, leader: n.consensus.Leader}
	n.heard.Store(n.gossip.Table())
	n.alive = &liveness{
		heard: n.gossip.Table().DownSince, connected: n.peer.Connected, now: time.Now, last: map[state.NodeID]time.Time{},
	}
	n.progress = &progress{
		self: n.self.ID, dial: n.peer.Dial, now: n.opts.Now, down: n.down, kept: cache.New[state.RootKey, said](maxProgressKept),
		look: func(ctx context.Context, k state.RootKey) (tracker.Seen, bool) { return n.tracker.Look(ctx, k) },
	}
	var pinState pins.State = n.consensus
	if n.opts.PinState != nil {
		pinState = n.opts.PinState(pinState)
	}
	n.pins = pins.New(pins.Options{State: pinState, Nodes: n, Live: n.progress, Refused: n.peer.WhyRefused, Watch: n.watch, Now: n.opts.Now, Agreed: n.agreed, Logger: n.logger, Processors: n.opts.Processors})
	session := n.opts.Config.Session
	n.accounts = accounts.New(accounts.Options{
		State: n.consensus, Node: n.self.ID, Secret: secret, Allowance: uint64(n.opts.Config.Accounts.Allowance), Now: n.opts.Now, Logger: n.opts.Logger, // lines about who changed something are never left out
		Watch: n.watch, Agreed: n.agreed, SessionIdle: session.Idle, SessionLife: session.Lifetime, Tries: session.Tries,
		SignUp: accounts.SignUp(n.opts.Config.Console.SignUp), Refused: n.audit.RefusedSignIn,
	})
	leases := tracker.NewLeases()
	n.files = &files{
		buffers: dag.NewBuffers(maxAhead), peer: n.peer, blocks: n.blocks, members: n.members.Nodes, down: n.down, now: n.opts.Now,
		reading: leases.Read, walks: dag.NewWalks(),
		visible: &visibility{dial: n.peer.Dial, others: n.others, shows: n.blocks.Visible, finding: make(chan struct{}, maxFinding)},
	}
	n.content = content.New(content.Options{
		State: n.consensus, Store: n.files,
		NewID: uuid.NewString, Now: n.opts.Now, Logger: n.logger,
	})
	n.uploads = uploads.New(n.consensus, n.content, n.pins)
	if known.Founder {
		if n.founder, err = n.founding(known.ClusterID, secret); err != nil {
			return err
		}
	}
	if err := n.openTracker(leases); err != nil {
		return err
	}
	n.openUpkeep()
	gateway := n.opts.Config.S3
	n.objects = objects.New(objects.Options{
		Self: n.self.ID, State: n.consensus, Watch: n.watch, Nodes: n, Content: intake{n.ingest}, Files: n.files,
		MinPart: uint64(gateway.MinPart), UploadAge: gateway.UploadAge, HashRate: uint64(gateway.HashRate),
		Now: n.opts.Now, Agreed: n.agreed, Logger: n.logger,
	})
	sold, err := n.facilitator()
	if err != nil {
		return err
	}
	n.payments = payments.New(payments.Options{
		Self: n.self.ID, State: n.consensus, Objects: n.objects, Pinner: n.pins, Facilitator: sold, Journal: n.settled,
		Now: n.opts.Now, Agreed: n.agreed, Logger: n.logger,
	})
	return n.registerMetrics()
}

// openTracker creates the parts that keep the content on this node as the state wants it: the
// scrubber, the tracker, the reconciler, the repairer and the ingest.
func (n *Node) openTracker(leases *tracker.Leases) error {
	c := n.opts.Config
	var err error
	n.scrubber, err = integrity.New(integrity.Options{
		Store: scrubbed{n.blocks}, Repairs: n, Cycle: c.Storage.ScrubCycle, Now: n.opts.Now,
		Logger: n.logger, Registerer: n.opts.Registerer,
	})
	if err != nil {
		return fmt.Errorf("open scrubber: %w", err)
	}
	buffer := dag.NewBuffer(fetchBuffer)
	n.tracker, err = tracker.New(tracker.Options{
		Self: n.self.ID, State: n.consensus, Watch: n.watch, Blocks: held{n.blocks, n.scrubber, n.peer, n.hidden},
		Fetcher: &fetcher{
			peer: n.peer, store: sealing{n.blocks, n.scrubber, n.hidden}, limits: fetchLimits(c.Tracker), buffer: buffer,
		},
		Limits: tracker.Limits{
			Moving: c.Tracker.Concurrency, Account: c.Tracker.PerAccount, Attempts: c.Tracker.Attempts, Backoff: c.Tracker.Backoff,
			Patience: c.Tracker.IdleTimeout, Audit: n.opts.CollectEvery,
		},
		NodeMeta:    n.nodeMeta,
		LeasePrefix: content.LeasePrefix,
		Leases:      leases,
		Down:        n.down,
		Moves:       n.moves,
		Now:         n.opts.Now, Logger: n.logger, Registerer: n.opts.Registerer,
	})
	if err != nil {
		return fmt.Errorf("open tracker: %w", err)
	}
	n.reconciler = &tracker.Reconciler{Self: n.self.ID, State: n.consensus, Watch: n.watch, Logger: n.logger}
	n.repairer = &tracker.Repairer{
		Self: n.self.ID, State: n.consensus, Watch: n.watch, DownSince: n.alive.downSince, Full: n.takesNothing, Place: n.place,
		After: c.Repair.After, Every: min(tracker.DefaultRepairEvery, max(c.Repair.After, time.Second)), Logger: n.logger,
	}
	if err := n.tracker.DropLeases(context.Background()); err != nil {
		return err
	}
	if err := n.scrubber.Load(context.Background()); err != nil { // before the tracker believes a seal
		return err
	}
	return n.openIngest(leases, buffer)
}

// joinID returns the peer id of the key that is derived from secret. Nodes join with this id.
func joinID(secret []byte) (string, error) {
	_, id, err := peer.JoinKey(secret)
	return id, err
}

// founding returns the command that founds a cluster with this node as its first member.
func (n *Node) founding(clusterID string, secret []byte) (*state.InitCluster, error) {
	sealed, err := accounts.NewSigningKey(secret)
	if err != nil {
		return nil, err
	}
	now := state.MillisOf(n.opts.Now())
	c := n.opts.Config.Cluster
	operator := state.Account{ID: state.AccountID(uuid.NewString()), Email: operatorEmail, Created: now}
	return &state.InitCluster{
		Cluster: state.Cluster{
			ID: clusterID, Created: now, Operator: operator.ID, SealedSigningKey: sealed,
			Replication: uint8(c.Replication), WriteCopies: uint8(min(c.WriteCopies, c.Replication)),
		},
		Node:     n.self,
		Operator: operator,
	}, nil
}

// operatorEmail is the e-mail address of the operator account, for which the commands on the
// machine of a node act.
const operatorEmail = "operator@localhost"

// Close closes all parts in the reverse order of Open. consensus hands over its leadership while
// the network still works.
func (n *Node) Close() error {
	var errs []error
	if n.volumes != nil { // first: what waits for room has to end
		errs = append(errs, n.volumes.Close())
	}
	errs = append(errs, closeAll(&n.closers))
	flush(n.logger)
	return errors.Join(errs...)
}
