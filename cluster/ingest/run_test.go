package ingest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

var errListener = errors.New("too many open files")

// deafNetwork has a listener that cannot accept.
type deafNetwork struct{ Network }

func (deafNetwork) Listen(string) (net.Listener, error) { return deafListener{}, nil }

type deafListener struct{ net.Listener }

func (deafListener) Accept() (net.Conn, error) { return nil, errListener }
func (deafListener) Close() error              { return nil }

// Run ends with the error of its listener. So the node ends, and does not stay as one that takes no content.
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

// A connection that is made while the node ends is closed.
func TestAStreamOfAPoolThatEndsMeanwhileIsClosed(t *testing.T) {
	network := &closingNetwork{dialed: &closedConn{}}
	network.pool = newPool(network)
	s, err := network.pool.get(t.Context(), state.NodeID("a"), true, func() {})
	if s != nil || !errors.Is(err, net.ErrClosed) || !network.dialed.closed {
		t.Errorf("%v, %v; the connection is closed: %t", s, err, network.dialed.closed)
	}
}

// Puts one after the other use one stream, and a new one after it was idle or broke.
func TestStreamsAreUsedAgain(t *testing.T) {
	bubble(t, 2, func(w *world) {
		put := func(i int) {
			t.Helper()
			s, err := w.node("a").Store(w.Context(), bytes.NewReader(bytesOf(byte(i), 1000*i)), Placement{Nodes: w.all, Copies: 2})
			if err != nil {
				t.Fatal(err)
			}
			s.Done(true)
			synctest.Wait()
		}
		for i := range 20 {
			put(i)
		}
		if d := w.node("a").dials; d != 1 {
			t.Errorf("%d streams for 20 puts, one after the other", d)
		}
		<-time.After(2 * idleAfter) // it is closed
		put(1)
		w.node("a").cut() // unlike this one, which breaks
		put(2)
		if d := w.node("a").dials; d != 3 {
			t.Errorf("%d streams", d)
		}
		w.wantClean()
	})
}
