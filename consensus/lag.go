package consensus

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Limits at which this node counts as too far behind to answer reads.
const (
	// lagged is how long a read must have waited in vain for the local state before this node
	// counts as behind. A shorter wait only sets doubted.
	lagged = 2 * time.Second
	// lagCheck is the interval at which this node checks itself while there is a doubt or while
	// it is behind.
	lagCheck = time.Second
)

// lag records whether this node is so far behind the cluster that it cannot answer linearizable
// reads, for example because the disk of its log is full or its state machine hangs.
type lag struct {
	log   *slog.Logger
	ready func() bool // whether the node has caught up once since its start; before that, the log lines are not warnings

	doubted atomic.Bool // a caller has given up waiting for the local state
	behind  atomic.Bool // a read has failed because of the local state, and none has succeeded since
}

// gaveUp records that a read has given up after it waited for the local state for the given time.
func (l *lag) gaveUp(waited time.Duration) {
	l.doubted.Store(true)
	if waited >= lagged && l.behind.CompareAndSwap(false, true) {
		level := slog.LevelWarn
		if !l.ready() {
			level = slog.LevelDebug
		}
		l.log.Log(context.Background(), level, "this node is behind the cluster and answers no reads")
	}
}

// caughtUp records that the local state was new enough for a read.
func (l *lag) caughtUp() {
	if l.behind.Load() && l.behind.CompareAndSwap(true, false) && l.ready() {
		l.log.Info("this node has caught up and answers reads again")
	}
}

// watchLag makes test reads while this node may be behind, to find out whether it can answer
// reads. It cannot rely on client reads, because load balancers send none to a node that is not
// ready. One read runs at a time, bounded by viewTimeout. It runs until ctx ends.
func (n *Node) watchLag(ctx context.Context) error {
	return each(ctx, lagCheck, func() error {
		doubted := n.lag.doubted.Swap(false)
		if doubted || n.lag.behind.Load() || n.disk.refusedLately() {
			n.tryCatchUp(ctx)
		}
		return nil
	})
}

// whyBehind returns the reason why this node is behind, if it is known.
func (n *Node) whyBehind() string {
	if n.disk.refusedLately() {
		return ": the disk of its Raft log is full"
	}
	return ""
}
