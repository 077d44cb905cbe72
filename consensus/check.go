package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// Intervals of state checks. A state check compares a hash of the replicated state on all
// members.
const (
	// reportTimeout is how long a node tries to report the hash of its state. If all attempts
	// fail, the node reports at the next check.
	reportTimeout = time.Minute
	// recheckAfter is the time after which the state of a rebuilt node is checked again. It
	// doubles each time the state differs, up to the interval between checks.
	recheckAfter = 5 * time.Second
	// checkPoll is the interval at which a caller that waits for a check reads its result.
	checkPoll = 20 * time.Millisecond
)

// ErrQuarantined is returned by Run when the state of this node differs from that of the
// majority, once the node has lost its vote. The node must start again without its state.
var ErrQuarantined = errors.New("this node's state differs from that of the majority")

// checker stores a view of the state after the log entry of the newest check, until the view is
// hashed. A newer check replaces a view that is not hashed yet.
type checker struct {
	store Store
	ready chan struct{} // has a token while there is something to hash

	// mu guards the fields below.
	mu    sync.Mutex
	index uint64
	view  Snapshot // nil: nothing to hash
}

func newChecker(store Store) *checker { return &checker{store: store, ready: make(chan struct{}, 1)} }

// take stores a view of the current state, which is the state after the entry at index.
func (c *checker) take(index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view != nil {
		c.view.Close()
	}
	c.index, c.view = index, c.store.View()
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// give hands the stored view and its index to the caller, which closes the view. It returns nil
// if there is none.
func (c *checker) give() (index uint64, view Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	index, view, c.view = c.index, c.view, nil
	return index, view
}

// close closes the stored view, if there is one.
func (c *checker) close() {
	if _, view := c.give(); view != nil {
		view.Close()
	}
}

// reportHashes hashes the state at the entry of each check, and reports the hash.
func (n *Node) reportHashes(ctx context.Context) error {
	for {
		select {
		case <-n.fsm.checks.ready:
		case <-ctx.Done():
			return nil
		}
		index, view := n.fsm.checks.give()
		if view == nil {
			continue
		}
		hash, err := n.hashOnce(ctx, state.NewView(view, index))
		view.Close()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			// A state that cannot be read whole is not one to go on with.
			return fmt.Errorf("%w: %w", ErrBroken, err)
		}
		n.log.InfoContext(ctx, "state checked", "index", index, "hash", hash)
		n.report(ctx, &state.ReportHash{Node: n.opts.ID, Check: index, Hash: hash})
	}
}

// hashOnce hashes a view. It waits until no other goroutine hashes.
func (n *Node) hashOnce(ctx context.Context, view state.View) (state.Hash, error) {
	select {
	case n.hashing <- struct{}{}:
	case <-ctx.Done():
		return state.Hash{}, fmt.Errorf("consensus: hash the state: %w", ctx.Err())
	}
	defer func() { <-n.hashing }()
	return hashView(ctx, view)
}

// report proposes a hash until it is committed, a newer check exists, or reportTimeout has
// passed.
func (n *Node) report(ctx context.Context, cmd *state.ReportHash) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	for {
		_, err := n.propose(ctx, cmd)
		if err == nil || ctx.Err() != nil || !errors.Is(err, state.ErrUnavailable) {
			if err != nil {
				n.log.WarnContext(ctx, "cannot report the hash of the state", "index", cmd.Check, "err", err)
			}
			return
		}
	}
}

// CheckState makes all members compare their states. It waits until every member has reported
// or ctx ends, and returns the recorded check; Complete reports whether every member has
// reported.
func (n *Node) CheckState(ctx context.Context) (state.Check, error) {
	outcome, err := n.decide(ctx, &state.CheckState{At: state.MillisOf(time.Now())})
	if err != nil {
		return state.Check{}, fmt.Errorf("consensus: check the state: %w", err)
	}
	tick := time.NewTicker(checkPoll)
	defer tick.Stop()
	for {
		check, err := n.check(outcome.Index)
		if err != nil || check.Complete() {
			return check, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return check, nil
		}
	}
}

// check returns one check by its index.
func (n *Node) check(index uint64) (state.Check, error) {
	checks, err := n.Checks()
	if err != nil {
		return state.Check{}, err
	}
	for _, c := range checks {
		if c.Index == index {
			return c, nil
		}
	}
	return state.Check{}, fmt.Errorf("consensus: %w", state.Errorf(state.CodeNotFound, "check %d is not on record", index))
}

// Checks returns the newest checks of the state, oldest first.
func (n *Node) Checks() ([]state.Check, error) {
	view, release := n.LocalView()
	defer release()
	return view.Checks()
}

// Quarantined returns the quarantine of this node, or nil if the node is in service. A node in
// quarantine neither votes nor serves, because its state differs from that of the majority.
func (n *Node) Quarantined() *state.Quarantine { return n.fsm.verdict().quarantine }

// refused returns the error with which a node in quarantine rejects requests, or nil if this node
// is not in quarantine.
func (n *Node) refused() error {
	q := n.Quarantined()
	if q == nil {
		return nil
	}
	return state.Errorf(state.CodeUnavailable,
		"the state of this node differs from the majority's (check at index %d: %s here, %s there): it is in quarantine until it has the state anew", q.Check, q.Hash, q.Majority)
}

// checkDue proposes a check when one is due and this node leads.
func (n *Node) checkDue(ctx context.Context, view state.View) error {
	if n.fsm.level() < 1 {
		return nil
	}
	due, err := n.isCheckDue(ctx, view)
	if err != nil || !due {
		return err
	}
	_, err = n.decide(ctx, &state.CheckState{At: state.MillisOf(time.Now())})
	return err
}

func (n *Node) isCheckDue(ctx context.Context, view state.View) (bool, error) {
	checks, err := view.Checks()
	if err != nil {
		return false, err
	}
	since := n.timings.Check // a cluster without any has just been founded
	if cluster, err := view.Cluster(); err == nil {
		since = time.Since(cluster.Created.Time())
	}
	if len(checks) > 0 {
		since = time.Since(checks[len(checks)-1].At.Time())
	}
	if since < 0 || since >= n.timings.Check { // a clock may have gone back
		return true, nil
	}
	in, err := view.Quarantined()
	if err != nil {
		return false, err
	}
	commit := n.raft.CommitIndex()
	for _, q := range in {
		node, err := view.Node(q.Node)
		if err != nil {
			return false, err
		}
		wait := backoff.After(recheckAfter, n.timings.Check, 1+int(q.Times))
		if node.Store == q.Store || since < wait {
			continue // it has not begun again
		}
		if at, err := n.appliedOn(ctx, raftID(q.Node)); err == nil && at+promoteLag >= commit {
			return true, nil
		}
	}
	return false, nil
}

// watchChecks logs the results of checks that were not logged before. said is the index of the
// newest check that was logged.
func (n *Node) watchChecks(ctx context.Context, view state.View, said *uint64) error {
	checks, err := view.Checks()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	for _, c := range checks {
		if c.Index <= *said {
			continue
		}
		hash, decided := c.Majority()
		overdue := time.Since(c.At.Time()) > reportTimeout
		outcome := "equal"
		switch {
		case c.Differs() && decided:
			outcome = "differs"
			n.log.ErrorContext(ctx, "replicated states differ: the cluster quarantines the members that differ from the majority", "index", c.Index, "majority", hash, "reports", c.Reports)
		case c.Differs() && (c.Complete() || overdue):
			outcome = "undecided"
			n.log.ErrorContext(ctx, "replicated states differ and no majority agrees: the cluster quarantines no member, so find out which state is right", "index", c.Index, "reports", c.Reports)
		case !c.Complete() && !overdue:
			return nil // wait for the others
		case !c.Complete():
			outcome = "incomplete"
		}
		n.metrics.checks.WithLabelValues(outcome).Inc()
		*said = c.Index
	}
	return nil
}

// outOfService ends Run with ErrQuarantined when this node is in quarantine and no longer votes.
// The node then starts again without its state and with a new store id.
func (n *Node) outOfService(ctx context.Context) error {
	q := n.Quarantined()
	store, _ := n.Store()
	if q == nil || q.Store != store || n.IsLeader() || n.Roles()[n.opts.ID] != roleNonvoter {
		return nil
	}
	if _, led := n.Leader(); !led {
		return nil
	}
	n.log.ErrorContext(ctx, "this node discards its state because it differs from the majority's", "check", q.Check, "hash", q.Hash, "majority", q.Majority)
	return fmt.Errorf("%w: %s, not %s, at index %d", ErrQuarantined, q.Hash, q.Majority, q.Check)
}
