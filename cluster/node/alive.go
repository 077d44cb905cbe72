package node

import (
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// liveness tells who is down, for what costs something to be wrong about. A
// member whose gossip is silent is not down while a connection to it stands:
// connections end by themselves within seconds of their other side.
type liveness struct {
	heard     func(state.NodeID) (since time.Time, down bool) // of gossip
	connected func(id string) bool
	now       func() time.Time

	// mu guards last. It is never held while calling out.
	mu   sync.Mutex
	last map[state.NodeID]time.Time // when a silent member was connected
}

// downSince tells whether a member is down, and since when that was seen.
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

// agreed is what is certain of the time while most clocks are right: ok is false while too
// few members are heard, and before this node gossips. See gossip.Table.Agreed.
func (n *Node) agreed() (early, late state.Millis, ok bool) {
	table := n.heard.Load()
	if table == nil {
		return 0, 0, false
	}
	return table.Agreed()
}
