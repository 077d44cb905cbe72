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
	// lagCheck is how often a doubt, or that the node is behind, is looked into.
	lagCheck = time.Second
)

// lag is whether this node has fallen so far behind the cluster that it answers no
// linearizable reads: the disk of its log is full, say, or its state hangs.
type lag struct {
	log   *slog.Logger
	ready func() bool // whether the node has once caught up; before that it is not ready, and behind is nothing to act on

	doubted atomic.Bool // somebody gave up waiting for the local state
	behind  atomic.Bool // a read failed for it, and none has succeeded since
}

// gaveUp notes that somebody waited so long for the local state, in vain.
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

// watchLag finds out whether this node answers reads while there is reason to doubt
// it, with reads of its own: nobody may send it any once it is not ready. There is
// one at a time, each bounded by viewTimeout.
func (n *Node) watchLag(ctx context.Context) error {
	return each(ctx, lagCheck, func() error {
		doubted := n.lag.doubted.Swap(false)
		if doubted || n.lag.behind.Load() || n.disk.refusedLately() {
			n.tryCatchUp(ctx)
		}
		return nil
	})
}

// whyBehind is what a node that is behind can say of the reason.
func (n *Node) whyBehind() string {
	if n.disk.refusedLately() {
		return ": the disk of its Raft log is full"
	}
	return ""
}
