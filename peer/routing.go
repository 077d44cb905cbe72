package peer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/ipfs/go-datastore"
	dht "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p-kad-dht/amino"
	"github.com/libp2p/go-libp2p/core/host"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// lanExtension is the name that IPFS uses for the DHT of private networks.
	lanExtension = "/lan"

	// bootstrapEvery is the interval at which a node without routing peers dials some.
	bootstrapEvery   = 30 * time.Second
	bootstrapTimeout = 10 * time.Second
)

// newDHT returns a DHT that stores its records in store.
func newDHT(h host.Host, routing string, boot []libp2ppeer.AddrInfo, store datastore.Batching) (*dht.IpfsDHT, error) {
	options := []dht.Option{dht.BootstrapPeers(boot...), dht.Datastore(store)}
	switch routing {
	case RoutingLAN:
		// Every node of a private network is a DHT server. ModeAuto would wait for a public
		// address, and there is none.
		options = append(options, dht.Mode(dht.ModeServer), dht.ProtocolExtension(lanExtension))
	case RoutingPublic:
		options = append(options,
			dht.Mode(dht.ModeAuto),
			dht.QueryFilter(dht.PublicQueryFilter),
			dht.RoutingTableFilter(dht.PublicRoutingTableFilter),
			dht.RoutingTablePeerDiversityFilter(dht.NewRTPeerDiversityFilter(h, amino.DefaultMaxPeersPerIPGroupPerCpl, amino.DefaultMaxPeersPerIPGroup)),
			dht.AddressFilter(func(addrs []ma.Multiaddr) []ma.Multiaddr { return ma.FilterAddrs(addrs, manet.IsPublicAddr) }),
		)
	}
	return dht.New(h, options...)
}

// bootstrapPeers parses the configured bootstrap peers, or returns the well-known ones.
func bootstrapPeers(opts Options) ([]libp2ppeer.AddrInfo, error) {
	if len(opts.Bootstrap) == 0 {
		if opts.Routing == RoutingPublic {
			return dht.GetDefaultBootstrapPeerAddrInfos(), nil
		}
		return nil, nil
	}
	addrs, err := parseAddrs(opts.Bootstrap)
	if err != nil {
		return nil, fmt.Errorf("peer: bootstrap: %w", err)
	}
	infos, err := libp2ppeer.AddrInfosFromP2pAddrs(addrs...)
	if err != nil {
		return nil, fmt.Errorf("peer: bootstrap: %w", err)
	}
	return infos, nil
}

// keepRouting joins the DHT, and joins it again whenever the routing table is empty, until ctx
// ends. If there is no network, it tries again and again and returns no error.
func (p *Peer) keepRouting(ctx context.Context) {
	for {
		if p.dht.RoutingTable().Size() == 0 {
			p.connectRouting(ctx)
			if err := p.dht.Bootstrap(ctx); err != nil {
				p.log.DebugContext(ctx, "cannot join the DHT", "err", err)
			}
		}
		if !backoff.Wait(ctx, bootstrapEvery) {
			return
		}
	}
}

// connectRouting dials the bootstrap peers and some routing peers of the last start.
func (p *Peer) connectRouting(ctx context.Context) {
	known, err := p.rejoin.peers(ctx, maxRejoinDials)
	if err != nil {
		p.log.DebugContext(ctx, "addresses of routing peers not read", "err", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, info := range slices.Concat(p.boot, known) {
		if info.ID == p.id {
			continue
		}
		wg.Go(func() {
			dial, cancel := context.WithTimeout(ctx, bootstrapTimeout)
			defer cancel()
			endBackoff(p.public, info.ID)
			if err := p.public.Connect(dial, info); err != nil {
				p.log.DebugContext(ctx, "cannot reach a routing peer", "peer", info.ID.String(), "err", err)
			}
		})
	}
}
