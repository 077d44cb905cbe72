package peer

import (
	"context"
	"net"
	"sync"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	tptu "github.com/libp2p/go-libp2p/p2p/net/upgrader"
)

// flushBytes is the number of bytes of TLS records that are collected before they are sent.
// Each connection uses that much memory.
const flushBytes = 256 << 10

// wholeTLS is noExpiryTLS with connections that send the bytes of one Write in one system call.
// crypto/tls sends each record of 16 KiB separately, and for content between members these
// calls are most of the cost.
type wholeTLS struct{ *noExpiryTLS }

func newWholeTLS(id protocol.ID, key crypto.PrivKey, muxers []tptu.StreamMuxer) (wholeTLS, error) {
	t, err := newNoExpiryTLS(id, key, muxers)
	return wholeTLS{t}, err
}

// SecureInbound implements sec.SecureTransport.
func (t wholeTLS) SecureInbound(ctx context.Context, insecure net.Conn, p peer.ID) (sec.SecureConn, error) {
	_ = leaveUnsent(insecure, unsentBytes) // if it fails, urgent messages wait a little longer
	below := &gathering{Conn: insecure}
	c, err := t.noExpiryTLS.SecureInbound(ctx, below, p)
	return flushing(c, below, err)
}

// SecureOutbound implements sec.SecureTransport.
func (t wholeTLS) SecureOutbound(ctx context.Context, insecure net.Conn, p peer.ID) (sec.SecureConn, error) {
	_ = leaveUnsent(insecure, unsentBytes)
	below := &gathering{Conn: insecure}
	c, err := t.noExpiryTLS.SecureOutbound(ctx, below, p)
	return flushing(c, below, err)
}

func flushing(c sec.SecureConn, below *gathering, err error) (sec.SecureConn, error) {
	if err != nil {
		return nil, err
	}
	return &flushed{SecureConn: c, below: below}, nil
}

// flushed is the TLS connection that the caller of wholeTLS uses.
type flushed struct {
	sec.SecureConn
	below *gathering
	mu    sync.Mutex // serializes writers
}

// Write implements net.Conn. If it returns an error, part of p may have been sent; the
// connection cannot be used any more.
func (c *flushed) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.below.gather()
	n, err := c.SecureConn.Write(p)
	if ferr := c.below.flush(); err == nil && ferr != nil {
		return 0, ferr
	}
	return n, err
}

// Close implements net.Conn. During a Write it closes without the TLS close message, as
// crypto/tls does, so that a blocked connection closes at once.
func (c *flushed) Close() error {
	if c.mu.TryLock() {
		defer c.mu.Unlock()
		return c.SecureConn.Close()
	}
	err := c.below.Conn.Close()
	_ = c.SecureConn.Close()
	return err
}

// gathering is the connection below TLS. Between the calls of gather and flush it stores the
// written bytes in buf and sends nothing.
type gathering struct {
	net.Conn

	// mu guards the fields below. It is held during output, so that bytes keep their order.
	// TLS also writes by itself, for example to answer a key update or to close.
	mu      sync.Mutex
	gathers bool
	buf     []byte
}

func (g *gathering) gather() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gathers = true
}

// Write implements net.Conn.
func (g *gathering) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.gathers {
		return g.Conn.Write(p)
	}
	if g.buf = append(g.buf, p...); len(g.buf) >= flushBytes {
		if err := g.out(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// flush sends the collected bytes.
func (g *gathering) flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gathers = false
	return g.out()
}

func (g *gathering) out() error {
	if len(g.buf) == 0 {
		return nil
	}
	_, err := g.Conn.Write(g.buf)
	g.buf = g.buf[:0]
	return err
}
