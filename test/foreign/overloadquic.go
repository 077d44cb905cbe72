package main

import (
	"context"
	"errors"
	"net"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/quic-go/quic-go"
)

// quicStreams is the number of streams that the node may open to one unknown peer.
const quicStreams = 256

// visitQUIC makes one QUIC connection as an unknown peer with the source address from, and returns
// when it has ended. If the overload is silent, the peer begins the handshake and then ignores all
// packets of the node.
func (g *overload) visitQUIC(ctx context.Context, from net.IP, key crypto.PrivKey) {
	to, err := net.ResolveUDPAddr("udp", g.addr)
	if err != nil {
		return
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: from})
	if err != nil {
		return
	}
	defer socket.Close()
	defer g.arrive()()
	var packets net.PacketConn = socket
	if g.silent {
		packets = deaf{socket}
	}
	identity, err := libp2ptls.NewIdentity(key)
	if err != nil {
		return
	}
	conf, _ := identity.ConfigForPeer(g.target)
	conf.NextProtos = []string{"libp2p"}
	transport := &quic.Transport{Conn: packets}
	defer transport.Close()
	handshake, cancel := context.WithTimeout(ctx, overloadHandshake)
	defer cancel()
	c, err := transport.Dial(handshake, to, conf, &quic.Config{
		MaxIncomingStreams: quicStreams, HandshakeIdleTimeout: overloadDial, KeepAlivePeriod: overloadDial,
	})
	if err != nil {
		if ctx.Err() == nil {
			g.cut.Add(1)
		}
		return
	}
	g.stay(ctx, quicConn{c})
}

// deaf is a socket that can send packets but receives none. A read blocks until its deadline.
type deaf struct{ net.PacketConn }

// ReadFrom implements net.PacketConn.
func (d deaf) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		if _, _, err := d.PacketConn.ReadFrom(b); err != nil {
			return 0, nil, err
		}
	}
}

// quicConn makes a QUIC connection usable as the network.MuxedConn that behaviours need.
type quicConn struct{ *quic.Conn }

// Close implements network.MuxedConn.
func (c quicConn) Close() error { return c.CloseWithError(0) }

// CloseWithError implements network.MuxedConn.
func (c quicConn) CloseWithError(code network.ConnErrorCode) error {
	return c.Conn.CloseWithError(quic.ApplicationErrorCode(code), "")
}

// IsClosed implements network.MuxedConn.
func (c quicConn) IsClosed() bool { return c.Context().Err() != nil }

// As implements network.MuxedConn.
func (c quicConn) As(any) bool { return false }

// OpenStream implements network.MuxedConn.
func (c quicConn) OpenStream(ctx context.Context) (network.MuxedStream, error) {
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return quicStream{s}, nil
}

// AcceptStream implements network.MuxedConn.
func (c quicConn) AcceptStream() (network.MuxedStream, error) {
	s, err := c.Conn.AcceptStream(context.Background())
	if err != nil {
		return nil, err
	}
	return quicStream{s}, nil
}

// quicStream makes a QUIC stream usable as a network.MuxedStream.
type quicStream struct{ *quic.Stream }

// CloseWrite implements network.MuxedStream.
func (s quicStream) CloseWrite() error { return s.Stream.Close() }

// CloseRead implements network.MuxedStream.
func (s quicStream) CloseRead() error {
	s.CancelRead(0)
	return nil
}

// Close implements network.MuxedStream.
func (s quicStream) Close() error { return errors.Join(s.CloseRead(), s.CloseWrite()) }

// Reset implements network.MuxedStream.
func (s quicStream) Reset() error { return s.ResetWithError(0) }

// ResetWithError implements network.MuxedStream.
func (s quicStream) ResetWithError(code network.StreamErrorCode) error {
	s.CancelRead(quic.StreamErrorCode(code))
	s.CancelWrite(quic.StreamErrorCode(code))
	return nil
}
