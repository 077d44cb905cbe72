package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
)

// A write is in the local state of the follower that proposed it, and in a later linearizable read on every node.
func TestWriteThroughAFollowerIsReadOnEveryNode(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		follower := c.follower()
		follower.mustPin("a")
		view, release := follower.LocalView()
		defer release()
		if _, err := view.Pin(account, "a"); err != nil {
			t.Errorf("its own state lacks what a node has just proposed: %v", err)
		}
		c.leader().mustPin("b")
		for _, n := range c.nodes {
			n.wantPins("a", "b")
		}
		c.sameEverywhere()
	})
}

// A write is done within 3 s after the leader is killed, and every node, also the old leader, has all writes after
// that.
func TestClusterGoesOnWithoutItsLeader(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		old := c.leader()
		old.mustPin("before")
		began := time.Now()
		old.kill()
		survivor := c.running()
		survivor.mustPin("after")
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("first write after the leader's end took %s", took)
		}
		for _, id := range c.others(old.id) {
			c.nodes[id].wantPins("before", "after")
		}
		old.start()
		c.until("the old leader is back", func() bool { return old.Ready() == nil })
		old.wantPins("before", "after")
		c.sameEverywhere()
	})
}

// A leader that hands over before it stops costs the others less than 250 ms.
func TestLeaderThatStopsHandsOverFirst(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		old, follower := c.leader(), c.follower()
		began := time.Now()
		if err := old.HandOver(t.Context()); err != nil {
			t.Fatal(err)
		}
		follower.mustPin("a")
		if err := old.shutdown(); err != nil {
			t.Error(err)
		}
		follower.mustPin("b")
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("a graceful stop cost the others %s", took)
		}
	})
}

// A leader hands over to a voter that answers, although another one whose log is as long is gone. Raft hands over to
// the log that was the longest when it was last heard of, and of two that are as long to either.
func TestLeadershipIsHandedToAVoterThatAnswers(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		for range 4 { // Raft alone chooses right every other time
			old := c.leader()
			old.mustPin(string(old.id))
			others := c.others(old.id)
			gone := c.nodes[others[0]]
			gone.kill()
			if err := old.HandOver(t.Context()); err != nil {
				t.Fatalf("with %s gone: %v", gone.id, err)
			}
			if c.nodes[others[1]].mustPin(string(old.id) + " after"); old.IsLeader() {
				t.Error("the old leader leads")
			}
			gone.start()
			c.until("the one that was gone is back", func() bool { return gone.Ready() == nil })
		}
	})
}

// A leader hands over to a voter whose disk is nearly full only if nobody else answers. Such a voter would refuse the
// lead.
func TestLeadershipIsHandedToAVoterWithRoom(t *testing.T) {
	inVirtualTime(t, 0, Timings{}, func(t *testing.T, c *testCluster) {
		for i := range 3 {
			node := c.empty(state.NodeID(fmt.Sprintf("n%d", i+1)))
			node.tune = func(o *Options) { o.Tight = func(id state.NodeID) bool { return id == "n3" } }
			node.start()
			if i == 0 {
				c.found(node)
			} else {
				c.join(node.id)
			}
		}
		c.until("all vote", func() bool { return c.know(3) && c.ready() == 3 })
		for i := range 8 { // without a choice it would be right every other time
			old := c.leader()
			if err := old.HandOver(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.until("another leads", func() bool { return !old.IsLeader() && c.leader() != nil })
			if now := c.leader().id; now == "n3" {
				t.Fatalf("hand-over %d of %s: the voter without room leads", i, old.id)
			}
			c.leader().mustPin(fmt.Sprint("by ", i))
		}
		roomy := "n1"
		if c.leader().id == "n1" {
			roomy = "n2"
		}
		old := c.leader()
		c.nodes[state.NodeID(roomy)].kill()
		if err := old.HandOver(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.until("who is left leads", func() bool { return c.leader().id == "n3" })
	})
}

// A leader looks for an heir no longer than heirTimeout, also if all voters are silent.
func TestASilentVoterLeavesTimeForTheHandOver(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		old := c.leader()
		for _, id := range c.others(old.id) {
			c.network.silence(id, old.id)
		}
		began := time.Now()
		if _, found := old.heir(t.Context()); found {
			t.Error("nobody answers, and one is found")
		}
		if took := time.Since(began); took > heirTimeout {
			t.Errorf("it waits %s for voters that are silent", took)
		}
	})
}

// The heir is a voter that answers, one with room before one without, and then one whose log is near or the longest.
func TestTheBestHeir(t *testing.T) {
	for _, tc := range []struct {
		name string
		said []claim
		want state.NodeID
	}{
		{"the first that is near", []claim{{id: "a", applied: 990}, {id: "b", applied: 1000}}, "a"},
		{"not one with a full disk", []claim{{id: "a", applied: 1000, tight: true}, {id: "b", applied: 990}}, "b"},
		{"nor one that is far behind", []claim{{id: "a", applied: 10}, {id: "b", applied: 1000}}, "b"},
		{"the one that has most", []claim{{id: "a", applied: 20}, {id: "b", applied: 10}}, "a"},
		{"with room rather than near", []claim{{id: "a", applied: 10}, {id: "b", applied: 1000, tight: true}}, "a"},
		{"who answers at all", []claim{{id: "a", err: context.DeadlineExceeded}, {id: "b", applied: 10, tight: true}}, "b"},
		{"nobody", []claim{{id: "a", err: context.DeadlineExceeded}}, ""},
	} {
		said := make(chan claim, len(tc.said))
		for _, c := range tc.said {
			said <- c
		}
		if got, found := choose(said, len(tc.said), func() uint64 { return 1000 }); got.id != tc.want || found != (tc.want != "") {
			t.Errorf("%s: %+v, %t", tc.name, got, found)
		}
	}
}

// An operation that comes through every node takes effect once, and each node tells the same outcome.
func TestAnOperationTakesEffectOnceWhateverWayItComes(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		propose := func(op byte, cmd state.Command) (outcomes []wire.Outcome) {
			body, err := wire.EncodeCommand(wire.Command{Op: state.OpID{op}, Body: cmd})
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range c.ids() {
				outcome, err := c.nodes[id].commit(t.Context(), body)
				if err != nil {
					t.Fatal(err)
				}
				outcomes = append(outcomes, outcome)
			}
			return outcomes
		}
		for _, o := range propose(1, pin("a")) {
			if o.Err != nil || o.Result.Pin == nil || o.Result.Pin.ID != "a" || o.Result.Pin.Created != 1 {
				t.Errorf("outcome %+v", o)
			}
		}
		c.running().wantPins("a")
		for _, o := range propose(2, &state.DeletePin{Account: account, ID: "a"}) {
			if o.Err != nil {
				t.Errorf("deleted once, told %v", o.Err)
			}
		}
		for _, o := range propose(3, &state.DeletePin{Account: account, ID: "a"}) {
			if !errors.Is(o.Err, state.ErrNotFound) {
				t.Errorf("nothing to delete, told %v", o.Err)
			}
		}
		c.running().wantPins()
	})
}

// A command that Apply rejects fails with the error of Apply, through the leader and through a follower.
func TestRefusedCommandTellsItsProposerWhy(t *testing.T) {
	inVirtualTime(t, 2, Timings{}, func(t *testing.T, c *testCluster) {
		for _, n := range c.nodes {
			_, err := n.Propose(t.Context(), &state.DeletePin{Account: account, ID: "none"})
			if !errors.Is(err, state.ErrNotFound) {
				t.Errorf("through %s: %v", n.id, err)
			}
		}
	})
}

// A leader in a minority refuses reads and writes within 10 s and is not ready, and serves again after healing.
func TestMinorityRefusesReadsAndWritesInTime(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		old := c.leader()
		old.mustPin("a")
		c.network.isolate(old.id, c.others(old.id)...)
		for what, request := range map[string]func() error{
			"write": func() error { _, err := old.Propose(t.Context(), pin("lost")); return err },
			"read":  func() error { _, err := old.pins(); return err },
		} {
			began := time.Now()
			err := request()
			if !errors.Is(err, state.ErrUnavailable) {
				t.Errorf("%s in a minority: %v", what, err)
			}
			if took := time.Since(began); took > 10*time.Second+100*time.Millisecond {
				t.Errorf("%s in a minority was refused after %s", what, took)
			}
		}
		if old.Ready() == nil {
			t.Error("a node in a minority says that it is ready")
		}
		majority := c.nodes[c.leader(c.others(old.id)...).id]
		majority.mustPin("b")
		majority.wantPins("a", "b")

		c.network.heal()
		c.until("the old leader follows", func() bool { return old.Ready() == nil })
		old.wantPins("a", "b")
		old.mustPin("c")
		c.sameEverywhere()
	})
}

// A read on an old leader that is back shows what the new leader has committed meanwhile.
func TestReadOnAnOldLeaderIsNotStale(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		old := c.leader()
		c.network.isolate(old.id, c.others(old.id)...)
		read := make(chan error, 1) // begins while the old leader still leads
		var names []string
		go func() {
			var err error
			names, err = old.pins()
			read <- err
		}()
		began := time.Now()
		majority := c.leader(c.others(old.id)...)
		majority.mustPin("new")
		if took := time.Since(began); took > viewTimeout {
			t.Fatalf("the read is over before anything was written, after %s", took)
		}
		c.network.heal()
		if err := <-read; err == nil && !slices.Equal(names, []string{"new"}) && len(names) != 0 {
			t.Errorf("read %v", names)
		}
		old.wantPins("new")
	})
}

// A proposal ends with its context, as unavailable and with the error of the context.
func TestContextEndsAProposalEarly(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		lonely := c.follower()
		c.network.isolate(lonely.id, c.others(lonely.id)...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := lonely.Propose(ctx, pin("a"))
		if !errors.Is(err, state.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// 1,000 pins that clients propose, again if need be, while four leaders fail are there on every node, each once.
func TestThousandProposalsWhileLeadersFailAreDoneOnce(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		const total, each = 1000, 20
		var writers sync.WaitGroup
		progress := make(chan struct{}, total)
		want := make([]string, 0, total)
		for w := range total / each {
			n := c.nodes[c.ids()[w%3]]
			for i := range each {
				want = append(want, fmt.Sprintf("%03d-%02d", w, i))
			}
			writers.Go(func() {
				for i := range each {
					name := fmt.Sprintf("%03d-%02d", w, i)
					for { // one retry more often than a client would
						_, err := n.Propose(context.Background(), pin(name))
						if err == nil {
							break
						}
						if !errors.Is(err, state.ErrUnavailable) {
							t.Errorf("%s: %v", name, err)
							break
						}
					}
					progress <- struct{}{}
				}
			})
		}
		for range 4 { // lose a leader for a second after every 200 pins
			for range 200 {
				<-progress
			}
			leader := c.leader()
			c.network.isolate(leader.id, c.others(leader.id)...)
			c.leader(c.others(leader.id)...)
			c.network.heal()
		}
		writers.Wait()
		for _, n := range c.nodes {
			got, err := n.pins()
			slices.Sort(got)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s has %d pins, want %d, each once: %v", n.id, len(got), total, err)
			}
		}
		c.sameEverywhere()
	})
}

// Of two to six members 2, 3, 3, 5 and 5 vote, when members join and when they leave. A removed node ends with
// ErrRemoved.
func TestVotersAreOddAndFollowTheMembers(t *testing.T) {
	inVirtualTime(t, 1, Timings{}, func(t *testing.T, c *testCluster) {
		for i, want := range []int{2, 3, 3, 5, 5} {
			id := state.NodeID(fmt.Sprintf("n%d", i+2))
			c.add(id)
			c.join(id)
			c.until(fmt.Sprintf("%s is ready, %d vote", id, want), func() bool {
				return c.nodes[id].Ready() == nil && c.voters() == want && len(c.leader().Roles()) == i+2
			})
		}
		// Down again: 5, 4, 3 members.
		for _, want := range []int{5, 3, 3} {
			gone := c.follower()
			if _, err := c.leader().Propose(t.Context(), &state.RemoveNode{ID: gone.id}); err != nil {
				t.Fatal(err)
			}
			if err := gone.end(); !errors.Is(err, ErrRemoved) {
				t.Errorf("removed %s ended with %v", gone.id, err)
			}
			gone.shutdown()
			delete(c.nodes, gone.id)
			c.until(fmt.Sprintf("%d vote", want), func() bool {
				return c.voters() == want && len(c.leader().Roles()) == len(c.nodes)
			})
		}
	})
}

// A leader that is removed ends with ErrRemoved, and the two members that are left vote and take writes.
func TestRemovedLeaderLeaves(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		old := c.leader()
		if _, err := old.Propose(t.Context(), &state.RemoveNode{ID: old.id}); err != nil {
			t.Fatal(err)
		}
		if err := old.end(); !errors.Is(err, ErrRemoved) {
			t.Errorf("ended with %v", err)
		}
		if err := old.Ready(); !errors.Is(err, ErrRemoved) {
			t.Errorf("ready says %v", err)
		}
		old.shutdown()
		delete(c.nodes, old.id)
		c.until("two vote", func() bool { return c.voters() == 2 && len(c.leader().Roles()) == 2 })
		c.follower().mustPin("a")
	})
}

// The helper leader returns no node that is gone. The others take it for the leader until their election timeout.
func TestLeaderOfThoseWhoAreLeft(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		old := c.leader()
		old.kill()
		delete(c.nodes, old.id)
		if got := c.leader(); got.id == old.id {
			t.Errorf("%s leads, and is gone", got.id)
		}
	})
}

// A node that was removed while it was cut off is not ready after healing, and the leader stays.
func TestNodeRemovedWhileCutOffFindsOut(t *testing.T) {
	inVirtualTime(t, 4, Timings{}, func(t *testing.T, c *testCluster) {
		gone := c.follower()
		c.network.isolate(gone.id, c.others(gone.id)...)
		leader := c.leader(c.others(gone.id)...)
		if _, err := leader.Propose(t.Context(), &state.RemoveNode{ID: gone.id}); err != nil {
			t.Fatal(err)
		}
		c.until("its server is gone", func() bool { return len(leader.Roles()) == 3 })
		c.network.heal()
		// Nobody tells it: it is no server any more. It must not disturb.
		leader.mustPin("a")
		c.until("it is not ready", func() bool { return gone.Ready() != nil })
		if got := c.leader(c.others(gone.id)...); got.id != leader.id {
			t.Errorf("leadership went from %s to %s", leader.id, got.id)
		}
	})
}

// A node that joins after the log was cut gets a snapshot, votes, and tells its watchers that all has changed.
func TestNodeThatJoinsLateGetsASnapshot(t *testing.T) {
	timings := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 16, TrailingLogs: 4}
	inVirtualTime(t, 1, timings, func(t *testing.T, c *testCluster) {
		var want []string
		for i := range 100 {
			want = append(want, fmt.Sprintf("p%02d", i))
			c.running().mustPin(want[i])
		}
		c.until("the log is short", func() bool {
			first, err := c.running().disk.FirstIndex()
			return err == nil && first > 50
		})
		late := c.add("n2")
		changes := late.watch.Subscribe("")
		defer changes.Close()
		changes.Take()
		c.join("n2")
		c.until("n2 is ready", func() bool { return late.Ready() == nil && c.voters() == 2 })
		late.wantPins(want...)
		if !changes.Take().All {
			t.Error("the watch was not told that the state was replaced")
		}
		if metas, err := late.snaps.List(); err != nil || len(metas) == 0 {
			t.Errorf("no snapshot came: %v", err)
		}
		c.sameEverywhere()
	})
}

// A clean restart applies next to nothing, and one after a loss of power applies what was not synced.
func TestRestartAppliesOnlyWhatTheStateLacks(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		n := c.follower()
		for i := range 50 {
			c.leader().mustPin(fmt.Sprintf("a%02d", i))
		}
		c.sameEverywhere()
		if err := n.store.Sync(); err != nil {
			t.Fatal(err)
		}
		c.leader().mustPin("b")
		c.sameEverywhere()

		n.shutdown()
		before := n.store.transactions()
		n.start()
		c.until("it is back", func() bool { return n.Ready() == nil })
		if did := n.store.transactions() - before; did > 2 {
			t.Errorf("%d transactions after a clean restart", did)
		}
		n.wantPins(pinsOf(t, c.leader())...)

		n.shutdown()
		n.store.losePower() // everything since the last sync
		n.start()
		c.until("it is back", func() bool { return n.Ready() == nil })
		c.sameEverywhere()
	})
}

func pinsOf(t *testing.T, n *testNode) []string {
	t.Helper()
	pins, err := n.pins()
	if err != nil {
		t.Fatal(err)
	}
	return pins
}

// All nodes have all pins after all of them were killed and lost power.
func TestAllNodesRestartAfterLosingPower(t *testing.T) {
	timings := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 16, TrailingLogs: 4}
	inVirtualTime(t, 3, timings, func(t *testing.T, c *testCluster) {
		for i := range 60 {
			c.nodes[c.ids()[i%3]].mustPin(fmt.Sprintf("p%02d", i))
			<-time.After(50 * time.Millisecond)
		}
		want := pinsOf(t, c.leader())
		for _, id := range c.ids() {
			c.nodes[id].kill()
			c.nodes[id].store.losePower()
		}
		for _, id := range c.ids() {
			c.nodes[id].start()
		}
		c.until("all are back", func() bool { return c.ready() == 3 })
		for _, n := range c.nodes {
			n.wantPins(want...)
		}
		c.sameEverywhere()
	})
}

// A node whose state is lost has all pins after a start, by its snapshot and its log.
func TestStateThatASnapshotIsAheadOfIsRestoredFromIt(t *testing.T) {
	timings := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 8, TrailingLogs: 1}
	inVirtualTime(t, 1, timings, func(t *testing.T, c *testCluster) {
		n := c.running()
		for i := range 20 {
			n.mustPin(fmt.Sprintf("p%02d", i))
		}
		c.until("a snapshot is there", func() bool { metas, _ := n.snaps.List(); return len(metas) > 0 })
		want := pinsOf(t, n)
		n.shutdown()
		n.store = newMemStore() // as if a crash had come before the snapshot's use
		n.start()
		c.until("it is back", func() bool { return n.Ready() == nil })
		n.wantPins(want...)
	})
}

// A node whose state or Raft log cannot be written ends with ErrBroken, and the others go on.
func TestNodeThatCannotTrustItsDiskEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		harm func(*testNode, func(func() error))
	}{
		{"state is not written", func(n *testNode, _ func(func() error)) { n.store.breakWrites(errInjected) }},
		{"log is not written", func(_ *testNode, logFault func(func() error)) {
			logFault(func() error { return errInjected })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
				sick := c.leader()
				var mu sync.Mutex
				fault := func() error { return nil }
				sick.shutdown()
				sick.log = &faultyLog{LogStore: sick.disk, fault: func() error { mu.Lock(); defer mu.Unlock(); return fault() }}
				sick.start()
				c.until("it is back", func() bool { return sick.Ready() == nil })
				tc.harm(sick, func(f func() error) { mu.Lock(); defer mu.Unlock(); fault = f })

				healthy := c.nodes[c.others(sick.id)[0]]
				healthy.mustPin("a")
				if err := sick.end(); !errors.Is(err, ErrBroken) || !errors.Is(err, errInjected) {
					t.Errorf("ended with %v", err)
				}
				if err := sick.Ready(); !errors.Is(err, ErrBroken) {
					t.Errorf("ready says %v", err)
				}
				sick.shutdown()
				healthy.mustPin("b")
				healthy.wantPins("a", "b")
			})
		})
	}
}

// The others write within 7 s after the disk of the leader hangs, and that node ends with ErrStalled.
func TestLeaderWhoseDiskHangsGivesUp(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		hang := make(chan struct{})
		var once sync.Once
		thaw := func() { once.Do(func() { close(hang) }) }
		defer thaw()
		frozen := make(chan struct{})
		sick := c.follower()
		sick.shutdown()
		sick.log = &faultyLog{LogStore: sick.disk, fault: func() error {
			select {
			case <-frozen:
				<-hang
			default:
			}
			return nil
		}}
		sick.start()
		c.until("it leads", func() bool {
			if leader := c.leader(); leader.id != sick.id {
				_ = leader.HandOver(t.Context())
			}
			return c.leader().id == sick.id
		})
		close(frozen)
		began := time.Now()
		healthy := c.nodes[c.others(sick.id)[0]]
		healthy.mustPin("a") // through the frozen leader at first
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("the others went on after %s", took)
		}
		if err := sick.Ready(); !errors.Is(err, ErrStalled) {
			t.Errorf("with its disk hanging still it says: %v", err)
		}
		thaw()
		if err := sick.end(); !errors.Is(err, ErrStalled) {
			t.Errorf("ended with %v", err)
		}
	})
}

// A pause of the process does not count as time of a write, and time in which it runs does. A process that is
// stopped, or whose machine is, does not see its ticks; the clock that it reads afterwards says how long it was away.
func TestAPauseIsNotADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{ran: new(ran), fail: func(err error) { t.Error(err) }, log: quiet()}
		begun, end := make(chan struct{}), make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- d.write(writeAppend, "append", func() error { close(begun); <-end; return nil })
		}()
		<-begun
		<-time.After(time.Hour) // and not one tick
		d.ran.goOn()
		if took := d.writing(); took > slowWrite {
			t.Errorf("a pause made a write of %s", took)
		}
		for range stalledWrite / diskCheck {
			d.ran.goOn()
		}
		if took := d.writing(); took <= stalledWrite {
			t.Errorf("after %s with ticks a write has taken %s", stalledWrite, took)
		}
		close(end)
		if err := <-done; err != nil || d.writing() != 0 {
			t.Errorf("%v; a write that has ended takes %s", err, d.writing())
		}
	})
}

// A command that cannot be decoded is rejected as invalid, through any node, and is in no entry of the log.
func TestLeaderTakesNoCommandThatItCannotRead(t *testing.T) {
	inVirtualTime(t, 2, Timings{}, func(t *testing.T, c *testCluster) {
		garbage := []byte("garbage")
		for _, n := range c.nodes {
			// If the leader changes meanwhile, a proposal has no outcome until its time is up.
			c.until("the command is refused through "+string(n.id), func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), proposeTimeout)
				defer cancel()
				_, err := n.commit(ctx, garbage)
				if !errors.Is(err, state.ErrInvalid) && !errors.Is(err, state.ErrUnavailable) {
					t.Errorf("through %s: %v", n.id, err)
				}
				return errors.Is(err, state.ErrInvalid)
			})
		}
		leader := c.leader()
		first, err := leader.disk.FirstIndex()
		if err != nil {
			t.Fatal(err)
		}
		for i := first; i <= leader.raft.LastIndex(); i++ {
			var entry raft.Log
			if err := leader.disk.GetLog(i, &entry); err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(entry.Data, garbage) {
				t.Errorf("entry %d is %q", i, entry.Data)
			}
		}
	})
}

// A second bootstrap fails with ErrBootstrapped. A node that is in no cluster has no state and is not ready.
func TestBootstrapHappensOnce(t *testing.T) {
	inVirtualTime(t, 1, Timings{}, func(t *testing.T, c *testCluster) {
		n := c.running()
		if err := n.Bootstrap(); !errors.Is(err, ErrBootstrapped) {
			t.Errorf("second bootstrap: %v", err)
		}
		if !n.HasState() {
			t.Error("a founded cluster has no state")
		}
		if empty := c.add("n2"); empty.HasState() || empty.Ready() == nil {
			t.Error("an empty node has state, or is ready")
		}
	})
}
