package consensus

import (
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// heartbeats are what Raft's transport hands to it beside its loop, so that a
// node that waits for its disk still hears its leader. Raft deals with them as
// with entries, which it says itself only its loop may do: a heartbeat of a new
// leader raises the term, and a leader of an earlier one that takes entries from
// clients in that moment writes them down with the term of the new one; so does
// a candidate that is just elected. Then two entries have one index and one
// term, and the logs never agree again.
//
// So only those pass that change nothing: of the leader that this node follows
// already. All others go to the loop.
type heartbeats struct {
	// raft is set when Raft has started; it listens before.
	raft atomic.Pointer[raft.Raft]
	loop chan raft.RPC // what Raft's loop reads
	done chan struct{} // closed when nobody reads any more
}

func newHeartbeats() *heartbeats {
	return &heartbeats{loop: make(chan raft.RPC), done: make(chan struct{})}
}

// guarded is a handler that gets only heartbeats that change nothing.
func (h *heartbeats) guarded(handle func(raft.RPC)) func(raft.RPC) {
	if handle == nil {
		return nil
	}
	return func(rpc raft.RPC) {
		args, ok := rpc.Command.(*raft.AppendEntriesRequest)
		// While the handler is at work the node may stand for election, in a later
		// term; then the heartbeat is one of an old leader, and changes nothing.
		if r := h.raft.Load(); ok && r != nil && r.State() == raft.Follower && r.CurrentTerm() == args.Term {
			handle(rpc)
			return
		}
		h.hand(rpc)
	}
}

// hand gives a question to the loop; when Raft has ended nobody answers it, and
// the transport breaks its stream.
func (h *heartbeats) hand(rpc raft.RPC) {
	select {
	case h.loop <- rpc:
	case <-h.done:
		rpc.Respond(&raft.AppendEntriesResponse{}, raft.ErrTransportShutdown)
	}
}

// pump hands over what comes for the loop until Raft has ended.
func (h *heartbeats) pump(from <-chan raft.RPC) {
	for {
		select {
		case rpc := <-from:
			h.hand(rpc)
		case <-h.done:
			return
		}
	}
}
