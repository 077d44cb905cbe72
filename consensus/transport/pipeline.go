package transport

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Intervals of the messages that tell a follower the commit index.
const (
	// quietFor is how long the pipeline drops messages that contain nothing new. At least one
	// message per quietFor is sent, because it shows whether an idle stream is broken, and
	// because a restarted follower learns the commit index from it.
	quietFor = 500 * time.Millisecond
	// notifyAfter is how long NotifyCommit waits for an entry that is sent anyway and that
	// carries the same commit index.
	notifyAfter = time.Millisecond
)

// Indexes of pipeline.pending: notifications for a follower that waits for the commit index, and
// notifications that go to all followers.
const (
	asked = iota
	unasked
	askings
)

// pipeline is the stream of entries to one follower. The transport lists it until it is closed.
// Raft regularly sends messages without entries, so that followers learn the commit index; the
// pipeline drops those that contain nothing new.
type pipeline struct {
	raft.AppendPipeline
	transport *Raft
	node      string
	ended     chan struct{} // end closes it
	telling   sync.WaitGroup

	// sending is a lock that Raft's goroutine and NotifyCommit share: it has a token while no
	// message is written. The goroutine that holds the token may access last and sent.
	sending chan struct{}
	last    raft.AppendEntriesRequest // newest message without its entries; its PrevLogEntry is the last entry that was sent
	sent    time.Time

	// mu guards the fields below. It is not held during network access.
	mu      sync.Mutex
	closed  bool
	pending [askings]uint64 // commit index that a waiting goroutine will send; 0 means none
	doubt   bool            // the stream may be broken, so the next message is sent even if it contains nothing new
}

func newPipeline(inner raft.AppendPipeline, t *Raft, node string) *pipeline {
	p := &pipeline{
		AppendPipeline: inner, transport: t, node: node, ended: make(chan struct{}), sending: make(chan struct{}, 1),
	}
	p.sending <- struct{}{}
	return p
}

// AppendEntries implements raft.AppendPipeline. For a message that it drops it returns neither a
// future nor an error. Raft does not need the future: it reads the answers from Consumer, and a
// missing answer confirms nothing.
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

// send writes a message. The caller must hold the token of sending. It closes the stream if the write
// takes longer than 2 * raftTimeout. Without this limit, if the stream breaks while its follower
// is being removed, the Raft library would wait forever for a reader that has ended, and would
// keep sending heartbeats to the removed node.
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

// end closes the stream and waits for the goroutines that notifySoon has started.
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

// doubted returns whether the stream may be broken, and resets that mark.
func (p *pipeline) doubted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	doubt := p.doubt
	p.doubt = false
	return doubt
}

// doubt marks the pipelines to a node as possibly broken, because another stream to that node has
// failed. Their next message is then sent in any case and shows whether they work.
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

// NotifyCommit tells a follower after notifyAfter that the entries up to index are committed,
// unless an entry sent meanwhile contains that commit index. It covers only entries that this
// node has sent to the follower. It does nothing if there is no pipeline to the node.
func (t *Raft) NotifyCommit(node string, index uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.pipelines {
		if p.node == node {
			p.notifySoon(index, asked, notifyAfter)
		}
	}
}

// NotifyCommitToAll is NotifyCommit for every follower, after the given delay. Usually another
// entry is sent within that delay and contains the commit index. Without this call, Raft would
// send the commit index only at its next periodic check.
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
