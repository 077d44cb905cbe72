package consensus

import (
	"sync"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// leaderGate lets requests wait until the leader changes.
type leaderGate struct {
	lookup func() (state.NodeID, bool)

	// mu guards the fields below. The leader is looked up while mu is held, so that an older
	// result cannot replace a newer one.
	mu      sync.Mutex
	leader  state.NodeID  // empty means that no leader is known
	changed chan struct{} // closed and replaced when leader changes
}

func newLeaderGate(lookup func() (state.NodeID, bool)) *leaderGate {
	return &leaderGate{lookup: lookup, changed: make(chan struct{})}
}

// refresh looks up the leader, and closes the channel changed if it is another one than before.
func (g *leaderGate) refresh() {
	g.mu.Lock()
	defer g.mu.Unlock()
	leader, known := g.lookup()
	if !known {
		leader = ""
	}
	if leader == g.leader {
		return
	}
	g.leader = leader
	close(g.changed)
	g.changed = make(chan struct{})
}

// get returns the leader, or "" if none is known, and a channel that is closed when that changes.
// The channel also identifies the present leadership.
func (g *leaderGate) get() (state.NodeID, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leader, g.changed
}
