package consensus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

var errConnRefused = errors.New("connection refused")

// memNetwork connects the nodes of one test by pipes, and can lose what they
// send: without a word, as networks do.
type memNetwork struct {
	mu        sync.Mutex
	listeners map[string]*memListener // by node and protocol
	lost      map[[2]state.NodeID]bool
	conns     map[*memConn]struct{}
	// buffered has writers not wait for their readers, as with sockets, and latency is
	// how long what they write is on its way. They are set while nobody dials.
	buffered bool
	latency  time.Duration
	buffers  []*bufferedConn // guarded by mu
	// resent is how many of these writes are lost, of 1, and sent again, and until is when a
	// node that is stopped goes on. Both are guarded by mu.
	resent float64
	until  map[state.NodeID]time.Time
	rng    *rand.Rand
}

func newMemNetwork() *memNetwork {
	return &memNetwork{
		listeners: map[string]*memListener{}, lost: map[[2]state.NodeID]bool{}, conns: map[*memConn]struct{}{},
		until: map[state.NodeID]time.Time{}, rng: rand.New(rand.NewPCG(1, 1)),
	}
}

// onWay returns how long a write to a stream with buffers is on its way. As TCP has it, one that
// is lost is sent again after the way there and back and a little, then after twice that.
func (m *memNetwork) onWay() time.Duration {
	const little = 200 * time.Millisecond
	m.mu.Lock()
	defer m.mu.Unlock()
	takes := m.latency
	for again := 2*m.latency + little; m.rng.Float64() < m.resent; again *= 2 {
		takes += again
	}
	return takes
}

// stop has a node neither send nor receive for a while, as if its process were stopped. Only
// streams with buffers are.
func (m *memNetwork) stop(id state.NodeID, lasts time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until[id] = time.Now().Add(lasts)
}

// stopped is until when one of two nodes is.
func (m *memNetwork) stopped(a, b state.NodeID) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.until[a].After(m.until[b]) {
		return m.until[a]
	}
	return m.until[b]
}

// isolate loses everything between a node and the others from now on.
func (m *memNetwork) isolate(id state.NodeID, others ...state.NodeID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range others {
		m.lost[[2]state.NodeID{id, other}] = true
		m.lost[[2]state.NodeID{other, id}] = true
	}
}

// silence loses what a node sends to others from now on.
func (m *memNetwork) silence(id state.NodeID, others ...state.NodeID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range others {
		m.lost[[2]state.NodeID{id, other}] = true
	}
}

// heal loses nothing any more. Streams that lost something end.
func (m *memNetwork) heal() {
	m.mu.Lock()
	m.lost = map[[2]state.NodeID]bool{}
	var tainted []*memConn
	for c := range m.conns {
		if c.tainted {
			tainted = append(tainted, c)
		}
	}
	m.mu.Unlock()
	for _, c := range tainted {
		_ = c.Close()
	}
}

// crash ends all streams of a node, as the end of its process would, but for those that it has
// opened to the nodes of silent.
func (m *memNetwork) crash(id state.NodeID, silent ...state.NodeID) {
	m.mu.Lock()
	var ended []*memConn
	for c := range m.conns {
		other := c.to
		if other == id {
			other = c.from
		}
		if (c.from == id || c.to == id) && (c.by != id || !slices.Contains(silent, other)) {
			ended = append(ended, c)
		}
	}
	m.mu.Unlock()
	for _, c := range ended {
		_ = c.Close()
	}
}

// die ends all streams of a node, refuses others, and loses what it sends, as the kernel does
// for a process that was killed.
func (m *memNetwork) die(id state.NodeID, others ...state.NodeID) {
	m.refuse(id, others...)
	m.crash(id)
}

// refuse has a node take no more streams, and loses what it sends to others.
func (m *memNetwork) refuse(id state.NodeID, others ...state.NodeID) {
	m.silence(id, others...)
	m.mu.Lock()
	for name, l := range m.listeners {
		if l.id == id {
			delete(m.listeners, name)
		}
	}
	m.mu.Unlock()
}

// of returns the network as one node sees it.
func (m *memNetwork) of(id state.NodeID) Network { return &memHost{network: m, id: id} }

type memHost struct {
	network *memNetwork
	id      state.NodeID
}

func (h *memHost) Listen(protocol string) (net.Listener, error) {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	name := string(h.id) + protocol
	if h.network.listeners[name] != nil {
		return nil, fmt.Errorf("%s listens already", name)
	}
	l := &memListener{network: h.network, name: name, id: h.id, accepted: make(chan net.Conn), closed: make(chan struct{})}
	h.network.listeners[name] = l
	return l, nil
}

func (h *memHost) Dial(ctx context.Context, node, protocol string) (net.Conn, error) {
	h.network.mu.Lock()
	l := h.network.listeners[node+protocol]
	lost := h.network.lost[[2]state.NodeID{h.id, state.NodeID(node)}]
	h.network.mu.Unlock()
	if lost {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if l == nil {
		return nil, errConnRefused
	}
	near, far := net.Pipe()
	if h.network.buffered {
		near, far = h.network.buffer(near, h.id, state.NodeID(node)), h.network.buffer(far, state.NodeID(node), h.id)
	}
	ours := h.network.conn(near, h.id, state.NodeID(node), h.id)
	theirs := h.network.conn(far, state.NodeID(node), h.id, h.id)
	select {
	case l.accepted <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, errors.Join(errConnRefused, ours.Close(), theirs.Close())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), ours.Close(), theirs.Close())
	}
}

func (m *memNetwork) conn(c net.Conn, from, to, by state.NodeID) *memConn {
	m.mu.Lock()
	defer m.mu.Unlock()
	conn := &memConn{Conn: c, network: m, from: from, to: to, by: by}
	m.conns[conn] = struct{}{}
	return conn
}

type memListener struct {
	network  *memNetwork
	name     string
	id       state.NodeID
	accepted chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		delete(l.network.listeners, l.name)
	})
	return nil
}

func (l *memListener) Addr() net.Addr { return nodeAddr(l.id) }

type nodeAddr state.NodeID

func (nodeAddr) Network() string  { return "mem" }
func (a nodeAddr) String() string { return string(a) }

// memConn is one end of a stream.
type memConn struct {
	net.Conn
	network  *memNetwork
	from, to state.NodeID
	by       state.NodeID // who dialled
	tainted  bool         // something was lost; guarded by network.mu
}

func (c *memConn) Write(p []byte) (int, error) {
	c.network.mu.Lock()
	lost := c.tainted || c.network.lost[[2]state.NodeID{c.from, c.to}]
	c.tainted = lost
	c.network.mu.Unlock()
	if lost {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *memConn) Close() error {
	c.network.mu.Lock()
	delete(c.network.conns, c)
	c.network.mu.Unlock()
	return c.Conn.Close()
}

func (c *memConn) LocalAddr() net.Addr  { return nodeAddr(c.from) }
func (c *memConn) RemoteAddr() net.Addr { return nodeAddr(c.to) }
