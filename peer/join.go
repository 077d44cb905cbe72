package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/libp2p/go-libp2p"
	coreconnmgr "github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multistream"
)

// joinProtocol is the only protocol that a joining node can use on the cluster host.
const joinProtocol = "/holdfast/join/1"

// ErrJoinRefused means that a member was reached and closed the connection: the secret is
// wrong, or the member cannot admit nodes yet.
var ErrJoinRefused = errors.New("the member was reached and cut the connection")

// ErrNoJoin means that the address does not lead to a cluster host. The address has another
// transport, or another host answered, most likely the public host of a member.
var ErrNoJoin = errors.New("this is not the address of a member's cluster host (is it the one of the public IPFS host?)")

// ErrOtherNode means that the peer at the address has another id than the one in the address.
var ErrOtherNode = errors.New("another node answers there than the address names")

// ListenJoin accepts the streams of joining nodes, whose identity proves a secret that
// Options.Joiners accepts. The remote address is the id of JoinKey, the same for all nodes
// that use that secret. At most one such listener exists at a time.
func (p *Peer) ListenJoin() (net.Listener, error) {
	if p.streams.joinMux() != nil {
		return nil, errors.New("peer: listen for joiners: already listening")
	}
	l := newListener(p.ID(), func() { p.streams.setJoin(nil) })
	mux := multistream.NewMultistreamMuxer[protocol.ID]()
	mux.AddHandler(joinProtocol, func(_ protocol.ID, rwc io.ReadWriteCloser) error {
		s, ok := rwc.(network.Stream)
		if !ok {
			return errors.Join(errors.New("peer: join: not a stream"), rwc.Close())
		}
		l.handle(s)
		return nil
	})
	p.streams.setJoin(mux)
	return l, nil
}

// DialJoin opens the join stream to the member whose cluster host is at addr (a multiaddr
// with /p2p/), with the identity that secret derives. It returns ErrJoinRefused if the
// member cuts the connection, as for a wrong secret, ErrNoJoin if addr is not a cluster
// host, and ErrOtherNode if another node answers. The closer ends the short-lived host
// behind the connection; the caller closes both. Tests pass options of that host in extra.
func DialJoin(ctx context.Context, secret []byte, addr string, extra ...HostOption) (net.Conn, io.Closer, error) {
	key, _, err := JoinKey(secret)
	if err != nil {
		return nil, nil, err
	}
	priv, _, err := parseKey(key)
	if err != nil {
		return nil, nil, err
	}
	member, err := parseMemberAddr(addr)
	if err != nil {
		return nil, nil, fmt.Errorf("peer: join: %w", err)
	}
	h, err := libp2p.New(append([]libp2p.Option{
		libp2p.Identity(priv),
		libp2p.UserAgent(userAgent),
		libp2p.NoListenAddrs,
		libp2p.Transport(tcp.NewTCPTransport),
		libp2p.Security(libp2ptls.ID, newNoExpiryTLS),
		libp2p.ConnectionManager(coreconnmgr.NullConnMgr{}),
		libp2p.DisableRelay(),
		libp2p.DisableIdentifyAddressDiscovery(),
		libp2p.Ping(false),
		libp2p.DisableMetrics(),
	}, extra...)...)
	if err != nil {
		return nil, nil, fmt.Errorf("peer: join: %w", err)
	}
	if err := h.Connect(ctx, member); err != nil {
		var other sec.ErrPeerIDMismatch
		switch {
		case errors.As(err, &other):
			err = fmt.Errorf("%w: %s", ErrOtherNode, other.Actual)
		case errors.Is(err, swarm.ErrNoTransport):
			err = fmt.Errorf("%w: %w", ErrNoJoin, err)
		case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
			err = fmt.Errorf("%w: %w", ErrJoinRefused, err) // the member closed the connection before the handshake ended
		}
		return nil, nil, errors.Join(fmt.Errorf("peer: join %s: %w", addr, err), h.Close())
	}
	s, err := openStream(ctx, h, member.ID, joinProtocol)
	if err != nil {
		kind := ErrJoinRefused // a cluster host negotiates no protocol with a peer that may not join
		if errors.As(err, new(multistream.ErrNotSupported[protocol.ID])) {
			kind = ErrNoJoin
		}
		return nil, nil, errors.Join(fmt.Errorf("peer: join %s: %w: %w", addr, kind, err), h.Close())
	}
	return &conn{Stream: s}, h, nil
}
