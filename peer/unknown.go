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

// Bounds of one host for unknown peers, for all of them together and for each of them.
// An unknown peer is one that came by itself: no member, and none that this node dialled
// or that a user named as an origin. A handshake costs about a millisecond of
// processor time and an inbound stream up to 256 KiB of memory, so on each host
// they get a few percent of a processor and 128 MiB.
const (
	unknownArrivals      = 32.0 // connections a second, in the long run
	unknownArrivalsBurst = 32   // handshakes at once are what members' requests wait for
	addressArrivals      = 2.0  // of one IPv4 address or IPv6 /56
	addressArrivalsBurst = 32
	addressGrace         = time.Minute // how long the limiter remembers an address
	addressConns         = 32          // open at the same time
	unknownPending       = 32          // connections whose handshake is not over; of one address as many as are left
	unknownStreams       = 512         // inbound
	unknownStreamsEach   = 24          // of one peer
	unknownBytes         = 1 << 20     // read a second, over all protocols
	unknownBytesBurst    = 2 << 20
	peerBytes            = 256 << 10 // read a second of one peer
	peerBytesBurst       = 512 << 10
	// minCharge is what a read costs at the least, so that many small messages
	// cost what they take; over TCP every frame of the multiplexer is a read of
	// its own. streamCharge is what a stream costs on top, opened or refused:
	// 100 µs of processor time.
	minCharge    = 256
	streamCharge = 4 << 10
	// An unknown peer that is refused more streams than this loses its connections:
	// over QUIC nothing else slows it down.
	refusalRate  = 4.0
	refusalBurst = 128
	// maxUnknownRead bounds one read, so that nobody waits long behind it.
	maxUnknownRead = 16 << 10

	// Addresses of members are held to less strict limits: an unknown peer behind
	// the same address must not keep a member out.
	memberArrivals      = 50.0
	memberArrivalsBurst = 400
	maxKnownAddrs       = 4096
)

var errUnknownPeers = errors.New("unknown peers have their share already")

// unknownPeers is a host's resource manager that holds unknown peers to their share.
// What it refuses costs no handshake: it is asked right after a connection was
// accepted, for QUIC with the first packet.
type unknownPeers struct {
	network.ResourceManager
	// trusted tells whether a peer that came by itself counts as a wanted one.
	trusted func(libp2ppeer.ID) bool
	refused func() // counts
	// cut ends the connections of a peer in the background; nil cuts nobody.
	cut func(libp2ppeer.ID)

	arrivals *rate.Limiter // of unknown addresses
	members  *rate.Limiter // of known ones
	bytes    *timerate.Limiter

	// mu guards what follows. It is never held while calling out.
	mu      sync.Mutex
	known   map[netip.Addr]struct{} // addresses that members have, or came from
	addrs   map[netip.Prefix]int    // open inbound connections of unknown addresses
	hands   map[netip.Prefix]int    // those of them whose handshake is not over
	pending int                     // all of hands
	streams int
	peers   map[libp2ppeer.ID]*presence
}

// presence is what is known of a connected peer.
type presence struct {
	conns   int // connections, of both directions
	dialled int // of them, those that this node made
	streams int // inbound, counted as an unknown peer's
	bytes   *timerate.Limiter
	refusal *timerate.Limiter // of streams
	cut     bool              // since it last came
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

// know exempts an address from what unknown ones are held to.
func (s *unknownPeers) know(ip netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) < maxKnownAddrs {
		s.known[ip] = struct{}{}
	}
}

// neighbourhood is what one holder of addresses usually has.
func neighbourhood(ip netip.Addr) netip.Prefix {
	bits := 32
	if ip.Is6() {
		bits = 56
	}
	p, _ := ip.Prefix(bits) // cannot fail with these lengths
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

// enter admits a connection that comes in, before its handshake.
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
	// Handshakes that are never finished take their places for as long as they may, so one
	// address leaves others as many as it has.
	if s.hands[near] >= unknownPending-s.pending || s.addrs[near] >= addressConns {
		return errUnknownPeers
	}
	s.pending++
	s.hands[near]++
	s.addrs[near]++
	c.pending, c.near = true, near
	return nil
}

// shaken takes note that a handshake is over, or given up. The caller holds mu.
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

// arrival is one connection's scope.
type arrival struct {
	network.ConnManagementScope
	unknownPeers *unknownPeers
	dir          network.Direction
	ip           netip.Addr

	// Guarded by unknownPeers.mu.
	pending bool         // counted there
	near    netip.Prefix // counted there; the zero prefix is not
	peer    libp2ppeer.ID
	gone    bool
}

// SetPeer implements network.ConnManagementScope: the handshake is over.
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

// forget drops a peer of which nothing is counted. The caller holds mu.
func (s *unknownPeers) forget(id libp2ppeer.ID, p *presence) {
	if p.conns == 0 && p.streams == 0 {
		delete(s.peers, id)
	}
}

// VerifySourceAddress implements network.ResourceManager: whoever comes over QUIC
// from an unknown address has to show that it is there, which costs this node no
// more than a packet. Or packets with false addresses would use up the arrivals.
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
	// What it owes for the stream is paid by its next reads.
	now := time.Now()
	p.bytes.ReserveN(now, streamCharge)
	if s.bytes.TokensAt(now) > -unknownBytesBurst { // or all unknown peers would owe for one without end
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

// unknownStream is the scope of a stream that counts as an unknown peer's.
type unknownStream struct {
	network.StreamManagementScope
	done func()
}

// Done implements network.StreamManagementScope.
func (c *unknownStream) Done() {
	c.done()
	c.StreamManagementScope.Done()
}

// isUnknown tells whether a peer came by itself and nobody wants it.
func (s *unknownPeers) isUnknown(id libp2ppeer.ID) bool {
	if s.trusted(id) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[id]
	return p == nil || p.dialled == 0
}

// charge waits until an unknown peer may go on after a read of n bytes.
func (s *unknownPeers) charge(ctx context.Context, id libp2ppeer.ID, n int) error {
	if !s.isUnknown(id) {
		return nil
	}
	s.mu.Lock()
	p := s.peers[id]
	s.mu.Unlock()
	n = max(n, minCharge)
	if p != nil {
		// Its own share first, so that it does not queue for what others need.
		if err := p.bytes.WaitN(ctx, n); err != nil {
			return err
		}
	}
	return s.bytes.WaitN(ctx, n)
}

// admitPublic is the door for streams that come in on the public host. It does
// what libp2p's own does, and slows down what unknown peers may say.
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

// cutUnknown ends the connections of an unknown peer, unless it is none any more.
func (p *Peer) cutUnknown(id libp2ppeer.ID) {
	if !p.streams.enter() {
		return
	}
	go func() {
		defer p.streams.leave()
		if p.unknownPeers.isUnknown(id) {
			_ = p.public.Network().ClosePeer(id) // gone already, perhaps
		}
	}()
}

// slowed is a stream of which an unknown peer reads no faster than its share; a peer
// that is not unknown, or no longer, at full speed. Over TCP the whole connection
// is slowed down already, by metered.
type slowed struct {
	network.Stream
	ctx          context.Context // of the Peer; a stream is a scope
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
