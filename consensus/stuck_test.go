package consensus

import (
	"testing"
	"time"
)

// A member whose log ends with its own entries where the snapshot of the next leader ends catches up. It was cut off
// as it led. The log of the next leader begins at the end of the snapshot.
func TestASnapshotThatEndsWhereTheLogEnds(t *testing.T) {
	inVirtualTime(t, 3, Timings{TrailingLogs: 1}, func(t *testing.T, c *testCluster) {
		old := c.leader()
		others := c.others(old.id)
		c.network.isolate(old.id, others...)
		// It leads for a moment more and takes entries that nobody commits.
		base := old.raft.LastIndex()
		for range 3 {
			go func() { _, _ = old.Propose(t.Context(), pin("lost")) }()
			<-time.After(10 * time.Millisecond)
		}
		c.until("it has taken something", func() bool { return old.raft.LastIndex() > base })
		leader := c.leader(others...)
		end := old.raft.LastIndex()
		t.Logf("base %d, the old log ends at %d", base, end)
		for i := 0; leader.Applied() < end; i++ {
			leader.mustPin(string(rune('a' + i)))
		}
		meta, _ := leader.taken()
		first, err := leader.disk.FirstIndex()
		if err != nil || meta.Index != end || old.raft.LastIndex() != end {
			t.Fatalf("snapshot at %d, log of the leader from %d (%v), old log to %d", meta.Index, first, err, old.raft.LastIndex())
		}
		t.Logf("snapshot at %d term %d, log of the leader from %d", meta.Index, meta.Term, first)
		sent := 0
		old.snaps.mu.Lock()
		old.snaps.arriving = func(int) { // Raft reads it, and does nothing else
			sent++
			<-time.After(time.Second) // else the clock would stand still: it is sent again without a pause
		}
		old.snaps.mu.Unlock()
		c.network.heal()
		leader.mustPin("z")
		<-time.After(time.Minute)
		if old.Applied() < leader.Applied() {
			t.Fatalf("it was sent the snapshot %d times, has applied %d, and the leader %d", sent, old.Applied(), leader.Applied())
		}
		c.sameEverywhere()
	})
}
