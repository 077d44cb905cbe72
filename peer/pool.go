package peer

import (
	"bufio"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/libp2p/go-libp2p/core/network"
)

const (
	// maxStreamsPerMember is the largest number of block streams to one member, in use or idle. A
	// caller that needs one more waits.
	maxStreamsPerMember = 16
	// maxBulkStreams is the largest number of streams to one member that fetch DAGs at the same
	// time. So other callers, which read single blocks for waiting readers, always find a free
	// stream.
	maxBulkStreams = 12
	// streamIdle is how long an unused stream stays open.
	streamIdle = time.Minute
	// streamSweepEvery is the interval of the scan for idle streams.
	streamSweepEvery = 20 * time.Second
)

var errPoolClosed = errors.New("peer is closed")

// pooledStream is a block stream. One request uses it at a time.
type pooledStream struct {
	member string
	stream network.Stream
	in     *bufio.Reader
	frame  []byte // the last request; its capacity is reused
	reused bool
	idle   time.Time // time since which the stream is unused
}

// streamPool keeps block streams to members open between requests, because opening one
// takes four times as long as a request.
type streamPool struct {
	open func(ctx context.Context, member string) (network.Stream, error)

	// mu guards members and closed. It is not held while a stream is opened.
	mu      sync.Mutex
	members map[string]*memberStreams
	closed  bool
}

type memberStreams struct {
	slots chan struct{} // one token for each stream in use
	bulk  chan struct{} // one token for each stream that GetBlocks uses
	idle  []*pooledStream
}

func newStreamPool(open func(context.Context, string) (network.Stream, error)) *streamPool {
	return &streamPool{open: open, members: make(map[string]*memberStreams)}
}

func (o *streamPool) member(id string) (*memberStreams, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, errPoolClosed
	}
	m := o.members[id]
	if m == nil {
		m = &memberStreams{slots: make(chan struct{}, maxStreamsPerMember), bulk: make(chan struct{}, maxBulkStreams)}
		o.members[id] = m
	}
	return m, nil
}

// get returns an idle stream or opens one. The caller returns it with put.
func (o *streamPool) get(ctx context.Context, id string) (*pooledStream, error) {
	m, err := o.member(id)
	if err != nil {
		return nil, err
	}
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	o.mu.Lock()
	if n := len(m.idle); n > 0 {
		s := m.idle[n-1] // the most recently used one, so that the others reach streamIdle
		m.idle = m.idle[:n-1]
		o.mu.Unlock()
		s.reused = true
		return s, nil
	}
	o.mu.Unlock()
	stream, err := o.open(ctx, id)
	if err != nil {
		<-m.slots
		return nil, err
	}
	return &pooledStream{
		member: id,
		stream: stream,
		in:     bufio.NewReaderSize(stream, blockBuffer),
	}, nil
}

// put returns a stream to the pool. If good is false, because the stream failed or has
// unread responses, put resets it.
func (o *streamPool) put(id string, s *pooledStream, good bool) {
	o.mu.Lock()
	m := o.members[id]
	if m != nil && good && !o.closed {
		s.idle = time.Now()
		m.idle = append(m.idle, s)
		s = nil
	}
	o.mu.Unlock()
	if s != nil {
		_ = s.stream.Reset()
	}
	if m != nil {
		<-m.slots
	}
}

// takeBulk waits until fewer than maxBulkStreams streams to a member fetch DAGs, and reserves one
// of them. The caller must call giveBack when it has finished.
func (o *streamPool) takeBulk(ctx context.Context, id string) (giveBack func(), err error) {
	m, err := o.member(id)
	if err != nil {
		return nil, err
	}
	select {
	case m.bulk <- struct{}{}:
		return func() { <-m.bulk }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// busy returns how many streams to a member are in use.
func (o *streamPool) busy(id string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m := o.members[id]; m != nil {
		return len(m.slots)
	}
	return 0
}

// dropIdle resets the idle streams to a member.
func (o *streamPool) dropIdle(id string) {
	o.mu.Lock()
	var old []*pooledStream
	if m := o.members[id]; m != nil {
		old, m.idle = m.idle, nil
	}
	o.mu.Unlock()
	for _, s := range old {
		_ = s.stream.Reset()
	}
}

// forget resets the idle streams to a removed member. Requests in progress keep theirs.
func (o *streamPool) forget(id string) { o.dropIdle(id) }

// sweep closes streams that have been idle since before the given time.
func (o *streamPool) sweep(before time.Time) {
	o.mu.Lock()
	var old []*pooledStream
	for _, m := range o.members {
		n := 0
		for n < len(m.idle) && m.idle[n].idle.Before(before) {
			n++
		}
		old = append(old, m.idle[:n]...)
		m.idle = append([]*pooledStream(nil), m.idle[n:]...)
	}
	o.mu.Unlock()
	for _, s := range old {
		_ = s.stream.Close()
	}
}

func (o *streamPool) close() {
	o.mu.Lock()
	o.closed = true
	var ids []string
	for id := range o.members {
		ids = append(ids, id)
	}
	o.mu.Unlock()
	for _, id := range ids {
		o.dropIdle(id)
	}
}

func (p *Peer) openBlocks(ctx context.Context, member string) (network.Stream, error) {
	return p.openMember(ctx, member, blocksProtocol)
}

// sweepStreams closes idle streams every streamSweepEvery.
func (p *Peer) sweepStreams(ctx context.Context) {
	for backoff.Wait(ctx, streamSweepEvery) {
		p.pool.sweep(time.Now().Add(-streamIdle))
	}
}
