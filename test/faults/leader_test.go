//go:build faults

package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

var staysLong = flag.Duration("stays", 10*time.Minute, "how long a leader is to stay in the long form")

// How long a leader is to stay.
const (
	staysFor = 20 * time.Second
	// stayTries is how often the short form tries. A machine that gives a node no processor for some seconds makes
	// the leader silent for longer than it may be. A cluster that cannot keep its leader fails each time.
	stayTries = 3
	// longestPause is that of a member, and pausesApart from one to the next.
	longestPause, pausesApart = time.Second, 3 * time.Second
	// writesApart is how often each node is sent a write.
	writesApart = 200 * time.Millisecond
	// logKept is how much of a log there is to count elections in.
	logKept = 16 << 20
	// patienceMetric is how long a leader may be silent, as its members have agreed.
	patienceMetric = "holdfast_consensus_leader_patience_seconds"
)

// writes are the pins that clients of all nodes have posted, one client for each node.
type writes struct {
	mu      sync.Mutex
	done    int
	failed  []error
	slowest time.Duration
}

// write posts pins through one node until ctx ends.
func (w *writes) write(ctx context.Context, n *harness.Node, token string) {
	for i := 0; ctx.Err() == nil; i++ {
		began := time.Now()
		_, err := n.Pins(token).Post(ctx, harness.Pin{CID: unreachable, Name: fmt.Sprintf("%s-%d", n.Name, i)})
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		if w.slowest = max(w.slowest, time.Since(began)); err != nil {
			w.failed = append(w.failed, fmt.Errorf("%s: %w", n.Name, err))
		} else {
			w.done++
		}
		w.mu.Unlock()
		harness.Pause(ctx, writesApart)
	}
}

// TestALeaderStays promises that one node leads all the time and no write fails on defaults, with the distance, lost
// packets and pauses that a cluster has to bear.
func TestALeaderStays(t *testing.T) {
	const lost = 0.02
	every := func(c *harness.Cluster, _ int) []*harness.Node { return c.Nodes }
	one := func(c *harness.Cluster, turn int) []*harness.Node { return c.Nodes[turn%len(c.Nodes):][:1] }
	leader := func(c *harness.Cluster, _ int) []*harness.Node { return []*harness.Node{c.Leader()} }
	for _, tc := range []struct {
		name      string
		roundTrip time.Duration // 0: over a bridge, without a line
		paused    func(c *harness.Cluster, turn int) []*harness.Node
		short     bool // it is in the short form too
	}{
		{"near, the leader pauses", 0, leader, true},
		{"near, any member pauses", 0, one, false},
		{"near, all pause", 0, every, false},
		{"100 ms", 100 * time.Millisecond, nil, false},
		{"200 ms", 200 * time.Millisecond, nil, false},
		{"300 ms", 300 * time.Millisecond, nil, false},
		{"400 ms", 400 * time.Millisecond, nil, true},
		{"400 ms, any member pauses", 400 * time.Millisecond, one, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !tc.short {
				longForm(t)
			}
			t.Parallel()
			o := harness.Options{Apart: true, LogBytes: logKept}
			if tc.roundTrip > 0 {
				o.Line = &harness.Line{Delay: tc.roundTrip / 2, Lost: lost}
			}
			c := harness.Start(t, o)
			token := c.Nodes[0].UserKey("stays@example.org").Token
			lasts, tries := staysFor, stayTries
			if *long {
				lasts, tries = *staysLong, 1
			}
			var err error
			for range tries {
				c.Settle()
				if err = stays(t, c, token, lasts, tc.paused); err == nil {
					return
				}
				t.Logf("%s for %v: %v", tc.name, lasts, err)
			}
			t.Error(err)
		})
	}
}

// stays sends writes to all nodes for a time, in which members pause, and returns what went wrong: a change of the
// leader, a write that failed, or none that was done.
func stays(t *testing.T, c *harness.Cluster, token string, lasts time.Duration, who func(*harness.Cluster, int) []*harness.Node) error {
	t.Helper()
	before := c.LogLines("leader changed", "here=true")
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var w writes
	var work sync.WaitGroup
	for _, n := range c.Nodes {
		work.Go(func() { w.write(ctx, n, token) })
	}
	for turn := 0; who != nil && harness.Pause(ctx, pausesApart); turn++ {
		paused := who(c, turn)
		for _, n := range paused {
			n.Pause()
		}
		harness.Pause(t.Context(), longestPause)
		for _, n := range paused {
			n.Resume()
		}
	}
	work.Wait()
	changes := c.LogLines("leader changed", "here=true") - before
	t.Logf("%v: %d changes of the leader, %d writes, %d failed, the slowest took %v; a leader may be silent for %.1f s",
		lasts, changes, w.done, len(w.failed), w.slowest.Round(time.Millisecond), c.Nodes[0].Metrics()[patienceMetric])
	var errs error
	if changes > 0 {
		errs = fmt.Errorf("the leader changed %d times", changes)
	}
	if len(w.failed) > 0 {
		errs = errors.Join(errs, fmt.Errorf("%d writes failed, the first with %w", len(w.failed), w.failed[0]))
	}
	if w.done == 0 {
		errs = errors.Join(errs, errors.New("nothing was written"))
	}
	return errs
}

// Outages when a leader is gone.
const (
	killsOfLeaders, killsOfLeadersLong = 3, 10
	killedWithin                       = 800 * time.Millisecond // in the median
	killedAtMost                       = 1500 * time.Millisecond
	cutTimes                           = 3 // the agreed time
	nextWrite                          = time.Millisecond
	// shortRoom is how many times as long all of it may take in the short form, which runs beside other work: there
	// the bounds find a cluster that goes on late or not at all. The long form, and in virtual time
	// TestAKilledLeaderIsReplacedAtOnce, find one that is a little late.
	shortRoom = 10
)

// TestWritesGoOnWithoutTheLeader promises that writes stand still no longer than the bounds allow when the leader is
// killed or cut off. Its machine tells everybody of a process that is killed; a node that is cut off is silent.
func TestWritesGoOnWithoutTheLeader(t *testing.T) {
	c := harness.Start(t, harness.Options{Apart: true, LogBytes: logKept})
	token := c.Nodes[0].UserKey("goes-on@example.org").Token
	// outage is how long it takes from now until all others have taken a write.
	outage := func(others []*harness.Node, name string) time.Duration {
		began := time.Now()
		var work sync.WaitGroup
		for _, n := range others {
			work.Go(func() {
				for harness.Pause(t.Context(), nextWrite) {
					if _, err := n.Pins(token).Post(t.Context(), harness.Pin{CID: unreachable, Name: name}); err == nil {
						return
					}
				}
			})
		}
		work.Wait()
		return time.Since(began)
	}
	times, room := killsOfLeaders, time.Duration(shortRoom)
	if *long {
		times, room = killsOfLeadersLong, 1
	}
	var killed, cut []time.Duration
	for i := range times {
		leader := c.Leader()
		others := harness.Without(c.Nodes, leader)
		leader.Kill()
		killed = append(killed, outage(others, fmt.Sprintf("killed-%d", i)))
		leader.Restart()
		if err := leader.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Settle()
	}
	for i := range times {
		leader := c.Leader()
		others := harness.Without(c.Nodes, leader)
		agreed := time.Duration(others[0].Metrics()[patienceMetric] * float64(time.Second))
		leader.Cut()
		took := outage(others, fmt.Sprintf("cut-%d", i))
		cut = append(cut, took)
		if took > room*cutTimes*agreed {
			t.Errorf("writes stood still for %v when the leader was cut off, and it might be silent for %v", took, agreed)
		}
		leader.Heal()
		harness.Eventually(t, healWithin, "it follows", func() (bool, error) {
			s, err := leader.StatusNow()
			return err == nil && s.Leader != "" && s.Leader != s.Node.ID, errors.Join(err, errors.New("it does not"))
		})
		c.Settle()
	}
	slices.Sort(killed)
	slices.Sort(cut)
	t.Logf("outages: killed %v, cut off %v", killed, cut)
	if median := killed[len(killed)/2]; median > room*killedWithin {
		t.Errorf("writes stood still for %v in the median when the leader was killed", median)
	}
	if most := killed[len(killed)-1]; most > room*killedAtMost {
		t.Errorf("writes stood still for %v when the leader was killed", most)
	}
}
