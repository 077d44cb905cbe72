package consensus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// A node that lags gets a snapshot while writes go on; who sends it dies half
// way, and the node ends equal to the others all the same (A12).
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
