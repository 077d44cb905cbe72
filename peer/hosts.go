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

	// Bounds of the cluster host. Its gater admits only members, so one member may use the
	// whole host. The limits in unknown.go bound handshakes.
	clusterMaxConns         = 512
	clusterMaxStreams       = 32 << 10
	clusterMaxMemory        = 1 << 30
	clusterTransientConns   = 128
	clusterTransientStreams = 4 << 10
	clusterTransientMemory  = 128 << 20
	clusterConnsPerAddress  = 64
	clusterDialTimeout      = 5 * time.Second
	clusterKeepAlive        = 5 * time.Second // interval; a silent peer is detected after two
	clusterWriteTimeout     = 10 * time.Second
	publicLowWater          = 160
	publicHighWater         = 192
	publicGrace             = time.Minute
	publicMaxConns          = 512 // inbound and outbound connections
	publicMaxInbound        = 192
	publicMaxStreams        = 4 << 10
	publicMaxMemory         = 512 << 20
	publicTransientConns    = 128
	publicTransientStreams  = 512
	publicTransientMemory   = 64 << 20
	publicPeerConns         = 8
	publicPeerStreams       = 512
	publicPeerInbound       = 32 // inbound streams of one peer, also of one that this node dialled
	publicPeerMemory        = 128 << 20
	publicConnsPerAddress   = 64
	publicDialTimeout       = 10 * time.Second
	clusterAcceptBacklog    = 1024
	clusterStreamWindow     = 16 << 20
	clusterWindowAtFirst    = 1 << 20
	// clusterMessage is the largest size of a yamux message in bytes. An object of 64 KiB fits into
	// one message. Larger messages would take more memory in the queue.
	clusterMessage           = 72 << 10
	clusterConnectionsFDPart = 2048
)

// newClusterHost returns a host over TCP, TLS 1.3 and yamux, which need the least processor
// time for each byte. It does not listen yet.
func newClusterHost(key crypto.PrivKey, gater memberGater, limits network.ResourceManager, extra []libp2p.Option) (host.Host, error) {
	return libp2p.New(append([]libp2p.Option{
		libp2p.Identity(key),
		libp2p.UserAgent(userAgent),
		libp2p.NoListenAddrs,
		// With reuseport, two members that dial each other at the same moment would open
		// one TCP connection from both ends, and both would act as TLS client.
		libp2p.Transport(tcp.NewTCPTransport, tcp.DisableReuseport()),
		libp2p.Security(libp2ptls.ID, newWholeTLS),
		libp2p.Muxer(yamux.ID, newQueuedMux()),
		libp2p.ConnectionGater(gater),
		libp2p.ResourceManager(limits),
		libp2p.ConnectionManager(coreconnmgr.NullConnMgr{}), // connections of members are never trimmed
		libp2p.DisableRelay(),
		libp2p.DisableIdentifyAddressDiscovery(),
		libp2p.Ping(false),
		libp2p.DisableMetrics(),
		libp2p.WithDialTimeout(clusterDialTimeout),
	}, extra...)...)
}

// whole returns resource limits of libp2p in which inbound use alone, or outbound use alone, may
// reach the limit for both together.
func whole(conns, streams rcmgr.LimitVal, memory rcmgr.LimitVal64, files rcmgr.LimitVal) rcmgr.ResourceLimits {
	return rcmgr.ResourceLimits{
		Conns: conns, ConnsInbound: conns, ConnsOutbound: conns,
		Streams: streams, StreamsInbound: streams, StreamsOutbound: streams,
		FD: files, Memory: memory,
	}
}

// clusterLimits removes the limits for each peer and protocol, which would refuse the 76th
// stream of a member, and keeps those of the whole host.
func clusterLimits() (network.ResourceManager, error) {
	return newLimits(rcmgr.PartialLimitConfig{
		System:    whole(clusterMaxConns, clusterMaxStreams, clusterMaxMemory, clusterConnectionsFDPart),
		Transient: whole(clusterTransientConns, clusterTransientStreams, clusterTransientMemory, clusterConnectionsFDPart),
	}, clusterConnsPerAddress)
}

// publicLimits returns the same limits on every machine. Those of libp2p grow with the
// memory of the machine, so a flood could take that memory from the cluster.
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

// newLimits returns a resource manager with these limits only. It switches off libp2p's
// connection rate, because that also counts outbound dials: a member that was down for a
// minute would then be dialled only every five seconds. unknown.go limits inbound
// connections instead. It also switches off the metrics, because they record every change
// of every scope. Under an overload of unknown peers they took 10 % of the processor time
// and produced most of the garbage.
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

// newPublicHost returns a host over TCP, QUIC and WebSocket. It does not listen yet.
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

// ListenError names the address on which a host could not listen.
type ListenError struct {
	Cluster bool   // true for the cluster host, false for the public host
	Addr    string // multiaddr
	Err     error
}

func (e *ListenError) Error() string { return fmt.Sprintf("listen on %s: %v", e.Addr, e.Err) }

// Unwrap returns the cause.
func (e *ListenError) Unwrap() error { return e.Err }

// listen makes h listen on all addresses. On an error, the caller must close h.
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

// checkFree returns syscall.EADDRINUSE if another process listens on the port of a, also on
// an overlapping address. libp2p does not detect that for TCP: it sets SO_REUSEPORT, so
// that the public host dials from its listen port and other peers learn the address behind
// a NAT. For UDP libp2p has an error text of its own. checkFree returns nil on any other
// error, which the real listener then reports.
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

// listenAddrs returns the listen addresses of h, with wildcards replaced by interface
// addresses.
func listenAddrs(h host.Host) []ma.Multiaddr {
	addrs, err := h.Network().InterfaceListenAddresses()
	if err != nil {
		addrs = h.Network().ListenAddresses()
	}
	return addrs
}

// ranked sorts public addresses first and loopback addresses last. Addresses of one kind
// keep the order of the interfaces. Transports and IP versions are sorted, because libp2p
// lists them in random order.
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

// atMost cuts the list of addresses to maxMemberAddrs, because members reject a record with
// more.
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

// withID appends /p2p/<id> to each address and removes repetitions.
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
