package transport

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Intervals at which a follower is sent a commit index: one that it may already know, and one
// that is newer than the newest entry that it was sent.
const (
	// quietFor is how long messages without news are left out. It bounds the time until the
	// end of an idle stream is noticed, unless a heartbeat fails earlier: a restarted
	// follower learns the commit index from the next message.
	quietFor = 500 * time.Millisecond
	// notifyAfter is how long NotifyCommit waits for an entry that carries the same commit
	// index.
	notifyAfter = time.Millisecond
)

// The followers that are sent a commit index: one follower that waits for it, or all followers.
const (
	asked = iota
	unasked
	askings
)

// pipeline is the stream of entries to one follower. The transport knows it until it is
// closed. Raft sometimes sends messages without entries, so that followers learn the commit
// index. The pipeline leaves out those without news.
type pipeline struct {
	raft.AppendPipeline
	transport *Raft
	node      string
	ended     chan struct{} // end closes it
	telling   sync.WaitGroup

	// sending holds a token while no message is written: Raft's goroutine and NotifyCommit
	// take turns. The holder of the token owns last and sent.
	sending chan struct{}
	last    raft.AppendEntriesRequest // the newest message, in the form in which its entries count as sent before
	sent    time.Time

	// mu guards the fields below. It is never held during input or output.
	mu      sync.Mutex
	closed  bool
	pending [askings]uint64 // commit index that is about to be sent; 0 means none
	doubt   bool            // the stream may be broken, so the next message is not left out
}

func newPipeline(inner raft.AppendPipeline, t *Raft, node string) *pipeline {
	p := &pipeline{
		AppendPipeline: inner, transport: t, node: node, ended: make(chan struct{}), sending: make(chan struct{}, 1),
	}
	p.sending <- struct{}{}
	return p
}

// AppendEntries implements raft.AppendPipeline. For a message that is left out it returns
// no future. Raft does not use it: it reads the answers from Consumer, and a missing answer
// confirms nothing.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	select {
	case <-p.sending:
	case <-p.ended:
		return nil, raft.ErrPipelineShutdown
	}
	defer func() { p.sending <- struct{}{} }()
	shorten(args)
	if len(args.Entries) == 0 && args.LeaderCommitIndex == p.last.LeaderCommitIndex && args.Term == p.last.Term &&
		args.PrevLogEntry == p.last.PrevLogEntry && time.Since(p.sent) < quietFor && !p.doubted() {
		return nil, nil
	}
	return p.send(args, resp)
}

// send writes a message. The caller holds the token of sending. If the stream breaks while
// its follower is removed, the library passes the message to a reader that has ended and
// waits for ever, while it continues to send heartbeats to a node that is not a member. So
// send limits the time to write one message and to answer one.
func (p *pipeline) send(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	p.last, p.sent = *args, time.Now()
	p.last.Entries = nil
	if n := len(args.Entries); n > 0 {
		p.last.PrevLogEntry, p.last.PrevLogTerm = args.Entries[n-1].Index, args.Entries[n-1].Term
	}
	stuck := time.AfterFunc(2*raftTimeout, func() { _ = p.AppendPipeline.Close() })
	defer stuck.Stop()
	return p.AppendPipeline.AppendEntries(args, resp)
}

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.transport.mu.Lock()
	delete(p.transport.pipelines, p)
	p.transport.mu.Unlock()
	return p.end()
}

// end closes the stream and waits for its writers.
func (p *pipeline) end() error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.ended)
	}
	p.mu.Unlock()
	err := p.AppendPipeline.Close()
	p.telling.Wait()
	return err
}

// doubted returns whether the stream may be broken and was not used since.
func (p *pipeline) doubted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	doubt := p.doubt
	p.doubt = false
	return doubt
}

// doubt causes the streams to a node to be tried, because another stream to the node has
// failed.
func (t *Raft) doubt(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.pipelines {
		if p.node == node {
			p.mu.Lock()
			p.doubt = true
			p.mu.Unlock()
		}
	}
}

// NotifyCommit sends a follower within notifyAfter the news that the entries sent to it up to
// index are committed, unless an entry carries that before. Without a stream of entries to the
// node it does nothing.
func (t *Raft) NotifyCommit(node string, index uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.pipelines {
		if p.node == node {
			p.notifySoon(index, asked, notifyAfter)
		}
	}
}

// NotifyCommitToAll is NotifyCommit for every follower after a delay, in which the next entry
// usually carries the news. Raft itself would do so by polling.
func (t *Raft) NotifyCommitToAll(index uint64, after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.pipelines {
		p.notifySoon(index, unasked, after)
	}
}

func (p *pipeline) notifySoon(index uint64, who int, after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	waits := p.pending[who] != 0
	p.pending[who] = max(p.pending[who], index)
	if !waits {
		p.telling.Go(func() { p.notifyOnce(who, after) })
	}
}

func (p *pipeline) notifyOnce(who int, after time.Duration) {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ended:
		return
	}
	select {
	case <-p.sending:
	case <-p.ended:
		return
	}
	defer func() { p.sending <- struct{}{} }()
	p.mu.Lock()
	index := p.pending[who]
	p.pending[who] = 0
	p.mu.Unlock()
	// After the newest entry that was sent, the follower may have entries of another
	// leader, so the message does not cover them.
	index = min(index, p.last.PrevLogEntry)
	if index <= p.last.LeaderCommitIndex {
		return // an entry carried it meanwhile, or nothing was sent yet
	}
	// This message counts as Raft's own, of the term of the stream's entries. A node that
	// lost leadership may learn of commits from another leader. Those are other entries
	// than the ones it sent under the same indexes, which are never committed. A node that
	// still leads after it learned of a commit has sent the committed entries.
	args := p.last
	args.LeaderCommitIndex = index
	if !p.transport.hooks.Leads(args.Term) {
		return
	}
	// Should the stream be broken, Raft learns that from the next entry.
	_, _ = p.send(&args, new(raft.AppendEntriesResponse))
}
