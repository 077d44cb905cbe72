package peer

import (
	"context"
	"errors"
	"net"

	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
)

// meteredMux is yamux that takes from an unknown peer no more than its share of a
// host: of bytes, and of frames, for a ping or a stream that is refused costs
// this node as much as a message. Connections that this node dialled, which may
// be those of an origin, are not metered.
type meteredMux struct {
	inner        network.Multiplexer
	ctx          context.Context // of the Peer; ends every wait
	unknownPeers *unknownPeers
}

func newMeteredMux(ctx context.Context, s *unknownPeers) *meteredMux {
	mux := *yamux.DefaultTransport
	mux.ReadBufSize = 0 // so that the head of every frame is a read of its own
	return &meteredMux{inner: &mux, ctx: ctx, unknownPeers: s}
}

// NewConn implements network.Multiplexer.
func (m *meteredMux) NewConn(c net.Conn, isServer bool, scope network.PeerScope) (network.MuxedConn, error) {
	// What comes in over TLS or Noise tells whose it is.
	secure, ok := c.(interface{ RemotePeer() libp2ppeer.ID })
	if isServer && ok {
		c = &metered{Conn: c, mux: m, id: secure.RemotePeer()}
	}
	return m.inner.NewConn(c, isServer, scope)
}

// metered is a connection that came in, as its multiplexer reads it.
type metered struct {
	net.Conn
	mux *meteredMux
	id  libp2ppeer.ID
}

// Read implements io.Reader.
func (c *metered) Read(b []byte) (int, error) {
	s := c.mux.unknownPeers
	if len(b) > maxUnknownRead && s.isUnknown(c.id) {
		b = b[:maxUnknownRead]
	}
	n, err := c.Conn.Read(b)
	if n > 0 {
		if werr := s.charge(c.mux.ctx, c.id, n); werr != nil {
			return n, errors.Join(err, werr)
		}
	}
	return n, err
}
