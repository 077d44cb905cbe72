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

// flushBytes is how many bytes of records are gathered before they go out. A connection
// keeps as much memory for them.
const flushBytes = 256 << 10

// wholeTLS is noExpiryTLS whose connections write what they are given at once in one
// system call: crypto/tls writes each record of 16 KiB by itself, which for content
// between members is most of what sending costs.
type wholeTLS struct{ *noExpiryTLS }

func newWholeTLS(id protocol.ID, key crypto.PrivKey, muxers []tptu.StreamMuxer) (wholeTLS, error) {
	t, err := newNoExpiryTLS(id, key, muxers)
	return wholeTLS{t}, err
}

// SecureInbound implements sec.SecureTransport.
func (t wholeTLS) SecureInbound(ctx context.Context, insecure net.Conn, p peer.ID) (sec.SecureConn, error) {
	_ = leaveUnsent(insecure, unsentBytes) // what is urgent is a little later without it
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

// flushed is a connection as its user sees it.
type flushed struct {
	sec.SecureConn
	below *gathering
	mu    sync.Mutex // of writers
}

// Write implements net.Conn. An error may come after bytes have gone out, as always
// with a connection, and it is of no use then.
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

// Close implements net.Conn. While something is being written nobody is told good-bye, as
// crypto/tls has it, so that a connection that does not move is closed at once.
func (c *flushed) Close() error {
	if c.mu.TryLock() {
		defer c.mu.Unlock()
		return c.SecureConn.Close()
	}
	err := c.below.Conn.Close()
	_ = c.SecureConn.Close()
	return err
}

// gathering is the connection below: between gather and flush it keeps what is written.
type gathering struct {
	net.Conn

	// mu guards what follows. It is held during output, so that nothing passes what
	// was written before it. Others than the one that gathers write too: TLS answers
	// and says good-bye by itself.
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

// flush writes what is there.
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
