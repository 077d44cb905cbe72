package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
)

// Bounds of what waits at a leader.
const (
	// maxWaiting is the most commands that wait to be packed into an entry.
	maxWaiting = 4096
	// maxWaitingBytes is the most bytes of them.
	maxWaitingBytes = 64 << 20
	// entryBytes is when an entry takes no further command.
	entryBytes = 1 << 20
	// maxEntries is how many entries are under way to the log at a time. What
	// waits meanwhile goes into the next one, and an entry costs every node
	// about as much as several commands: so two, one that is written to disks
	// and one that is being decided.
	maxEntries = 2
	// enqueueTimeout is how long an entry waits until Raft takes it: it does
	// when it has written the one before.
	enqueueTimeout = stalledWrite
)

// errRetry is wrapped by what a proposal can be tried again after, through the
// same node or another. Whether the command has been committed is unknown.
var errRetry = errors.New("not decided")

// errStopping says that Run is ending, or has ended, on the node that was asked.
var errStopping = fmt.Errorf("%w: this node is stopping", errRetry)

// waiting is a command that waits at the leader.
type waiting struct {
	body   []byte
	answer chan decision // has room for it
}

// decision is the outcome of a command, or why there is none.
type decision struct {
	outcome wire.Outcome
	err     error
}

// batcher packs the commands that wait into log entries, and keeps several
// entries under way.
type batcher struct {
	node  *Node
	queue chan waiting
	bytes atomic.Int64 // of the commands in queue

	// mu guards ended, and that nothing enters the queue after it.
	mu    sync.Mutex
	ended bool
}

func newBatcher(n *Node) *batcher {
	return &batcher{node: n, queue: make(chan waiting, maxWaiting)}
}

// submit has a leader commit an encoded command, and returns what came of it.
// The error is a *state.Error when the command was refused for good, and wraps
// errRetry when it may be tried again.
func (b *batcher) submit(ctx context.Context, body []byte) (wire.Outcome, error) {
	// An entry that cannot be decoded would stop every node.
	cmd, err := wire.DecodeCommand(body)
	if err != nil {
		return wire.Outcome{}, state.Errorf(state.CodeInvalid, "the leader cannot read the command: %v", err)
	}
	if _, raises := cmd.Body.(*state.RaiseLevel); !raises { // who leads knows when to
		if err := b.node.understood(cmd.Body); err != nil {
			return wire.Outcome{}, err
		}
	}
	if took := b.node.disk.writing(); took > slowWrite {
		return wire.Outcome{}, fmt.Errorf("%w: the leader's disk has not answered for %s", errRetry, took.Round(time.Millisecond))
	}
	w := waiting{body: body, answer: make(chan decision, 1)}
	if err := b.enqueue(w); err != nil {
		return wire.Outcome{}, err
	}
	select {
	case d := <-w.answer:
		return d.outcome, d.err
	case <-ctx.Done():
		return wire.Outcome{}, fmt.Errorf("%w: %w", errRetry, ctx.Err())
	}
}

func (b *batcher) enqueue(w waiting) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return errStopping
	}
	size := int64(len(w.body))
	if b.bytes.Add(size) <= maxWaitingBytes {
		select {
		case b.queue <- w:
			return nil
		default:
		}
	}
	b.bytes.Add(-size)
	return state.Errorf(state.CodeUnavailable, "the leader has more writes waiting than it takes (%d)", maxWaiting)
}

// batch is one entry with those who wait for it.
type batch struct {
	members []waiting
	data    []byte
}

// answer tells everybody what became of the entry.
func (e batch) answer(outcomes []wire.Outcome, err error) {
	for i, w := range e.members {
		if err != nil {
			w.answer <- decision{err: err}
		} else {
			w.answer <- decision{outcome: outcomes[i]}
		}
	}
}

// run packs and proposes until ctx ends, then answers everybody who waits.
func (b *batcher) run(ctx context.Context) error {
	slots := make(chan struct{}, maxEntries)
	var underway sync.WaitGroup
	defer underway.Wait()
	defer b.refuse()
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		var first waiting
		select {
		case first = <-b.queue:
		case <-ctx.Done():
			return nil
		}
		e, err := b.pack(first)
		if err != nil {
			e.answer(nil, err)
			return err
		}
		// In this order the entries enter Raft's queue; their futures are
		// waited for side by side.
		future := b.node.raft.Apply(e.data, enqueueTimeout)
		underway.Go(func() {
			e.answer(b.outcomes(ctx, future, len(e.members)))
			<-slots
		})
	}
}

// pack takes what waits into one entry, within its bounds. An error is a bug:
// every body is a command, and the bounds here are below those of an entry.
func (b *batcher) pack(first waiting) (batch, error) {
	e := batch{members: []waiting{first}}
	bodies := [][]byte{first.body}
	packed := len(first.body)
	for len(bodies) < wire.MaxBatch && packed < entryBytes {
		select {
		case next := <-b.queue:
			e.members = append(e.members, next)
			bodies = append(bodies, next.body)
			packed += len(next.body)
			continue
		default:
		}
		break
	}
	b.bytes.Add(-int64(packed))
	data, err := wire.EncodeEntry(bodies)
	if err != nil {
		return e, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	e.data = data
	return e, nil
}

// outcomes waits for an entry.
func (b *batcher) outcomes(ctx context.Context, future raft.ApplyFuture, want int) ([]wire.Outcome, error) {
	if err := b.node.await(ctx, future); err != nil {
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

// refuse ends the queue: what is in it and what comes is told to try elsewhere.
func (b *batcher) refuse() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	for {
		select {
		case w := <-b.queue:
			b.bytes.Add(-int64(len(w.body)))
			w.answer <- decision{err: errStopping}
		default:
			return
		}
	}
}
