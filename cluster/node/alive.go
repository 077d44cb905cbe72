package node

import (
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// liveness decides which members are down, for expensive decisions such as copying content again.
// A member without recent samples does not count as down while a connection to it is open:
// connections end within seconds after the other side has stopped.
type liveness struct {
	heard     func(state.NodeID) (since time.Time, down bool) // returns whether a member is down according to gossip, and since when
	connected func(id string) bool
	now       func() time.Time

	// mu guards last. It is not held during calls of other code.
	mu   sync.Mutex
	last map[state.NodeID]time.Time // time at which a member without samples was last seen connected
}

// downSince returns whether a member is down, and since when it was neither heard nor connected.
// since is zero if the member is connected.
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

// agreed returns the earliest and the latest possible current time, computed from the clocks of
// most members. ok is false if too few members have sent samples or gossip has not started. See
// gossip.Table.Agreed.
func (n *Node) agreed() (early, late state.Millis, ok bool) {
	table := n.heard.Load()
	if table == nil {
		return 0, 0, false
	}
	return table.Agreed()
}
