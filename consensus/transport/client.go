package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"
)

// Limits for calls to other members.
const (
	// dialTimeout is the longest time for opening a new stream.
	dialTimeout = 2 * time.Second
	// writeTimeout is the longest time for which a write of one or several frames may block
	// because the other side does not read.
	writeTimeout = 5 * time.Second
	// maxQueued is the largest number of frames that wait to be written to one stream.
	maxQueued = 64
	// maxPending is the largest number of unanswered calls on one stream.
	maxPending = 4096
	// bufferBytes is the size of a stream's buffers.
	bufferBytes = 64 << 10
)

// ErrBusy means that the stream to a node already has the largest number of unanswered calls.
var ErrBusy = errors.New("transport: too many calls are waiting")

// Client calls other members. All calls to one member share one stream. The client opens
// it on demand, keeps it while it is idle, and replaces it when it breaks or stops
// answering.
type Client struct {
	network  Network
	protocol string

	// mu guards the fields below. It is not held during network access.
	mu     sync.Mutex
	closed bool
	peers  map[string]*remote

	streams sync.WaitGroup // counts the goroutines of all links
}

// remote is a member to which the client has a link, or had one.
type remote struct {
	dialing chan struct{} // a lock: has a token while no goroutine dials
	link    *link         // guarded by Client.mu
}

// NewClient returns a client whose streams use the given protocol.
func NewClient(network Network, protocol string) *Client {
	return &Client{network: network, protocol: protocol, peers: make(map[string]*remote)}
}

// Call sends a request to a node and returns the kind and the body of the answer. If ctx has no
// deadline, Call waits until the stream breaks. After an error, the node may or may not have
// executed the request.
func (c *Client) Call(ctx context.Context, node string, kind uint8, body []byte) (uint8, []byte, error) {
	l, err := c.link(ctx, node)
	if err != nil {
		return 0, nil, fmt.Errorf("transport: call %s: %w", node, err)
	}
	answer, err := l.call(ctx, Frame{Kind: kind, Body: body})
	if err != nil {
		return 0, nil, fmt.Errorf("transport: call %s: %w", node, err)
	}
	return answer.Kind, answer.Body, nil
}

// Close ends all streams and waits for their calls.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	var open []*link
	for _, p := range c.peers {
		if p.link != nil {
			open = append(open, p.link)
		}
	}
	c.mu.Unlock()
	for _, l := range open {
		l.fail(errClosed)
	}
	c.streams.Wait()
	return nil
}

// link returns an unbroken link to a node, and opens one if there is none. Only one goroutine at
// a time opens a stream to a node.
func (c *Client) link(ctx context.Context, node string) (*link, error) {
	c.mu.Lock()
	p := c.peers[node]
	if p == nil {
		p = &remote{dialing: make(chan struct{}, 1)}
		p.dialing <- struct{}{}
		c.peers[node] = p
	}
	c.mu.Unlock()
	if l, err := c.working(p); l != nil || err != nil {
		return l, err
	}
	select {
	case <-p.dialing:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { p.dialing <- struct{}{} }()
	if l, err := c.working(p); l != nil || err != nil {
		return l, err // another goroutine opened it meanwhile
	}
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := c.network.Dial(dialing, node, c.protocol)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.Join(errClosed, conn.Close())
	}
	p.link = newLink(conn)
	c.streams.Go(p.link.read)
	c.streams.Go(p.link.write)
	return p.link, nil
}

func (c *Client) working(p *remote) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if p.link != nil && p.link.broken() {
		p.link = nil
	}
	return p.link, nil
}

// link is a stream to one member, with the calls that wait for an answer on it.
type link struct {
	conn net.Conn
	out  chan []byte   // encoded frames to send
	done chan struct{} // closed when the link is broken

	// mu guards the fields below.
	mu      sync.Mutex
	err     error // reason why the link broke
	next    uint64
	heard   time.Time // when the last answer arrived
	pending map[uint64]chan Frame
}

func newLink(conn net.Conn) *link {
	return &link{
		conn: conn, out: make(chan []byte, maxQueued), done: make(chan struct{}), pending: make(map[uint64]chan Frame),
	}
}

func (l *link) broken() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// fail marks the link as broken with the reason err, and closes it. Only the first call has an
// effect.
func (l *link) fail(err error) {
	l.mu.Lock()
	first := l.err == nil
	if first {
		l.err = err
		close(l.done)
	}
	l.mu.Unlock()
	if first {
		// The link is given up whatever Close returns.
		_ = l.conn.Close()
	}
}

func (l *link) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *link) call(ctx context.Context, f Frame) (Frame, error) {
	began := time.Now()
	if deadline, ok := ctx.Deadline(); ok {
		f.Budget = max(deadline.Sub(began), time.Millisecond)
	}
	answer := make(chan Frame, 1)
	l.mu.Lock()
	if len(l.pending) >= maxPending {
		l.mu.Unlock()
		return Frame{}, ErrBusy
	}
	l.next++
	f.ID = l.next
	l.pending[f.ID] = answer
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.pending, f.ID)
		l.mu.Unlock()
	}()
	encoded, err := AppendFrame(make([]byte, 0, lengthBytes+headerBytes+len(f.Body)), f)
	if err != nil {
		return Frame{}, err
	}
	select {
	case l.out <- encoded:
	case <-l.done:
		return Frame{}, l.reason()
	case <-ctx.Done():
		return Frame{}, ctx.Err()
	}
	select {
	case f = <-answer:
		return f, nil
	case <-l.done:
		return Frame{}, l.reason()
	case <-ctx.Done():
		l.suspect(ctx, began)
		return Frame{}, ctx.Err()
	}
}

// suspect breaks the link if ctx of a call has timed out and nothing has arrived on the stream
// since the call began, because the other side may have disappeared without closing the stream.
func (l *link) suspect(ctx context.Context, since time.Time) {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	l.mu.Lock()
	silent := l.heard.Before(since)
	l.mu.Unlock()
	if silent {
		l.fail(fmt.Errorf("no answer in time: %w", ctx.Err()))
	}
}

func (l *link) read() {
	r := bufio.NewReaderSize(l.conn, bufferBytes)
	for {
		f, err := ReadFrame(r)
		if err != nil {
			l.fail(fmt.Errorf("stream ended: %w", err))
			return
		}
		l.mu.Lock()
		l.heard = time.Now()
		answer := l.pending[f.ID]
		delete(l.pending, f.ID)
		l.mu.Unlock()
		if answer != nil { // otherwise no caller waits for it any more
			answer <- f
		}
	}
}

func (l *link) write() {
	if err := writeFrames(l.conn, l.out, l.done); err != nil {
		l.fail(fmt.Errorf("stream broke: %w", err))
	}
}

// patient is a connection on which each write fails after writeTimeout.
type patient struct{ net.Conn }

// Write implements io.Writer.
func (p patient) Write(b []byte) (int, error) {
	if err := p.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}

// writeFrames writes the frames from out to conn until done is closed or a write fails. Frames
// that are queued at the same time are flushed together.
func writeFrames(conn net.Conn, out <-chan []byte, done <-chan struct{}) error {
	w := bufio.NewWriterSize(patient{conn}, bufferBytes)
	for {
		var frame []byte
		select {
		case frame = <-out:
		case <-done:
			return nil
		}
		runtime.Gosched() // callers that got their answers together send their next frames together, so let them run first
		for more := true; more; {
			if _, err := w.Write(frame); err != nil {
				return err
			}
			select {
			case frame = <-out:
			default:
				more = false
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
}
