package peer

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	tptu "github.com/libp2p/go-libp2p/p2p/net/upgrader"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
)

// noExpiryTLS is libp2p's TLS with a certificate that does not expire. The certificate of
// libp2p becomes valid one hour before the process starts, by the clock of its machine. If
// that clock is more than an hour ahead, all other nodes refuse the node until their clocks
// reach that time, even if the clock was corrected. If the clock is behind, the node
// refuses all others. The certificate exists in memory only, and the node key that it
// proves does not expire either.
type noExpiryTLS struct {
	protocol protocol.ID
	identity *libp2ptls.Identity
	local    peer.ID
	muxers   []string
}

func newNoExpiryTLS(id protocol.ID, key crypto.PrivKey, muxers []tptu.StreamMuxer) (*noExpiryTLS, error) {
	t := &noExpiryTLS{protocol: id}
	for _, m := range muxers {
		t.muxers = append(t.muxers, string(m.ID))
	}
	var err error
	if t.local, err = peer.IDFromPrivateKey(key); err != nil {
		return nil, err
	}
	template, err := noExpiryCertificate()
	if err != nil {
		return nil, err
	}
	t.identity, err = libp2ptls.NewIdentity(key, libp2ptls.WithCertTemplate(template))
	return t, err
}

// noExpiryCertificate returns the certificate template of libp2p with other times.
func noExpiryCertificate() (*x509.Certificate, error) {
	most := big.NewInt(1 << 62)
	serial, err := rand.Int(rand.Reader, most)
	if err != nil {
		return nil, err
	}
	subject, err := rand.Int(rand.Reader, most)
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{SerialNumber: subject.String()},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // "no expiry" in RFC 5280
	}, nil
}

// ID implements sec.SecureTransport.
func (t *noExpiryTLS) ID() protocol.ID { return t.protocol }

// SecureInbound implements sec.SecureTransport.
func (t *noExpiryTLS) SecureInbound(ctx context.Context, insecure net.Conn, p peer.ID) (sec.SecureConn, error) {
	return t.secure(ctx, insecure, p, tls.Server)
}

// SecureOutbound implements sec.SecureTransport.
func (t *noExpiryTLS) SecureOutbound(ctx context.Context, insecure net.Conn, p peer.ID) (sec.SecureConn, error) {
	return t.secure(ctx, insecure, p, tls.Client)
}

// secure performs the handshake. It offers the multiplexers in the handshake, the best
// first, which saves the round trip of negotiating one.
func (t *noExpiryTLS) secure(ctx context.Context, insecure net.Conn, p peer.ID, side func(net.Conn, *tls.Config) *tls.Conn) (_ sec.SecureConn, err error) {
	defer func() { // a panic on bad input of a peer ends only its connection, as in libp2p
		if p := recover(); p != nil {
			err = errors.Join(fmt.Errorf("panic in the handshake: %v", p), insecure.Close())
		}
	}()
	config, keys := t.identity.ConfigForPeer(p)
	without := config.NextProtos[0] // for peers that do not negotiate the multiplexer in the handshake
	config.NextProtos = slices.Concat(t.muxers, config.NextProtos)
	c := side(insecure, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, insecure.Close())
	}
	var key crypto.PubKey
	select {
	case key = <-keys: // set when the certificate was verified
	default:
	}
	if key == nil {
		return nil, errors.Join(errors.New("no key was shown in the handshake"), insecure.Close())
	}
	remote, err := peer.IDFromPublicKey(key)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("peer id: %w", err), insecure.Close())
	}
	s := &noExpiryConn{Conn: c, local: t.local, remote: remote, key: key}
	if muxer := c.ConnectionState().NegotiatedProtocol; muxer != without {
		s.state = network.ConnectionState{StreamMultiplexer: protocol.ID(muxer), UsedEarlyMuxerNegotiation: muxer != ""}
	}
	return s, nil
}

// noExpiryConn is a connection of noExpiryTLS.
type noExpiryConn struct {
	*tls.Conn
	local, remote peer.ID
	key           crypto.PubKey
	state         network.ConnectionState
}

// LocalPeer implements network.ConnSecurity.
func (c *noExpiryConn) LocalPeer() peer.ID { return c.local }

// RemotePeer implements network.ConnSecurity.
func (c *noExpiryConn) RemotePeer() peer.ID { return c.remote }

// RemotePublicKey implements network.ConnSecurity.
func (c *noExpiryConn) RemotePublicKey() crypto.PubKey { return c.key }

// ConnState implements network.ConnSecurity.
func (c *noExpiryConn) ConnState() network.ConnectionState { return c.state }
