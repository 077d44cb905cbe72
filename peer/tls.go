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

// noExpiryTLS is libp2p's TLS with a certificate without expiry. The one that
// libp2p makes by itself begins an hour before the process does, by the clock of its machine.
// Where that is ahead by more, all others refuse the node until they are as far, also when the
// clock has been put right long ago; where it is behind, the node refuses all others. Such a
// certificate lives in memory, and what it proves, the key of a node, does not expire.
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

// noExpiryCertificate is libp2p's template but for its time.
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
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // "no end", RFC 5280
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

// secure shakes hands. The muxers are offered with it, the best first: who takes one saves
// the round trip in which it would be agreed on.
func (t *noExpiryTLS) secure(ctx context.Context, insecure net.Conn, p peer.ID, side func(net.Conn, *tls.Config) *tls.Conn) (_ sec.SecureConn, err error) {
	defer func() { // what unknown peers send ends nothing but their connection, as libp2p has it
		if p := recover(); p != nil {
			err = errors.Join(fmt.Errorf("panic in the handshake: %v", p), insecure.Close())
		}
	}()
	config, keys := t.identity.ConfigForPeer(p)
	without := config.NextProtos[0] // of who does not know that
	config.NextProtos = slices.Concat(t.muxers, config.NextProtos)
	c := side(insecure, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, insecure.Close())
	}
	var key crypto.PubKey
	select {
	case key = <-keys: // there since the certificate was verified
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
