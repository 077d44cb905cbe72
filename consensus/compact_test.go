package consensus

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// An hour between looks: what happens within minutes is what bytes alone do.
func shortInBytes() Timings {
	return Timings{SnapshotInterval: time.Hour, SnapshotBytes: 16 << 10, TrailingBytes: 4 << 10}
}

// logBytes returns how much the log of a node holds.
func (n *testNode) logBytes() (size uint64) {
	n.cluster.t.Helper()
	first, err := n.disk.FirstIndex()
	if err != nil {
		n.cluster.t.Fatal(err)
	}
	last, err := n.disk.LastIndex()
	if err != nil {
		n.cluster.t.Fatal(err)
	}
	for index := first; index <= last; index++ {
		var entry raft.Log
		err := n.disk.GetLog(index, &entry)
		if errors.Is(err, raft.ErrLogNotFound) {
			continue // it was dropped meanwhile
		}
		if err != nil {
			n.cluster.t.Fatal(err)
		}
		size += uint64(len(entry.Data))
	}
	return size
}

// pinOf returns a pin of which so many bytes are said.
func pinOf(bytes int, id string) *state.CreatePin {
	cmd := pin(id)
	cmd.Pin.Meta = map[string]string{"k": strings.Repeat("v", bytes)}
	return cmd
}

// mustPinKiB has a node make pins with about 1 KiB each.
func (n *testNode) mustPinKiB(prefix string, pins int) {
	n.cluster.t.Helper()
	for i := range pins {
		if _, err := n.Propose(n.cluster.t.Context(), pinOf(1<<10, fmt.Sprintf("%s%03d", prefix, i))); err != nil {
			n.cluster.t.Fatal(err)
		}
	}
}

// A new member is sent the state and not the log, although no snapshot is due.
func TestANewMemberGetsASnapshotOfNow(t *testing.T) {
	timings := Timings{SnapshotInterval: time.Hour, SnapshotBytes: 64 << 10, TrailingBytes: 4 << 10}
	inVirtualTime(t, 1, timings, func(t *testing.T, c *testCluster) {
		n := c.running()
		n.mustPinKiB("p", 20)
		if metas, err := n.snaps.List(); err != nil || len(metas) > 0 {
			t.Fatalf("%d snapshots before, %v", len(metas), err)
		}
		late := c.add("n2")
		c.join("n2")
		c.until("n2 is ready", func() bool { return late.Ready() == nil && c.voters() == 2 })
		if metas, err := late.snaps.List(); err != nil || len(metas) == 0 {
			t.Errorf("no snapshot came: %v", err)
		}
		c.sameEverywhere()
	})
}

// Every node cuts its log to its bounds in bytes without waiting for the interval, and the leader keeps its newest
// entries.
func TestTheLogIsBoundedInBytes(t *testing.T) {
	inVirtualTime(t, 3, shortInBytes(), func(t *testing.T, c *testCluster) {
		began := time.Now()
		n := c.leader()
		for i := range 10 {
			n.mustPinKiB(fmt.Sprintf("p%d-", i), 20)
			c.until("every log is short", func() bool {
				for _, n := range c.nodes {
					// All that is due, what trails, and an entry or two. A leader may have
					// been ahead of a follower by more than trails, and serves it.
					if _, serves := n.snapshots.served(); n.logBytes() > (16+4+2)<<10 && !serves {
						return false
					}
				}
				return true
			})
		}
		if took := time.Since(began); took > 10*time.Minute {
			t.Errorf("after %s", took)
		}
		if size := n.logBytes(); size < 3<<10 {
			t.Errorf("%s: %d bytes of log left, 4 KiB are kept for who lacks little", n.id, size)
		}
		// A start goes through no more of it.
		back := c.follower()
		back.shutdown()
		back.start()
		c.until("it is back", func() bool { return back.Ready() == nil })
		c.sameEverywhere()
	})
}

// The whole log stays while a snapshot is sent and for some time after that, and then 4 KiB of it. The receiver lacks
// what is written meanwhile.
func TestTheLogStaysForWhoIsSentASnapshot(t *testing.T) {
	inVirtualTime(t, 1, shortInBytes(), func(t *testing.T, c *testCluster) {
		n := c.running()
		n.mustPinKiB("a", 40)
		newest := n.newestSnapshot()
		trailing := func(want string, holds func(entries uint64) bool) {
			t.Helper()
			if got, err := n.trailing(); err != nil || !holds(got) {
				t.Errorf("%d entries trail, want %s: %v", got, want, err)
			}
		}
		few := func(entries uint64) bool { return entries > 0 && entries <= 4 }
		all := func(entries uint64) bool { return entries >= n.timings.TrailingLogs }
		trailing("4 KiB", few)
		_, stream, err := n.snapshots.Open(newest.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * serving) // it is large, or the network slow
		trailing("all, it is being sent", all)
		if err := stream.Close(); err != nil {
			t.Fatal(err)
		}
		<-time.After(serving - time.Second)
		trailing("all, it was just sent", all)
		<-time.After(2 * time.Second)
		trailing("4 KiB again", few)
	})
}

// failingSnapshots can be made to refuse new ones, and counts how often.
type failingSnapshots struct {
	*memSnapshots
	failing atomic.Bool
	asked   atomic.Int64
}

func (s *failingSnapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64,
	transport raft.Transport,
) (raft.SnapshotSink, error) {
	if s.failing.Load() {
		s.asked.Add(1)
		return nil, errInjected
	}
	return s.memSnapshots.Create(version, index, term, c, ci, transport)
}

// A disk that takes no snapshot is not asked again with every entry.
func TestASnapshotThatFailsIsTriedAtTheNextLook(t *testing.T) {
	timings := shortInBytes()
	timings.SnapshotInterval = time.Minute
	inVirtualTime(t, 0, timings, func(t *testing.T, c *testCluster) {
		snaps := &failingSnapshots{memSnapshots: &memSnapshots{}}
		snaps.failing.Store(true)
		n := c.add("n1")
		n.shutdown()
		n.tune = func(o *Options) { o.Snapshots = snaps }
		n.start()
		c.found(n)
		n.mustPinKiB("a", 100)
		c.until("it has failed", func() bool { return snaps.asked.Load() > 0 })
		n.mustPinKiB("b", 100)
		if asked := snaps.asked.Load(); asked > 1 {
			t.Errorf("%d attempts within %d entries", asked, 200)
		}
		snaps.failing.Store(false)
		c.until("it has been taken", func() bool { metas, _ := snaps.List(); return len(metas) > 0 })
		c.until("the log is short", func() bool { return n.logBytes() < 8<<10 })
	})
}

// uncutLog is one that a full disk keeps from being cut, and counts how often.
type uncutLog struct {
	raft.LogStore
	full  atomic.Bool
	asked atomic.Int64
}

func (l *uncutLog) DeleteRange(first, last uint64) error {
	if l.full.Load() {
		l.asked.Add(1)
		return errFull
	}
	return l.LogStore.DeleteRange(first, last)
}

// A log that a full disk kept from being cut is cut when there is room again, though no other snapshot is due.
func TestALogThatAFullDiskKeptIsCutAtALaterLook(t *testing.T) {
	timings := shortInBytes()
	timings.SnapshotInterval = time.Minute
	inVirtualTime(t, 0, timings, func(t *testing.T, c *testCluster) {
		n := c.add("n1")
		log := &uncutLog{LogStore: n.disk}
		log.full.Store(true)
		n.shutdown()
		n.tune = func(o *Options) {
			o.Log = log
			o.NoSpace = func(err error) bool { return errors.Is(err, errFull) }
		}
		n.start()
		c.found(n)
		n.mustPinKiB("a", 100)
		<-time.After(time.Second) // no other snapshot is due
		if log.asked.Load() == 0 {
			t.Fatal("nothing was to be cut")
		}
		log.full.Store(false)
		c.until("the log is short", func() bool { return n.logBytes() <= (16+4+2)<<10 })
	})
}
