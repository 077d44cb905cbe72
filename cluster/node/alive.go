package node

import (
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// liveness decides which members are down, for decisions with a cost. A member without
// recent samples is not down while a connection to it is open, because connections end
// within seconds after the other side has stopped.
type liveness struct {
	heard     func(state.NodeID) (since time.Time, down bool) // table of gossip
	connected func(id string) bool
	now       func() time.Time

	// mu guards last. It is not held during calls of other code.
	mu   sync.Mutex
	last map[state.NodeID]time.Time // when a silent member was last connected
}

// downSince returns whether a member is down and since when this node knows it.
func (l *liveness) downSince(id state.NodeID) (since time.Time, down bool) {
	since, down = l.heard(id)
	if down && l.connected(string(id)) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.last[id] = l.now()
		return time.Time{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.last[id]
	switch {
	case !down:
		delete(l.last, id) // heard again
	case known && last.After(since):
		since = last
	}
	return since, down
}

// agreed returns bounds of the current time while most clocks are right; ok is false if too
// few members have sent samples or gossip has not started. See gossip.Table.Agreed.
func (n *Node) agreed() (early, late state.Millis, ok bool) {
	table := n.heard.Load()
	if table == nil {
		return 0, 0, false
	}
	return table.Agreed()
}
