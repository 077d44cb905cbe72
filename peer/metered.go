package peer

import (
	"context"
	"errors"
	"net"

	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
)

// meteredMux is yamux with a rate limit for unknown peers, in bytes and in frames: a ping
// or a refused stream costs this node as much as a message. Connections that this node
// dialled, also those of origins, have no limit.
type meteredMux struct {
	inner        network.Multiplexer
	ctx          context.Context // context of the Peer; its end stops all waits
	unknownPeers *unknownPeers
}

func newMeteredMux(ctx context.Context, s *unknownPeers) *meteredMux {
	mux := *yamux.DefaultTransport
	mux.ReadBufSize = 0 // so that the header of every frame is a read of its own
	return &meteredMux{inner: &mux, ctx: ctx, unknownPeers: s}
}

// NewConn implements network.Multiplexer.
func (m *meteredMux) NewConn(c net.Conn, isServer bool, scope network.PeerScope) (network.MuxedConn, error) {
	// An inbound TLS or Noise connection knows the id of its peer.
	secure, ok := c.(interface{ RemotePeer() libp2ppeer.ID })
	if isServer && ok {
		c = &metered{Conn: c, mux: m, id: secure.RemotePeer()}
	}
	return m.inner.NewConn(c, isServer, scope)
}

// metered is an inbound connection below its multiplexer.
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
