package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// sentSnapshots are snapshots whose sending takes a while, and that count it.
type sentSnapshots struct {
	*memSnapshots
	check, first time.Duration // what reading one through takes, and sending it

	mu       sync.Mutex
	verified int
	under    int // read through at this moment
	most     int
	opened   []string // ids, in order
}

// Verify implements verifier.
func (s *sentSnapshots) Verify(string, func(get func(key []byte) ([]byte, bool, error)) error) (bool, error) {
	s.count(func() { s.verified++; s.under++; s.most = max(s.most, s.under) })
	<-time.After(s.check)
	s.count(func() { s.under-- })
	return false, nil
}

// SetAside implements verifier.
func (s *sentSnapshots) SetAside(string) error { return nil }

func (s *sentSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.count(func() { s.opened = append(s.opened, id) })
	meta, r, err := s.memSnapshots.Open(id)
	return meta, &lateStream{r, s.first}, err
}

func (s *sentSnapshots) count(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *sentSnapshots) counts() (verified, most, opened int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verified, s.most, len(s.opened)
}

// lateStream takes its time.
type lateStream struct {
	io.ReadCloser
	wait time.Duration
}

func (s *lateStream) Read(b []byte) (int, error) {
	<-time.After(s.wait)
	s.wait = 0
	return s.ReadCloser.Read(b)
}

// sendSlowly returns a node's snapshots take so long to be looked at and to be sent.
func (n *testNode) sendSlowly(check, first time.Duration) *sentSnapshots {
	n.cluster.t.Helper()
	s := &sentSnapshots{memSnapshots: n.snaps, check: check, first: first}
	n.changed(func(o *Options) { o.Snapshots = s })
	return s
}

// newestSnapshot waits for one behind which no other one is due.
func (n *testNode) newestSnapshot() *raft.SnapshotMeta {
	n.cluster.t.Helper()
	n.cluster.until("there is a snapshot", func() bool {
		metas, err := n.snaps.List()
		return err == nil && len(metas) > 0 && !n.fsm.grown.enough(n.timings.SnapshotThreshold)
	})
	<-time.After(time.Second) // and it is kept, and the log cut
	metas, err := n.snapshots.List()
	if err != nil || len(metas) == 0 {
		n.cluster.t.Fatal(metas, err)
	}
	return metas[0]
}

// changed starts a node again with other options.
func (n *testNode) changed(tune func(*Options)) {
	n.cluster.t.Helper()
	ready := n.cluster.ready()
	n.shutdown()
	n.tune = tune
	n.start()
	n.cluster.until("it is back", func() bool { return n.cluster.ready() == ready })
}

// writes returns a node make pins until it is called: so many bytes each, so far apart.
func (n *testNode) writes(bytes int, apart time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(n.cluster.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(apart):
			}
			if _, err := n.Propose(n.cluster.t.Context(), pinOf(bytes, fmt.Sprintf("w%d", i))); err != nil {
				n.cluster.t.Error(err)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// A leader does not read its snapshot again and again for a member that is down, nor keep its log for it. Raft opens
// the snapshot again and again.
func TestAMemberThatIsDownCostsTheLeaderLittle(t *testing.T) {
	inVirtualTime(t, 3, shortInBytes(), func(t *testing.T, c *testCluster) {
		down := c.follower()
		var snaps []*sentSnapshots
		for _, id := range c.others(down.id) {
			snaps = append(snaps, c.nodes[id].sendSlowly(0, 0))
		}
		down.kill()
		n := c.leader(c.others(down.id)...)
		for i := range 20 {
			n.mustPinKiB(fmt.Sprintf("p%d-", i), 20)
			<-time.After(time.Second)
		}
		verified := func() (sum int) {
			for _, s := range snaps {
				v, _, _ := s.counts()
				sum += v
			}
			return sum
		}
		<-time.After(10 * time.Minute)
		before := verified()
		<-time.After(10 * time.Minute)
		if again := verified() - before; before == 0 || again > 0 {
			t.Errorf("the snapshot was read through %d times, and %d times in ten minutes without a write", before, again)
		}
		if _, serves := n.snapshots.served(); serves {
			t.Error("a member that has been down for 20 minutes counts as one that is sent a snapshot")
		}
		n.mustPinKiB("q", 100)
		c.until("the log is short", func() bool { return n.logBytes() <= (16+4+2)<<10 })
		down.start()
		c.until("it is back", func() bool { return c.ready() == 3 })
		c.sameEverywhere()
	})
}

// A follower is sent one snapshot, or two, while much is written, and the log is short again after that. These are a
// hundredth of the defaults, and in the time of one transfer 200 entries are written: a snapshot every second or two,
// and 40 entries behind it.
func TestAFollowerIsSentOneSnapshotWhileMuchIsWritten(t *testing.T) {
	timings := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 81, TrailingLogs: 40}
	inVirtualTime(t, 3, timings, func(t *testing.T, c *testCluster) {
		behind := c.follower()
		var snaps []*sentSnapshots
		for _, id := range c.others(behind.id) {
			snaps = append(snaps, c.nodes[id].sendSlowly(0, 4*time.Second))
		}
		behind.kill()
		n := c.leader(c.others(behind.id)...)
		for i := range 300 {
			n.mustPin(fmt.Sprintf("a%d", i))
		}
		c.until("the log was cut", func() bool { first, err := n.disk.FirstIndex(); return err == nil && first > 100 })
		stop := n.writes(10, 20*time.Millisecond)
		behind.start()
		c.until("it is back", func() bool { return behind.Ready() == nil })
		opened := 0
		for _, s := range snaps {
			_, _, o := s.counts()
			opened += o
		}
		// One more, if one was being taken when it came.
		if opened == 0 || opened > 2 {
			t.Errorf("%d snapshots were sent to one follower", opened)
		}
		stop()
		<-time.After(serving)
		c.until("the log is short again", func() bool {
			first, err := n.disk.FirstIndex()
			last, err2 := n.disk.LastIndex()
			return err == nil && err2 == nil && last-first < 81+2*60+40
		})
		c.sameEverywhere()
	})
}

// The log that is kept for a follower is cut some time after it was served, also when nothing more is written.
func TestTheLogIsShortAgainAfterAFollowerWasServed(t *testing.T) {
	timings := shortInBytes()
	timings.SnapshotInterval = time.Minute
	inVirtualTime(t, 1, timings, func(t *testing.T, c *testCluster) {
		n := c.running()
		n.mustPinKiB("a", 40)
		newest := n.newestSnapshot()
		_, stream, err := n.snapshots.Open(newest.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		n.mustPinKiB("b", 200)
		if size := n.logBytes(); size < 200<<10 {
			t.Errorf("%d bytes of log, a follower lacks 200 KiB", size)
		}
		if err := stream.Close(); err != nil {
			t.Fatal(err)
		}
		<-time.After(serving - time.Second)
		if size := n.logBytes(); size < 200<<10 {
			t.Errorf("%d bytes of log, a follower may lack 200 KiB", size)
		}
		c.until("the log is short", func() bool { return n.logBytes() <= (16+4+2)<<10 })
	})
}

// A snapshot is read through once for all followers that lack it, and once more after it was sent. Raft opens a
// snapshot for each follower that lacks it by itself, two at once if two nodes join. A snapshot that a follower
// refuses comes again, and is looked at again.
func TestASnapshotIsReadThroughOnceForAllWhoLackIt(t *testing.T) {
	inVirtualTime(t, 1, shortInBytes(), func(t *testing.T, c *testCluster) {
		n := c.running()
		s := n.sendSlowly(2*time.Second, 0)
		n.mustPinKiB("a", 40)
		newest := n.newestSnapshot()
		want := func(verified int, when string) {
			t.Helper()
			if got, most, _ := s.counts(); got != verified || most > 1 {
				t.Errorf("%s it was read through %d times, %d at a time, want %d", when, got, most, verified)
			}
		}
		var open sync.WaitGroup
		streams := make([]io.ReadCloser, 3)
		for i := range streams {
			open.Go(func() {
				var err error
				if _, streams[i], err = n.snapshots.Open(newest.ID); err != nil {
					t.Error(err)
				}
			})
		}
		open.Wait()
		want(1, "for three")
		for i, r := range streams {
			var err error
			if i > 0 {
				_, err = r.Read(make([]byte, 1))
			}
			if err := errors.Join(err, r.Close()); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			_, r, err := n.snapshots.Open(newest.ID)
			if err != nil {
				t.Fatal(err)
			}
			want(2, "after it was sent")
			if err := r.Close(); err != nil { // it did not reach anybody
				t.Fatal(err)
			}
		}
	})
}

// The log behind a snapshot stays while that is read through, and is not kept for a follower that did not get it. The
// follower lacks later what is written meanwhile.
func TestTheLogStaysWhileASnapshotIsReadThrough(t *testing.T) {
	inVirtualTime(t, 1, shortInBytes(), func(t *testing.T, c *testCluster) {
		n := c.running()
		n.sendSlowly(time.Minute, 0)
		n.mustPinKiB("a", 40)
		newest := n.newestSnapshot()
		var open sync.WaitGroup
		defer open.Wait()
		open.Go(func() {
			_, r, err := n.snapshots.Open(newest.ID)
			if err == nil {
				err = r.Close() // it does not reach the follower
			}
			if err != nil {
				t.Error(err)
			}
		})
		<-time.After(time.Second)
		n.mustPinKiB("b", 100)
		<-time.After(time.Second)
		if first, err := n.disk.FirstIndex(); err != nil || first > newest.Index+1 {
			t.Errorf("the log begins at %d, a follower lacks what follows %d: %v", first, newest.Index, err)
		}
		open.Wait()
		if index, serves := n.snapshots.served(); serves {
			t.Errorf("what follows %d is kept for who did not get it", index)
		}
	})
}

// stuckStore hangs when a checkpoint is made, until it is let go.
type stuckStore struct {
	*memStore
	hang chan struct{}
}

func (s *stuckStore) Checkpoint(dir string) error {
	<-s.hang
	return s.memStore.Checkpoint(dir)
}

// A leader whose state hangs in a snapshot hands over, and at most one of 60 writes through another node fails.
func TestALeaderWhoseStateHangsInASnapshotHandsOver(t *testing.T) {
	inVirtualTime(t, 3, shortInBytes(), func(t *testing.T, c *testCluster) {
		n := c.leader()
		s := &stuckStore{n.store, make(chan struct{})}
		n.changed(func(o *Options) { o.Store = s })
		c.until("it leads", func() bool {
			l := c.leader()
			if l == n {
				return true
			}
			_ = l.await(t.Context(), l.raft.LeadershipTransferToServer(raft.ServerID(n.id), raft.ServerAddress(n.id)))
			return false
		})
		other := c.nodes[c.others(n.id)[0]]
		failed := 0
		for i := range 60 {
			if _, err := other.Propose(t.Context(), pinOf(1<<10, fmt.Sprintf("x%d", i))); err != nil {
				failed++
			}
		}
		if failed > 1 || n.IsLeader() {
			t.Errorf("%d of 60 writes failed, and the node leads: %v", failed, n.IsLeader())
		}
		close(s.hang)
		c.until("all are back", func() bool { return c.ready() == 3 })
		c.sameEverywhere()
	})
}

// slowLine lets so many bytes a second through on each stream.
type slowLine struct {
	Network
	rate int
}

func (l *slowLine) Dial(ctx context.Context, node, protocol string) (net.Conn, error) {
	c, err := l.Network.Dial(ctx, node, protocol)
	if err != nil {
		return nil, err
	}
	return &slowConn{c, l.rate}, nil
}

type slowConn struct {
	net.Conn
	rate int
}

func (c *slowConn) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		part := b[n:min(len(b), n+16<<10)]
		<-time.After(time.Duration(len(part)) * time.Second / time.Duration(c.rate))
		var m int
		m, err = c.Conn.Write(part)
		n += m
	}
	return n, err
}

// A follower catches up over a line that is slower than the entries that it lacks. It lacks 20 MiB in entries of 640
// KiB, and a message of Raft has to arrive within five seconds, in which the line carries 12.
func TestAFollowerCatchesUpOverASlowLine(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		for _, id := range c.ids() {
			c.nodes[id].changed(func(o *Options) { o.Network = &slowLine{o.Network, 20e6 / 8} })
		}
		n, behind := c.leader(), c.follower()
		behind.kill()
		for i := range 32 {
			var entry sync.WaitGroup
			for j := range 20 {
				entry.Go(func() {
					if _, err := n.Propose(t.Context(), pinOf(32<<10, fmt.Sprintf("b%d-%d", i, j))); err != nil {
						t.Error(err)
					}
				})
			}
			entry.Wait()
		}
		behind.start()
		c.until("it is back", func() bool { return behind.Ready() == nil })
		c.sameEverywhere()
	})
}

// A snapshot is due after 75 to 100 % of the bytes that are set, at random, so that members do not take theirs at once.
func TestMembersDoNotTakeSnapshotsAtTheSameEntry(t *testing.T) {
	seen := map[uint64]bool{}
	for range 100 {
		g := newGrowth(1000)
		due := g.due.Load()
		if seen[due] = true; due < 750 || due > 1000 {
			t.Errorf("a snapshot is due after %d bytes of 1000", due)
		}
	}
	if len(seen) < 20 {
		t.Errorf("%d members have theirs after %d different sizes", 100, len(seen))
	}
}
