package consensus

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// When a node takes itself for one that cannot answer reads.
const (
	// lagged is how long a read must have waited for the local state in vain for this node to
	// count as behind. A shorter wait only raises a doubt.
	lagged = 2 * time.Second
	// lagCheck is the interval at which a doubt, or a node that is behind, is checked.
	lagCheck = time.Second
)

// lag says whether this node is so far behind the cluster that it cannot answer
// linearizable reads, for example because the disk of its log is full or its state hangs.
type lag struct {
	log   *slog.Logger
	ready func() bool // whether the node has once caught up; before that it is not ready, and behind is nothing to act on

	doubted atomic.Bool // a caller gave up waiting for the local state
	behind  atomic.Bool // a read failed for it, and none has succeeded since
}

// gaveUp records that a caller waited for the local state and gave up.
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

// caughtUp notes that the local state had what a read needs.
func (l *lag) caughtUp() {
	if l.behind.Load() && l.behind.CompareAndSwap(true, false) && l.ready() {
		l.log.Info("this node has caught up and answers reads again")
	}
}

// watchLag checks with its own reads whether this node answers reads while there is a
// doubt, because clients may send none to a node that is not ready. There is one read at a
// time, bounded by viewTimeout.
func (n *Node) watchLag(ctx context.Context) error {
	return each(ctx, lagCheck, func() error {
		doubted := n.lag.doubted.Swap(false)
		if doubted || n.lag.behind.Load() || n.disk.refusedLately() {
			n.tryCatchUp(ctx)
		}
		return nil
	})
}

// whyBehind returns the reason why the node is behind, as far as it knows.
func (n *Node) whyBehind() string {
	if n.disk.refusedLately() {
		return ": the disk of its Raft log is full"
	}
	return ""
}
