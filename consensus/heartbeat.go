package consensus

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// heartbeats passes some Raft heartbeats to Raft's handler outside of Raft's main loop, so that a
// node whose main loop waits for the disk still hears its leader. By Raft's rules only the main
// loop may process messages that change the term. If another goroutine raised the term while this
// node still accepts entries as leader of an earlier term, or has just been elected, this node
// would write these entries with the new term. Two different entries would then have the same
// index and term, and the logs of the members would differ forever.
//
// So only heartbeats that change nothing bypass the loop: those of the leader that this node
// follows already, in the current term. The loop cannot raise the term while such a heartbeat is
// processed. All other heartbeats go to the loop.
type heartbeats struct {
	// raising is write-locked while the main loop raises the term.
	raising *sync.RWMutex
	// standing is write-locked while Raft's main loop processes the request to start an election.
	standing sync.RWMutex
	// raft is set when Raft has started. Before that it is nil, although requests may arrive
	// already.
	raft atomic.Pointer[raft.Raft]
	loop chan raft.RPC // channel from which Raft's main loop reads requests
	done chan struct{} // closed when no goroutine reads from loop any more
}

func newHeartbeats(raising *sync.RWMutex) *heartbeats {
	return &heartbeats{raising: raising, loop: make(chan raft.RPC), done: make(chan struct{})}
}

// guarded wraps Raft's heartbeat handler. The wrapped handler gets only heartbeats that change
// nothing; the others go to the main loop.
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

// pass calls the handler if the heartbeat changes nothing, and returns whether it did. Raft's
// main loop may start an election during the call; the handler then makes the node a follower
// again, in the same term. The lock raising prevents the handler from setting that term after the
// loop has set the next one. Otherwise the node could lead in a term in which another node was
// elected.
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

// hand passes a request to Raft's main loop. If Raft has stopped, hand answers with
// raft.ErrTransportShutdown.
func (h *heartbeats) hand(rpc raft.RPC) {
	select {
	case h.loop <- rpc:
	case <-h.done:
		rpc.Respond(&raft.AppendEntriesResponse{}, raft.ErrTransportShutdown)
	}
}

// offer passes a request to Raft's main loop and waits for the answer. It returns an error if ctx
// ends before the loop accepts the request, or if Raft stops.
//
// While the loop processes a request to start an election, no heartbeat bypasses the loop. Raft
// first becomes a candidate and only then records that the request caused the candidacy
// (timeoutNow in raft.go, v1.8.0). A heartbeat between these steps would make the node a follower
// again, and the leader that transfers its leadership would wait for an election that never
// starts.
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

// pump passes requests from the transport to Raft's main loop until Raft has stopped. It does not
// pass on requests that consent or again has answered.
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
