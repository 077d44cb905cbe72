package peer

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/x/rate"
	ma "github.com/multiformats/go-multiaddr"
	timerate "golang.org/x/time/rate"
)

// Bounds of unknown peers on one host, for all of them and for each. An unknown peer
// connected by itself: it is no member, this node did not dial it, and no user named it as
// an origin. A handshake takes about 1 ms of processor time and an inbound stream up to 256
// KiB of memory. So unknown peers can use a few percent of a processor and 128 MiB on each
// host.
const (
	unknownArrivals      = 32.0 // new connections per second of all unknown peers together
	unknownArrivalsBurst = 32   // small, because many handshakes at once delay the requests of members
	addressArrivals      = 2.0  // new connections per second of one IPv4 address or IPv6 /56
	addressArrivalsBurst = 32
	addressGrace         = time.Minute // how long the limiter remembers an address
	addressConns         = 32          // open connections of one address
	unknownPending       = 32          // connections in the handshake; one address may have all of them
	unknownStreams       = 512         // inbound streams of all unknown peers together
	unknownStreamsEach   = 24          // inbound streams of one unknown peer
	unknownBytes         = 1 << 20     // bytes read per second from all unknown peers, over all protocols
	unknownBytesBurst    = 2 << 20
	peerBytes            = 256 << 10 // bytes read per second from one unknown peer
	peerBytesBurst       = 512 << 10
	// minCharge is the smallest number of bytes that a read counts, so that many small messages
	// count as much as the processor time that they take. Over TCP every frame of the multiplexer
	// is a read. streamCharge is what a stream, opened or refused, counts in addition, for 100 µs
	// of processor time.
	minCharge    = 256
	streamCharge = 4 << 10
	// If more streams of a peer are refused than this rate allows, the node closes the connections
	// of the peer, because over QUIC nothing else slows it down.
	refusalRate  = 4.0
	refusalBurst = 128
	// maxUnknownRead is the largest number of bytes that are read at once from an unknown peer, so
	// that other unknown peers do not wait long.
	maxUnknownRead = 16 << 10

	// Addresses of members have higher limits, so that an unknown peer with the same address as a
	// member cannot prevent the member from connecting.
	memberArrivals      = 50.0
	memberArrivalsBurst = 400
	maxKnownAddrs       = 4096
)

var errUnknownPeers = errors.New("unknown peers have their share already")

// unknownPeers is the resource manager of a host that limits unknown peers. libp2p asks it
// right after accepting a connection, for QUIC at the first packet, so a refused connection
// costs no handshake.
type unknownPeers struct {
	network.ResourceManager
	// trusted returns true for peers that never count as unknown peers, even if they have connected
	// by themselves.
	trusted func(libp2ppeer.ID) bool
	refused func() // number of refusals
	// cut closes the connections of a peer in the background; nil means that no connection is
	// closed.
	cut func(libp2ppeer.ID)

	arrivals *rate.Limiter // limits new connections from addresses that are not in known
	members  *rate.Limiter // limits new connections from the addresses in known
	bytes    *timerate.Limiter

	// mu guards the fields below. It is never held while calling out.
	mu      sync.Mutex
	known   map[netip.Addr]struct{} // addresses of members
	addrs   map[netip.Prefix]int    // number of open inbound connections of each address that is not in known
	hands   map[netip.Prefix]int    // number of those connections that are in the handshake
	pending int                     // sum of hands
	streams int
	peers   map[libp2ppeer.ID]*presence
}

// presence has the counters of a connected peer.
type presence struct {
	conns   int // connections in both directions
	dialled int // connections that this node dialled
	streams int // number of inbound streams that count towards the limits of unknown peers
	bytes   *timerate.Limiter
	refusal *timerate.Limiter // rate of refused streams
	cut     bool              // the peer's connections were cut since it last connected
}

func newPresence() *presence {
	return &presence{
		bytes:   timerate.NewLimiter(peerBytes, peerBytesBurst),
		refusal: timerate.NewLimiter(refusalRate, refusalBurst),
	}
}

func newUnknownPeers(inner network.ResourceManager, trusted func(libp2ppeer.ID) bool, refused func()) *unknownPeers {
	subnet := func(bits int) []rate.SubnetLimit {
		return []rate.SubnetLimit{{PrefixLength: bits, Limit: rate.Limit{RPS: addressArrivals, Burst: addressArrivalsBurst}}}
	}
	return &unknownPeers{
		ResourceManager: inner,
		trusted:         trusted,
		refused:         refused,
		arrivals: &rate.Limiter{
			GlobalLimit: rate.Limit{RPS: unknownArrivals, Burst: unknownArrivalsBurst},
			SubnetRateLimiter: rate.SubnetLimiter{
				IPv4SubnetLimits: subnet(32), IPv6SubnetLimits: subnet(56), GracePeriod: addressGrace,
			},
		},
		members: &rate.Limiter{GlobalLimit: rate.Limit{RPS: memberArrivals, Burst: memberArrivalsBurst}},
		bytes:   timerate.NewLimiter(unknownBytes, unknownBytesBurst),
		known:   make(map[netip.Addr]struct{}),
		addrs:   make(map[netip.Prefix]int),
		hands:   make(map[netip.Prefix]int),
		peers:   make(map[libp2ppeer.ID]*presence),
	}
}

// know adds an address to known, which exempts it from the limits of unknown peers.
func (s *unknownPeers) know(ip netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) < maxKnownAddrs {
		s.known[ip] = struct{}{}
	}
}

// neighbourhood returns the prefix of addresses that usually belong to one subscriber: a single
// IPv4 address or an IPv6 /56.
func neighbourhood(ip netip.Addr) netip.Prefix {
	bits := 32
	if ip.Is6() {
		bits = 56
	}
	p, _ := ip.Prefix(bits) // these lengths are always valid
	return p
}

// OpenConnection implements network.ResourceManager.
func (s *unknownPeers) OpenConnection(dir network.Direction, usefd bool, endpoint ma.Multiaddr) (network.ConnManagementScope, error) {
	c := &arrival{unknownPeers: s, dir: dir}
	if ip, ok := ipOf(endpoint); ok {
		c.ip = ip.Unmap()
	}
	if dir == network.DirInbound {
		if err := s.enter(c); err != nil {
			s.refused()
			return nil, err
		}
	}
	scope, err := s.ResourceManager.OpenConnection(dir, usefd, endpoint)
	if err != nil {
		c.leave()
		return nil, err
	}
	c.ConnManagementScope = scope
	return c, nil
}

// enter admits an inbound connection before its handshake, or returns an error.
func (s *unknownPeers) enter(c *arrival) error {
	s.mu.Lock()
	_, known := s.known[c.ip]
	s.mu.Unlock()
	if known {
		if !s.members.Allow(c.ip) {
			return errUnknownPeers
		}
		return nil
	}
	if !s.arrivals.Allow(c.ip) {
		return errUnknownPeers
	}
	near := neighbourhood(c.ip)
	s.mu.Lock()
	defer s.mu.Unlock()
	// Unfinished handshakes keep their places for long, so one address leaves as many
	// places as it takes.
	if s.hands[near] >= unknownPending-s.pending || s.addrs[near] >= addressConns {
		return errUnknownPeers
	}
	s.pending++
	s.hands[near]++
	s.addrs[near]++
	c.pending, c.near = true, near
	return nil
}

// shaken records that a handshake has ended or was given up. The caller holds mu.
func (s *unknownPeers) shaken(c *arrival) {
	if !c.pending {
		return
	}
	c.pending = false
	s.pending--
	if s.hands[c.near]--; s.hands[c.near] == 0 {
		delete(s.hands, c.near)
	}
}

// arrival is the resource scope of one inbound connection.
type arrival struct {
	network.ConnManagementScope
	unknownPeers *unknownPeers
	dir          network.Direction
	ip           netip.Addr

	// The following fields are guarded by unknownPeers.mu.
	pending bool         // the connection is counted in unknownPeers.pending
	near    netip.Prefix // key of the connection in addrs; the zero prefix means none
	peer    libp2ppeer.ID
	gone    bool
}

// SetPeer implements network.ConnManagementScope. The handshake has ended.
func (c *arrival) SetPeer(id libp2ppeer.ID) error {
	if err := c.ConnManagementScope.SetPeer(id); err != nil {
		return err
	}
	s := c.unknownPeers
	if c.dir == network.DirInbound && c.ip.IsValid() && s.trusted(id) {
		s.know(c.ip)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.gone || c.peer != "" {
		return nil
	}
	s.shaken(c)
	c.peer = id
	p := s.peers[id]
	if p == nil {
		p = newPresence()
		s.peers[id] = p
	}
	p.conns++
	p.cut = false
	if c.dir == network.DirOutbound {
		p.dialled++
	}
	return nil
}

// Done implements network.ConnManagementScope.
func (c *arrival) Done() {
	c.leave()
	c.ConnManagementScope.Done()
}

func (c *arrival) leave() {
	s := c.unknownPeers
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.gone {
		return
	}
	c.gone = true
	s.shaken(c)
	if c.near.IsValid() {
		if s.addrs[c.near]--; s.addrs[c.near] == 0 {
			delete(s.addrs, c.near)
		}
	}
	if p := s.peers[c.peer]; p != nil {
		p.conns--
		if c.dir == network.DirOutbound {
			p.dialled--
		}
		s.forget(c.peer, p)
	}
}

// forget removes the counters of a peer that has neither connections nor streams any more. The
// caller holds mu.
func (s *unknownPeers) forget(id libp2ppeer.ID, p *presence) {
	if p.conns == 0 && p.streams == 0 {
		delete(s.peers, id)
	}
}

// VerifySourceAddress implements network.ResourceManager. A QUIC peer at an unknown address
// must first prove its address, which costs this node one packet. Otherwise packets with
// false addresses could use up the arrivals.
func (s *unknownPeers) VerifySourceAddress(addr net.Addr) bool {
	from, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.known[from.Addr().Unmap()]
	return !known
}

// OpenStream implements network.ResourceManager.
func (s *unknownPeers) OpenStream(id libp2ppeer.ID, dir network.Direction) (network.StreamManagementScope, error) {
	if dir != network.DirInbound || s.trusted(id) {
		return s.ResourceManager.OpenStream(id, dir)
	}
	s.mu.Lock()
	p := s.peers[id]
	if p == nil || p.dialled > 0 {
		s.mu.Unlock()
		return s.ResourceManager.OpenStream(id, dir)
	}
	// The next reads of the peer pay for the stream.
	now := time.Now()
	p.bytes.ReserveN(now, streamCharge)
	if s.bytes.TokensAt(now) > -unknownBytesBurst { // else the debt of all unknown peers could grow without bound
		s.bytes.ReserveN(now, streamCharge)
	}
	if s.streams >= unknownStreams || p.streams >= unknownStreamsEach {
		cut := s.cut != nil && !p.cut && !p.refusal.Allow()
		p.cut = p.cut || cut
		s.mu.Unlock()
		s.refused()
		if cut {
			s.cut(id)
		}
		return nil, errUnknownPeers
	}
	s.streams++
	p.streams++
	s.mu.Unlock()
	done := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.streams--
		p.streams--
		s.forget(id, p)
	}
	scope, err := s.ResourceManager.OpenStream(id, dir)
	if err != nil {
		done()
		return nil, err
	}
	return &unknownStream{StreamManagementScope: scope, done: sync.OnceFunc(done)}, nil
}

// unknownStream is the resource scope of a stream that counts towards the limits of unknown peers.
type unknownStream struct {
	network.StreamManagementScope
	done func()
}

// Done implements network.StreamManagementScope.
func (c *unknownStream) Done() {
	c.done()
	c.StreamManagementScope.Done()
}

// isUnknown reports whether a peer is an unknown peer: it is not trusted, and this node has dialled
// none of its connections.
func (s *unknownPeers) isUnknown(id libp2ppeer.ID) bool {
	if s.trusted(id) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[id]
	return p == nil || p.dialled == 0
}

// charge counts a read of n bytes from an unknown peer, and waits as long as the peer is above its
// rate.
func (s *unknownPeers) charge(ctx context.Context, id libp2ppeer.ID, n int) error {
	if !s.isUnknown(id) {
		return nil
	}
	s.mu.Lock()
	p := s.peers[id]
	s.mu.Unlock()
	n = max(n, minCharge)
	if p != nil {
		// The limit of the peer first, so that it does not queue for the limit of all.
		if err := p.bytes.WaitN(ctx, n); err != nil {
			return err
		}
	}
	return s.bytes.WaitN(ctx, n)
}

// admitPublic handles every inbound stream of the public host. It does the same as libp2p's
// handler, and limits the rate of what unknown peers send.
func (p *Peer) admitPublic(h host.Host) network.StreamHandler {
	return func(s network.Stream) {
		if !p.streams.enter() {
			_ = s.Reset()
			return
		}
		defer p.streams.leave()
		overTCP := s.Conn().ConnState().StreamMultiplexer == yamux.ID
		s = &slowed{Stream: s, ctx: p.ctx, unknownPeers: p.unknownPeers, metered: overTCP}
		if err := s.SetDeadline(time.Now().Add(negotiationTimeout)); err != nil {
			_ = s.Reset()
			return
		}
		proto, handle, err := h.Mux().Negotiate(s)
		if err != nil {
			_ = s.ResetWithError(network.StreamProtocolNegotiationFailed)
			return
		}
		if s.SetDeadline(time.Time{}) != nil || s.SetProtocol(proto) != nil {
			_ = s.ResetWithError(network.StreamResourceLimitExceeded)
			return
		}
		_ = handle(proto, s)
	}
}

// cutUnknown closes the connections of an unknown peer, unless it is no longer unknown.
func (p *Peer) cutUnknown(id libp2ppeer.ID) {
	if !p.streams.enter() {
		return
	}
	go func() {
		defer p.streams.leave()
		if p.unknownPeers.isUnknown(id) {
			_ = p.public.Network().ClosePeer(id) // it may be closed already
		}
	}()
}

// slowed is a stream that an unknown peer cannot send faster than its rate. Other peers are
// not limited. Over TCP, metered limits the whole connection already.
type slowed struct {
	network.Stream
	ctx          context.Context // context of the Peer; its end stops all waits
	unknownPeers *unknownPeers
	metered      bool
}

// Read implements io.Reader.
func (s *slowed) Read(b []byte) (int, error) {
	if s.metered {
		return s.Stream.Read(b)
	}
	id := s.Conn().RemotePeer()
	if len(b) > maxUnknownRead && s.unknownPeers.isUnknown(id) {
		b = b[:maxUnknownRead]
	}
	n, err := s.Stream.Read(b)
	if n > 0 {
		if werr := s.unknownPeers.charge(s.ctx, id, n); werr != nil {
			return n, errors.Join(err, werr)
		}
	}
	return n, err
}
