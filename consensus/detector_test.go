package consensus

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// adaptive has the members find out how long a leader may be silent.
var adaptive = Timings{Adaptive: true}

// outage returns how long it takes from now until a write through one of the nodes is done.
func (c *testCluster) outage(name string, through *testNode) time.Duration {
	c.t.Helper()
	began := time.Now()
	c.until("a write is done", func() bool {
		_, err := through.Propose(c.t.Context(), pin(name))
		return err == nil
	})
	return time.Since(began)
}

// part ends all nodes, and all streams that take time.
func (c *testCluster) part() {
	c.stopAll()
	c.network.unbuffer()
	<-time.After(5 * time.Second) // what is written to nobody has a deadline
}

// A leader that was killed is replaced on evidence, without waiting for its time to pass.
func TestAKilledLeaderIsReplacedAtOnce(t *testing.T) {
	const within = 800 * time.Millisecond
	for _, members := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d members", members), func(t *testing.T) {
			inVirtualTime(t, members, adaptive, func(t *testing.T, c *testCluster) {
				<-time.After(time.Minute)
				leader, other := c.leader(), c.follower()
				c.network.die(leader.id, c.others(leader.id)...)
				if took := c.outage("p1", other); took > within {
					t.Errorf("writes go on after %v", took)
				}
			})
		})
	}
}

// A leader that is killed before it has opened a stream to one of the others, which has just
// started, is replaced at once too: that member finds out when it is asked for its consent.
func TestALeaderIsReplacedAtOnceOfWhoseEndOneMemberIsNotTold(t *testing.T) {
	const within = 800 * time.Millisecond
	for i := range 2 { // the first of them or the second stands for election first
		t.Run(fmt.Sprintf("member %d", i+1), func(t *testing.T) {
			inVirtualTime(t, 3, adaptive, func(t *testing.T, c *testCluster) {
				<-time.After(time.Minute)
				leader := c.leader()
				others := c.others(leader.id)
				c.network.refuse(leader.id, others...)
				c.network.crash(leader.id, others[i])
				if took := c.outage("p1", c.nodes[others[1-i]]); took > within {
					t.Errorf("writes go on after %v", took)
				}
			})
		})
	}
}

// A leader that is cut off in silence is replaced when it was silent for as long as all agreed.
func TestASilentLeaderIsReplacedInTime(t *testing.T) {
	for _, roundTrip := range []time.Duration{0, 400 * time.Millisecond} {
		t.Run(fmt.Sprintf("%s apart", roundTrip), func(t *testing.T) {
			inVirtualTime(t, 3, adaptive, func(t *testing.T, c *testCluster) {
				defer c.part()
				if roundTrip > 0 {
					c.apart(roundTrip)
				}
				c.until("all are ready", func() bool { return c.ready() == 3 })
				<-time.After(time.Minute)
				leader, other := c.leader(), c.follower()
				agreed, _ := other.detector.current()
				for _, n := range c.nodes {
					if p, _ := n.detector.current(); p != agreed {
						t.Errorf("%s goes by %v, %s by %v", n.id, p, other.id, agreed)
					}
				}
				c.network.isolate(leader.id, c.others(leader.id)...)
				took := c.outage("p1", other)
				if took < agreed-agreed/4 || took > 3*agreed { // the last beat was before the cut
					t.Errorf("writes go on after %v, agreed was %v", took, agreed)
				}
				t.Logf("agreed %v, outage %v", agreed, took)
				c.network.heal()
				c.until("it follows", func() bool { l, ok := leader.Leader(); return ok && l != leader.id && leader.Ready() == nil })
			})
		})
	}
}

// Members that are 100 to 400 ms apart keep their leader for ten minutes.
func TestMembersFarApartKeepTheirLeaderOnDefaults(t *testing.T) {
	for _, roundTrip := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		t.Run(roundTrip.String(), func(t *testing.T) {
			inVirtualTime(t, 3, adaptive, func(t *testing.T, c *testCluster) {
				defer c.part()
				c.apart(roundTrip)
				c.until("all are ready", func() bool { return c.ready() == 3 })
				<-time.After(time.Minute) // streams are there again
				n := c.running()
				before := n.raft.CurrentTerm()
				for i := range 20 {
					c.nodes[c.ids()[i%3]].mustPin(fmt.Sprintf("p%02d", i))
				}
				<-time.After(10 * time.Minute)
				if elections := n.raft.CurrentTerm() - before; elections != 0 {
					t.Errorf("%d elections", elections)
				}
				if agreed, _ := n.detector.current(); agreed < roundTripParts*roundTrip {
					t.Errorf("the leader may be silent for %v only", agreed)
				}
			})
		})
	}
}

// Members keep their leader for ten minutes through lost packets, and pauses of a second of the
// leader, of any member, and of all at once.
func TestOneLeaderThroughLossAndPauses(t *testing.T) {
	const pauses, apart = time.Second, 3 * time.Second
	leader := func(c *testCluster, _ int) []state.NodeID { return []state.NodeID{c.leader().id} }
	one := func(c *testCluster, turn int) []state.NodeID { return c.ids()[turn%3:][:1] }
	every := func(c *testCluster, _ int) []state.NodeID { return c.ids() }
	for _, tc := range []struct {
		name      string
		roundTrip time.Duration
		lost      float64
		paused    func(c *testCluster, turn int) []state.NodeID
	}{
		{"near, the leader pauses", 0, 0, leader},
		{"near, any member pauses", 0, 0, one},
		{"near, all pause", 0, 0, every},
		{"100 ms, packets are lost", 100 * time.Millisecond, 0.02, nil},
		{"400 ms, packets are lost", 400 * time.Millisecond, 0.02, nil},
		{"400 ms, packets are lost and any member pauses", 400 * time.Millisecond, 0.02, one},
		{"400 ms, packets are lost and the leader pauses", 400 * time.Millisecond, 0.02, leader},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inVirtualTime(t, 3, adaptive, func(t *testing.T, c *testCluster) {
				defer c.part()
				c.apart(tc.roundTrip)
				c.until("all are ready", func() bool { return c.ready() == 3 })
				<-time.After(time.Minute) // streams are there again
				n := c.running()
				before, began := n.raft.CurrentTerm(), time.Now()
				c.network.mu.Lock()
				c.network.resent = tc.lost
				c.network.mu.Unlock()
				for turn := 0; time.Since(began) < 10*time.Minute; turn++ {
					if tc.paused != nil {
						for _, id := range tc.paused(c, turn) {
							c.network.stop(id, pauses)
						}
					}
					c.nodes[c.ids()[turn%3]].mustPin(fmt.Sprintf("p%03d", turn))
					<-time.After(apart)
				}
				if elections := n.raft.CurrentTerm() - before; elections != 0 {
					t.Errorf("%d elections", elections)
				}
				agreed, _ := n.detector.current()
				t.Logf("the leader may be silent for %v", agreed)
			})
		})
	}
}

// after returns a moment.
func after(d time.Duration) time.Time { return time.Unix(0, 0).Add(d) }

// fakeRaft returns what a detector knows of Raft.
func fakeRaft(leader state.NodeID, term uint64) (*following, func() following) {
	f := &following{leader: leader, term: term}
	return f, func() following { return *f }
}

// A pause of this process is not taken for the leader's silence, and the leader is told of it as a gap.
func TestAPauseOfThisProcessIsNotTheLeadersSilence(t *testing.T) {
	_, look := fakeRaft("n1", 1)
	d := newDetector("n2", look)
	d.step(after(detectorStep))
	if _, gap := d.beat("n1", 1, leastPatience, false); gap != 0 {
		t.Errorf("it tells of a gap of %v when it has begun to run", gap)
	}
	d.step(after(time.Minute)) // it was stopped meanwhile
	if why := d.stand([]state.NodeID{"n1", "n2", "n3"}); why != "" {
		t.Errorf("it stands for election: %s", why)
	}
	if _, gap := d.beat("n1", 1, leastPatience, false); gap < time.Minute-3*detectorStep {
		t.Errorf("it tells of a gap of %v", gap)
	}
}

// One member that cannot reach the leader's address does not depose it.
func TestTheEvidenceOfOneMemberIsNotEnough(t *testing.T) {
	inVirtualTime(t, 3, adaptive, func(t *testing.T, c *testCluster) {
		<-time.After(time.Minute)
		leader, other := c.leader(), c.follower()
		term := leader.raft.CurrentTerm()
		other.detector.leaderGone(leader.id, term)
		c.until("it has asked the others", func() bool {
			other.detector.mu.Lock()
			defer other.detector.mu.Unlock()
			return other.detector.next > 0
		})
		c.network.isolate(leader.id, other.id)
		<-time.After(time.Minute)
		if now := leader.raft.CurrentTerm(); now != term || !leader.IsLeader() {
			t.Errorf("%s in term %d, led in term %d", leader.raft.State(), now, term)
		}
		c.network.heal()
		c.until("it follows", func() bool { l, ok := other.Leader(); return ok && l == leader.id && other.Ready() == nil })
		if now := leader.raft.CurrentTerm(); now != term || !leader.IsLeader() {
			t.Errorf("%s in term %d, led in term %d, after healing", leader.raft.State(), now, term)
		}
	})
}

// A leader that hears nobody, or that nobody hears, is replaced within twice the agreed time, in one or two terms. A
// leader that hears nobody says so while it is heard.
func TestALeaderThatHearsNobodyIsReplaced(t *testing.T) {
	for _, way := range []string{"it hears nobody", "nobody hears it"} {
		t.Run(way, func(t *testing.T) {
			inVirtualTime(t, 3, adaptive, func(t *testing.T, c *testCluster) {
				<-time.After(time.Minute)
				leader, other := c.leader(), c.follower()
				agreed, _ := other.detector.current()
				began, term := time.Now(), leader.raft.CurrentTerm()
				if way == "nobody hears it" {
					c.network.silence(leader.id, c.others(leader.id)...)
				} else {
					for _, o := range c.others(leader.id) {
						c.network.silence(o, leader.id)
					}
				}
				c.until("another leads", func() bool { l, ok := other.Leader(); return ok && l != leader.id })
				if took := time.Since(began); took > 2*agreed {
					t.Errorf("another leads after %v", took)
				}
				<-time.After(time.Minute)
				if now := other.raft.CurrentTerm(); now > term+2 {
					t.Errorf("term %d, was %d", now, term)
				}
				c.network.heal()
				c.until("all follow one", func() bool { return c.ready() == 3 })
			})
		})
	}
}

// Members that were all cut off from each other take writes within 4 s after healing. They do not wait for the ends
// of elections that they lost.
func TestMembersThatWereAllCutOffElectSoon(t *testing.T) {
	inVirtualTime(t, 3, adaptive, func(t *testing.T, c *testCluster) {
		<-time.After(time.Minute)
		for _, id := range c.ids() {
			c.network.isolate(id, c.others(id)...)
		}
		<-time.After(2 * time.Minute)
		c.network.heal()
		if took := c.outage("p1", c.running()); took > 4*time.Second { // half of what Raft's timers take
			t.Errorf("writes go on after %v", took)
		}
	})
}

// A candidate that lost the election which it was told to hold does not hold up the next one.
func TestACandidateThatLostStandsAgainSoon(t *testing.T) {
	for _, roundTrip := range []time.Duration{0, 400 * time.Millisecond} {
		t.Run(roundTrip.String(), func(t *testing.T) {
			inVirtualTime(t, 3, adaptive, func(t *testing.T, c *testCluster) {
				defer c.part()
				c.apart(roundTrip)
				c.until("all are ready", func() bool { return c.ready() == 3 })
				<-time.After(time.Minute)
				leader, lost := c.leader(), c.follower()
				for _, id := range c.ids() { // its requests for votes reach nobody
					c.network.isolate(id, c.others(id)...)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := lost.beats.offer(ctx, raft.RPC{Command: &raft.TimeoutNowRequest{RPCHeader: lost.rpcHeader()}}); err != nil {
					t.Fatal(err)
				}
				<-time.After(2500 * time.Millisecond)
				c.network.heal()
				c.network.isolate(leader.id, c.others(leader.id)...)
				patience, _ := lost.detector.current()
				if took := c.outage("p1", lost); took > 2*patience {
					t.Errorf("writes go on after %v, where a leader may be silent for %v", took, patience)
				}
			})
		})
	}
}

// A leader that said that it hears nobody while the others were paused stays, unless it goes on to say so.
func TestALeaderWhoseFollowersPauseTogetherStays(t *testing.T) {
	_, look := fakeRaft("n1", 1)
	d := newDetector("n2", look)
	at := time.Duration(0)
	run := func(d *detector, until time.Duration) {
		for ; at < until; at += detectorStep {
			d.step(after(at))
		}
	}
	run(d, time.Second)
	d.beat("n1", 1, leastPatience, false)
	at += 3 * time.Second
	d.step(after(at))
	for range 7 {
		d.beat("n1", 1, leastPatience, true)
	}
	if why := d.stand([]state.NodeID{"n1", "n2", "n3"}); why != "" {
		t.Errorf("it stands: %s", why)
	}
	run(d, at+leastPatience/lostParts+detectorStep)
	d.beat("n1", 1, leastPatience, true)
	if why := d.stand([]state.NodeID{"n1", "n2", "n3"}); why != whyGone {
		t.Errorf("a leader that goes on to say so: %q, want %q", why, whyGone)
	}
}

// A cluster is ready within 2 s after its nodes start, and a member that was away within 3 s after its own start.
// Raft's timers would take longer.
func TestAClusterIsThereSoon(t *testing.T) {
	inVirtualTime(t, 3, adaptive, func(t *testing.T, c *testCluster) {
		for _, id := range c.ids() {
			c.nodes[id].kill()
		}
		for _, id := range c.ids() {
			c.nodes[id].start()
		}
		began := time.Now()
		c.until("all are ready", func() bool { return c.ready() == 3 })
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("all are ready after %v", took)
		}
		killed := c.follower()
		killed.kill()
		<-time.After(time.Minute)
		killed.start()
		began = time.Now()
		c.until("it is ready again", func() bool { return killed.Ready() == nil })
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("a member that was away is ready after %v", took)
		}
	})
}

// A cluster in which members know no beats keeps its leader, and replaces it within 3 * leastPatience when it is
// killed. A member of an earlier release, or with a time of its own, knows no beats: it is sent heartbeats as it
// expects them, and votes by them.
func TestMembersThatKnowNoBeats(t *testing.T) {
	for _, older := range [][]state.NodeID{{"n3"}, {"n2", "n3"}} {
		t.Run(fmt.Sprintf("%d of 3", len(older)), func(t *testing.T) {
			inVirtualTime(t, 3, adaptive, func(t *testing.T, c *testCluster) {
				for _, id := range older {
					c.nodes[id].shutdown()
					c.nodes[id].tune = func(o *Options) { o.Timings = Timings{} }
					c.nodes[id].start()
					c.until("all are ready", func() bool { return c.ready() == 3 })
				}
				for round := range 3 { // several have led then
					leader := c.leader()
					term := leader.raft.CurrentTerm()
					<-time.After(3 * time.Minute)
					if now := leader.raft.CurrentTerm(); now != term || !leader.IsLeader() {
						t.Errorf("%s: %s in term %d, led in term %d", leader.id, leader.raft.State(), now, term)
					}
					other := c.follower()
					leader.kill()
					if took := c.outage(fmt.Sprintf("p%d", round), other); took > 3*leastPatience {
						t.Errorf("without %s writes go on after %v", leader.id, took)
					}
					leader.start()
					c.until("all are ready again", func() bool { return c.ready() == 3 })
				}
			})
		})
	}
}

// A voter agrees to one candidate at a time, and to none but its leader while it hears that one.
func TestAVoterPromisesOne(t *testing.T) {
	voters := []state.NodeID{"n1", "n2", "n3", "n4"}
	raft, look := fakeRaft("n1", 1)
	d := newDetector("n3", look)
	now := time.Duration(0)
	pass := func(by time.Duration) {
		for range by / detectorStep {
			now += detectorStep
			d.step(after(now))
		}
	}
	pass(detectorStep)
	d.beat("n1", 1, leastPatience, false)
	if d.agree("n2", voters) {
		t.Error("it agrees while it hears its leader")
	}
	if !d.agree("n1", voters) {
		t.Error("it does not agree with its leader")
	}
	pass(leastPatience)
	if !d.agree("n4", voters) {
		t.Error("it does not agree after its patience")
	}
	if d.agree("n2", voters) {
		t.Error("it promises two")
	}
	if why := d.stand(voters); why != "" {
		t.Errorf("it stands against whom it has promised: %s", why)
	}
	if !d.agree("n4", voters) {
		t.Error("it forgets whom it has promised")
	}
	pass(leastPatience)
	if d.stand(voters) == "" {
		t.Error("it does not stand when the promise is over")
	}
	if d.agree("n4", voters) || !d.agree("n2", voters) {
		t.Error("while it stands itself it agrees with who is behind it, or not with who is before")
	}
	if d.stands(1) {
		t.Error("it stands against whom it has promised meanwhile")
	}
	d.stood(0)
	raft.term, raft.leader = 2, "n2"
	pass(detectorStep)
	if d.agree("n4", voters) || d.stand(voters) != "" {
		t.Error("it doubts a leader that is new")
	}
}

// The patience rises at once with round trips and gaps, up to its bound, and is at its least again after ten minutes.
func TestThePatienceRisesAtOnceAndFallsSlowly(t *testing.T) {
	_, look := fakeRaft("n1", 1)
	d := newDetector("n1", look)
	for _, tc := range []struct{ roundTrip, gap, want time.Duration }{
		{0, 0, leastPatience},
		{200 * time.Millisecond, 0, leastPatience},
		{400 * time.Millisecond, 0, 2 * time.Second},
		{400 * time.Millisecond, time.Second, 2400 * time.Millisecond},
		{0, 2 * time.Second, 4 * time.Second},
		{0, time.Minute, mostPatience},
	} {
		if got, _ := d.agreePatience(tc.roundTrip, tc.gap); got != tc.want {
			t.Errorf("%v there and back and a gap of %v: %v, want %v", tc.roundTrip, tc.gap, got, tc.want)
		}
	}
	if got, _ := d.agreePatience(0, 0); got < mostPatience*9/10 {
		t.Errorf("it falls to %v at once", got)
	}
	for at := detectorStep; at < 10*time.Minute; at += detectorStep {
		d.step(after(at))
		d.agreePatience(0, 0)
	}
	if got, _ := d.agreePatience(0, 0); got != leastPatience {
		t.Errorf("it is %v after ten minutes", got)
	}
}

// An extreme counts in the window in which it was noted and in the next one, and not after them.
func TestAnExtremeIsForgotten(t *testing.T) {
	var most extreme
	least := extreme{least: true}
	for _, v := range []time.Duration{3, 7, 5} {
		most.note(0, v)
		least.note(0, v)
	}
	for at, want := range map[time.Duration][2]time.Duration{
		0: {7, 3}, patienceWindow: {7, 3}, 2*patienceWindow - 1: {7, 3}, 2 * patienceWindow: {0, 0}, 10 * patienceWindow: {0, 0},
	} {
		m, l := most, least
		if got := [2]time.Duration{m.value(at), l.value(at)}; got != want {
			t.Errorf("after %d: %d, want %d", at, got, want)
		}
	}
}
