package consensus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
)

// Limits of the commands that wait on the leader to become part of a log entry.
const (
	// maxWaiting is the largest number of commands that wait to be packed into an entry.
	maxWaiting = 4096
	// maxWaitingBytes is the largest size of the waiting commands in bytes.
	maxWaitingBytes = 64 << 20
	// entryBytes is the size in bytes at which an entry is full: no further command is added to
	// it.
	entryBytes = 1 << 20
	// maxEntries is the largest number of entries in progress: one that is being written to disk,
	// and one that waits for a majority.
	maxEntries = 2
	// maxGather is the longest time for which commands wait for others to join their entry; see pace.
	maxGather = 2 * time.Millisecond
	// enqueueTimeout is how long an entry waits until Raft accepts it. Raft accepts an entry when
	// it has written the previous one.
	enqueueTimeout = stalledWrite
)

// errRetry is wrapped by errors after which a proposal can be tried again, through the same
// node or another one. It is unknown whether the command has been committed.
var errRetry = errors.New("not decided")

// errUntaken means that the command is in no log, and that the node that received the proposal
// will not append it later.
var errUntaken = fmt.Errorf("%w: not taken", errRetry)

// errStopping means that Run is ending or has ended on the node that received the proposal.
var errStopping = fmt.Errorf("%w: this node is stopping", errUntaken)

// waiting is a command that waits at the leader.
type waiting struct {
	body   []byte
	by     time.Time     // deadline for handing the command to Raft; afterwards it is dropped; zero means no deadline
	answer chan decision // buffered for one answer, so that the sender never blocks
	taken  atomic.Bool   // the first goroutine to set it decides whether the command goes into an entry
}

// take claims the command for a log entry. It returns false if the deadline has passed or the
// command was withdrawn. After take has returned true, the command cannot be withdrawn.
func (w *waiting) take(now time.Time) bool {
	return (w.by.IsZero() || now.Before(w.by)) && w.taken.CompareAndSwap(false, true)
}

// withdraw prevents the command from becoming part of a log entry. It returns false if an entry
// contains the command already.
func (w *waiting) withdraw() bool { return w.taken.CompareAndSwap(false, true) }

// decision is the result of a proposed command: its outcome, or an error if there is no outcome.
type decision struct {
	outcome wire.Outcome
	err     error
}

// batcher packs waiting commands into log entries, and keeps several entries in progress.
type batcher struct {
	node  *Node
	queue chan *waiting
	bytes atomic.Int64  // size of the commands in queue
	need  atomic.Int64  // number of queued commands at which run builds an entry; run also builds one when the queue has entryBytes
	ready chan struct{} // receives a token when run should check the queue

	// mu guards ended. It also ensures that no command enters the queue after ended is set.
	mu    sync.Mutex
	ended bool
}

func newBatcher(n *Node) *batcher {
	return &batcher{node: n, queue: make(chan *waiting, maxWaiting), ready: make(chan struct{}, 1)}
}

// submit commits an encoded command on the leader and returns its outcome. The error is a
// *state.Error if the command was rejected for good. It wraps errRetry if the command may
// be tried again, and errUntaken if it can no longer take effect. If ctx has ended, submit
// does not propose the command, so that a later write of the same client cannot come before
// it (ADR 45).
func (b *batcher) submit(ctx context.Context, body []byte) (wire.Outcome, error) {
	// An entry that cannot be decoded would stop every node.
	cmd, err := wire.DecodeCommand(body)
	if err != nil {
		return wire.Outcome{}, state.Errorf(state.CodeInvalid, "the leader cannot read the command: %v", err)
	}
	if _, raises := cmd.Body.(*state.RaiseLevel); !raises { // the leader decides when
		if err := b.node.understood(cmd.Body); err != nil {
			return wire.Outcome{}, err
		}
	}
	if took := b.node.disk.writing(); took > slowWrite {
		return wire.Outcome{}, fmt.Errorf("%w: the leader's disk has not answered for %s", errRetry, took.Round(time.Millisecond))
	}
	w := &waiting{body: body, answer: make(chan decision, 1)}
	w.by, _ = ctx.Deadline()
	if err := b.enqueue(w); err != nil {
		return wire.Outcome{}, err
	}
	select {
	case d := <-w.answer:
		return d.outcome, d.err
	case <-ctx.Done():
	}
	if w.withdraw() {
		return wire.Outcome{}, fmt.Errorf("%w: %w", errUntaken, ctx.Err())
	}
	select {
	case d := <-w.answer: // Raft has just refused it
		return d.outcome, d.err
	default:
		return wire.Outcome{}, fmt.Errorf("%w: %w", errRetry, ctx.Err())
	}
}

func (b *batcher) enqueue(w *waiting) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return errStopping
	}
	size := int64(len(w.body))
	if b.bytes.Add(size) <= maxWaitingBytes {
		select {
		case b.queue <- w:
			if b.due() {
				select {
				case b.ready <- struct{}{}:
				default:
				}
			}
			return nil
		default:
		}
	}
	b.bytes.Add(-size)
	return state.Errorf(state.CodeUnavailable, "the leader has more writes waiting than it takes (%d)", maxWaiting)
}

// batch is one log entry with the callers that wait for it.
type batch struct {
	members []*waiting
	data    []byte
	by      time.Time // the earliest time limit of its commands; zero if no command has one
}

// answer sends to each waiting caller the outcome of its command, or err if err is not nil.
func (e batch) answer(outcomes []wire.Outcome, err error) {
	for i, w := range e.members {
		if err != nil {
			w.answer <- decision{err: err}
		} else {
			w.answer <- decision{outcome: outcomes[i]}
		}
	}
}

// due returns whether the queue has enough commands or bytes for an entry.
func (b *batcher) due() bool {
	n := len(b.queue)
	return n > 0 && (int64(n) >= b.need.Load() || b.bytes.Load() >= entryBytes)
}

// run builds and proposes entries until ctx ends, then answers all waiting callers.
func (b *batcher) run(ctx context.Context) error {
	decided := make(chan int, maxEntries) // how many commands of an entry
	var underway sync.WaitGroup
	defer underway.Wait()
	defer b.refuse()
	p := pace{gather: time.NewTimer(0)}
	defer p.gather.Stop()
	for {
		b.need.Store(int64(p.need()))
		if p.entries < maxEntries && b.due() {
			runtime.Gosched() // let goroutines that are about to enqueue run first
			e, err := b.pack()
			if err != nil {
				e.answer(nil, err)
				return err
			}
			if len(e.members) == 0 {
				continue // all that waited had been given up
			}
			p.begin(len(e.members))
			// In this order the entries enter Raft's queue; their futures are
			// waited for side by side.
			future := b.node.raft.Apply(e.data, e.patience())
			underway.Go(func() {
				e.answer(b.outcomes(ctx, future, len(e.members)))
				decided <- len(e.members)
			})
			continue
		}
		select {
		case n := <-decided:
			p.end(n, len(b.queue))
		case <-p.gather.C:
			p.wanted = 0
		case <-b.ready:
		case <-ctx.Done():
			return nil
		}
	}
}

// pace decides how many commands make one log entry. An entry costs each node a transaction of
// its log, two disk flushes and a message, about as much as many commands. Entries should
// therefore be few and full, but a single waiting command goes at once.
//
// Clients that wait for an answer send their next command when they have the answer, so most of
// the next commands arrive right after an entry. Without a pause, the first of these commands
// would make an entry alone, and the others would wait for that entry. So the next entry waits
// until three quarters of the previous number of commands have arrived, but at most half the
// duration of an entry and at most maxGather. One or two clients never wait.
//
// While an entry is in progress, another begins only if it is three times as large, that is
// when there are many more clients than an entry has held so far. While an entry of a single
// command is in progress, any other entry may begin.
type pace struct {
	entries, commands int         // in progress
	began             time.Time   // approximate start of the oldest entry in progress
	wanted            int         // number of commands to wait for; 0 means no wait
	gather            *time.Timer // ends the wait
}

// need returns the number of commands that make an entry now.
func (p *pace) need() int {
	switch {
	case p.entries == 0:
		return max(1, min(p.wanted, wire.MaxBatch))
	case p.entries == maxEntries:
		return math.MaxInt32
	case p.commands == 1:
		return 1
	}
	return min(3*p.commands, wire.MaxBatch)
}

func (p *pace) begin(commands int) {
	if p.entries == 0 {
		p.began = time.Now()
	}
	p.entries++
	p.commands += commands
	p.wanted = 0
}

// end records that an entry of the given number of commands was decided, while waiting further
// commands are queued.
func (p *pace) end(commands, waiting int) {
	p.entries--
	p.commands -= commands
	took := time.Since(p.began)
	p.began = time.Now()
	p.wanted = 0
	if all := commands + waiting; p.entries == 0 && all > 2 {
		p.wanted = 3 * all / 4
		p.gather.Reset(min(took/2, maxGather))
	}
}

// pack moves commands from the queue into one entry, up to its size limits. It skips withdrawn
// commands, and answers those whose deadline has passed with errUntaken. A returned error means a
// bug: every queued body is a valid command, and the limits here are below those of an entry.
func (b *batcher) pack() (batch, error) {
	var e batch
	var bodies [][]byte
	packed, now := 0, time.Now()
	for more := true; more && len(bodies) < wire.MaxBatch && packed < entryBytes; {
		select {
		case next := <-b.queue:
			b.bytes.Add(-int64(len(next.body)))
			if !next.take(now) {
				next.answer <- decision{err: fmt.Errorf("%w: its time is up", errUntaken)}
				continue
			}
			e.members = append(e.members, next)
			bodies = append(bodies, next.body)
			packed += len(next.body)
			if !next.by.IsZero() && (e.by.IsZero() || next.by.Before(e.by)) {
				e.by = next.by
			}
		default:
			more = false
		}
	}
	if len(bodies) == 0 {
		return e, nil
	}
	data, err := wire.EncodeEntry(bodies)
	if err != nil {
		return e, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	e.data = data
	return e, nil
}

// patience returns how long the entry waits until Raft accepts it: until the earliest deadline of
// its commands, but at most enqueueTimeout. The result is always positive, because Raft takes 0
// to mean no limit.
func (e batch) patience() time.Duration {
	if e.by.IsZero() {
		return enqueueTimeout
	}
	return max(time.Nanosecond, min(enqueueTimeout, time.Until(e.by)))
}

// outcomes waits until an entry with want commands is applied, and returns one outcome per
// command. The error wraps errUntaken if Raft did not accept the entry, and otherwise errRetry.
func (b *batcher) outcomes(ctx context.Context, future raft.ApplyFuture, want int) ([]wire.Outcome, error) {
	err := b.node.await(ctx, future)
	switch {
	case errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return nil, fmt.Errorf("%w: %w", errUntaken, err) // Raft gives these to what it did not take
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errRetry, err)
	}
	switch answer := future.Response().(type) {
	case *applied:
		if len(answer.outcomes) == want {
			return answer.outcomes, nil
		}
	case error:
		return nil, fmt.Errorf("%w: %w", errRetry, answer)
	}
	return nil, fmt.Errorf("%w: the entry had no outcome here", errRetry)
}

// refuse closes the queue: queued and later commands get errStopping.
func (b *batcher) refuse() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	for {
		select {
		case w := <-b.queue:
			b.bytes.Add(-int64(len(w.body)))
			w.answer <- decision{err: errStopping} // the caller may have given up and not read it
		default:
			return
		}
	}
}
