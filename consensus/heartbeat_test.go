package consensus

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// heartbeat returns what a leader of some term sends; it tells whether the loop hears
// of it, and not the handler beside it.
func heartbeat(r *raft.Raft, term uint64) (loop bool) {
	h := newHeartbeats(new(sync.RWMutex))
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

// Only a heartbeat of the leader that is followed passes beside Raft's loop; one of another term goes to the loop.
// Raft must not learn of a term beside its loop: a leader that is just taking entries would write them down with it.
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

// The term is not raised while a heartbeat passes beside the loop, and none passes while it is raised. The handler of
// a heartbeat may be about to set the term before.
func TestTheTermIsNotRaisedWhileAHeartbeatPasses(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		c.leader()
		follower := c.follower()
		term := follower.raft.CurrentTerm()
		f, err := openEligibility(raft.NewInmemStore(), false)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.SetUint64([]byte(termKey), term); err != nil {
			t.Fatal(err)
		}
		h := newHeartbeats(&f.raising)
		h.raft.Store(follower.raft)
		inside, goOn := make(chan struct{}), make(chan struct{})
		handle := h.guarded(func(raft.RPC) {
			if err := f.SetUint64([]byte(termKey), term); err != nil { // as the handler does: it waits for nobody
				t.Error(err)
			}
			close(inside)
			<-goOn
		})
		passed := make(chan struct{})
		go func() {
			handle(raft.RPC{Command: &raft.AppendEntriesRequest{Term: term}})
			close(passed)
		}()
		<-inside
		if f.raising.TryLock() { // what raising it needs
			t.Fatal("the term can be raised beside a heartbeat")
		}
		close(goOn)
		<-passed
		if err := f.SetUint64([]byte(termKey), term+1); err != nil {
			t.Error(err)
		}
		// Nor does one pass while the loop raises it.
		f.raising.Lock()
		go handle(raft.RPC{Command: &raft.AppendEntriesRequest{Term: term}})
		<-h.loop
		f.raising.Unlock()
		if got, err := f.GetUint64([]byte(termKey)); err != nil || got != term+1 {
			t.Errorf("term %d, %v", got, err)
		}
	})
}

// A follower that a leader hands over to becomes a candidate after the heartbeat that bypasses its loop, and leads.
// The heartbeat could make a candidate a follower again.
func TestAHeartbeatDoesNotUndoAHandOver(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		leader, heir := c.leader(), c.follower()
		c.until("the heir follows", func() bool { return heir.raft.CurrentTerm() == leader.raft.CurrentTerm() })
		var once sync.Once
		stands, undone := make(chan struct{}), make(chan struct{})
		// The loop calls this after it became a candidate, and before it notes why.
		heir.raft.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
			if s, ok := o.Data.(raft.RaftState); ok && s == raft.Candidate {
				once.Do(func() { close(stands) })
				<-undone
			}
			return false
		}))
		inside := make(chan struct{})
		go heir.beats.pass(raft.RPC{Command: &raft.AppendEntriesRequest{Term: heir.raft.CurrentTerm()}}, func(rpc raft.RPC) {
			defer close(undone)
			close(inside)
			for heir.beats.standing.TryRLock() { // until the request waits for this heartbeat
				heir.beats.standing.RUnlock()
				select {
				case <-stands:
					t.Error("the loop became a candidate while a heartbeat bypassed it")
					return
				default:
					runtime.Gosched()
				}
			}
		})
		<-inside
		if err := heir.beats.offer(t.Context(), raft.RPC{Command: &raft.TimeoutNowRequest{RPCHeader: heir.rpcHeader()}}); err != nil {
			t.Error(err)
		}
		c.until("the heir leads", heir.IsLeader)
	})
}

// Only a node that leads in a term sends entries of that term; a heartbeat of an earlier term may be sent.
func TestOnlyWhoLeadsInATermSendsEntriesOfIt(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		leader, follower := c.leader(), c.follower()
		term := leader.raft.CurrentTerm()
		entries := func(term uint64) *raft.AppendEntriesRequest {
			return &raft.AppendEntriesRequest{Term: term, PrevLogEntry: 1, PrevLogTerm: 1}
		}
		for _, tc := range []struct {
			name string
			at   *testNode
			args *raft.AppendEntriesRequest
			want bool
		}{
			{"the leader", leader, entries(term), true},
			{"the leader, of an earlier lead", leader, entries(term - 1), false},
			{"a follower", follower, entries(term), false},
			{"a heartbeat of an earlier lead", leader, &raft.AppendEntriesRequest{Term: term - 1}, true},
		} {
			if got := (ballots{beats: tc.at.beats}).maySend(tc.args); got != tc.want {
				t.Errorf("%s: %v", tc.name, got)
			}
		}
	})
}

// A node that is not eligible to vote does not confirm its term.
func TestATermWithoutAVoteVouchesForNothing(t *testing.T) {
	inVirtualTime(t, 1, Timings{}, func(t *testing.T, c *testCluster) {
		node := c.leader()
		if how, _ := node.serve(t.Context(), "n2", askTerm, nil); how != answerDone {
			t.Errorf("with a vote: answer %d", how)
		}
		r := node.eligibility.read()
		r.votes = false
		if err := node.eligibility.write(r); err != nil {
			t.Fatal(err)
		}
		if how, _ := node.serve(t.Context(), "n2", askTerm, nil); how != answerRetry {
			t.Errorf("without one: answer %d", how)
		}
	})
}
