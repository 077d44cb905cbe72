package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// taken returns a snapshot that a node takes now, with its content.
func (n *testNode) taken() (raft.SnapshotMeta, []byte) {
	n.cluster.t.Helper()
	if err := n.snapshot(n.cluster.t.Context()); err != nil {
		n.cluster.t.Fatal(err)
	}
	n.snaps.mu.Lock()
	defer n.snaps.mu.Unlock()
	s := n.snaps.all[len(n.snaps.all)-1]
	return s.meta, bytes.Clone(s.content.Bytes())
}

// resend sends a node a snapshot in a term of the sender's, 0 for the term as it is, and
// tells whether it was taken.
func (n *testNode) resend(to *testNode, meta raft.SnapshotMeta, content []byte, term uint64) bool {
	n.cluster.t.Helper()
	if term == 0 {
		term = n.raft.CurrentTerm()
	}
	var resp raft.InstallSnapshotResponse
	err := n.transport.InstallSnapshot(raft.ServerID(to.id), raft.ServerAddress(to.id), &raft.InstallSnapshotRequest{
		RPCHeader:       raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.id), Addr: []byte(n.id)},
		SnapshotVersion: raft.SnapshotVersionMax, Term: term, LastLogIndex: meta.Index, LastLogTerm: meta.Term,
		Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex, Size: meta.Size,
	}, &resp, bytes.NewReader(content))
	if err != nil {
		n.cluster.t.Fatal(err)
	}
	return resp.Success
}

// grow makes nodes members that vote.
func (c *testCluster) grow(leader *testNode, ids ...state.NodeID) {
	c.t.Helper()
	want := leader.voters() + len(ids)
	for _, id := range ids {
		c.add(id)
		c.join(id)
	}
	c.until("they vote", func() bool { return leader.voters() == want })
}

// A node that is sent a late snapshot keeps its five voters, and two of these five acknowledge no write. The node has
// what follows the snapshot by then, and among that who votes.
func TestALateSnapshotLeavesTheVoters(t *testing.T) {
	inVirtualTime(t, 3, Timings{TrailingLogs: 1}, func(t *testing.T, c *testCluster) {
		leader := c.leader()
		others := c.others(leader.id)
		late, third := c.nodes[others[0]], c.nodes[others[1]]
		leader.mustPin("a")
		meta, content := leader.taken()
		c.grow(leader, "n4", "n5")
		leader.mustPin("b")
		c.until("all five know and are ready", func() bool { return c.know(5) && c.ready() == 5 })
		c.sameEverywhere()
		if leader.resend(late, meta, content, leader.raft.CurrentTerm()-1) {
			t.Error("a snapshot of an earlier term was taken")
		}
		if leader.resend(late, meta, content, leader.raft.CurrentTerm()+1) || late.raft.CurrentTerm() != leader.raft.CurrentTerm() {
			t.Error("a snapshot raised the term, or was taken in another one")
		}
		if !leader.resend(late, meta, content, 0) {
			t.Error("a snapshot that the node has is not taken")
		}
		if got := late.voters(); got != 5 {
			t.Fatalf("%s counts %d voters", late.id, got)
		}

		for _, n := range []*testNode{late, third} {
			c.network.isolate(n.id, leader.id, "n4", "n5")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := late.Propose(ctx, pin("by two of five")); err == nil {
			t.Error("two of five acknowledge a write")
		}
		if _, err := c.leader(leader.id, "n4", "n5").Propose(t.Context(), pin("by three of five")); err != nil {
			t.Errorf("three of five: %v", err)
		}
		c.network.heal()
		c.sameEverywhere()

		// What it says of the voters in a snapshot of its own is what it goes by later.
		if own, _ := late.taken(); len(own.Configuration.Servers) != 5 {
			t.Errorf("its own snapshot has %d voters", len(own.Configuration.Servers))
		}
		late.kill()
		late.start()
		c.until("it is back", func() bool { return late.Ready() == nil && late.voters() == 5 })
	})
}

// A node that has the entries behind a late snapshot, and has not applied them, keeps its voters. It is its state
// that is behind, and no snapshot brings it further than its log.
func TestALateSnapshotLeavesTheVotersOfWhoIsBehind(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		sick, leader, goOn := c.whoseStateHangs()
		meta, content := leader.taken()
		if sick.Applied() >= meta.Index {
			t.Fatalf("it has applied %d, and the snapshot is at %d", sick.Applied(), meta.Index)
		}
		c.grow(leader, "n4", "n5")
		c.until("its log has it all", func() bool { return sick.raft.LastIndex() == leader.raft.LastIndex() })
		if !leader.resend(sick, meta, content, 0) {
			t.Error("a snapshot of which the node has what follows is not taken")
		}
		goOn()
		leader.mustPin("b")
		c.sameEverywhere()
		if got := sick.voters(); got != 5 {
			t.Errorf("%s counts %d voters", sick.id, got)
		}
	})
}

// A node whose log begins behind a late snapshot stays equal to the others.
func TestALateSnapshotBeforeTheLog(t *testing.T) {
	inVirtualTime(t, 3, Timings{TrailingLogs: 1}, func(t *testing.T, c *testCluster) {
		leader := c.leader()
		late := c.nodes[c.others(leader.id)[0]]
		leader.mustPin("a")
		meta, content := leader.taken()
		for i := range 6 {
			leader.mustPin(fmt.Sprintf("p%d", i))
		}
		c.sameEverywhere()
		late.taken()
		if first, err := late.disk.FirstIndex(); err != nil || first <= meta.Index+1 {
			t.Fatalf("the log begins at %d, %v, and the snapshot is at %d", first, err, meta.Index)
		}
		leader.resend(late, meta, content, 0)
		leader.mustPin("b")
		c.sameEverywhere()
	})
}

// leftBehind returns a follower that is down, and what follows its log is in a snapshot of its
// leader.
func (c *testCluster) leftBehind() (lagging, leader *testNode) {
	c.t.Helper()
	lagging = c.follower()
	lagging.kill()
	leader = c.leader(c.others(lagging.id)...)
	for i := range 40 {
		leader.mustPin(fmt.Sprintf("p%02d", i))
	}
	leader.taken()
	return lagging, leader
}

// refusedOnce returns a full disk refuse what a node writes to log first; has tells whether it did.
func (n *testNode) refusedOnce(log raft.LogStore) (has func() bool) {
	var refused atomic.Bool
	n.tune = func(o *Options) {
		o.Log = &faultyLog{log, func() error {
			if refused.CompareAndSwap(false, true) {
				return errFull
			}
			return nil
		}}
		o.NoSpace = func(err error) bool { return errors.Is(err, errFull) }
	}
	return refused.Load
}

// A node that is sent the same snapshot again keeps the voters that it has from what follows it. There is no room to
// note where its log begins, so the leader does not hear that it has what follows.
func TestASnapshotThatIsSentAgainLeavesTheVoters(t *testing.T) {
	inVirtualTime(t, 3, Timings{TrailingLogs: 1}, func(t *testing.T, c *testCluster) {
		lagging, leader := c.leftBehind()
		c.grow(leader, "n4", "n5")
		<-time.After(time.Minute) // so that the leader's next try is to send all of this
		l := &ackless{LogStore: lagging.log, stored: make(chan struct{}), resume: make(chan struct{}), behind: func() uint64 {
			metas, err := lagging.snaps.List()
			if err != nil || len(metas) == 0 {
				return 0
			}
			return metas[0].Index
		}}
		lagging.refusedOnce(l)
		lagging.start()
		<-l.stored
		c.network.isolate(lagging.id, c.others(lagging.id)...)
		close(l.resume)
		c.until("it goes by what follows", func() bool { return lagging.voters() == 5 && lagging.Ready() != nil })
		c.network.heal()
		leader.mustPin("after")
		c.sameEverywhere()
		for _, n := range c.nodes {
			if got := n.voters(); got != 5 {
				t.Errorf("%s counts %d voters", n.id, got)
			}
		}
	})
}

// A disk without room for the entry that stands in for what a snapshot covers ends no node,
// also where the log from before had to go first.
func TestNoRoomToStandInEndsNoNode(t *testing.T) {
	inVirtualTime(t, 3, Timings{TrailingLogs: 1}, func(t *testing.T, c *testCluster) {
		lagging, leader := c.leftBehind()
		refused := lagging.refusedOnce(lagging.log)
		lagging.start()
		c.until("the entry was refused", refused)
		leader.mustPin("after")
		c.sameEverywhere()
		if lagging.over() {
			t.Error("it ended")
		}
	})
}
