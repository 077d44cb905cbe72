// Package peer is the embedded IPFS peer of a node: one identity and two libp2p hosts. The cluster
// host is for the traffic between members (streams as net.Conn, gossip, blocks); its connection
// gate and its stream handlers admit members only. The public host is for the IPFS network:
// bitswap, identify and routing. An overload of one host does not affect the other.
//
// Imports: libp2p, boxo's bitswap, peer/*, go-log and zap for their logs. Within the program, only
// this package imports libp2p.
// Never:   imports of consensus, storage, config, cluster or api; access to files; global state,
// except the loggers that LibraryLogs sets.
package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ipfs/boxo/bitswap"
	bsclient "github.com/ipfs/boxo/bitswap/client"
	"github.com/ipfs/boxo/bitswap/network/bsnet"
	"github.com/ipfs/boxo/bitswap/server"
	"github.com/ipfs/boxo/blockstore"
	"github.com/ipfs/go-cid"
	"github.com/ipfs/go-datastore"
	"github.com/libp2p/go-libp2p"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/routing"
	ma "github.com/multiformats/go-multiaddr"
	mh "github.com/multiformats/go-multihash"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/peer/dag"
)

// Values of Options.Routing.
const (
	RoutingOff    = "off"    // no routing: blocks come from origins and connected peers only
	RoutingLAN    = "lan"    // the DHT of a private network, with the operator's bootstrap peers
	RoutingPublic = "public" // the DHT of the public IPFS network
)

// Bounds of bitswap. boxo never sends a message of more than 4 MiB, so the target size is
// well below that.
const (
	bitswapMessageTarget   = 512 << 10
	bitswapOutstandingPeer = 8 << 20
	bitswapSendWorkers     = 16
	bitswapReadWorkers     = 16 // workers that read blocks for peers
)

// HostOption is an option of a libp2p host. Packages that must not import libp2p
// use this name.
type HostOption = libp2p.Option

// Options are the dependencies and settings of a Peer. Key, Members and Blocks are
// required.
type Options struct {
	// Key is the node's private key as NewKey returns it.
	Key []byte

	Listen        []string // multiaddrs of the public host
	ClusterListen []string // multiaddrs of the cluster host, TCP only
	// ClusterAnnounce has the addresses of the cluster host that members are told instead of the
	// listen addresses; empty: the listen addresses.
	ClusterAnnounce []string
	Announce        []string // addresses that are announced to the IPFS network instead of the listen addresses
	Bootstrap       []string // IPFS bootstrap peers with /p2p/; empty: the well-known ones if Routing is public
	Routing         string   // off, lan or public; empty means off

	// Members returns whether a peer id is a member of the cluster. It is called on every
	// connection and stream, from many goroutines, and the answer may change at any time.
	// It must not block.
	Members func(id string) bool
	// Joiners returns whether JoinKey derives this peer id from a secret that is valid now.
	// Nil: no node can join through this one.
	Joiners func(id string) bool
	// Refused returns, for the log, why a peer id is neither a member nor joining. If it is
	// nil or returns "", nothing is logged.
	Refused func(id string) string
	// Told is called with each log line about refused peers: with the IP address of the newest
	// refused peer, the reason, and the number of peers that were refused since the last line. It
	// must not block. It may be nil.
	Told func(addr, why string, refused int)

	Blocks blockstore.Blockstore // the blocks to serve; only read
	// AllowBlock returns whether bitswap may serve c to a peer; nil allows all.
	AllowBlock func(peerID string, c cid.Cid) bool
	// Roots calls fn with every root to announce in each cycle, until fn returns false. It
	// returns an error if it could not read all of them. Nil: nothing is announced in
	// cycles.
	Roots func(fn func(cid.Cid) bool) error
	// Waiting are the roots that Peer.Waiting returned at the last stop. They are announced first,
	// if Roots still has them.
	Waiting []mh.Multihash

	// Datastores stores the data of routing. It is required unless routing is off.
	Datastores Datastores

	// ServeRate limits what bitswap serves to all unknown peers together, in bytes per
	// second; 0 means DefaultServeRate. Members and peers that this node dialled are not
	// limited.
	ServeRate int64

	AllowPrivateOrigins bool         // allow origins at addresses that are not public
	HostOptions         []HostOption // appended to the options of both hosts, for tests
	ClusterOptions      []HostOption // appended to the options of the cluster host, for tests
	Registerer          prometheus.Registerer
	Logger              *slog.Logger // nil: no log
}

// Peer connects one node to the members of its cluster and to the IPFS network.
type Peer struct {
	// The following fields are set once by Open.
	opts      Options
	log       *slog.Logger
	id        libp2ppeer.ID
	cluster   host.Host
	public    host.Host
	gate      *publicGater
	bitswap   *bitswap.Bitswap
	serve     *server.Server // the bitswap server for unknown peers
	dht       *dht.IpfsDHT   // dht, main and records are nil if routing is off
	main      datastore.Batching
	records   *records
	rejoin    rejoin
	gossip    *gossipKeeper
	pool      *streamPool
	serving   *places     // places for block requests of members
	buffers   dag.Buffers // memory for blocks that are sent to members
	provide   *provideQueue
	providing providing
	origins   origins
	names     names
	dials     *dials        // the dials of origins
	redial    chan struct{} // makes the loop that connects members run at once
	metrics   metrics
	refusals  refusals
	boot      []libp2ppeer.AddrInfo

	// The following fields count the inbound connections of each host.
	unknownClusterPeers *unknownPeers
	unknownPeers        *unknownPeers
	bitswapHost         *bitswapHost

	sessionEnd atomic.Int64 // Unix time in ns at which a bitswap session last ended

	// stop ends all goroutines that Close waits for.
	ctx     context.Context
	stop    context.CancelFunc
	streams admission
	closing sync.Once

	// placing is held while the addresses of a member are passed to the cluster host, so that an
	// older list never replaces a newer one.
	placing sync.Mutex

	// mu guards members, told and addrHints. It is never held while calling out.
	mu        sync.Mutex
	members   map[libp2ppeer.ID][]ma.Multiaddr // addresses from SetMember
	told      map[libp2ppeer.ID][]string       // the last arguments of SetMember; nil: none of them was valid
	addrHints map[libp2ppeer.ID][]ma.Multiaddr // addresses from AddrHint
}

// Open creates both hosts, listens, and answers other peers from then on. The loops that
// dial start with Run. ctx bounds Open only. If an address cannot be listened on, the error
// is a *ListenError.
func Open(ctx context.Context, opts Options) (*Peer, error) {
	p, key, err := newPeer(opts)
	if err != nil {
		return nil, err
	}
	if err := p.openCluster(key); err != nil {
		p.Close()
		return nil, fmt.Errorf("peer: cluster host: %w", err)
	}
	if err := p.openPublic(key); err != nil {
		p.Close()
		return nil, fmt.Errorf("peer: public host: %w", err)
	}
	if err := ctx.Err(); err != nil {
		p.Close()
		return nil, fmt.Errorf("peer: open: %w", err)
	}
	return p, nil
}

func newPeer(opts Options) (*Peer, crypto.PrivKey, error) {
	if opts.Members == nil || opts.Blocks == nil {
		return nil, nil, errors.New("peer: options need Members and Blocks")
	}
	if opts.Joiners == nil {
		opts.Joiners = func(string) bool { return false }
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	switch opts.Routing {
	case "":
		opts.Routing = RoutingOff
	case RoutingOff, RoutingLAN, RoutingPublic:
	default:
		return nil, nil, fmt.Errorf("peer: routing %q is none of off, lan, public", opts.Routing)
	}
	key, id, err := parseKey(opts.Key)
	if err != nil {
		return nil, nil, err
	}
	boot, err := bootstrapPeers(opts)
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Peer{
		opts:      opts,
		log:       opts.Logger,
		id:        id,
		serving:   newPlaces(maxServedRequests),
		provide:   newProvideQueue(),
		origins:   newOrigins(opts.AllowPrivateOrigins),
		names:     newNames(net.DefaultResolver.LookupNetIP),
		dials:     newDials(),
		redial:    make(chan struct{}, 1),
		members:   make(map[libp2ppeer.ID][]ma.Multiaddr),
		told:      make(map[libp2ppeer.ID][]string),
		addrHints: make(map[libp2ppeer.ID][]ma.Multiaddr),
		boot:      boot,
		ctx:       ctx,
		stop:      stop,
	}
	p.providing.waiting = opts.Waiting // if this start announces nothing, the next one has them
	p.pool = newStreamPool(p.openBlocks)
	var more []prometheus.Collector
	if opts.Routing != RoutingOff {
		more = p.providing.collectors()
	}
	if err := p.metrics.register(opts.Registerer, more); err != nil {
		stop()
		return nil, nil, err
	}
	return p, key, nil
}

// openCluster creates the cluster host.
func (p *Peer) openCluster(key crypto.PrivKey) error {
	limits, err := clusterLimits()
	if err != nil {
		return err
	}
	p.unknownClusterPeers = newUnknownPeers(limits, p.isMember, p.metrics.refused.WithLabelValues("cluster").Inc)
	h, err := newClusterHost(key, memberGater{p}, p.unknownClusterPeers, slices.Concat(p.opts.HostOptions, p.opts.ClusterOptions))
	if err != nil {
		return err
	}
	p.cluster = h
	// From here on admit handles every inbound stream, whichever package registered the
	// handler.
	h.Network().SetStreamHandler(p.admit)
	h.SetStreamHandler(blocksProtocol, p.serveBlocks)
	if p.gossip, err = newGossipKeeper(p.ctx, h, p.isMember, func(n int) { p.metrics.gossipDropped.Add(float64(n)) }, p.log); err != nil {
		return fmt.Errorf("pubsub: %w", err)
	}
	err = listen(h, p.opts.ClusterListen)
	var taken *ListenError
	if errors.As(err, &taken) {
		taken.Cluster = true
	}
	return err
}

// openPublic creates the public host.
func (p *Peer) openPublic(key crypto.PrivKey) error {
	announce, err := parseAddrs(p.opts.Announce)
	if err != nil {
		return err
	}
	p.gate = newPublicGater(p.opts.AllowPrivateOrigins, p.opts.Routing == RoutingLAN, p.boot)
	limits, err := publicLimits()
	if err != nil {
		return err
	}
	trusted := func(id libp2ppeer.ID) bool { return p.gate.isNamed(id) || p.isMember(id) }
	p.unknownPeers = newUnknownPeers(limits, trusted, p.metrics.refused.WithLabelValues("public").Inc)
	p.unknownPeers.cut = p.cutUnknown
	h, err := newPublicHost(key, p.gate, p.unknownPeers, newMeteredMux(p.ctx, p.unknownPeers), announce, p.opts.Routing, p.opts.HostOptions)
	if err != nil {
		return err
	}
	p.public = h
	h.Network().SetStreamHandler(p.admitPublic(h))
	if p.opts.Routing != RoutingOff {
		if err := p.openDatastores(); err != nil {
			return fmt.Errorf("datastore: %w", err)
		}
		if p.dht, err = newDHT(h, p.opts.Routing, p.boot, p.records); err != nil {
			return fmt.Errorf("routing: %w", err)
		}
	}
	options := []bitswap.Option{
		bitswap.WithTargetMessageSize(bitswapMessageTarget),
		bitswap.MaxOutstandingBytesPerPeer(bitswapOutstandingPeer),
		bitswap.TaskWorkerCount(bitswapSendWorkers),
		bitswap.EngineBlockstoreWorkerCount(bitswapReadWorkers),
		bitswap.WithClientOption(bsclient.WithoutDuplicatedBlockStats()),
		bitswap.WithClientOption(bsclient.WithDontHaveTimeoutConfig(patience())),
	}
	var filter []server.Option
	if allow := p.opts.AllowBlock; allow != nil {
		filter = append(filter, server.WithPeerBlockRequestFilter(func(id libp2ppeer.ID, c cid.Cid) bool {
			return allow(id.String(), c)
		}))
		options = append(options, bitswap.WithServerOption(filter[0]))
	}
	// A nil *IpfsDHT in the interface would make an interface that is not nil.
	var providers routing.ContentDiscovery
	if p.dht != nil {
		providers = p.dht
	}
	p.bitswapHost = newBitswapHost(p.ctx, h, p.unknownPeers)
	net := bsnet.NewFromIpfsHost(p.bitswapHost)
	p.serve = newUnknownPeersServer(p.ctx, net, p, filter)
	split := &splitNetwork{BitSwapNetwork: net, unknownPeers: p.unknownPeers, server: p.serve}
	p.bitswap = bitswap.New(p.ctx, split, providers, sized{p.opts.Blocks}, options...)
	return listen(h, p.opts.Listen)
}

// patience returns how long bitswap waits for an answer before it assumes that the peer
// does not have the block. The default is twice the latency, at least 50 ms, and pauses of
// a process are often longer. Then bitswap would remove the only peer of a session and
// ignore its late answers, and the fetch would stand still until the next Renew.
func patience() *bsclient.DontHaveTimeoutConfig {
	conf := bsclient.DefaultDontHaveTimeoutConfig()
	conf.MinTimeout = conf.DontHaveTimeout // 5 s
	return conf
}

// Run connects members, announces roots, and closes idle streams until ctx ends. Then it
// returns nil.
func (p *Peer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	var g errgroup.Group
	g.Go(func() error { p.keepMembers(ctx); return nil })
	g.Go(func() error { p.sweepStreams(ctx); return nil })
	g.Go(func() error { return p.watchDuplicates(ctx) })
	if p.dht != nil {
		g.Go(func() error { p.keepRouting(ctx); return nil })
		g.Go(func() error { p.keepAddresses(ctx); return nil })
		g.Go(func() error { return p.announce(ctx) })
	}
	return g.Wait()
}

// Close closes both hosts and waits for all stream handlers. It may be called twice.
func (p *Peer) Close() error {
	var errs []error
	p.closing.Do(func() {
		p.stop()
		p.streams.close()
		p.pool.close()
		if p.bitswap != nil {
			errs = append(errs, p.bitswap.Close())
		}
		if p.serve != nil {
			p.serve.Close()
		}
		if p.dht != nil {
			errs = append(errs, p.dht.Close())
		}
		if p.public != nil {
			errs = append(errs, p.public.Close())
		}
		if p.gossip != nil {
			errs = append(errs, p.gossip.updates.Close())
		}
		if p.cluster != nil {
			errs = append(errs, p.cluster.Close())
		}
		p.streams.wait()
		errs = append(errs, p.closeDatastores()) // the public host used them until its end
		p.metrics.unregister(p.opts.Registerer)
	})
	return errors.Join(errs...)
}

// ID returns the peer id of the node.
func (p *Peer) ID() string { return p.id.String() }

// Addrs returns the addresses of the public host with /p2p/: the announced ones, or the
// listen addresses with the real ports and one for each interface. It returns at most
// maxMemberAddrs, the public ones first.
func (p *Peer) Addrs() []string {
	if len(p.opts.Announce) > 0 {
		announced, err := parseAddrs(p.opts.Announce)
		if err == nil {
			return atMost(withID(announced, p.id))
		}
	}
	return atMost(withID(ranked(listenAddrs(p.public)), p.id))
}

// ClusterAddrs returns the addresses of the cluster host with /p2p/, in the same way as
// Addrs.
func (p *Peer) ClusterAddrs() []string {
	if len(p.opts.ClusterAnnounce) > 0 {
		announced, err := parseAddrs(p.opts.ClusterAnnounce)
		if err == nil {
			return atMost(withID(announced, p.id))
		}
	}
	return atMost(withID(ranked(listenAddrs(p.cluster)), p.id))
}

// isMember returns whether id may use the cluster host. The node itself may, because its
// own gossip passes the same checks.
func (p *Peer) isMember(id libp2ppeer.ID) bool {
	return id == p.id || p.opts.Members(id.String())
}
