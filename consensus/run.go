package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/transport"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// Run runs the background work of the node until ctx ends and then returns nil. Proposals and
// linearizable reads wait until Run is called. It returns earlier only if this node cannot
// continue; the error wraps ErrRemoved, ErrBroken, ErrStalled or ErrQuarantined. Call it once.
func (n *Node) Run(ctx context.Context) error {
	caller := ctx
	group, ctx := errgroup.WithContext(ctx)
	// Some wait for a disk that hangs, and with them the end of the group.
	defer context.AfterFunc(ctx, func() {
		if caller.Err() == nil {
			_ = n.end(context.Cause(ctx)) // Run returns it
		}
	})()
	group.Go(func() error { return transport.Serve(ctx, n.forwards.listener, n.serve, n.streamEnded, n.log) })
	group.Go(func() error { return n.batcher.run(ctx) })
	group.Go(func() error { return n.reads.run(ctx, n.readIndex) })
	group.Go(func() error { return n.watchLeaders(ctx) })
	group.Go(func() error { return n.watchLeader(ctx) })
	group.Go(func() error { return n.sendBeats(ctx) })
	group.Go(func() error { return n.askWhetherGone(ctx) })
	group.Go(func() error { return n.openTerms(ctx) })
	group.Go(func() error { return n.keepMembership(ctx) })
	group.Go(func() error { return n.catchUpOnce(ctx) })
	group.Go(func() error { return n.watchLag(ctx) })
	group.Go(func() error { return n.watchDisk(ctx) })
	group.Go(func() error { return n.keepEligible(ctx) })
	group.Go(func() error { return n.reportHashes(ctx) })
	group.Go(func() error { return n.keepLogShort(ctx) })
	group.Go(func() error { return n.remakeSnapshots(ctx) })
	group.Go(func() error {
		select {
		case err := <-n.fatal:
			return err
		case <-ctx.Done():
			return nil
		}
	})
	if err := group.Wait(); err != nil {
		return n.end(err)
	}
	return nil
}

// end records and returns the reason why this node cannot continue.
func (n *Node) end(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended == nil {
		n.ended = fmt.Errorf("consensus: %w", err)
	}
	return n.ended
}

// leaderTick is the longest interval between two checks of which node leads.
const leaderTick = 300 * time.Millisecond

// watchLeaders refreshes the leader gate when Raft reports a change, so that waiting callers
// learn of another leader.
func (n *Node) watchLeaders(ctx context.Context) error {
	every := time.NewTicker(min(n.timings.Heartbeat, leaderTick)) // an observation can be lost
	defer every.Stop()
	var last state.NodeID
	for {
		select {
		case <-n.observed:
		case <-every.C:
		case <-ctx.Done():
			return nil
		}
		n.leaders.refresh()
		if leader, _ := n.leaders.get(); leader != last {
			last = leader
			n.log.InfoContext(ctx, "leader changed", "leader", leader, "here", leader == n.opts.ID)
		}
	}
}

// openTerms commits an empty entry whenever this node becomes leader. Its commit index then
// includes everything that earlier leaders committed.
func (n *Node) openTerms(ctx context.Context) error {
	for {
		select {
		case <-n.raft.LeaderCh():
		case <-ctx.Done():
			return nil
		}
		n.leaders.refresh()
		wait := retry{backoff.New(firstBackoff, lastBackoff)}
		for n.IsLeader() && n.fsm.progress.lastTerm() != n.raft.CurrentTerm() {
			err := n.await(ctx, n.raft.Apply(n.empty, enqueueTimeout))
			if err == nil {
				break
			}
			n.log.DebugContext(ctx, "leader cannot commit the first entry of its term yet", "err", err)
			if wait.pause(ctx, nil) != nil {
				return nil
			}
		}
		select {
		case n.ledTerm <- struct{}{}:
		default:
		}
	}
}

// catchUpOnce closes caughtUp, which makes the node ready, when the local state has everything
// that was committed before this node first heard of a leader.
func (n *Node) catchUpOnce(ctx context.Context) error {
	for ctx.Err() == nil {
		if n.tryCatchUp(ctx) {
			close(n.caughtUp)
			n.log.InfoContext(ctx, "caught up with the cluster", "index", n.Applied())
			return nil
		}
	}
	return nil
}

func (n *Node) tryCatchUp(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	return n.catchUp(ctx) == nil
}

// each calls fn after each interval until fn returns an error, which it returns, or ctx ends, for
// which it returns nil.
func each(ctx context.Context, interval time.Duration, fn func() error) error {
	every := time.NewTicker(interval)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return nil
		}
		if err := fn(); err != nil {
			return err
		}
	}
}

// watchDisk ends Run with ErrStalled when a write to the Raft log hangs, so that another node can
// lead. Otherwise this node would remain leader, because sending heartbeats needs no disk.
func (n *Node) watchDisk(ctx context.Context) error {
	return each(ctx, diskCheck, func() error {
		n.disk.ran.goOn()
		if took := n.disk.writing(); took > stalledWrite {
			return errors.Join(fmt.Errorf("%w: no answer for %s", ErrStalled, took.Round(time.Millisecond)), n.transport.Close())
		}
		return nil
	})
}
