package ingest

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

var errListener = errors.New("too many open files")

// deafNetwork has a listener that cannot accept.
type deafNetwork struct{ Network }

func (deafNetwork) Listen(string) (net.Listener, error) { return deafListener{}, nil }

type deafListener struct{ net.Listener }

func (deafListener) Accept() (net.Conn, error) { return nil, errListener }
func (deafListener) Close() error              { return nil }

// TestANodeThatCannotAcceptSaysSo promises that Run ends with the error of its listener, so that
// the node ends and does not stay as one that takes no content.
func TestANodeThatCannotAcceptSaysSo(t *testing.T) {
	bubble(t, 1, func(w *world) {
		n := w.node("a")
		o := n.opts
		o.Network = deafNetwork{o.Network}
		if err := New(o).Run(context.Background()); !errors.Is(err, errListener) {
			t.Errorf("Run ends with %v", err)
		}
	})
}

// closingNetwork closes a pool while it dials for it.
type closingNetwork struct {
	Network
	pool   *pool
	dialed *closedConn
}

func (c *closingNetwork) Dial(context.Context, string, string) (net.Conn, error) {
	c.pool.mu.Lock()
	c.pool.closed = true
	c.pool.mu.Unlock()
	return c.dialed, nil
}

type closedConn struct {
	net.Conn
	closed bool
}

func (c *closedConn) Close() error { c.closed = true; return nil }

// TestAStreamOfAPoolThatEndsMeanwhileIsClosed promises that a connection which comes to be while
// the node ends does not stay open.
func TestAStreamOfAPoolThatEndsMeanwhileIsClosed(t *testing.T) {
	network := &closingNetwork{dialed: &closedConn{}}
	network.pool = newPool(network)
	s, err := network.pool.get(t.Context(), state.NodeID("a"), true, func() {})
	if s != nil || !errors.Is(err, net.ErrClosed) || !network.dialed.closed {
		t.Errorf("%v, %v; the connection is closed: %t", s, err, network.dialed.closed)
	}
}
