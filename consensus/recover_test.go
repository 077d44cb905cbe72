package consensus

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A node that lost a part of its data votes again and equals the others, or fails to open with ErrIncomplete.
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

// The log loses its entries up to a snapshot's index unless it has the snapshot's last entry, which it has in the
// end.
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
			if err := standIn(disk, snapshot); err != nil {
				t.Fatal(err)
			}
			var entry raft.Log
			if err := disk.GetLog(snapshot.Index, &entry); err != nil || entry.Term != snapshot.Term {
				t.Errorf("at the snapshot's index: %+v, %v", entry, err)
			}
		})
	}
}

// A leader that was cut off has none of the entries that it wrote alone below the snapshot that it gets. It would
// send them when it leads again.
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

// created puts an empty snapshot into a store.
func created(t *testing.T, snaps *memSnapshots, index, term uint64) (id string) {
	t.Helper()
	sink, err := snaps.Create(1, index, term, raft.Configuration{}, 1, nil)
	if err == nil {
		err = sink.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return sink.ID()
}

// A state behind the index of its snapshot is rejected as broken, and a refused snapshot is not listed any more. A
// snapshot whose newest commits rotted away opens, as an earlier state. Raft would go on behind the snapshot, without
// what lies between.
func TestAStateBehindItsSnapshotIsNotGoneOnFrom(t *testing.T) {
	snaps := &memSnapshots{}
	id := created(t, snaps, 10, 4)
	good := newGoodSnapshots(snaps, quiet(), func() bool { return false })
	if err := good.whole(id, 10); err != nil {
		t.Errorf("whole: %v", err)
	}
	if err := good.whole(id, 9); !errors.Is(err, ErrBroken) {
		t.Errorf("behind: %v", err)
	}
	good.refused(id, errInjected)
	if list, err := good.List(); err != nil || len(list) != 0 {
		t.Errorf("it is still listed: %v, %v", list, err)
	}
}

// unreadable is a store whose Restore fails.
type unreadable struct{ *memStore }

func (unreadable) Restore(io.Reader) error { return errInjected }

// counted is how Raft wraps the stream of a snapshot.
type counted struct{ io.ReadCloser }

func (c counted) WrappedReadCloser() io.ReadCloser { return c.ReadCloser }

// A snapshot that cannot be restored is refused, and not another one that is opened at the same time. Raft opens
// snapshots in several goroutines: one that sends them may have begun while this node led, and open another one while
// one is taken over.
func TestTheSnapshotThatWasTakenOverIsTheOneThatIsRefused(t *testing.T) {
	snaps := &memSnapshots{}
	sent, taken := created(t, snaps, 10, 4), created(t, snaps, 20, 5)
	good := newGoodSnapshots(snaps, quiet(), func() bool { return false })
	_, stream, err := good.Open(taken)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := good.Open(sent); err != nil {
		t.Fatal(err)
	}
	f := fsm{store: unreadable{}, refused: good.refused}
	if err := f.Restore(counted{stream}); !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	list, err := good.List()
	if err != nil || len(list) != 1 || list[0].ID != sent {
		t.Errorf("listed: %v, %v, want %s alone", list, err, sent)
	}
}

// replaced counts how often a state was replaced.
type replaced struct {
	Store
	times atomic.Int64
}

func (r *replaced) Restore(from io.Reader) error {
	r.times.Add(1)
	return r.Store.Restore(from)
}

// A state is not replaced by a snapshot that is older. A node whose log was set aside, and not its state, is sent
// such a snapshot.
func TestAStateDoesNotGoBackToASnapshot(t *testing.T) {
	timings := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 16, TrailingLogs: 4}
	inVirtualTime(t, 3, timings, func(t *testing.T, c *testCluster) {
		n := c.follower()
		leader := c.leader()
		for i := range 40 {
			leader.mustPin(fmt.Sprintf("p%02d", i))
		}
		snapshot := leader.newestSnapshot()
		for i := range 3 {
			leader.mustPin(fmt.Sprintf("q%02d", i))
		}
		c.sameEverywhere()
		n.kill()
		disk := raft.NewInmemStore()
		n.disk, n.log, n.snaps = disk, memLog{disk}, &memSnapshots{}
		kept := &replaced{Store: n.store}
		n.tune = func(o *Options) { o.Store = kept }
		n.start()
		had := n.Applied()
		c.announce(n.id)
		c.until("it is back", func() bool {
			metas, err := n.snaps.List()
			return err == nil && len(metas) > 0 && n.Ready() == nil
		})
		if metas, _ := n.snaps.List(); metas[len(metas)-1].Index != snapshot.Index || had <= snapshot.Index {
			t.Fatalf("the state had %d, the snapshot is %+v", had, metas[0])
		}
		if times := kept.times.Load(); times > 0 {
			t.Errorf("the state that had %d was replaced %d times by that at %d", had, times, snapshot.Index)
		}
		c.until("it votes again", func() bool { _, votes := n.Store(); return votes })
		for i := range 40 {
			leader.mustPin(fmt.Sprintf("r%02d", i))
		}
		n.newestSnapshot()
		c.sameEverywhere()
	})
}
