package peer

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
)

// Bounds of the data that waits to be sent to a member.
const (
	// queuedBytes is how many bytes of content may wait in yamux for one connection; above that,
	// writers of content wait. These bytes, and one message that yamux is writing, take 10 ms on a
	// line of 100 Mbit/s.
	queuedBytes = clusterMessage
	// urgentBytes is the largest write that does not wait in the queue: heartbeats,
	// requests, and the messages of small changes.
	urgentBytes = 16 << 10
	// unsentBytes is how much unsent data the kernel buffers for one connection.
	unsentBytes = 128 << 10
)

// Header of a yamux message, 12 bytes big endian: version uint8, type uint8, flags uint16,
// stream uint32, length uint32 (from the yamux specification).
const (
	yamuxHead     = 12
	yamuxTypeAt   = 1
	yamuxLengthAt = 8
	yamuxData     = 0
)

// queuedMux is yamux with a short queue of content, so that urgent messages are not
// delayed. yamux sends in the order in which streams write and queues 64 messages, up to
// 4.6 MB of content. On a saturated line a heartbeat would then be a third of a second
// late, and members would start an election.
type queuedMux struct{ inner *yamux.Transport }

func newQueuedMux() queuedMux {
	mux := *yamux.DefaultTransport
	mux.KeepAliveInterval = clusterKeepAlive
	mux.ConnectionWriteTimeout = clusterWriteTimeout
	mux.AcceptBacklog = clusterAcceptBacklog
	mux.InitialStreamWindowSize = clusterWindowAtFirst
	mux.MaxStreamWindowSize = clusterStreamWindow
	mux.MaxMessageSize = clusterMessage
	return queuedMux{&mux}
}

// NewConn implements network.Multiplexer.
func (m queuedMux) NewConn(c net.Conn, isServer bool, scope network.PeerScope) (network.MuxedConn, error) {
	q := new(sendQueue)
	conn, err := m.inner.NewConn(&sentConn{Conn: c, queue: q}, isServer, scope)
	if err != nil {
		return nil, err
	}
	return &queuedConn{MuxedConn: conn, queue: q}, nil
}

// sendQueue counts the bytes that streams have given to yamux and yamux has not written.
type sendQueue struct {
	// mu guards the fields below.
	mu      sync.Mutex
	bytes   int
	waiting []chan struct{} // waiting writers in order; closing a channel admits its writer
	passed  int             // bytes written since the last writer was admitted
	closed  bool
}

// room returns nil if content may be written now, else a channel that is closed when it
// may.
func (q *sendQueue) room() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.bytes < queuedBytes && len(q.waiting) == 0 {
		return nil
	}
	w := make(chan struct{})
	q.waiting = append(q.waiting, w)
	return w
}

// add adds bytes to the queue, or removes them if negative because they were written. It
// then admits waiting writers. An admitted writer may be blocked by the window of its
// stream, so an empty queue admits all writers. Urgent messages do not wait and may fill
// the queue all the time, so the first writer is also admitted after two messages were
// written.
func (q *sendQueue) add(bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes += bytes
	if len(q.waiting) == 0 {
		q.passed = 0
		return
	}
	q.passed -= min(bytes, 0)
	for room := queuedBytes - q.bytes; len(q.waiting) > 0 && (room > 0 || q.bytes <= 0 || q.passed >= 2*clusterMessage); room -= clusterMessage {
		close(q.waiting[0])
		q.waiting, q.passed = q.waiting[1:], 0
	}
}

// close admits all waiting writers; yamux then returns its error to them.
func (q *sendQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, w := range q.waiting {
		close(w)
	}
	q.waiting = nil
}

// sentConn is the connection below yamux. Each Write is one yamux message. After the message was
// sent, sentConn removes its bytes from the count of the queue.
type sentConn struct {
	net.Conn
	queue *sendQueue
}

// Write implements net.Conn.
func (c *sentConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if len(p) > yamuxHead && p[yamuxTypeAt] == yamuxData {
		c.queue.add(-int(binary.BigEndian.Uint32(p[yamuxLengthAt:])))
	}
	return n, err
}

// Close implements net.Conn.
func (c *sentConn) Close() error {
	c.queue.close()
	return c.Conn.Close()
}

// queuedConn returns streams whose writes pass through the queue.
type queuedConn struct {
	network.MuxedConn
	queue *sendQueue
}

// CloseWithError implements network.MuxedConn. It first releases the writers that wait in
// the queue, because yamux sends the code before it closes, and a blocked connection does
// not accept those bytes.
func (c *queuedConn) CloseWithError(code network.ConnErrorCode) error {
	c.queue.close()
	return c.MuxedConn.CloseWithError(code)
}

// OpenStream implements network.MuxedConn.
func (c *queuedConn) OpenStream(ctx context.Context) (network.MuxedStream, error) {
	s, err := c.MuxedConn.OpenStream(ctx)
	if err != nil {
		return nil, err
	}
	return &queuedStream{MuxedStream: s, queue: c.queue}, nil
}

// AcceptStream implements network.MuxedConn.
func (c *queuedConn) AcceptStream() (network.MuxedStream, error) {
	s, err := c.MuxedConn.AcceptStream()
	if err != nil {
		return nil, err
	}
	return &queuedStream{MuxedStream: s, queue: c.queue}, nil
}

// queuedStream is a stream whose content waits for space in the queue. If its deadline
// passes or the stream ends, the wait ends, and the write that follows returns yamux's
// error.
type queuedStream struct {
	network.MuxedStream
	queue *sendQueue

	// mu guards the fields below.
	mu       sync.Mutex
	deadline time.Time // write deadline; zero means none
	ended    bool
	changed  chan struct{} // closed when deadline or ended changes; nil: no writer waits
}

// Write implements network.MuxedStream.
func (s *queuedStream) Write(p []byte) (int, error) {
	if len(p) <= urgentBytes {
		return s.write(p)
	}
	total := 0
	for total < len(p) {
		if room := s.queue.room(); room != nil {
			s.wait(room)
		}
		n, err := s.write(p[total:min(len(p), total+clusterMessage-yamuxHead)])
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (s *queuedStream) write(p []byte) (int, error) {
	n, err := s.MuxedStream.Write(p)
	if n > 0 {
		s.queue.add(n)
	}
	return n, err
}

// wait returns when there is space, when the stream has ended, or at its deadline.
func (s *queuedStream) wait(room <-chan struct{}) {
	for {
		s.mu.Lock()
		deadline, ended := s.deadline, s.ended
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		left := time.Until(deadline)
		if ended || !deadline.IsZero() && left <= 0 {
			return
		}
		var late <-chan time.Time
		if !deadline.IsZero() {
			timer := time.NewTimer(left)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-room:
			return
		case <-late:
			return
		case <-changed:
		}
	}
}

// change calls the function what with mu held, and then notifies the waiting writers.
func (s *queuedStream) change(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

func (s *queuedStream) end() { s.change(func() { s.ended = true }) }

// SetWriteDeadline implements network.MuxedStream.
func (s *queuedStream) SetWriteDeadline(t time.Time) error {
	err := s.MuxedStream.SetWriteDeadline(t)
	s.change(func() { s.deadline = t })
	return err
}

// SetDeadline implements network.MuxedStream.
func (s *queuedStream) SetDeadline(t time.Time) error {
	err := s.MuxedStream.SetDeadline(t)
	s.change(func() { s.deadline = t })
	return err
}

// CloseWrite implements network.MuxedStream.
func (s *queuedStream) CloseWrite() error {
	err := s.MuxedStream.CloseWrite()
	s.end()
	return err
}

// Close implements network.MuxedStream.
func (s *queuedStream) Close() error {
	err := s.MuxedStream.Close()
	s.end()
	return err
}

// Reset implements network.MuxedStream.
func (s *queuedStream) Reset() error {
	err := s.MuxedStream.Reset()
	s.end()
	return err
}

// ResetWithError implements network.MuxedStream.
func (s *queuedStream) ResetWithError(code network.StreamErrorCode) error {
	err := s.MuxedStream.ResetWithError(code)
	s.end()
	return err
}
