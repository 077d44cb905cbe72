package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p"
	coreconnmgr "github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	quic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ws "github.com/libp2p/go-libp2p/p2p/transport/websocket"
	"github.com/libp2p/go-libp2p/x/rate"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	userAgent = "holdfast"

	// Bounds of the cluster host. Only members pass its gater, so one member
	// may use what the host has. unknown.go bounds what comes before the end
	// of a handshake.
	clusterMaxConns         = 512
	clusterMaxStreams       = 32 << 10
	clusterMaxMemory        = 1 << 30
	clusterTransientConns   = 128
	clusterTransientStreams = 4 << 10
	clusterTransientMemory  = 128 << 20
	clusterConnsPerAddress  = 64
	clusterDialTimeout      = 5 * time.Second
	clusterKeepAlive        = 5 * time.Second // a silent peer is noticed after two
	clusterWriteTimeout     = 10 * time.Second
	publicLowWater          = 160
	publicHighWater         = 192
	publicGrace             = time.Minute
	publicMaxConns          = 512 // inbound and outbound
	publicMaxInbound        = 192
	publicMaxStreams        = 4 << 10
	publicMaxMemory         = 512 << 20
	publicTransientConns    = 128
	publicTransientStreams  = 512
	publicTransientMemory   = 64 << 20
	publicPeerConns         = 8
	publicPeerStreams       = 512
	publicPeerInbound       = 32 // of any peer, also one that was dialled: origins are anybody's to name
	publicPeerMemory        = 128 << 20
	publicConnsPerAddress   = 64
	publicDialTimeout       = 10 * time.Second
	clusterAcceptBacklog    = 1024
	clusterStreamWindow     = 16 << 20
	clusterWindowAtFirst    = 1 << 20
	// clusterMessage lets an object of 64 KiB go in one message of its stream; messages
	// that wait are memory.
	clusterMessage           = 72 << 10
	clusterConnectionsFDPart = 2048
)

// newClusterHost builds a host over TCP, TLS 1.3 and yamux, the cheapest per
// byte, that does not listen yet.
func newClusterHost(key crypto.PrivKey, gater memberGater, limits network.ResourceManager, extra []libp2p.Option) (host.Host, error) {
	return libp2p.New(append([]libp2p.Option{
		libp2p.Identity(key),
		libp2p.UserAgent(userAgent),
		libp2p.NoListenAddrs,
		// Dialling from the listening port makes two members that dial each
		// other at the same moment open one TCP connection from both ends, and
		// both speak as TLS clients.
		libp2p.Transport(tcp.NewTCPTransport, tcp.DisableReuseport()),
		libp2p.Security(libp2ptls.ID, newWholeTLS),
		libp2p.Muxer(yamux.ID, newQueuedMux()),
		libp2p.ConnectionGater(gater),
		libp2p.ResourceManager(limits),
		libp2p.ConnectionManager(coreconnmgr.NullConnMgr{}), // members are never trimmed
		libp2p.DisableRelay(),
		libp2p.DisableIdentifyAddressDiscovery(),
		libp2p.Ping(false),
		libp2p.DisableMetrics(),
		libp2p.WithDialTimeout(clusterDialTimeout),
	}, extra...)...)
}

// whole is a limit of which inbound and outbound may each take all.
func whole(conns, streams rcmgr.LimitVal, memory rcmgr.LimitVal64, files rcmgr.LimitVal) rcmgr.ResourceLimits {
	return rcmgr.ResourceLimits{
		Conns: conns, ConnsInbound: conns, ConnsOutbound: conns,
		Streams: streams, StreamsInbound: streams, StreamsOutbound: streams,
		FD: files, Memory: memory,
	}
}

// clusterLimits lifts the limits per peer and per protocol, which would refuse
// the 76th stream of a member, and keeps those of the host as a whole.
func clusterLimits() (network.ResourceManager, error) {
	return newLimits(rcmgr.PartialLimitConfig{
		System:    whole(clusterMaxConns, clusterMaxStreams, clusterMaxMemory, clusterConnectionsFDPart),
		Transient: whole(clusterTransientConns, clusterTransientStreams, clusterTransientMemory, clusterConnectionsFDPart),
	}, clusterConnsPerAddress)
}

// publicLimits are the same on every machine; libp2p's own grow with its
// memory, up to what a flood could take from the cluster.
func publicLimits() (network.ResourceManager, error) {
	system := whole(publicMaxConns, publicMaxStreams, publicMaxMemory, publicMaxConns)
	system.ConnsInbound = publicMaxInbound
	peer := whole(publicPeerConns, publicPeerStreams, publicPeerMemory, publicPeerConns)
	peer.StreamsInbound = publicPeerInbound
	return newLimits(rcmgr.PartialLimitConfig{
		System:      system,
		Transient:   whole(publicTransientConns, publicTransientStreams, publicTransientMemory, publicTransientConns),
		PeerDefault: peer,
	}, publicConnsPerAddress)
}

// newLimits is a resource manager with no other limits than these. libp2p's own
// limit of arrivals is off: it counts what a node dials too, so that a member
// that was down for a minute would be dialled every five seconds from then on.
// unknown.go counts what comes in. Its metrics are off: they are kept by
// writing down every change of every scope, which in a storm of unknown peers was a
// tenth of the processor time and most of the garbage, and nobody reads them.
func newLimits(limits rcmgr.PartialLimitConfig, perAddress int) (network.ResourceManager, error) {
	per := func(bits int) []rcmgr.ConnLimitPerSubnet {
		return []rcmgr.ConnLimitPerSubnet{{PrefixLength: bits, ConnCount: perAddress}}
	}
	m, err := rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(limits.Build(rcmgr.InfiniteLimits)),
		rcmgr.WithLimitPerSubnet(per(32), per(64)), rcmgr.WithConnRateLimiters(new(rate.Limiter)),
		rcmgr.WithMetricsDisabled())
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	return m, nil
}

// newPublicHost builds a host over TCP, QUIC and WebSocket that does not listen
// yet.
func newPublicHost(key crypto.PrivKey, gater *publicGater, limits network.ResourceManager, mux network.Multiplexer, announce []ma.Multiaddr, routing string, extra []libp2p.Option) (host.Host, error) {
	trim, err := connmgr.NewConnManager(publicLowWater, publicHighWater, connmgr.WithGracePeriod(publicGrace))
	if err != nil {
		return nil, fmt.Errorf("connection manager: %w", err)
	}
	options := []libp2p.Option{
		libp2p.Identity(key),
		libp2p.UserAgent(userAgent),
		libp2p.NoListenAddrs,
		libp2p.Transport(tcp.NewTCPTransport),
		libp2p.Transport(quic.NewTransport),
		libp2p.Transport(ws.New),
		libp2p.Muxer(yamux.ID, mux),
		libp2p.ConnectionGater(gater),
		libp2p.ResourceManager(limits),
		libp2p.ConnectionManager(trim),
		libp2p.DisableRelay(),
		libp2p.DisableMetrics(),
		libp2p.WithDialTimeout(publicDialTimeout),
		libp2p.SwarmOpts(swarm.WithDialRanker(rankTCPFirst)),
	}
	if len(announce) > 0 {
		options = append(options, libp2p.AddrsFactory(func([]ma.Multiaddr) []ma.Multiaddr { return announce }))
	}
	if routing == RoutingPublic {
		options = append(options, libp2p.EnableAutoNATv2())
	}
	return libp2p.New(append(options, extra...)...)
}

// ListenError says which address a host could not listen on.
type ListenError struct {
	Cluster bool   // the cluster host's, not the public one's
	Addr    string // multiaddr
	Err     error
}

func (e *ListenError) Error() string { return fmt.Sprintf("listen on %s: %v", e.Addr, e.Err) }

// Unwrap returns the cause.
func (e *ListenError) Unwrap() error { return e.Err }

// listen makes h listen on every address. All or none: the caller closes h.
func listen(h host.Host, addrs []string) error {
	parsed, err := parseAddrs(addrs)
	if err != nil {
		return err
	}
	for _, a := range parsed {
		if err := checkFree(a); err != nil {
			return &ListenError{Addr: a.String(), Err: err}
		}
	}
	for _, a := range parsed {
		if err := h.Network().Listen(a); err != nil {
			return &ListenError{Addr: a.String(), Err: err}
		}
	}
	return nil
}

// checkFree returns syscall.EADDRINUSE when another process listens on the port of a,
// or on one that overlaps. Of TCP libp2p would not notice: it shares its ports with whoever
// shares too, so that the public host can dial from the port that it listens on,
// which is how others learn where it is reached behind a NAT. Of UDP it would tell in
// words of its own. Any other error is for the real listener to meet.
func checkFree(a ma.Multiaddr) error {
	network, addr, err := manet.DialArgs(a)
	if err != nil {
		return nil
	}
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "0" {
		return nil
	}
	var config net.ListenConfig
	var l io.Closer
	switch {
	case strings.HasPrefix(network, "tcp"):
		l, err = config.Listen(context.Background(), network, addr)
	case strings.HasPrefix(network, "udp"):
		l, err = config.ListenPacket(context.Background(), network, addr)
	default:
		return nil
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return syscall.EADDRINUSE
	}
	if err != nil {
		return nil
	}
	return l.Close()
}

// listenAddrs returns what h listens on, wildcards resolved to interfaces.
func listenAddrs(h host.Host) []ma.Multiaddr {
	addrs, err := h.Network().InterfaceListenAddresses()
	if err != nil {
		addrs = h.Network().ListenAddresses()
	}
	return addrs
}

// ranked puts public addresses first and those of this machine alone last. Of addresses of
// one kind it keeps the order of the interfaces, but not that of transports and of the
// versions of IP, which is another one each time.
func ranked(addrs []ma.Multiaddr) []ma.Multiaddr {
	rank := func(a ma.Multiaddr) int {
		switch {
		case manet.IsPublicAddr(a):
			return 0
		case manet.IsIPLoopback(a):
			return 2
		}
		return 1
	}
	slices.SortStableFunc(addrs, func(a, b ma.Multiaddr) int {
		firstA, behindA := ma.SplitFirst(a)
		firstB, behindB := ma.SplitFirst(b)
		return cmp.Or(cmp.Compare(rank(a), rank(b)), behindA.Compare(behindB), cmp.Compare(firstA.Protocol().Code, firstB.Protocol().Code))
	})
	return addrs
}

// atMost bounds what members are told: a machine may have an address for each of its
// networks, and a record with more than members keep would be refused.
func atMost(addrs []string) []string { return addrs[:min(len(addrs), maxMemberAddrs)] }

func parseAddrs(texts []string) ([]ma.Multiaddr, error) {
	out := make([]ma.Multiaddr, 0, len(texts))
	for _, t := range texts {
		a, err := ma.NewMultiaddr(t)
		if err != nil {
			return nil, fmt.Errorf("address %q: %w", t, err)
		}
		out = append(out, a)
	}
	return out, nil
}

// parseMemberAddr splits a multiaddr that ends in /p2p/<id>.
func parseMemberAddr(text string) (libp2ppeer.AddrInfo, error) {
	info, err := libp2ppeer.AddrInfoFromString(text)
	if err != nil {
		return libp2ppeer.AddrInfo{}, fmt.Errorf("address %q: %w", text, err)
	}
	if len(info.Addrs) == 0 {
		return libp2ppeer.AddrInfo{}, fmt.Errorf("address %q: %w", text, errors.New("only a peer id"))
	}
	return *info, nil
}

// withID renders addresses with /p2p/<id>, each once.
func withID(addrs []ma.Multiaddr, id libp2ppeer.ID) []string {
	out := make([]string, 0, len(addrs))
	for _, a := range addrs {
		bare, last := libp2ppeer.SplitAddr(a)
		if bare == nil || (last != "" && last != id) {
			continue
		}
		text := bare.String() + "/p2p/" + id.String()
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}
