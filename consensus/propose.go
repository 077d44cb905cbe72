package consensus

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// Limits of a proposal.
const (
	// proposeTimeout is how long a node tries to commit a command and to learn its outcome.
	proposeTimeout = 10 * time.Second
	// leaderlessTimeout is how long a proposal waits for a leader if no leader has accepted it
	// yet.
	leaderlessTimeout = 5 * time.Second
	// firstBackoff and lastBackoff are the shortest and the longest pause between two attempts.
	// The pause doubles after each attempt, and a new leader ends it.
	firstBackoff = 2 * time.Millisecond
	lastBackoff  = 100 * time.Millisecond
)

// Propose commits a command, through this node or through the leader, and returns its result once
// the local state includes it. A returned error is a *state.Error: either the cluster's rejection
// of the command, or an error that wraps state.ErrUnavailable if the outcome was not known within
// ten seconds or before ctx ended. In the second case the command may still take effect, but not
// after a command that is proposed later (ADR 45). Propose retries with the same operation id, so
// the command takes effect at most once. The audit log records the actor in ctx, see
// state.WithActor.
func (n *Node) Propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	began := time.Now()
	cmd, err := n.preauthenticated(ctx, state.Audit(ctx, cmd, state.MillisOf(began), n.fsm.level()))
	if err == nil {
		err = n.mayPropose(cmd)
	}
	var result state.Result
	if err == nil {
		result, err = n.propose(ctx, cmd)
	}
	n.metrics.proposed(time.Since(began), err)
	return result, err
}

// preauthenticated returns the command to propose in place of cmd. Usually that is cmd. If the
// feature level of the cluster is too low for members to check the credentials in cmd when they
// apply it, this node checks the credentials here and returns the inner command without them.
func (n *Node) preauthenticated(ctx context.Context, cmd state.Command) (state.Command, error) {
	if n.fsm.level() >= wire.FeatureLevelOf(cmd) {
		return cmd, nil
	}
	switch cmd.(type) {
	case *state.ByKey, *state.BySession:
	default:
		return cmd, nil
	}
	view, release, err := n.View(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	change, err := view.Judge(cmd)
	if err != nil {
		return nil, fmt.Errorf("consensus: propose: %w", err)
	}
	return change, nil
}

// mayPropose returns an error for a command that a member might not understand, and for
// every command of a node in quarantine except reports about itself.
func (n *Node) mayPropose(cmd state.Command) error {
	if _, own := cmd.(*state.UpdateNode); !own {
		if err := n.refused(); err != nil {
			return fmt.Errorf("consensus: propose: %w", err)
		}
	}
	return n.understood(cmd)
}

// understood returns an error if the feature level of a command is above that of the cluster.
// While a cluster is being founded, it has no feature level yet and every command is accepted.
func (n *Node) understood(cmd state.Command) error {
	need := wire.FeatureLevelOf(cmd)
	if _, founds := cmd.(*state.InitCluster); need == 0 || founds {
		return nil
	}
	if have := n.fsm.level(); need > have {
		return fmt.Errorf("consensus: propose: %w", state.Errorf(state.CodeUnavailable,
			"%T needs level %d and the cluster has %d: not all members run a release that understands it", cmd, need, have))
	}
	return nil
}

// propose is Propose without the check of mayPropose.
func (n *Node) propose(ctx context.Context, cmd state.Command) (state.Result, error) {
	outcome, err := n.decide(ctx, cmd)
	if err != nil {
		return state.Result{}, fmt.Errorf("consensus: propose: %w", err)
	}
	return outcome.Result, nil
}

// decide commits a command and returns its outcome once the local state includes it. The error is
// the one in the outcome, or the reason why there is no outcome.
func (n *Node) decide(ctx context.Context, cmd state.Command) (wire.Outcome, error) {
	op, err := newOperation(cmd)
	if err != nil {
		return wire.Outcome{}, err
	}
	body, err := wire.EncodeCommand(wire.Command{Op: op, Body: cmd})
	if err != nil {
		return wire.Outcome{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	outcome, err := n.commit(ctx, body)
	if err != nil {
		return wire.Outcome{}, err
	}
	// The command is committed. If this node lags behind and the time is up, that is no
	// failure: it returns the outcome anyway.
	if n.fsm.progress.wait(ctx, outcome.Index) != nil {
		n.lag.doubted.Store(true)
	}
	if outcome.Err != nil {
		return wire.Outcome{}, outcome.Err
	}
	return outcome, nil
}

// newOperation returns a new operation id, by which Apply recognizes a repeated command. It
// returns the zero id for commands that may be applied repeatedly, such as reports of facts. A
// state check needs no id either: its identity is the index of its log entry, so a repeat is a
// new check. An id starts with 6 bytes of time in milliseconds, followed by 80 random bits.
// Results of the same time therefore have neighbouring keys in the store, which keeps Pebble's
// compactions small (ADR 67).
func newOperation(cmd state.Command) (op state.OpID, err error) {
	switch cmd.(type) {
	case *state.ReportCopies, *state.PlaceRoots, *state.SettleRoots, *state.IndexPins, *state.PackNames, *state.UpdateNode,
		*state.CheckState, *state.ReportHash, *state.GrantVote, *state.RaiseLevel, *state.NoteUses, *state.ClearAccounts,
		*state.ReportArrivals, *state.ClearBuckets, *state.ClearUploads, *state.Fence, *state.ChargeStorage, *state.EndContent:
		return op, nil
	}
	if _, err = rand.Read(op[:]); err == nil {
		binary.BigEndian.PutUint64(op[:], uint64(state.MillisOf(time.Now()))<<16|uint64(binary.BigEndian.Uint16(op[6:])))
	}
	return op, err
}

// commit repeats attempts until a leader has decided the command, or until the time is up.
func (n *Node) commit(ctx context.Context, body []byte) (wire.Outcome, error) {
	wait := retry{backoff.New(firstBackoff, lastBackoff)}
	giveUp := time.Now().Add(leaderlessTimeout)
	tries := attempts{last: errors.New("no leader is known")}
	for {
		leader, changed := n.leaders.get()
		if leader != "" {
			outcome, err := n.attempt(ctx, leader, changed, body)
			if err == nil {
				return outcome, nil
			}
			if err := tries.failed(err); err != nil {
				return wire.Outcome{}, err
			}
		} else if !tries.doubt && time.Now().After(giveUp) {
			return wire.Outcome{}, tries.undecided(nil)
		}
		if err := wait.pause(ctx, changed); err != nil {
			return wire.Outcome{}, tries.undecided(err)
		}
	}
}

// attempts summarizes the attempts so far to commit one command.
type attempts struct {
	doubt bool // an attempt may have put the command into a log, or may still do so until its deadline
	last  error
}

// failed records the error of one attempt. It returns the final error of the command, or nil if
// the caller should try again. If an earlier attempt may have reached a log, a rejection by
// another leader is not final, because the earlier attempt could still take effect until its
// deadline.
func (a *attempts) failed(err error) error {
	switch {
	case errors.Is(err, errStopping):
		// This node will not lead again, and a node that stops does not wait for a new
		// leader.
		return a.undecided(err)
	case !errors.Is(err, errRetry) && !a.doubt:
		return err
	case errors.Is(err, errRetry) && !errors.Is(err, errUntaken):
		a.doubt = true
	}
	a.last = err
	return nil
}

// undecided returns the error for a command that no leader has decided. Its text says whether an
// attempt may have reached a log. Only then can the command still take effect, and it does so
// before every later proposal.
func (a *attempts) undecided(cause error) error {
	what := "nothing was written"
	if a.doubt {
		what = "the write is not known to be done"
	}
	return unavailable(what, errors.Join(a.last, cause))
}

// attempt asks one leader to commit a command, and gives up when the channel changed reports
// another leader.
func (n *Node) attempt(ctx context.Context, leader state.NodeID, changed <-chan struct{}, body []byte) (wire.Outcome, error) {
	attempt, cancel := until(ctx, changed)
	defer cancel()
	switch {
	case leader == n.opts.ID:
		return n.batcher.submit(attempt, body)
	case n.fsm.level() < deadlineLevel: // the leader may be of a release that knows no deadlines
		return n.forwards.propose(attempt, leader, body)
	}
	return n.forwards.proposeBy(attempt, leader, changed, body)
}

// until returns a context that ends when ctx ends or the channel end is closed.
func until(ctx context.Context, end <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-end:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-done }
}

// unavailable returns a *state.Error that wraps state.ErrUnavailable, for a request that the
// cluster could not decide. what describes the effect for the caller.
func unavailable(what string, cause error) error {
	return fmt.Errorf("%w: %w", state.Errorf(state.CodeUnavailable, "the cluster does not answer, %s", what), cause)
}

// retry paces the attempts of one request.
type retry struct{ *backoff.Backoff }

// pause waits before the next attempt. When changed is closed, the wait ends early and the next waits
// are short again.
func (r retry) pause(ctx context.Context, changed <-chan struct{}) error {
	timer := time.NewTimer(r.NextBackOff())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
		r.Reset()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
