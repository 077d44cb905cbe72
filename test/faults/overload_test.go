//go:build faults

package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// Lengths of the faults of an overload.
const (
	fullFor      = 4 * time.Second
	frozenFor    = 7 * time.Second // longer than a node waits for its disk
	overloadPace = 100 * time.Millisecond
)

// TestPinsWhileDisksFillHangAndFail promises that no acknowledged pin is lost while the disk of one node after the
// other, leader or not, fills, hangs and fails. Pins are posted through all nodes meanwhile. Processes that give up
// are started again, as a supervisor would.
func TestPinsWhileDisksFillHangAndFail(t *testing.T) {
	t.Parallel()
	c, disks := onDisks(t, "HOLDFAST_STORAGE_RESERVE=64MiB")
	source := harness.StartBoxo(t)
	l := newLoad(t, c, source, 100)
	l.pace = overloadPace
	total, turns := pins(2000, 150), pins(36, 6)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	stop := l.keepPosting(ctx) // a disk that nobody writes to fails nothing
	l.more(t, 50, healWithin)  // traffic flows before the first fault
	fired := map[string]int{}
	again := 0
	for turn := range turns {
		at := turn % len(c.Nodes)
		n, d := c.Nodes[at], disks[at]
		kind := []string{"full", "frozen", "failed flush"}[(turn+turn/3)%3]
		from := l.count()
		switch kind {
		case "full":
			room := d.keepFull()
			harness.Pause(ctx, fullFor)
			room()
		case "frozen":
			d.freeze()
			harness.Pause(ctx, frozenFor)
			if err := d.thaw(); err != nil {
				t.Fatal(err)
			}
		case "failed flush":
			failFlushes(t, n.Pid())
			harness.Eventually(t, healWithin, "the process ends", func() (bool, error) { return !n.Running(), nil })
		}
		fired[kind]++
		// It may end after it was ready: a disk that hung is noticed when it answers.
		harness.Eventually(t, healWithin, "the node is ready", func() (bool, error) {
			if !n.Running() {
				again++
				n.Restart()
			}
			err := n.WaitReady(t.Context())
			return err == nil, err
		})
		t.Logf("%s on %s: %d pins acknowledged meanwhile", kind, n.Name, l.count()-from)
	}
	harness.Eventually(t, healWithin, "enough pins are acknowledged", func() (bool, error) {
		return l.count() >= total, fmt.Errorf("%d of %d are", l.count(), total)
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"full", "frozen", "failed flush"} {
		if fired[kind] < 2 {
			t.Errorf("invalid: %q fired %d times", kind, fired[kind])
		}
	}
	l.check(t)
	l.pinned(t, 9)
	t.Logf("%d pins acknowledged, %d of them after posts of unknown outcome; faults %v, %d starts; longest time without an acknowledgement %s",
		l.count(), len(l.unsure), fired, again, l.gap.Round(time.Millisecond))
}
