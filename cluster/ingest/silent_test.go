package ingest

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// silent is a network on which node b takes what it is sent and says nothing, as a process
// that is stopped.
type silent struct{ Network }

func (s silent) Dial(ctx context.Context, node, protocol string) (net.Conn, error) {
	if node != "b" {
		return s.Network.Dial(ctx, node, protocol)
	}
	here, there := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, there) }() // until here is closed
	return here, nil
}

// A spare node has the content within 15 s if a node of the placement says nothing.
func TestANodeThatSaysNothingIsReplaced(t *testing.T) {
	const patience = 15 * time.Second
	forSizes(t, func(t *testing.T, data []byte) {
		bubble(t, 3, func(w *world) {
			began := time.Now()
			s, err := w.node("a").Store(w.Context(), bytes.NewReader(data), Placement{Nodes: w.all[:2], Spare: w.all[2:], Copies: 2})
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > patience {
				t.Errorf("stored after %v, want %v at the most", took, patience)
			}
			w.wantKept(s, data, "a", "c")
			s.Done(true)
			w.wantLeases(0)
		}, func(o *Options) { o.Network = silent{o.Network} })
	})
}

// gone is a network on which nodes b and c have died, with streams to them still open, and d
// before, so that it is never reached.
type gone struct{ Network }

func (g gone) Dial(ctx context.Context, node, protocol string) (net.Conn, error) {
	switch node {
	case "c":
		node = "b"
	case "d":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return silent(g).Dial(ctx, node, protocol)
}

// A put whose nodes and spare nodes are down but for two ends within silentAfter and reachedWithin. Clients wait 15 s
// at the most, for content that is in memory.
func TestSpareNodesThatAreDownTooAreNotWaitedForOneByOne(t *testing.T) {
	data := bytesOf(1, 1000)
	bubble(t, 5, func(w *world) {
		began := time.Now()
		s, err := w.node("a").Store(w.Context(), bytes.NewReader(data), Placement{Nodes: w.all[:3], Spare: w.all[3:], Copies: 2})
		if err != nil {
			t.Fatal(err)
		}
		if took, want := time.Since(began), silentAfter+reachedWithin; took > want {
			t.Errorf("stored after %v, want %v", took, want)
		}
		w.wantKept(s, data, "a", "e")
		s.Done(true)
		w.wantLeases(0)
	}, func(o *Options) { o.Network = gone{o.Network} })
}

// mute is a network on which what node b says comes later, once, and nothing before.
type mute struct {
	Network
	later time.Duration
}

func (m mute) Dial(ctx context.Context, node, protocol string) (net.Conn, error) {
	conn, err := m.Network.Dial(ctx, node, protocol)
	if err != nil || node != "b" {
		return conn, err
	}
	return &mutedConn{Conn: conn, later: m.later}, nil
}

type mutedConn struct {
	net.Conn
	later time.Duration
}

func (c *mutedConn) Read(b []byte) (int, error) {
	<-time.After(c.later)
	c.later = 0
	return c.Conn.Read(b)
}

// A node that is silent for a while keeps the content if no other node could take its place.
func TestANodeThatIsSilentForAWhileIsNotGivenUp(t *testing.T) {
	data := bytesOf(1, 1000)
	bubble(t, 2, func(w *world) {
		s, err := w.node("a").Store(w.Context(), bytes.NewReader(data), Placement{Nodes: w.all, Copies: 2})
		if err != nil {
			t.Fatal(err)
		}
		w.wantKept(s, data, "a", "b")
		s.Done(true)
	}, func(o *Options) { o.Network = mute{o.Network, 2*silentAfter + time.Second} })
}

// A node that says that it works may take ten times answerTimeout, and is not replaced.
func TestANodeThatWorksHasItsTime(t *testing.T) {
	const works = 10 * answerTimeout
	bubble(t, 2, func(w *world) {
		w.node("b").store.before(func(ctx context.Context, op, _ string) error {
			select {
			case <-time.After(works):
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		data := bytesOf(1, 1000)
		s, err := w.node("a").Store(w.Context(), bytes.NewReader(data), Placement{Nodes: w.all, Copies: 2})
		if err != nil {
			t.Fatal(err)
		}
		w.wantKept(s, data, "a", "b")
		s.Done(true)
	})
}
