package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/multiformats/go-multistream"
)

const (
	// acceptBacklog is how many streams may wait for Accept. Further streams are reset, so
	// that the dialling side sees at once that this node is overloaded.
	acceptBacklog = 256
	// openTimeout bounds dialling and the protocol handshake together if the context of the
	// caller has no earlier deadline.
	openTimeout = 10 * time.Second
)

// ErrNotMember means that a peer id is not a member now.
var ErrNotMember = errors.New("not a member of the cluster")

// addr is a peer id as a net.Addr.
type addr string

// Network returns "libp2p".
func (addr) Network() string { return "libp2p" }

// String returns the peer id.
func (a addr) String() string { return string(a) }

// conn is a stream as a net.Conn.
type conn struct {
	network.Stream

	// mu guards the fields below. It is never held during input or output.
	mu      sync.Mutex
	writing int
	closed  bool
}

// LocalAddr returns the peer id of this node.
func (c *conn) LocalAddr() net.Addr { return addr(c.Stream.Conn().LocalPeer().String()) }

// RemoteAddr returns the peer id of the node at the other end.
func (c *conn) RemoteAddr() net.Addr { return addr(c.Stream.Conn().RemotePeer().String()) }

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return 0, net.ErrClosed
	}
	c.writing++
	c.mu.Unlock()
	n, err := c.Stream.Write(b)
	c.mu.Lock()
	c.writing--
	c.mu.Unlock()
	return n, err
}

// Close implements net.Conn and ends a concurrent Write. QUIC forbids a stream's own Close
// during a Write: it would block until its deadline, even if the connection ends. The
// stream is reset in that case, because its data is lost anyway.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	busy := c.writing > 0
	c.mu.Unlock()
	if busy {
		return c.Reset()
	}
	return c.Stream.Close()
}

// listener accepts the streams of one protocol.
type listener struct {
	local   addr
	streams chan network.Stream
	forget  func() // removes the handler of the protocol

	once   sync.Once
	closed chan struct{}
}

// Accept waits for the next stream. After Close it returns net.ErrClosed.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case s := <-l.streams:
		return &conn{Stream: s}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close refuses further streams and resets those that wait for Accept. Accepted streams
// stay open.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.forget()
		close(l.closed)
		for {
			select {
			case s := <-l.streams:
				_ = s.Reset()
			default:
				return
			}
		}
	})
	return nil
}

// Addr returns the peer id of this node.
func (l *listener) Addr() net.Addr { return l.local }

func (l *listener) handle(s network.Stream) {
	select {
	case <-l.closed:
		_ = s.Reset()
		return
	default:
	}
	select {
	case l.streams <- s:
	default:
		_ = s.Reset()
	}
}

func newListener(local string, forget func()) *listener {
	return &listener{
		local:   addr(local),
		streams: make(chan network.Stream, acceptBacklog),
		forget:  forget,
		closed:  make(chan struct{}),
	}
}

// Listen accepts streams of one protocol from members on the cluster host. The remote
// address of a connection is the member's peer id, which the handshake has authenticated.
// The number of connections that wait for Accept is bounded; further ones are reset.
func (p *Peer) Listen(proto string) (net.Listener, error) {
	if proto == "" || proto == joinProtocol || proto == blocksProtocol {
		return nil, fmt.Errorf("peer: listen: protocol %q is reserved", proto)
	}
	l := newListener(p.ID(), func() { p.cluster.RemoveStreamHandler(protocol.ID(proto)) })
	p.cluster.SetStreamHandler(protocol.ID(proto), l.handle)
	return l, nil
}

// Dial opens a stream to a member and negotiates the protocol before it returns, so that
// the stream may stay idle in a pool. If ctx has no deadline, Dial gives up after
// openTimeout. The connection supports deadlines and half-close (CloseWrite).
func (p *Peer) Dial(ctx context.Context, id, proto string) (net.Conn, error) {
	s, err := p.openMember(ctx, id, proto)
	if err != nil {
		return nil, fmt.Errorf("peer: dial %s %s: %w", id, proto, err)
	}
	return &conn{Stream: s}, nil
}

func (p *Peer) openMember(ctx context.Context, id, proto string) (network.Stream, error) {
	remote, err := libp2ppeer.Decode(id)
	if err != nil {
		return nil, fmt.Errorf("peer id: %w", err)
	}
	if remote == p.id {
		return nil, errors.New("peer id is this node's own")
	}
	if !p.opts.Members(id) {
		return nil, ErrNotMember
	}
	return openStream(ctx, p.cluster, remote, proto)
}

// Refused reports whether an error of Dial means that nothing of the member listens at any
// of its addresses: at least one refused the connection, and each other one refused it too
// or belongs to another peer.
func Refused(err error) bool {
	var failed *swarm.DialError
	if !errors.As(err, &failed) || failed.Skipped > 0 {
		return false
	}
	refused := false
	for _, one := range failed.DialErrors {
		var another sec.ErrPeerIDMismatch
		switch {
		case errors.Is(one.Cause, syscall.ECONNREFUSED):
			refused = true
		case !errors.As(one.Cause, &another):
			return false
		}
	}
	return refused
}

// endBackoff clears libp2p's dial back-off for a peer, so that the next dial tries at once.
// The option for a direct dial also skips the back-off, but it panics if the host is closed
// at that moment (Swarm.nonProxyAddr of go-libp2p 0.51 uses a transport that is gone).
func endBackoff(h host.Host, id libp2ppeer.ID) {
	if s, ok := h.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(id)
	}
}

// openStream opens a stream and negotiates its protocol at once. NewStream of libp2p delays
// that to the first write, and the other side resets a stream that sends nothing for 10 s.
func openStream(ctx context.Context, h host.Host, id libp2ppeer.ID, proto string) (network.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	// A caller needs this member now, even if a dial failed a moment ago.
	endBackoff(h, id)
	if _, err := h.Network().DialPeer(ctx, id); err != nil {
		return nil, err
	}
	s, err := h.Network().NewStream(network.WithNoDial(ctx, "just dialled"), id)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	_, err = multistream.SelectOneOf([]protocol.ID{protocol.ID(proto)}, s)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = s.SetProtocol(protocol.ID(proto))
	}
	if err != nil {
		_ = s.Reset()
		if cause := ctx.Err(); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("protocol handshake: %w", err)
	}
	return s, nil
}
