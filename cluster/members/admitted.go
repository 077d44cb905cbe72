package members

import (
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// answerGrace is how long a joining node may request the answer again after its ticket was used.
// A joining node also tries for that long.
const answerGrace = time.Minute

// admitted records nodes that a ticket may have admitted without the node knowing it.
//
// The command that admits a node also removes its ticket. If the majority or the answer is lost
// at that moment, the node is a member but does not have the cluster secret, and its ticket is no
// longer valid. So this node, and no other, can get the answer again for answerGrace, or until it
// confirms that it has the answer. The number of entries is limited by the number of tickets.
type admitted struct {
	// mu guards nodes, whose keys are ticket ids.
	mu    sync.Mutex
	nodes map[string]admission
}

type admission struct {
	node state.NodeID
	ends time.Time
}

// note records that ticket may have admitted node. It does not replace an entry for another node.
func (a *admitted) note(ticket string, node state.NodeID, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, known := range a.nodes {
		if !now.Before(known.ends) {
			delete(a.nodes, id)
		}
	}
	if known, ok := a.nodes[ticket]; ok && known.node != node {
		return
	}
	if a.nodes == nil {
		a.nodes = make(map[string]admission)
	}
	a.nodes[ticket] = admission{node, now.Add(answerGrace)}
}

// forget removes the entry of a node that has confirmed the answer or was rejected.
func (a *admitted) forget(ticket string, node state.NodeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nodes[ticket].node == node {
		delete(a.nodes, ticket)
	}
}

// by returns the node that ticket may have admitted and that may still request the answer; ok is
// false if there is none.
func (a *admitted) by(ticket string, now time.Time) (node state.NodeID, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.nodes[ticket]
	return known.node, ok && now.Before(known.ends)
}
