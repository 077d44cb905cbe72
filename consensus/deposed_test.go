package consensus

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// bufferedConn is a pipe whose writer does not wait for the reader.
type bufferedConn struct {
	net.Conn
	network  *memNetwork
	from, to state.NodeID
	out      chan delayed
	cut      chan struct{} // closed when nobody waits for what is on its way

	mu     sync.Mutex
	closed bool
}

// delayed is a write that arrives when its time has come.
type delayed struct {
	bytes []byte
	due   time.Time
}

// bufferedWrites is how many writes wait for their reader. A test has fewer.
const bufferedWrites = 4096

func (m *memNetwork) buffer(c net.Conn, from, to state.NodeID) *bufferedConn {
	b := &bufferedConn{Conn: c, network: m, from: from, to: to, out: make(chan delayed, bufferedWrites), cut: make(chan struct{})}
	m.mu.Lock()
	m.buffers = append(m.buffers, b)
	m.mu.Unlock()
	go func() {
		for p := range b.out {
			b.wait(p.due)
			b.wait(m.stopped(from, to))
			if _, err := b.Conn.Write(p.bytes); err != nil {
				for range b.out { // nobody reads it
				}
			}
		}
		_ = b.Conn.Close() // behind what was written, as a socket does it
	}()
	return b
}

// wait returns at a moment, or when nobody waits any more.
func (b *bufferedConn) wait(until time.Time) {
	if wait := time.Until(until); wait > 0 {
		select {
		case <-time.After(wait):
		case <-b.cut:
		}
	}
}

// unbuffer ends all buffered streams.
func (m *memNetwork) unbuffer() {
	m.buffered = false
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.buffers {
		_ = b.Close()
		close(b.cut)
	}
	m.buffers = nil
}

func (b *bufferedConn) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, net.ErrClosed
	}
	b.out <- delayed{append([]byte(nil), p...), time.Now().Add(b.network.onWay())}
	return len(p), nil
}

func (b *bufferedConn) SetWriteDeadline(time.Time) error { return nil }
func (b *bufferedConn) SetDeadline(t time.Time) error    { return b.Conn.SetReadDeadline(t) }

func (b *bufferedConn) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	close(b.out)
	_ = b.Conn.SetReadDeadline(time.Unix(1, 0))
	return b.Conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
}

// rejoin heals what is between one node and others.
func (m *memNetwork) rejoin(id state.NodeID, others ...state.NodeID) {
	m.mu.Lock()
	var tainted []*memConn
	for _, o := range others {
		delete(m.lost, [2]state.NodeID{id, o})
		delete(m.lost, [2]state.NodeID{o, id})
		for c := range m.conns {
			if c.tainted && (c.from == id && c.to == o || c.from == o && c.to == id) {
				tainted = append(tainted, c)
			}
		}
	}
	m.mu.Unlock()
	for _, c := range tainted {
		_ = c.Close()
	}
}

// gate is a disk of a Raft log that writes nothing while it is shut.
type gate struct{ shut atomic.Pointer[chan struct{}] }

func (g *gate) fault() error {
	if shut := g.shut.Load(); shut != nil {
		<-*shut
	}
	return nil
}

func (g *gate) close() {
	shut := make(chan struct{})
	g.shut.Store(&shut)
}

func (g *gate) open() {
	if shut := g.shut.Swap(nil); shut != nil {
		close(*shut)
	}
}

// All nodes have the same state after a deposed leader learns what the next leader has committed. The old leader and
// a follower whose disk is slow are cut off with entries that nobody else has. The others elect another and go on;
// the old leader comes back, and learns what they committed. The follower, which has heard of none of it, is on its
// stream of the old term still: were it told there what is committed now, it would take what it has under those
// indexes for that.
func TestADeposedLeaderTellsNobodyOfCommits(t *testing.T) {
	for _, members := range []int{4, 5} { // of whom three and five vote
		for round := range 4 { // how the goroutines take turns decides
			t.Run(fmt.Sprint(members, " members, round ", round), func(t *testing.T) {
				inVirtualTime(t, members, Timings{}, deposed)
			})
		}
	}
}

func deposed(t *testing.T, c *testCluster) {
	c.network.buffered = true
	defer func() {
		c.stopAll()
		c.network.unbuffer()
	}()
	ready := func() bool { return c.ready() == len(c.ids()) }
	var disk gate
	defer disk.open()
	slow := c.last()
	slow.shutdown()
	slow.log = &faultyLog{LogStore: slow.disk, fault: disk.fault}
	slow.start()
	c.until("all are ready", ready)
	for _, id := range c.ids() { // streams anew, with buffers
		c.network.crash(id)
	}
	c.until("all are ready again", ready)
	old := c.leader()
	if old.id == slow.id {
		if err := old.HandOver(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.until("another leads", func() bool { return c.leader().id != slow.id })
		old = c.leader()
	}
	old.mustPin("before")
	<-time.After(2 * time.Second) // entries go over streams from now on
	var rest []state.NodeID
	for _, id := range c.others(old.id) {
		if id != slow.id {
			rest = append(rest, id)
		}
	}
	disk.close()
	c.network.isolate(old.id, rest...)
	c.network.isolate(slow.id, rest...)
	var lost sync.WaitGroup
	for i := range 4 {
		lost.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
			defer cancel()
			if _, err := old.Propose(ctx, pin(fmt.Sprint("lost", i))); err == nil {
				t.Error("a leader without a majority acknowledges")
			}
		})
		<-time.After(5 * time.Millisecond)
	}
	lost.Wait()
	next := c.leader(rest...)
	for i := range 8 {
		next.mustPin(fmt.Sprint("kept", i))
	}
	c.network.rejoin(old.id, rest...)
	c.until("the old leader has what the new one committed", func() bool { return old.Applied() >= next.Applied() })
	<-time.After(100 * time.Millisecond)
	disk.open()
	<-time.After(200 * time.Millisecond)
	c.network.heal()
	c.until("the slow one has it as well", func() bool { return slow.Applied() >= next.Applied() })
	c.sameEverywhere()
}

// last returns a node that does not vote, if there is one, else one that does not lead.
func (c *testCluster) last() *testNode {
	for id, role := range c.leader().Roles() {
		if role != roleVoter {
			return c.nodes[id]
		}
	}
	return c.follower()
}
