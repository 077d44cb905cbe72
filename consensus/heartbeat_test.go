package consensus

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// heartbeat is what a leader of some term sends; it tells whether the loop hears
// of it, and not the handler beside it.
func heartbeat(r *raft.Raft, term uint64) (loop bool) {
	h := newHeartbeats()
	h.raft.Store(r)
	handled := make(chan struct{}, 1)
	handle := h.guarded(func(raft.RPC) { handled <- struct{}{} })
	go handle(raft.RPC{Command: &raft.AppendEntriesRequest{Term: term}})
	select {
	case <-h.loop:
		return true
	case <-handled:
		return false
	}
}

// Raft must not learn of a term beside its loop: a leader that is just taking
// entries would write them down with it.
func TestOnlyTheLoopHearsOfANewLeader(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		leader, follower := c.leader(), c.follower()
		c.until("the follower follows", func() bool { return follower.raft.CurrentTerm() == leader.raft.CurrentTerm() })
		term := leader.raft.CurrentTerm()
		for _, tc := range []struct {
			name string
			at   *testNode
			term uint64
			loop bool
		}{
			{"the leader that is followed", follower, term, false},
			{"a new one, at a follower", follower, term + 1, true},
			{"a new one, at the one before", leader, term + 1, true},
			{"an old one", follower, term - 1, true},
		} {
			if got := heartbeat(tc.at.raft, tc.term); got != tc.loop {
				t.Errorf("%s: it goes to the loop: %v, want %v", tc.name, got, tc.loop)
			}
		}
		if now := leader.raft.CurrentTerm(); now != term || leader.raft.State() != raft.Leader {
			t.Errorf("%s in term %d, was leader in %d", leader.raft.State(), now, term)
		}

		// A leader that was cut off hears of the next one all the same.
		cut := leader
		c.network.isolate(cut.id, c.others(cut.id)...)
		c.until("another leads", func() bool {
			for id, n := range c.nodes {
				if id != cut.id && n.IsLeader() {
					return true
				}
			}
			return false
		})
		c.network.heal()
		began := time.Now()
		c.until("it follows", func() bool { l, ok := cut.Leader(); return ok && l != cut.id && cut.Ready() == nil })
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it followed after %v", took)
		}
	})
}
