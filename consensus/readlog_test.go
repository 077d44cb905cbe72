package consensus

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// rottenLog is a Raft log in which entries cannot be read any more.
type rottenLog struct {
	raft.LogStore
	rotten atomic.Bool
}

var errRot = errors.New("rot")

func (l *rottenLog) GetLog(index uint64, entry *raft.Log) error {
	if l.rotten.Load() {
		return fmt.Errorf("entry %d: %w", index, errRot)
	}
	return l.LogStore.GetLog(index, entry)
}

// A leader that cannot read an entry that a follower lacks ends and says why,
// and the others go on.
func TestNodeThatCannotReadItsLogEnds(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		sick := c.leader()
		log := &rottenLog{LogStore: sick.disk}
		sick.kill()
		sick.log = log
		sick.start()
		c.until("all are back", func() bool { return c.ready() == 3 })
		lagging := c.others(sick.id)[0]
		c.nodes[lagging].kill()
		for i := range 2 * cachedEntries { // more than followers are sent from memory
			c.leader().mustPin(fmt.Sprint(i))
		}
		c.until("it leads", func() bool {
			if leader := c.leader(); leader.id != sick.id {
				_ = leader.HandOver(t.Context())
			}
			return c.leader().id == sick.id
		})
		log.rotten.Store(true)
		c.nodes[lagging].start()
		select {
		case <-sick.ended:
			if !errors.Is(sick.err, ErrBroken) || !errors.Is(sick.err, errRot) {
				t.Errorf("ended in %v", sick.err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it goes on")
		}
		sick.stop()
		_ = sick.Close() // a part of Raft is gone, and does not stop in order
		sick.Node = nil
		c.leader(c.others(sick.id)...).mustPin("without it")
	})
}
