package consensus

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
)

// again starts a node that gave up its state: its identity is all it keeps.
func (n *testNode) again() {
	n.cluster.t.Helper()
	n.store, n.disk, n.snaps = newMemStore(), raft.NewInmemStore(), &memSnapshots{}
	n.log = n.disk
	n.start()
	n.cluster.until(string(n.id)+" knows the cluster", func() bool { _, known := n.Leader(); return known })
	n.cluster.announce(n.id)
}

func (c *testCluster) quarantined(on *testNode) (ids []state.NodeID) {
	c.t.Helper()
	view, release := on.LocalView()
	defer release()
	all, err := view.Quarantined()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, q := range all {
		ids = append(ids, q.Node)
	}
	return ids
}

// A node whose state is not what the log says, follower or leader, loses its
// vote, serves nothing, ends, and is let in again when it has the state anew.
func TestANodeThatDiffersIsPutOutAndComesBackEqual(t *testing.T) {
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprintf("leader=%t", leads), func(t *testing.T) {
			inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
				for i := range 20 {
					c.leader().mustPin(fmt.Sprintf("p%d", i))
				}
				c.sameEverywhere()
				sick := c.follower()
				if leads {
					sick = c.leader()
				}
				sick.store.tamper("operator@localhost", "operator@Localhost")
				check, err := c.follower().CheckState(t.Context())
				if err != nil || !check.Complete() || !check.Differs() {
					t.Fatalf("%+v, %v", check, err)
				}
				c.until("it serves nothing", func() bool { return sick.Quarantined() != nil })
				if _, err := sick.Propose(t.Context(), pin("x")); !errors.Is(err, state.ErrUnavailable) {
					t.Errorf("a write in quarantine: %v", err)
				}
				if _, _, err := sick.View(t.Context()); !errors.Is(err, state.ErrUnavailable) {
					t.Errorf("a read in quarantine: %v", err)
				}
				if sick.Ready() == nil {
					t.Error("ready in quarantine")
				}
				if err := sick.end(); !errors.Is(err, ErrQuarantined) {
					t.Fatalf("ended in %v", err)
				}
				sick.shutdown()
				leader := c.leader(c.others(sick.id)...)
				if role := leader.Roles()[sick.id]; role != roleNonvoter {
					t.Errorf("it is %s", role)
				}
				leader.mustPin("meanwhile")
				sick.again()
				c.until("it is back", func() bool {
					return len(c.quarantined(leader)) == 0 && sick.Ready() == nil && c.voters() == 3
				})
				sick.mustPin("after")
				c.sameEverywhere()
			})
		})
	}
}

// Of a check that is proposed twice, each answer names a check that is on record. A node that proposes a check and
// has no answer proposes it again, and waits for the check that the answer names.
func TestACheckThatIsProposedTwiceIsOnRecord(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		n := c.follower()
		cmd := &state.CheckState{At: 1}
		op, err := newOperation(cmd)
		if err != nil {
			t.Fatal(err)
		}
		body, err := wire.EncodeCommand(wire.Command{Op: op, Body: cmd})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			outcome, err := n.commit(t.Context(), body)
			if err != nil {
				t.Fatal(err)
			}
			c.until("it is applied", func() bool { return n.fsm.progress.wait(t.Context(), outcome.Index) == nil })
			if check, err := n.check(outcome.Index); err != nil {
				t.Errorf("%+v, %v", check, err)
			}
		}
	})
}

// Without a majority for any hash nobody is put out.
func TestTwoNodesThatDifferGoOn(t *testing.T) {
	inVirtualTime(t, 2, Timings{}, func(t *testing.T, c *testCluster) {
		c.nodes["n2"].store.tamper("operator@localhost", "operator@Localhost")
		check, err := c.leader().CheckState(t.Context())
		if err != nil || !check.Differs() {
			t.Fatalf("%+v, %v", check, err)
		}
		<-time.After(time.Minute)
		if len(c.quarantined(c.leader())) != 0 || c.voters() != 2 {
			t.Error("one of two was put out")
		}
		c.leader().mustPin("a")
	})
}

// The leader has the states compared once in a while without being asked, and they are equal whatever is written
// meanwhile. All nodes hash their states at the same entry.
func TestStatesAreComparedNowAndThen(t *testing.T) {
	inVirtualTime(t, 3, Timings{Check: time.Minute}, func(t *testing.T, c *testCluster) {
		for i := range 2000 {
			c.leader().mustPin(fmt.Sprintf("p%d", i))
			<-time.After(100 * time.Millisecond)
		}
		checks, err := c.leader().Checks()
		if err != nil || len(checks) < 3 || len(checks) > 5 {
			t.Fatalf("%d checks in 200 s, %v", len(checks), err)
		}
		for _, check := range checks {
			if _, decided := check.Majority(); check.Differs() || !check.Complete() || !decided {
				t.Errorf("%+v", check)
			}
		}
	})
}

// The state is hashed as it is at the entry that asks for it, also if this entry is in the midst of a batch.
func TestTheStateIsHashedAtTheEntryThatAsks(t *testing.T) {
	hashOf := func(split bool) state.Hash {
		store := newMemStore()
		f, err := openFSM(Options{Store: store, CheckpointDir: t.TempDir(), Watch: &state.Watch{}, Logger: quiet()},
			func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		defer f.checks.close()
		var entries []*raft.Log
		for i, cmd := range []state.Command{
			&state.InitCluster{
				Cluster:  state.Cluster{ID: "c", Replication: 3, WriteCopies: 2, Operator: account},
				Node:     state.Node{ID: "n1", FeatureLevel: 1, Store: "s", Votes: true},
				Operator: state.Account{ID: account, Email: "operator@localhost"},
			},
			pin("before"), &state.CheckState{At: 1}, pin("after"), &state.CheckState{At: 2}, pin("last"),
		} {
			entries = append(entries, &raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand, Data: entryOf(t, cmd)})
		}
		if split {
			for i := range 3 {
				f.ApplyBatch(entries[i : i+1])
			}
		} else {
			answers := f.ApplyBatch(entries)
			for i, a := range answers {
				if _, ok := a.(*applied); !ok {
					t.Fatalf("entry %d answered %v", i, a)
				}
			}
			if f.progress.index() != 6 {
				t.Fatalf("applied up to %d", f.progress.index())
			}
		}
		index, view := f.checks.give()
		if view == nil {
			t.Fatal("nothing to hash")
		}
		defer view.Close()
		if want := map[bool]uint64{true: 3, false: 5}[split]; index != want {
			t.Fatalf("to be hashed at %d, want %d", index, want)
		}
		hash, err := state.HashOf(view, func(int) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if split { // go on to where the other one is
			f.ApplyBatch(entries[3:5])
			_, view = f.checks.give()
			defer view.Close()
			if hash, err = state.HashOf(view, func(int) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		return hash
	}
	if one, other := hashOf(true), hashOf(false); one != other {
		t.Errorf("%s entry by entry, %s in one batch", one, other)
	}
}
