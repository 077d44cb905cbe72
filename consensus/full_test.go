package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

var errFull = errors.New("no space left")

// smallDisk is the disk of a node's Raft log and values, as a test wants it.
type smallDisk struct {
	raft.LogStore
	raft.StableStore

	mu      sync.Mutex
	fault   error // of every write
	refused int
	heirs   []state.NodeID
	unfit   string
}

func (d *smallDisk) set(fault error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

func (d *smallDisk) refusals() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refused
}

func (d *smallDisk) write(fn func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault != nil {
		d.refused++
		return d.fault
	}
	return fn()
}

func (d *smallDisk) StoreLog(e *raft.Log) error {
	return d.write(func() error { return d.LogStore.StoreLog(e) })
}

func (d *smallDisk) StoreLogs(e []*raft.Log) error {
	return d.write(func() error { return d.LogStore.StoreLogs(e) })
}

func (d *smallDisk) Set(key, value []byte) error {
	return d.write(func() error { return d.StableStore.Set(key, value) })
}

func (d *smallDisk) SetUint64(key []byte, value uint64) error {
	return d.write(func() error { return d.StableStore.SetUint64(key, value) })
}

func (d *smallDisk) eligibility() (string, []state.NodeID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unfit, d.heirs
}

func (d *smallDisk) setUnfit(why string, heirs ...state.NodeID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unfit, d.heirs = why, heirs
}

// onSmallDisk starts a node again on a disk that can be full, and makes it lead
// or follow.
func onSmallDisk(t *testing.T, c *testCluster, node *testNode, lead bool) *smallDisk {
	t.Helper()
	d := &smallDisk{LogStore: node.disk, StableStore: node.disk}
	node.shutdown()
	node.tune = func(o *Options) {
		o.Log, o.Stable, o.Eligibility = d, d, d.eligibility
		o.NoSpace = func(err error) bool { return errors.Is(err, errFull) }
	}
	node.start()
	c.until("it is back", func() bool { return node.Ready() == nil })
	c.until("who should leads", func() bool {
		leader := c.leader()
		if (leader.id == node.id) != lead {
			_ = leader.HandOver(t.Context())
		}
		return (c.leader().id == node.id) == lead
	})
	return d
}

// ran tells whether Run has not ended.
func (n *testNode) ran(t *testing.T) {
	t.Helper()
	if n.over() {
		t.Fatalf("%s has ended: %v", n.id, n.end())
	}
}

// A disk that is full when the newest entries were removed to be replaced ends the node. Raft still takes the removed
// entries for its newest, so it must not go on.
func TestAFullDiskInTheMidstOfReplacingEntriesEndsTheNode(t *testing.T) {
	entries := func(term uint64, indexes ...uint64) (all []*raft.Log) {
		for _, i := range indexes {
			all = append(all, &raft.Log{Index: i, Term: term})
		}
		return all
	}
	for _, tc := range []struct {
		name        string
		first, last uint64 // what is removed
		ends        bool
	}{
		{"the newest entries are removed", 2, 3, true},
		{"the oldest are, behind a snapshot", 1, 2, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := &smallDisk{LogStore: raft.NewInmemStore()}
			var ended error
			log := watchedLog{LogStore: store, disk: &disk{
				ran: new(ran), fail: func(err error) { ended = err }, log: quiet(),
				noSpace: func(err error) bool { return errors.Is(err, errFull) },
			}}
			if err := errors.Join(log.StoreLogs(entries(1, 1, 2, 3)), log.DeleteRange(tc.first, tc.last)); err != nil {
				t.Fatal(err)
			}
			store.set(errFull)
			if err := log.StoreLogs(entries(2, tc.first)); err == nil || (ended != nil) != tc.ends {
				t.Fatalf("the write: %v; the node ended: %v", err, ended)
			}
			if tc.ends {
				return
			}
			store.set(nil)
			if err := log.StoreLogs(entries(2, 4)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// unchanging is a log whose disk is full when the configuration is to be changed.
type unchanging struct {
	raft.LogStore
	full    atomic.Bool
	refused atomic.Int64
}

func (l *unchanging) StoreLogs(entries []*raft.Log) error {
	if l.full.Load() && slices.ContainsFunc(entries, configures) {
		l.refused.Add(1)
		return errFull
	}
	return l.LogStore.StoreLogs(entries)
}

// A node that could not write down that it is the only voter does so later, and leads alone also after a restart.
// Raft goes by a change of the configuration that it could not write down. Of two voters the one that could not write
// down that it is alone would lead alone, and after a start would wait for the other, who is gone.
func TestAChangeOfWhoVotesThatADiskRefusedDoesNotCount(t *testing.T) {
	inVirtualTime(t, 2, Timings{}, func(t *testing.T, c *testCluster) {
		stays, goes := c.nodes["n1"], c.nodes["n2"]
		l := &unchanging{LogStore: stays.log}
		stays.changed(func(o *Options) {
			o.Log, o.NoSpace = l, func(err error) bool { return errors.Is(err, errFull) }
		})
		c.until("it leads", func() bool {
			_ = c.leader().HandOver(t.Context())
			return c.leader().id == stays.id
		})
		l.full.Store(true)
		_, _ = stays.Propose(t.Context(), &state.RemoveNode{ID: goes.id}) // the node may end before it can answer
		c.until("the change is refused", func() bool { return l.refused.Load() > 0 })
		l.full.Store(false)
		<-time.After(2 * refusedFor)
		if stays.over() { // else it goes by what it has in its log
			if err := stays.shutdown(); !errors.Is(err, ErrBroken) {
				t.Errorf("it ended with %v", err)
			}
			stays.start()
		}
		c.until("it votes alone", func() bool { return stays.IsLeader() && stays.voters() == 1 })
		_ = goes.shutdown() // it may have learned that it was removed
		stays.shutdown()
		stays.start()
		c.until("it leads again", func() bool { return stays.Ready() == nil })
		stays.mustPin("a")
	})
}

// A node whose Raft log is full does not lead, the others go on, and it has all writes and can lead when there is
// room.
func TestAFullDiskTakesTheLeadershipUntilThereIsRoom(t *testing.T) {
	for name, lead := range map[string]bool{"of the leader": true, "of a follower": false} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
				full := c.follower()
				d := onSmallDisk(t, c, full, lead)
				others := c.others(full.id)
				healthy := c.nodes[others[0]]
				healthy.mustPin("before")
				d.set(errFull)
				began := time.Now()
				var want []string
				for i := range 200 {
					name := fmt.Sprintf("p%03d", i)
					healthy.mustPin(name)
					want = append(want, name)
					if took := time.Since(began); i == 0 && took > 5*time.Second {
						t.Errorf("writes went on after %s", took)
					}
					if leader, _ := healthy.Leader(); leader == full.id && i > 0 {
						t.Fatalf("the full node leads at %s", name)
					}
					<-time.After(100 * time.Millisecond) // 20 s in all
				}
				full.ran(t)
				if d.refusals() == 0 {
					t.Fatal("nothing was refused")
				}
				d.set(nil)
				healthy.mustPin("after")
				c.sameEverywhere()
				full.ran(t)
				full.wantPins(slices.Concat([]string{"before"}, want, []string{"after"})...)
				c.until("it can lead", func() bool {
					_ = c.leader().handOverTo(t.Context(), []state.NodeID{full.id}, 0)
					return c.leader().id == full.id
				})
			})
		})
	}
}

// A node that cannot keep its vote gives none and goes on to run, and it votes when there is room.
func TestAVoteThatFindsNoRoomWaitsForIt(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		full := c.follower()
		d := onSmallDisk(t, c, full, false)
		d.set(errFull)
		gone := c.leader()
		gone.kill() // the third one alone has no majority without a vote of full
		other := c.nodes[slices.DeleteFunc(c.others(full.id), func(id state.NodeID) bool { return id == gone.id })[0]]
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if _, err := other.Propose(ctx, pin("lost")); !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("without a vote that is kept: %v", err)
		}
		full.ran(t)
		if d.refusals() == 0 {
			t.Fatal("nothing was refused")
		}
		d.set(nil)
		c.until("both serve", func() bool {
			_, err := other.Propose(t.Context(), pin("a"))
			return err == nil
		})
		full.ran(t)
	})
}

// A node whose disk fails to keep Raft's own values ends with ErrBroken, and one whose disk is full waits and can be
// closed.
func TestRaftsOwnValuesThatCannotBeKeptEndTheNodeInOrder(t *testing.T) {
	for name, fault := range map[string]error{"disk fails": errInjected, "disk stays full": errFull} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
				sick := c.follower()
				d := onSmallDisk(t, c, sick, false)
				d.set(fault)
				c.leader().kill() // now a term and a vote have to be written
				if errors.Is(fault, errFull) {
					c.until("a write is refused", func() bool { return d.refusals() > 0 })
					sick.ran(t)
					return // the node is closed while it waits
				}
				if err := sick.end(); !errors.Is(err, ErrBroken) || !errors.Is(err, errInjected) {
					t.Errorf("ended with %v", err)
				}
			})
		})
	}
}

// A leader whose disk is nearly full hands over if there is an heir, else goes on, and does not stand against others.
func TestWhoShouldNotLeadHandsOverIfSomebodyElseCould(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		tight := c.follower()
		d := onSmallDisk(t, c, tight, true)
		others := c.others(tight.id)
		d.setUnfit("its disk is nearly full")
		<-time.After(5 * time.Second)
		if c.leader().id != tight.id {
			t.Fatal("it handed over to nobody in particular")
		}
		d.setUnfit("its disk is nearly full", others[1])
		c.until("the heir leads", func() bool { return c.leader().id == others[1] })
		c.nodes[others[1]].kill()
		began := time.Now()
		c.nodes[others[0]].mustPin("a")
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("without the heir writes went on after %s", took)
		}
		if leader := c.leader(tight.id, others[0]); leader.id == tight.id {
			t.Error("it stood for election")
		}
		d.setUnfit("")
		c.nodes[others[0]].kill()
		c.nodes[others[1]].start()
		tight.mustPin("b")
	})
}

// Writes take 200 ms at most while the heir of a leader is sent a snapshot, and the heir leads when it has it. It
// cannot lead before, and while Raft tries it takes no writes: the second time the leader waits until the snapshot is
// there.
func TestNobodyHandsOverToWhoIsSentASnapshot(t *testing.T) {
	timings := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 16, TrailingLogs: 4}
	inVirtualTime(t, 3, timings, func(t *testing.T, c *testCluster) {
		tight := c.follower()
		d := onSmallDisk(t, c, tight, true)
		lagging, other := c.nodes[c.others(tight.id)[0]], c.nodes[c.others(tight.id)[1]]
		lagging.kill()
		for i := range 40 {
			other.mustPin(fmt.Sprintf("p%02d", i))
		}
		tight.newestSnapshot()
		arrives, hold := make(chan struct{}), make(chan struct{})
		goOn := sync.OnceFunc(func() { close(hold) })
		defer goOn()
		var once sync.Once
		lagging.snaps.arriving = func(int) {
			once.Do(func() { close(arrives) })
			<-hold
		}
		lagging.start()
		<-arrives
		d.setUnfit("its disk is nearly full", lagging.id)
		<-time.After(2 * time.Second)
		for i := range 5 {
			began := time.Now()
			other.mustPin(fmt.Sprintf("q%02d", i))
			if took := time.Since(began); took > 200*time.Millisecond {
				t.Errorf("a write took %s", took)
			}
			<-time.After(100 * time.Millisecond)
		}
		goOn()
		c.until("the heir leads", func() bool { return c.leader().id == lagging.id })
	})
}

// hangingStore keeps every transaction from beginning while hang is open.
type hangingStore struct {
	Store
	mu   sync.Mutex
	hang chan struct{} // nil: nothing hangs
}

func (s *hangingStore) Begin() Tx {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return s.Store.Begin()
}

// hangs has everything that begins from now on hang until the function is called that it
// returns.
func (s *hangingStore) hangs() (goOn func()) {
	hang := make(chan struct{})
	set := func(to chan struct{}) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hang = to
	}
	set(hang)
	return func() {
		set(nil)
		close(hang)
	}
}

// withHangingStore starts a follower anew on a store that can hang.
func (c *testCluster) withHangingStore() (*testNode, *hangingStore) {
	sick := c.follower()
	store := &hangingStore{Store: sick.store}
	sick.shutdown()
	sick.tune = func(o *Options) { o.Store = store }
	sick.start()
	return sick, store
}

// A leader whose state hangs hands over within 5 s and goes on to run, and has all writes when its state goes on.
func TestALeaderWhoseStateHangsHandsOverAndStays(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		sick, store := c.withHangingStore()
		c.until("it leads", func() bool {
			if leader := c.leader(); leader.id != sick.id {
				_ = leader.HandOver(t.Context())
			}
			return c.leader().id == sick.id
		})
		goOn := store.hangs()
		healthy := c.nodes[c.others(sick.id)[0]]
		began := time.Now()
		healthy.mustPin("a")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("writes went on after %s", took)
		}
		healthy.mustPin("b")
		sick.ran(t)
		if leader, _ := healthy.Leader(); leader == sick.id {
			t.Error("it leads still")
		}
		goOn()
		c.sameEverywhere()
		sick.wantPins("a", "b")
	})
}
