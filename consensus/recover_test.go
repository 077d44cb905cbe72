package consensus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// What a node can lose of its three parts, and how it goes on.
func TestNodeThatLostAPartGoesOnOrSaysWhatIsMissing(t *testing.T) {
	compacting := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 16, TrailingLogs: 4}
	for _, tc := range []struct {
		name    string
		timings Timings
		lose    func(n *testNode)
		refused bool // Open says that the parts do not reach each other
		newVote bool // it has to be given a vote again
	}{
		{"nothing", compacting, func(*testNode) {}, false, false},
		{"the state, with the whole log", Timings{}, func(n *testNode) { n.store = newMemStore() }, false, false},
		{"the state, with a snapshot", compacting, func(n *testNode) { n.store = newMemStore() }, false, false},
		{"the state and the snapshots", compacting, func(n *testNode) { n.store, n.snaps = newMemStore(), &memSnapshots{} }, true, false},
		{"the snapshots, with a short log", compacting, func(n *testNode) { n.snaps = &memSnapshots{} }, true, false},
		{"the log", compacting, func(n *testNode) { n.disk = raft.NewInmemStore(); n.log = n.disk }, false, true},
		{"the log and the state", compacting, func(n *testNode) {
			n.disk, n.store = raft.NewInmemStore(), newMemStore()
			n.log = n.disk
		}, false, true},
		{"the log's end", Timings{}, func(n *testNode) {
			last, err := n.disk.LastIndex()
			if err = errors.Join(err, n.disk.DeleteRange(last-5, last)); err != nil {
				panic(err)
			}
		}, false, true},
		{"everything", compacting, func(n *testNode) {
			n.disk, n.store, n.snaps = raft.NewInmemStore(), newMemStore(), &memSnapshots{}
			n.log = n.disk
		}, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inVirtualTime(t, 3, tc.timings, func(t *testing.T, c *testCluster) {
				n := c.follower()
				for i := range 60 {
					c.leader().mustPin(fmt.Sprintf("p%02d", i))
					<-time.After(50 * time.Millisecond)
				}
				c.sameEverywhere()
				before, _ := n.Store()
				n.kill()
				tc.lose(n)
				if tc.refused {
					_, err := Open(Options{
						ID: n.id, Store: n.store, Log: n.log, Stable: n.disk, Snapshots: n.snaps, CheckpointDir: t.TempDir(),
						Network: c.network.of(n.id), Watch: &state.Watch{}, Logger: quiet(),
					})
					if !errors.Is(err, ErrIncomplete) {
						t.Errorf("opened: %v", err)
					}
					return
				}
				n.start()
				after, votes := n.Store()
				if (after != before) != tc.newVote || votes == tc.newVote {
					t.Errorf("store %s votes %t, it was %s", after, votes, before)
				}
				c.leader(c.others(n.id)...).mustPin("more")
				c.until("it knows the cluster", func() bool { _, known := n.Leader(); return known })
				c.announce(n.id)
				c.until("it is a voter", func() bool {
					_, votes := n.Store()
					return votes && n.Ready() == nil && c.voters() == 3
				})
				c.sameEverywhere()
			})
		})
	}
}

// The only member of a cluster cannot go on without its log, and says what it lacks.
func TestTheOnlyMemberSaysThatItsLogIsGone(t *testing.T) {
	inVirtualTime(t, 1, Timings{}, func(t *testing.T, c *testCluster) {
		n := c.leader()
		n.mustPin("p")
		n.kill()
		n.disk, n.snaps = raft.NewInmemStore(), &memSnapshots{}
		n.log = n.disk
		n.start()
		if err := n.Ready(); err == nil || !strings.Contains(err.Error(), "not its log") {
			t.Errorf("ready: %v", err)
		}
	})
}

// A snapshot that cannot be read is passed over for an older one, if the log
// goes on from there.
func TestASnapshotThatCannotBeReadIsPassedOver(t *testing.T) {
	for _, trailing := range []uint64{1, 1000} {
		t.Run(fmt.Sprintf("trailing=%d", trailing), func(t *testing.T) {
			timings := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 16, TrailingLogs: trailing}
			inVirtualTime(t, 3, timings, func(t *testing.T, c *testCluster) {
				n := c.follower()
				for i := range 100 {
					c.leader().mustPin(fmt.Sprintf("p%02d", i))
					<-time.After(50 * time.Millisecond)
				}
				c.sameEverywhere()
				n.kill()
				n.store = newMemStore()
				n.snaps.rot(1)
				if trailing == 1 {
					_, err := Open(Options{
						ID: n.id, Store: n.store, Log: n.log, Stable: n.disk, Snapshots: n.snaps, CheckpointDir: t.TempDir(),
						Network: c.network.of(n.id), Watch: &state.Watch{}, Logger: quiet(),
					})
					if !errors.Is(err, ErrIncomplete) {
						t.Errorf("opened: %v", err)
					}
					return
				}
				n.start()
				c.until("it is back", func() bool { return n.Ready() == nil })
				c.sameEverywhere()
			})
		})
	}
}

func TestEntriesThatDoNotLeadToASnapshotAreForgotten(t *testing.T) {
	snapshot := raft.SnapshotMeta{Index: 10, Term: 4}
	for _, tc := range []struct {
		name        string
		log, remain []raft.Log
	}{
		{"no log", nil, nil},
		{"a log that ends before", []raft.Log{{Index: 5, Term: 3}, {Index: 6, Term: 3}}, nil},
		{"one with a gap", []raft.Log{{Index: 6, Term: 3}, {Index: 11, Term: 4}}, []raft.Log{{Index: 11, Term: 4}}},
		{"one that leads to it", []raft.Log{{Index: 9, Term: 3}, {Index: 10, Term: 4}}, []raft.Log{{Index: 9, Term: 3}, {Index: 10, Term: 4}}},
		{"one that goes on", []raft.Log{{Index: 10, Term: 4}, {Index: 11, Term: 4}}, []raft.Log{{Index: 10, Term: 4}, {Index: 11, Term: 4}}},
		{"one of a leader that was overruled", []raft.Log{{Index: 9, Term: 3}, {Index: 10, Term: 3}, {Index: 11, Term: 3}}, []raft.Log{{Index: 11, Term: 3}}},
		{"one that begins behind it", []raft.Log{{Index: 11, Term: 4}}, []raft.Log{{Index: 11, Term: 4}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			disk := raft.NewInmemStore()
			for i := range tc.log {
				if err := disk.StoreLog(&tc.log[i]); err != nil {
					t.Fatal(err)
				}
			}
			if err := forgetCovered(disk, snapshot); err != nil {
				t.Fatal(err)
			}
			var got []raft.Log
			for index := range uint64(20) {
				var entry raft.Log
				if disk.GetLog(index, &entry) == nil {
					got = append(got, entry)
				}
			}
			if !slices.EqualFunc(got, tc.remain, func(a, b raft.Log) bool { return a.Index == b.Index && a.Term == b.Term }) {
				t.Errorf("%+v, want %+v", got, tc.remain)
			}
		})
	}
}

// What a leader that was cut off has written alone must not stay below the
// snapshot that it gets when it is back: it would send that when it leads again.
func TestALogHasNoGapBelowASnapshot(t *testing.T) {
	timings := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 16, TrailingLogs: 4}
	inVirtualTime(t, 3, timings, func(t *testing.T, c *testCluster) {
		cut := c.leader()
		cut.mustPin("before")
		c.network.isolate(cut.id, c.others(cut.id)...)
		var alone sync.WaitGroup
		for i := range 20 {
			alone.Go(func() { _, _ = cut.Propose(t.Context(), pin(fmt.Sprintf("alone%d", i))) }) // nobody else has it
		}
		other := c.leader(c.others(cut.id)...)
		last, err := cut.disk.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			other.mustPin(fmt.Sprintf("p%d", i))
		}
		c.until("the log of the others begins later", func() bool {
			first, err := other.disk.FirstIndex()
			return err == nil && first > last+1
		})
		c.network.heal()
		alone.Wait()
		c.until("it has all", func() bool { return cut.Ready() == nil && cut.Applied() >= other.Applied() })
		other.mustPin("after")
		c.sameEverywhere()
		for index := range last + 1 {
			var entry raft.Log
			if err := cut.disk.GetLog(index, &entry); err == nil {
				t.Errorf("entry %d, of term %d, is still there; the log of the others begins later", index, entry.Term)
			}
		}
	})
}

// A snapshot whose newest commits rotted away opens, as an earlier state. Raft
// would go on behind the snapshot, without what lies between.
func TestAStateBehindItsSnapshotIsNotGoneOnFrom(t *testing.T) {
	snaps := &memSnapshots{}
	sink, err := snaps.Create(1, 10, 4, raft.Configuration{}, 1, nil)
	if err == nil {
		err = sink.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	good := newGoodSnapshots(snaps, quiet(), func() bool { return false })
	if _, _, err := good.Open(sink.ID()); err != nil {
		t.Fatal(err)
	}
	if err := good.whole(10); err != nil {
		t.Errorf("whole: %v", err)
	}
	if err := good.whole(9); !errors.Is(err, ErrBroken) {
		t.Errorf("behind: %v", err)
	}
	good.refused(errInjected)
	if list, err := good.List(); err != nil || len(list) != 0 {
		t.Errorf("it is still listed: %v, %v", list, err)
	}
}
