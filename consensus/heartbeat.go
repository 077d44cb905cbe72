package consensus

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// heartbeats passes some heartbeats to Raft outside of its main loop, so that a node that waits
// for its disk still hears its leader. Raft processes heartbeats like entries, which by its own
// rules only the loop may do. A heartbeat of a new leader raises the term. If a leader of an
// earlier term accepts entries from clients at that moment, or a candidate has just been
// elected, this node would write the entries with the new term. Then two entries have the same
// index and term, and the logs never agree again.
//
// So only heartbeats that change nothing bypass the loop: those of the leader that this
// node already follows, because the loop does not raise the term while one is processed.
// All others go to the loop.
type heartbeats struct {
	// raising is held while the main loop raises the term.
	raising *sync.RWMutex
	// standing is held while Raft's main loop processes the request to start an election.
	standing sync.RWMutex
	// raft is set when Raft has started. Raft listens for requests before that.
	raft atomic.Pointer[raft.Raft]
	loop chan raft.RPC // channel from which Raft's main loop reads requests
	done chan struct{} // closed when no goroutine reads from loop any more
}

func newHeartbeats(raising *sync.RWMutex) *heartbeats {
	return &heartbeats{raising: raising, loop: make(chan raft.RPC), done: make(chan struct{})}
}

// guarded wraps a heartbeat handler, which then gets only heartbeats that change nothing.
func (h *heartbeats) guarded(handle func(raft.RPC)) func(raft.RPC) {
	if handle == nil {
		return nil
	}
	return func(rpc raft.RPC) {
		if !h.pass(rpc, handle) {
			h.hand(rpc)
		}
	}
}

// pass calls the handler if a heartbeat changes nothing. Raft's main loop may begin to stand
// for election during the call, and the handler then makes the node a follower again, in the
// same term. raising prevents that the handler sets that term after the loop has set the next
// one. Otherwise the node could lead in a term in which another node was elected.
func (h *heartbeats) pass(rpc raft.RPC, handle func(raft.RPC)) bool {
	args, ok := rpc.Command.(*raft.AppendEntriesRequest)
	if !ok || !h.standing.TryRLock() {
		return false
	}
	defer h.standing.RUnlock()
	if !h.raising.TryRLock() { // the loop raises the term: its disk is waited for
		return false
	}
	defer h.raising.RUnlock()
	r := h.raft.Load()
	if r == nil || r.State() != raft.Follower || r.CurrentTerm() != args.Term {
		return false
	}
	handle(rpc)
	return true
}

// leading returns whether this node leads.
func (h *heartbeats) leading() bool {
	r := h.raft.Load()
	return r != nil && r.State() == raft.Leader
}

// leads returns whether this node leads in a term.
func (h *heartbeats) leads(term uint64) bool {
	return h.leading() && h.raft.Load().CurrentTerm() == term
}

// hand passes a request to Raft's main loop. When Raft has stopped, the request gets no answer,
// and the transport closes its stream.
func (h *heartbeats) hand(rpc raft.RPC) {
	select {
	case h.loop <- rpc:
	case <-h.done:
		rpc.Respond(&raft.AppendEntriesResponse{}, raft.ErrTransportShutdown)
	}
}

// offer gives the loop a request, and returns when it is answered, or when ctx ends before the
// loop takes it.
//
// No heartbeat bypasses the loop while it is told to stand for election. Raft becomes a
// candidate and only then notes that it was told to (timeoutNow in raft.go, v1.8.0). A heartbeat
// between the two would make it a follower again, and the leader that hands over would wait for
// an election that never comes.
func (h *heartbeats) offer(ctx context.Context, rpc raft.RPC) error {
	if _, told := rpc.Command.(*raft.TimeoutNowRequest); told {
		h.standing.Lock()
		defer h.standing.Unlock()
	}
	answer := make(chan raft.RPCResponse, 1)
	rpc.RespChan = answer
	select {
	case h.loop <- rpc:
	case <-h.done:
		return raft.ErrRaftShutdown
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case a := <-answer:
		return a.Error
	case <-h.done:
		return raft.ErrRaftShutdown
	}
}

// pump passes requests to Raft's main loop until Raft has stopped. Requests that consent or
// again answers are not passed on.
func (h *heartbeats) pump(from <-chan raft.RPC, consent func(raft.RPC) (raft.RPC, bool), arriving arrivals, again *resent) {
	for {
		select {
		case rpc := <-from:
			rpc, answered := consent(rpc)
			if answered {
				continue
			}
			if _, told := rpc.Command.(*raft.TimeoutNowRequest); told {
				rpc.Respond(&raft.TimeoutNowResponse{}, h.offer(context.Background(), rpc))
				continue
			}
			if rpc = arriving.watch(rpc); !again.take(rpc) {
				h.hand(again.behind(rpc))
			}
		case <-h.done:
			return
		}
	}
}
