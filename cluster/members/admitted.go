package members

import (
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// answerGrace is how long a node that a ticket may have let in can ask for the answer again:
// as long as a joiner tries.
const answerGrace = time.Minute

// admitted are the nodes that tickets may have let in and that were not told so. The change
// that lets a node in spends its ticket; where the majority is lost at that moment, or the
// answer, the node is a member and does not know the secret, and the ticket admits nobody
// any more. So it is answered when it asks again, for a while or until it says that it has the
// answer, and no other node is. Such a ticket was open here, so there are no more of them
// than there may be tickets.
type admitted struct {
	// mu guards nodes, by their tickets.
	mu    sync.Mutex
	nodes map[string]admission
}

type admission struct {
	node state.NodeID
	ends time.Time
}

// note has a node let in by a ticket from now on; the first that asked stays.
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

// forget is for a node that has its answer, or was refused.
func (a *admitted) forget(ticket string, node state.NodeID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nodes[ticket].node == node {
		delete(a.nodes, ticket)
	}
}

// by is whom a ticket may have let in who waits for the answer; ok is false when nobody does.
func (a *admitted) by(ticket string, now time.Time) (node state.NodeID, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.nodes[ticket]
	return known.node, ok && now.Before(known.ends)
}
