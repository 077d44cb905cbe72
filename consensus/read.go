package consensus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// Limits of a linearizable read.
const (
	// viewTimeout is how long a read waits for a leader, a majority, and the
	// local state.
	viewTimeout = 5 * time.Second
	// roundTimeout is how long one request for a read index waits for the leader's answer.
	roundTimeout = 2 * time.Second
)

// View returns a linearizable view of the state, on any node: the view includes everything that
// was acknowledged before the call. The caller must call release. The error wraps
// state.ErrUnavailable if there was no majority within five seconds or before ctx ended.
func (n *Node) View(ctx context.Context) (view state.View, release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	err = n.catchUp(ctx)
	if err == nil {
		err = n.refused()
	}
	if err != nil {
		return state.View{}, nil, fmt.Errorf("consensus: read: %w", err)
	}
	view, release = n.LocalView()
	return view, release, nil
}

// LocalView returns a view of the state that this node has applied, which may be out of date. The
// caller must call release.
func (n *Node) LocalView() (view state.View, release func()) {
	snapshot := n.opts.Store.View()
	index, err := readApplied(snapshot)
	if err != nil {
		// The reads of the view will fail as this one did; the node must end.
		n.fail(fmt.Errorf("%w: %w", ErrBroken, err))
	}
	return n.fsm.view(snapshot, index), snapshot.Close
}

// catchUp waits until the local state includes everything that the cluster has committed before
// the call.
func (n *Node) catchUp(ctx context.Context) error {
	wait := retry{backoff.New(firstBackoff, lastBackoff)}
	for {
		_, changed := n.leaders.get()
		index, err := n.reads.join(ctx)
		if err == nil {
			began := time.Now()
			if err = n.fsm.progress.wait(ctx, index); err == nil {
				n.lag.caughtUp()
				return nil
			}
			n.lag.gaveUp(time.Since(began))
			return unavailable("this node is behind", err)
		}
		if errors.Is(err, errStopping) {
			return unavailable("nothing can be read", err)
		}
		if perr := wait.pause(ctx, changed); perr != nil {
			return unavailable("nothing can be read or written", errors.Join(err, perr))
		}
	}
}

// readRounds lets concurrent reads share the requests for a read index, which is a commit index
// that a linearizable read must wait for.
type readRounds struct {
	ready chan struct{} // has a token while a round waits to begin

	// mu guards the fields below.
	mu    sync.Mutex
	next  *round
	ended bool // no further round begins
}

// round is one request for a read index: an index that includes everything committed before the
// round began.
type round struct {
	done  chan struct{} // closed when the other fields are set
	index uint64
	err   error
}

func newReadRounds() *readRounds { return &readRounds{ready: make(chan struct{}, 1)} }

// join waits for the result of a round that begins after the call.
func (r *readRounds) join(ctx context.Context) (uint64, error) {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return 0, errStopping
	}
	if r.next == nil {
		r.next = &round{done: make(chan struct{})}
		select {
		case r.ready <- struct{}{}:
		default:
		}
	}
	joined := r.next
	r.mu.Unlock()
	select {
	case <-joined.done:
		return joined.index, joined.err
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: %w", errRetry, ctx.Err())
	}
}

// run starts a round whenever a caller waits for one, until ctx ends. It calls look to get the
// read index. Only one round runs at a time: callers that arrive during a round share the next
// one. With parallel rounds, fewer callers would share each of them.
func (r *readRounds) run(ctx context.Context, look func(context.Context) (uint64, error)) error {
	defer r.end()
	for {
		select {
		case <-r.ready:
			r.round(ctx, look)
		case <-ctx.Done():
			return nil
		}
	}
}

// round calls look once and gives the result to the callers that wait for the next round.
func (r *readRounds) round(ctx context.Context, look func(context.Context) (uint64, error)) {
	r.mu.Lock()
	begun := r.next
	r.next = nil
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	begun.index, begun.err = look(ctx)
	close(begun.done)
}

// end makes waiting and later callers of join fail, because no further round will run.
func (r *readRounds) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.next != nil {
		r.next.err = errStopping
		close(r.next.done)
		r.next = nil
	}
}

// readIndex gets from the leader an index that includes everything committed so far.
func (n *Node) readIndex(ctx context.Context) (uint64, error) {
	n.metrics.reads.Inc()
	leader, changed := n.leaders.get()
	ctx, cancel := until(ctx, changed)
	defer cancel()
	switch leader {
	case "":
		return 0, fmt.Errorf("%w: no leader is known", errRetry)
	case n.opts.ID:
		return n.leaderIndex(ctx)
	}
	return n.forwards.number(ctx, leader, askReadIndex, n.vouch())
}

// leaderIndex confirms that this node still leads, and returns its commit index.
func (n *Node) leaderIndex(ctx context.Context) (uint64, error) {
	term, index, err := n.led()
	if err != nil {
		return 0, err
	}
	if err := n.confirmTerm(ctx, term); err != nil {
		return 0, err
	}
	return index, nil
}

// led returns the term in which this node leads, as far as this node knows, and its commit index.
// It returns an error if this node is not leader, or has not yet applied an entry of its own
// term, because its commit index may be too old until then.
func (n *Node) led() (term, index uint64, err error) {
	term = n.raft.CurrentTerm()
	// A deposed leader stops being leader before its term changes, so it led this term while
	// the index was read.
	if !n.IsLeader() || n.fsm.progress.lastTerm() != term {
		return 0, 0, fmt.Errorf("%w: the leader is new, or none", errRetry)
	}
	index = n.raft.CommitIndex()
	if n.raft.CurrentTerm() != term {
		return 0, 0, fmt.Errorf("%w: the leader was deposed", errRetry)
	}
	return term, index, nil
}

// vouch returns the body of this node's request for a read index: the newest term that it knows,
// or nil if it is not eligible to vote and so may have forgotten a term.
func (n *Node) vouch() []byte {
	if !n.knowsItsTerm() {
		return nil
	}
	return binary.BigEndian.AppendUint64(nil, n.raft.CurrentTerm())
}

// vouched returns this leader's commit index without asking other voters. ok is true only if the
// requesting voter from and this leader together are a majority, and the term in vouch is not
// newer than the leader's. Any leader of a later term would have needed the vote of one of them.
func (n *Node) vouched(from string, vouch []byte) (index uint64, ok bool) {
	if len(vouch) != 8 {
		return 0, false
	}
	term, index, err := n.led()
	if err != nil || sameTerm(binary.BigEndian.Uint64(vouch), term) != nil {
		return 0, false
	}
	voters, agreed := n.voters(), 0
	for _, id := range voters {
		if id == raft.ServerID(n.opts.ID) || id == raft.ServerID(from) {
			agreed++
		}
	}
	return index, agreed > len(voters)/2
}

// confirmTerm returns nil when a majority of voters, asked after the call, knows no later term
// than term. Then no other leader can have committed anything before the call. It asks further
// voters only if the first ones are slow or fail.
//
// Raft's own VerifyLeader is not enough, because it counts answers to heartbeats that were sent
// before the call. A leader that was paused while such an answer was in transit would still count
// as leader and serve old state.
func (n *Node) confirmTerm(ctx context.Context, term uint64) error {
	var others []raft.ServerID
	voters, confirmed := n.voters(), 0
	for _, id := range voters {
		if id != raft.ServerID(n.opts.ID) {
			others = append(others, id)
		} else if sameTerm(n.raft.CurrentTerm(), term) == nil {
			confirmed++
		}
	}
	if len(voters) == 0 {
		return fmt.Errorf("%w: no voter is known", errRetry)
	}
	err := n.quorum.reach(ctx, others, len(voters)/2+1-confirmed, func(ctx context.Context, id raft.ServerID) error {
		known, err := n.forwards.number(ctx, state.NodeID(id), askTerm, nil)
		if err != nil {
			return err
		}
		return sameTerm(known, term)
	}, n.waits.Go)
	if err != nil {
		return fmt.Errorf("%w: the leader is not confirmed: %w", errRetry, err)
	}
	return nil
}

func sameTerm(known, term uint64) error {
	if known > term {
		return fmt.Errorf("term %d has begun, after %d", known, term)
	}
	return nil
}
