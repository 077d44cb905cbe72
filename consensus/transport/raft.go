package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/holdfast-ipfs/holdfast/internal/cache"
)

// Limits for Raft's streams.
const (
	// raftTimeout is the time-out of Raft for one message.
	raftTimeout = 5 * time.Second
	// raftPool is the number of idle streams that Raft keeps to each member.
	raftPool = 3
	// raftInFlight is the largest number of unanswered messages of Raft to each follower.
	raftInFlight = 2
	// maxAppendBytes is the largest size in bytes of all entries in one message, or of one entry.
	// A message must arrive within raftTimeout, because Raft repeats a lost message unchanged and
	// a larger one would fail each time.
	maxAppendBytes = 1 << 20
	// maxBeats is the largest number of members whose last heartbeat is remembered.
	maxBeats = 1 << 10
)

// Raft is Raft's transport between members. Server ids and server addresses are both node ids.
// After Close it sends nothing. The library's transport, in contrast, leaves streams open when it
// is closed, and may leave a pipeline that waits forever.
type Raft struct {
	*raft.NetworkTransport
	streams *streamLayer
	hooks   Hooks

	// mu guards the fields below. It is never held during input or output.
	mu        sync.Mutex
	closed    bool
	pipelines map[*pipeline]struct{}
	beats     *cache.Cache[raft.ServerID, beat] // the newest heartbeat to each member
	every     time.Duration                     // shortest interval between two heartbeats to a member
}

// Hooks are the callbacks of a Raft transport. They must not block.
type Hooks struct {
	// Leads returns whether this node leads in a term now.
	Leads func(term uint64) bool
	// Answered is called with the duration of each answered heartbeat to a member. It may be nil.
	Answered func(member string, took time.Duration)
}

// beat has the time and the term of a heartbeat.
type beat struct {
	term uint64
	at   time.Time
}

var (
	_ raft.Transport = (*Raft)(nil)
	_ raft.WithClose = (*Raft)(nil)
)

// NewRaft returns the transport of the node self, and starts to accept streams. every is the
// shortest interval between two heartbeats to one member; 0 means no limit. The error is that of
// network.Listen.
func NewRaft(network Network, self string, every time.Duration, hooks Hooks, config raft.NetworkTransportConfig) (*Raft, error) {
	l, err := network.Listen(RaftProtocol)
	if err != nil {
		return nil, fmt.Errorf("transport: listen for raft: %w", err)
	}
	layer := &streamLayer{
		self: nodeAddr(self), network: network, listener: l, ended: make(chan struct{}), streams: make(map[*raftStream]struct{}),
	}
	config.Stream, config.Timeout = layer, raftTimeout
	config.MaxPool, config.MaxRPCsInFlight = raftPool, raftInFlight
	config.MsgpackUseNewTimeFormat = true
	return &Raft{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&config), streams: layer, hooks: hooks, pipelines: make(map[*pipeline]struct{}),
		beats: cache.New[raft.ServerID, beat](maxBeats), every: every,
	}, nil
}

// AppendEntries implements raft.Transport. It delays a heartbeat that comes too soon after the
// previous one to the same member. Raft sends one every 10 % to 20 % of the time-out, and
// heartbeats are most of the work of an idle cluster. It drops none, because each answer tells
// Raft that the follower still follows.
func (t *Raft) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	heartbeat := isHeartbeat(args)
	if heartbeat && !t.await(id, args.Term) {
		return errClosed
	}
	shorten(args)
	began := time.Now()
	err := t.NetworkTransport.AppendEntries(id, target, args, resp)
	switch {
	case !heartbeat:
	case err != nil:
		t.doubt(string(id))
	case t.hooks.Answered != nil:
		t.hooks.Answered(string(id), time.Since(began))
	}
	return err
}

// Heartbeat sends a heartbeat at once, in addition to those that Raft sends.
func (t *Raft) Heartbeat(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	return t.NetworkTransport.AppendEntries(id, raft.ServerAddress(id), args, resp)
}

// shorten removes entries from the end of a message that is too long. Raft sends them in the next
// message, because it regards as sent only the entries that args contains after the call. shorten
// also lowers the message's commit index to the last entry that remains.
func shorten(args *raft.AppendEntriesRequest) {
	size := 0
	for i, e := range args.Entries {
		if size += len(e.Data); i > 0 && size > maxAppendBytes {
			args.Entries = args.Entries[:i]
			args.LeaderCommitIndex = min(args.LeaderCommitIndex, args.Entries[i-1].Index)
			return
		}
	}
}

// isHeartbeat returns whether the receiving Raft library will treat the message as a heartbeat.
func isHeartbeat(args *raft.AppendEntriesRequest) bool {
	return args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0
}

// await waits until the next heartbeat of a term may be sent to a member and returns true, or
// returns false if the transport is closed.
func (t *Raft) await(id raft.ServerID, term uint64) bool {
	now := time.Now()
	t.mu.Lock()
	last, known := t.beats.Get(id)
	next := beat{term: term, at: now}
	if known && last.term == term && now.Sub(last.at) < t.every {
		next.at = last.at.Add(t.every)
	}
	t.beats.Put(id, next)
	t.mu.Unlock()
	pause := next.at.Sub(now)
	if pause <= 0 {
		return true
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.streams.ended:
		return false
	}
}

// AppendEntriesPipeline implements raft.Transport.
func (t *Raft) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := newPipeline(inner, t, string(id))
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.pipelines[p] = struct{}{}
	}
	t.mu.Unlock()
	if closed {
		return nil, errors.Join(errClosed, inner.Close())
	}
	return p, nil
}

// Close closes all streams and pipelines. Afterwards the transport neither opens nor accepts
// streams.
func (t *Raft) Close() error {
	t.mu.Lock()
	t.closed = true
	var open []*pipeline
	for p := range t.pipelines {
		open = append(open, p)
	}
	t.mu.Unlock()
	err := t.NetworkTransport.Close()
	for _, p := range open {
		err = errors.Join(err, p.end())
	}
	t.streams.closeStreams()
	return err
}

// nodeAddr is a node id as a net.Addr.
type nodeAddr string

func (nodeAddr) Network() string  { return "holdfast" }
func (a nodeAddr) String() string { return string(a) }

// streamLayer implements raft.StreamLayer on a Network. It lists its open streams, so that it can
// close them.
type streamLayer struct {
	self     nodeAddr
	network  Network
	listener net.Listener
	ended    chan struct{} // closeStreams closes it

	// mu guards the fields below. It is never held during input or output.
	mu      sync.Mutex
	closed  bool
	streams map[*raftStream]struct{}
}

var _ raft.StreamLayer = (*streamLayer)(nil)

// Accept implements net.Listener.
func (l *streamLayer) Accept() (net.Conn, error) {
	conn, err := l.listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.track(conn, true)
}

// Addr implements net.Listener. Raft sends this address to other members.
func (l *streamLayer) Addr() net.Addr { return l.self }

// Close implements net.Listener.
func (l *streamLayer) Close() error { return l.listener.Close() }

// Dial implements raft.StreamLayer.
func (l *streamLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), min(timeout, dialTimeout))
	dialed := make(chan struct{})
	go func() { // ends before Dial does
		defer close(dialed)
		select {
		case <-l.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	conn, err := l.network.Dial(ctx, string(address), RaftProtocol)
	cancel()
	<-dialed
	if err != nil {
		return nil, fmt.Errorf("transport: dial %s: %w", address, err)
	}
	return l.track(conn, false)
}

// Drop closes all streams that a member has opened to this node, which aborts what the member is
// sending, for example a snapshot.
func (t *Raft) Drop(from string) { t.streams.drop(from) }

func (l *streamLayer) drop(from string) {
	l.mu.Lock()
	var open []*raftStream
	for s := range l.streams {
		if s.accepted && s.RemoteAddr().String() == from {
			open = append(open, s)
		}
	}
	l.mu.Unlock()
	for _, s := range open {
		_ = s.Close() // it is given up
	}
}

// closeStreams closes all streams. Streams that are opened later are closed at once.
func (l *streamLayer) closeStreams() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.ended)
	}
	var open []*raftStream
	for s := range l.streams {
		open = append(open, s)
	}
	l.mu.Unlock()
	for _, s := range open {
		_ = s.Close() // data in flight is lost anyway
	}
}

func (l *streamLayer) track(conn net.Conn, accepted bool) (net.Conn, error) {
	s := &raftStream{Conn: conn, layer: l, accepted: accepted}
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.streams[s] = struct{}{}
	}
	l.mu.Unlock()
	if closed {
		return nil, errors.Join(errClosed, conn.Close())
	}
	return s, nil
}

// raftStream is a stream of a streamLayer. It removes itself from the layer's list when it is
// closed.
type raftStream struct {
	net.Conn
	layer    *streamLayer
	accepted bool // the other side has opened the stream
}

func (s *raftStream) Close() error {
	s.layer.mu.Lock()
	delete(s.layer.streams, s)
	s.layer.mu.Unlock()
	return s.Conn.Close()
}
