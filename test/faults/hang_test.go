//go:build faults

package faults

import (
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// leadsWithin is how soon another node must lead when the disk of the leader
// hangs.
const leadsWithin = 7 * time.Second

// deadWithin is how long a process that gives up may take to be gone once its
// disk answers.
const deadWithin = 20 * time.Second

// nodes are the nodes of a cluster by their ids, which a node that hangs cannot
// be asked for.
type nodes map[string]*harness.Node

func learn(c *harness.Cluster) nodes {
	known := nodes{}
	for _, n := range c.Nodes {
		known[n.Status().Node.ID] = n
	}
	return known
}

// leader returns who leads as one of the nodes sees it; nil when nobody is known.
func (k nodes) leader(asked ...*harness.Node) *harness.Node {
	for _, n := range asked {
		if s, err := n.StatusNow(); err == nil && s.Leader != "" {
			return k[s.Leader]
		}
	}
	return nil
}

// TestAnotherNodeLeadsWhenTheLeadersDiskHangs promises that another node leads when the leader's disk hangs, and that
// the process that gave up says why and ends when the disk answers (A6). No acknowledged pin is lost.
func TestAnotherNodeLeadsWhenTheLeadersDiskHangs(t *testing.T) {
	longForm(t)
	c, disks := onDisks(t)
	known := learn(c)
	source := harness.StartBoxo(t)
	l := newLoad(t, c, source, 50)
	stop := l.keepPosting(t.Context())
	l.more(t, 100, healWithin)
	leader := c.Leader()
	at := diskOf(c, disks, leader)
	others := harness.Without(c.Nodes, leader)
	began := time.Now()
	at.freeze()
	harness.Eventually(t, leadsWithin, "another node leads", func() (bool, error) {
		now := known.leader(others...)
		return now != nil && now != leader, errors.New("nobody else does")
	})
	moved := time.Since(began)
	l.more(t, 100, healWithin)
	served := time.Since(began)
	if *long {
		<-time.After(time.Minute - time.Since(began))
	}
	if err := at.thaw(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, deadWithin, "the process that gave up is gone", func() (bool, error) { return !leader.Running(), nil })
	if code := leader.ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if !regexp.MustCompile(`disk of the Raft log hangs`).MatchString(leader.Log()) {
		t.Error("its log does not say why")
	}
	leader.Restart()
	if err := leader.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := known.leader(others...); now == leader {
		t.Error("it came back as the leader")
	}
	l.more(t, 100, healWithin)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	l.check(t)
	l.pinned(t, 6)
	t.Logf("another node led after %s, 100 pins more were acknowledged after %s; longest time without one %s; %d acknowledged",
		moved.Round(time.Millisecond), served.Round(time.Millisecond), l.gap.Round(time.Millisecond), l.count())
}

// endsWithin is how soon a process must be gone whose disk has failed a flush: within a second (A7), and on a machine
// that is busy, as in CI, a little later. A process that goes on without the flush does not end at all.
func endsWithin() time.Duration {
	if *long {
		return time.Second
	}
	return 15 * time.Second
}

// cannotTrust is what such a process says.
var cannotTrust = regexp.MustCompile(`cannot be trusted|writes may not be durable`)

// TestAFailedFlushEndsTheProcess promises that a process whose flush fails ends with exit code 1, on the leader and
// on a follower, and that no acknowledged pin is lost (A7).
func TestAFailedFlushEndsTheProcess(t *testing.T) {
	t.Parallel()
	c, _ := onDisks(t)
	source := harness.StartBoxo(t)
	l := newLoad(t, c, source, 50)
	stop := l.keepPosting(t.Context())
	for _, victim := range []struct {
		name string
		of   func() *harness.Node
	}{
		{"leader", c.Leader},
		{"follower", func() *harness.Node { return c.Followers()[0] }},
	} {
		l.more(t, 50, healWithin)
		n := victim.of()
		failedAt := failFlushes(t, n.Pid())
		harness.Eventually(t, healWithin, "the process ends", func() (bool, error) { return !n.Running(), nil })
		gone := time.Now()
		took := gone.Sub(failedAt())
		t.Logf("%s: gone %s after the first failed flush", victim.name, took.Round(time.Millisecond))
		if took > endsWithin() {
			t.Errorf("the %s took %s to end", victim.name, took)
		}
		if code := n.ExitCode(); code != 1 {
			t.Errorf("the %s ends with code %d", victim.name, code)
		}
		if line := cannotTrust.FindString(n.Log()); line == "" {
			t.Errorf("the %s does not say why it ends:\n%s", victim.name, n.Log())
		}
		n.Restart()
		if err := n.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l.more(t, 50, healWithin)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	l.check(t)
	l.pinned(t, 6)
}
