package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A lagging node ends equal to the others, with all acknowledged writes, though the sender of its snapshot dies half
// way (A12). Writes go on meanwhile.
func TestSenderOfASnapshotDiesHalfWay(t *testing.T) {
	timings := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 16, TrailingLogs: 4}
	inVirtualTime(t, 3, timings, func(t *testing.T, c *testCluster) {
		sender := c.leader()
		lagging, other := c.nodes[c.others(sender.id)[0]], c.nodes[c.others(sender.id)[1]]
		big := func(i int) *state.CreatePin {
			cmd := pin(fmt.Sprintf("p%04d", i))
			cmd.Pin.Meta = map[string]string{"m": strings.Repeat("x", 8<<10)}
			return cmd
		}
		lagging.kill()
		const before = 200 // some 1.6 MiB
		for i := range before {
			if _, err := sender.Propose(t.Context(), big(i)); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range []*testNode{sender, other} {
			c.until("its log does not reach back", func() bool {
				first, err := n.disk.FirstIndex()
				last, lerr := lagging.disk.LastIndex()
				return err == nil && lerr == nil && first > last+1
			})
		}
		half := make(chan struct{})
		var once sync.Once
		lagging.snaps.arriving = func(bytes int) {
			if bytes > before*8<<10/2 {
				once.Do(func() { close(half) })
				// Nothing more comes over this stream before the sender is gone.
				<-time.After(100 * time.Millisecond)
			}
		}
		writing, stop := context.WithCancel(t.Context())
		written := make(chan []string, 1)
		go func() { // 200 writes a second, through the one that stays
			var names []string
			for i := before; writing.Err() == nil; i++ {
				cmd := big(i)
				_, err := other.Propose(writing, cmd)
				switch {
				case err == nil:
					names = append(names, cmd.Pin.Name)
				case !errors.Is(err, state.ErrUnavailable):
					t.Errorf("write %d: %v", i, err)
				}
				<-time.After(5 * time.Millisecond)
			}
			written <- names
		}()
		lagging.start()
		<-half
		if metas, err := lagging.snaps.List(); err != nil || len(metas) != 0 {
			t.Fatalf("the snapshot is here already: %v, %v", metas, err)
		}
		sender.kill()
		c.until("the lagging node has caught up", func() bool { return lagging.Ready() == nil })
		<-time.After(time.Second)
		stop()
		acknowledged := <-written
		if metas, err := lagging.snaps.List(); err != nil || len(metas) == 0 {
			t.Errorf("no snapshot came: %v", err)
		}
		sender.start()
		c.until("all are back", func() bool { return c.ready() == 3 })
		c.sameEverywhere()
		have := map[string]bool{}
		for _, name := range pinsOf(t, lagging) {
			have[name] = true
		}
		if len(acknowledged) < 50 {
			t.Errorf("only %d writes meanwhile", len(acknowledged))
		}
		for _, name := range acknowledged {
			if !have[name] {
				t.Errorf("%s was acknowledged and is lost", name)
			}
		}
	})
}

// A node that reads the snapshot of a vanished sender votes for another leader within 3 * arrivalPatience. The sender
// is cut off half way, and no stream ends for that. Without the vote of this node nobody can be elected.
func TestWhoReadsASnapshotOfAVanishedSenderVotes(t *testing.T) {
	timings := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 16, TrailingLogs: 4}
	inVirtualTime(t, 3, timings, func(t *testing.T, c *testCluster) {
		lagging := c.follower()
		lagging.kill()
		sender := c.leader(c.others(lagging.id)...)
		for i := range 100 {
			cmd := pin(fmt.Sprintf("p%04d", i))
			cmd.Pin.Meta = map[string]string{"m": strings.Repeat("x", 16<<10)}
			if _, err := sender.Propose(t.Context(), cmd); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range c.others(lagging.id) {
			c.nodes[id].newestSnapshot()
		}
		half := make(chan struct{})
		var once sync.Once
		lagging.snaps.arriving = func(bytes int) {
			if bytes > 100*8<<10 {
				once.Do(func() { close(half); <-time.After(100 * time.Millisecond) })
			}
		}
		lagging.start()
		<-half
		c.network.isolate(sender.id, c.others(sender.id)...)
		began := time.Now()
		c.until("the others have a leader", func() bool {
			for _, id := range c.others(sender.id) {
				if c.nodes[id].IsLeader() {
					return true
				}
			}
			return false
		})
		if took := time.Since(began); took < arrivalPatience || took > 3*arrivalPatience {
			t.Errorf("they elected one after %s", took)
		}
		c.leader(c.others(sender.id)...).mustPin("meanwhile")
		c.network.heal()
		c.until("all are back", func() bool { return c.ready() == 3 })
		c.sameEverywhere()
	})
}

// A snapshot is waited for while its bytes come or its sender is heard of, and is given up when both have ended.
func TestASnapshotThatComesSlowlyIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		var heard atomic.Int64
		dropped := make(chan string, 1)
		a := arrivals{
			heard: func() time.Time { return time.Unix(0, heard.Load()) },
			drop:  func(from string) { dropped <- from; to.CloseWithError(net.ErrClosed) },
		}
		rpc := a.watch(raft.RPC{Command: &raft.InstallSnapshotRequest{RPCHeader: raft.RPCHeader{ID: []byte("n1")}}, Reader: from})
		read := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, rpc.Reader)
			read <- err
		}()
		for range 10 { // bytes, and no word
			<-time.After(arrivalPatience - time.Second)
			if _, err := to.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 { // word, and no bytes
			<-time.After(arrivalPatience - time.Second)
			heard.Store(time.Now().UnixNano())
		}
		if len(dropped) > 0 {
			t.Fatal("given up while it came")
		}
		silent := time.Now()
		if err := <-read; !errors.Is(err, net.ErrClosed) || <-dropped != "n1" {
			t.Errorf("ended with %v", err)
		}
		if took := time.Since(silent); took > 2*arrivalPatience {
			t.Errorf("given up after %s", took)
		}
	})
}

// A snapshot whose last bytes come while its sender is being checked is not given up later. What the sender sends
// after that is nobody's business here.
func TestASnapshotThatCameIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		came := make(chan struct{})
		dropped := make(chan string, 1)
		var once sync.Once
		began := time.Now()
		var heard atomic.Int64
		a := arrivals{
			heard: func() time.Time {
				once.Do(func() {
					heard.Store(time.Now().UnixNano())
					to.Close()
					<-came
				})
				return time.Unix(0, heard.Load())
			},
			drop: func(from string) { dropped <- from },
		}
		rpc := a.watch(raft.RPC{Command: &raft.InstallSnapshotRequest{RPCHeader: raft.RPCHeader{ID: []byte("n1")}}, Reader: from})
		if _, err := io.Copy(io.Discard, rpc.Reader); err != nil {
			t.Fatal(err)
		}
		close(came)
		if took := time.Since(began); took != arrivalPatience {
			t.Fatalf("it came after %s", took)
		}
		<-time.After(3 * arrivalPatience)
		if len(dropped) > 0 {
			t.Error("streams of its sender were ended after it had come")
		}
	})
}

// A node that waits long for a snapshot does not end as removed. It went down while it was sent the log, before it
// read that it is a member, and gets a snapshot over a slow line. It hears of a leader, so it is none that was
// removed.
func TestWhoWaitsForASnapshotIsNotRemoved(t *testing.T) {
	timings := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 16, TrailingLogs: 4}
	inVirtualTime(t, 1, timings, func(t *testing.T, c *testCluster) {
		first := c.leader()
		first.mustPin("a")
		disk := raft.NewInmemStore()
		last, err := first.disk.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		for index := uint64(1); index <= last; index++ {
			var entry raft.Log
			if err := errors.Join(first.disk.GetLog(index, &entry), disk.StoreLog(&entry)); err != nil {
				t.Fatal(err)
			}
		}
		first.store.mu.Lock()
		late := &testNode{
			cluster: c, id: "n2", store: &memStore{now: first.store.now, durable: first.store.now}, disk: disk, log: memLog{disk}, snaps: &memSnapshots{},
		}
		first.store.mu.Unlock()
		for i := range 200 {
			cmd := pin(fmt.Sprintf("p%04d", i))
			cmd.Pin.Meta = map[string]string{"m": strings.Repeat("x", 8<<10)}
			if _, err := first.Propose(t.Context(), cmd); err != nil {
				t.Fatal(err)
			}
		}
		c.until("the log does not reach back", func() bool {
			oldest, err := first.disk.FirstIndex()
			return err == nil && oldest > last+1
		})
		joining := member("n2")
		joining.FeatureLevel = c.level
		if _, err := first.Propose(t.Context(), &state.JoinNode{Node: joining, At: 1}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		late.snaps.arriving = func(int) {
			if time.Since(began) < 3*removalGrace {
				<-time.After(removalGrace / 10)
			}
		}
		c.nodes["n2"] = late
		late.start()
		c.until("it has caught up, or ended", func() bool { return late.Ready() == nil || late.over() })
		if late.over() {
			t.Errorf("it ended after %s with %v", time.Since(began), late.end())
		}
		if took := time.Since(began); took < 2*removalGrace {
			t.Errorf("the snapshot came within %s", took)
		}
	})
}

// ackless is a log that has stored what came behind some entry, and does not say so.
type ackless struct {
	raft.LogStore
	behind         func() uint64 // 0: nothing of that yet
	stored, resume chan struct{}
	once           sync.Once
}

func (l *ackless) StoreLogs(entries []*raft.Log) error {
	err := l.LogStore.StoreLogs(entries)
	if at := l.behind(); at > 0 && entries[0].Index > at {
		l.once.Do(func() { close(l.stored); <-l.resume })
	}
	return err
}

// A node that goes down right after a snapshot is sent what follows, and ends equal to the others. It has written
// what follows before the leader knows, so it is sent the same again. It has the entry before that only in the
// snapshot.
func TestWhoGoesDownRightAfterASnapshotGetsWhatFollows(t *testing.T) {
	timings := Timings{SnapshotInterval: time.Second, SnapshotThreshold: 16, TrailingLogs: 4}
	inVirtualTime(t, 3, timings, func(t *testing.T, c *testCluster) {
		lagging := c.follower()
		lagging.kill()
		leader := c.leader(c.others(lagging.id)...)
		for i := range 40 {
			leader.mustPin(fmt.Sprintf("p%02d", i))
		}
		for _, id := range c.others(lagging.id) {
			c.nodes[id].newestSnapshot()
		}
		for i := range 3 {
			leader.mustPin(fmt.Sprintf("q%02d", i)) // behind the snapshot
		}
		l := &ackless{LogStore: lagging.log, stored: make(chan struct{}), resume: make(chan struct{}), behind: func() uint64 {
			metas, err := lagging.snaps.List()
			if err != nil || len(metas) == 0 {
				return 0
			}
			return metas[0].Index
		}}
		lagging.tune = func(o *Options) { o.Log = l }
		lagging.snaps.arriving = func(int) { <-time.After(time.Second) } // one after the other without a pause would be no time at all
		lagging.start()
		<-l.stored
		c.network.isolate(lagging.id, c.others(lagging.id)...)
		c.network.crash(lagging.id)
		close(l.resume)
		if err := lagging.shutdown(); err != nil {
			t.Fatal(err)
		}
		c.network.heal()
		lagging.start()
		leader.mustPin("after")
		c.sameEverywhere()
	})
}
