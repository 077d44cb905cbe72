package transport

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// How often a follower is told what it knows, or what has been committed since
// the newest entry that it was sent.
const (
	// quietFor is how long a message that says nothing new is left out. It
	// bounds how late a stream that broke while idle is noticed, unless a
	// heartbeat fails before: a follower that was restarted learns over the
	// next one what is committed.
	quietFor = 500 * time.Millisecond
	// notifyAfter is how long Tell waits for an entry that says the same.
	notifyAfter = time.Millisecond
)

// Who is told of a commit: a follower that waits for it, or all of them.
const (
	asked = iota
	unasked
	askings
)

// pipeline is the stream of entries to one follower, known to its transport
// until it is closed. Raft sends on it now and then without entries, so that
// followers learn what is committed. What of that says nothing new is not sent.
type pipeline struct {
	raft.AppendPipeline
	transport *Raft
	node      string
	ended     chan struct{} // closed by end
	telling   sync.WaitGroup

	// sending holds a token while nobody writes a message: Raft's goroutine and
	// those of Tell take turns. Who has it owns last and sent.
	sending chan struct{}
	last    raft.AppendEntriesRequest // the newest message, as if its entries had come before
	sent    time.Time

	// mu guards what follows. It is never held during input or output.
	mu      sync.Mutex
	closed  bool
	pending [askings]uint64 // the follower is about to be told of this index; 0: of nothing
	doubt   bool            // the stream may be broken: the next message is not left out
}

func newPipeline(inner raft.AppendPipeline, t *Raft, node string) *pipeline {
	p := &pipeline{
		AppendPipeline: inner, transport: t, node: node, ended: make(chan struct{}), sending: make(chan struct{}, 1),
	}
	p.sending <- struct{}{}
	return p
}

// AppendEntries implements raft.AppendPipeline. A message that is left out has
// no future, which Raft does not look at: answers come over Consumer, and one
// that never comes vouches for nobody.
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

// send needs sending. When a stream breaks while its follower is being removed,
// the library hands the message to a reader that is gone, waits for ever, and
// goes on with heartbeats to who is no member. It may wait for one message to be
// written and one to be answered.
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

// end breaks the stream and waits for those who would send on it.
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

// doubted tells whether the stream may be broken, and was not tried since.
func (p *pipeline) doubted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	doubt := p.doubt
	p.doubt = false
	return doubt
}

// doubt has the streams to a node tried, since another one has failed.
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
	// What lies behind the newest entry that was sent may be another leader's
	// on the follower, so nothing is said of it.
	index = min(index, p.last.PrevLogEntry)
	if index <= p.last.LeaderCommitIndex {
		return // it was told meanwhile, or was sent nothing yet
	}
	// This message too is Raft's word, of the term in which the stream's entries were
	// sent. Who has lost that lead has learned of commits from another leader, whose
	// entries they are: those that were sent here under the same indexes may be others,
	// which nobody ever commits. Who leads still after it has learned of a commit has
	// sent what was committed.
	args := p.last
	args.LeaderCommitIndex = index
	if !p.transport.hooks.Leads(args.Term) {
		return
	}
	// Should the stream be broken, Raft learns that from the next entry.
	_, _ = p.send(&args, new(raft.AppendEntriesResponse))
}
