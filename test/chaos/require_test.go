package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// How the prober asks.
const (
	probeEvery    = 20 * time.Millisecond
	probePatience = 250 * time.Millisecond
	// usualGap is what no fault is needed for.
	usualGap = 300 * time.Millisecond
	// probeCID is that of the empty file, which every node can make.
	probeCID = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
)

// prober is a client that only wants its write done, at whatever node: it
// measures how long that is not possible.
type prober struct {
	cluster *cluster
	account state.AccountID
	gaps    []time.Duration // between two successes, virtual, each longer than usual
}

// run writes until ctx ends. Each write is tried at the next node when one does
// not answer.
func (p *prober) run(ctx context.Context) error {
	at, last := 0, time.Now()
	for ctx.Err() == nil {
		err := p.write(at)
		switch {
		case err == nil:
			if gap := time.Since(last); gap > usualGap {
				p.gaps = append(p.gaps, gap)
			}
			last = time.Now()
			harness.Pause(ctx, probeEvery)
		case errors.Is(err, state.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			at = (at + 1) % len(p.cluster.members)
			harness.Pause(ctx, time.Millisecond) // a node that is down says so at once
		default:
			return fmt.Errorf("probe: %w", err)
		}
	}
	return nil
}

func (p *prober) write(at int) error {
	l := p.cluster.members[at].call()
	if l == nil {
		return state.ErrUnavailable
	}
	defer l.calls.Done()
	ctx, cancel := context.WithTimeout(l.ctx, probePatience)
	defer cancel()
	record, err := l.Pins().Create(ctx, p.account, pins.Request{CID: probeCID})
	if err == nil {
		err = l.Pins().Delete(ctx, p.account, record.ID)
	}
	if l.crashed.Load() {
		return state.ErrUnavailable
	}
	return err
}

// again repeats a step.
func again(n int, s step) []step {
	steps := make([]step, n)
	for i := range steps {
		steps[i] = s
	}
	return steps
}

// Bounds of the requirements below, in virtual time: that is without what
// processors and disks take.
const (
	failOver = 1500 * time.Millisecond // P10
	oneWay   = 3 * time.Second         // A4
	// silent is when a leader's machine is gone without a word, and three times what its members
	// wait then (ADR 47). Where a process alone ends its machine says so: that is A1, in
	// test/conformance and test/faults.
	silent = 3 * 1500 * time.Millisecond
	// hungLeader is P10 and A6.
	hungLeader = 7 * time.Second
	// refusal is P13 and A3, and a little for what else the call does.
	refusal = 10*time.Second + 50*time.Millisecond
)

// requirement is a scenario with what it has to reach.
type requirement struct {
	name   string
	steps  []step
	outage time.Duration // the longest of writes
	terms  uint64        // of Raft, in each minute; 0: as many as there are
}

// The restarts of A13: each node loses its power every two seconds for a minute.
const (
	restartKills = 90
	restartDown  = 200 * time.Millisecond
	restartGap   = 2*time.Second/usual - restartDown
	// restartOutage is how long nothing may be written: the restarts, for there is
	// hardly ever a majority, and ten seconds.
	restartOutage = 70 * time.Second
)

func requirements() []requirement {
	restarts := again(restartKills, step{fault: powerLoss, gap: restartGap, last: restartDown})
	for i := range restarts {
		restarts[i].node = i % usual
	}
	clocks := []step{
		{fault: skew, leader: true, by: time.Hour, last: 10 * time.Second, with: &step{fault: skew, node: 1, by: -time.Hour, last: 8 * time.Second}},
		{fault: skew, leader: true, by: -time.Hour, gap: time.Second, last: 5 * time.Second},
		{fault: powerLoss, leader: true, gap: time.Second, last: time.Second, with: &step{fault: skew, node: 2, by: maxSkew, last: 5 * time.Second}},
	}
	full := again(3, step{fault: powerLoss, node: 2, gap: time.Second, last: 4 * time.Second})
	return []requirement{
		{"A1, P10: the leader loses its power", again(100, step{fault: powerLoss, leader: true, gap: time.Second, last: time.Second}), silent, 0},
		{"A3: the leader is cut off for 30 s", again(1, step{fault: partition, leader: true, last: 30 * time.Second}), oneWay, 3},
		{"A4: the leader hears nothing", again(1, step{fault: deaf, leader: true, gap: time.Second, last: time.Minute}), oneWay, 3},
		{"A4: nobody hears the leader", again(1, step{fault: mute, leader: true, gap: time.Second, last: time.Minute}), oneWay, 3},
		{"A4: a follower hears nothing", again(1, step{fault: deaf, node: 2, gap: time.Second, last: time.Minute}), oneWay, 3},
		{"A12: a lagging node gets a snapshot under load, whose sender is killed", append(full, step{
			fault: powerLoss, node: 2, gap: time.Second, last: 4 * time.Second,
			with: &step{fault: powerLoss, leader: true, gap: 4*time.Second + 20*time.Millisecond, last: time.Second},
		}), oneWay, 0},
		{"A13: every node is restarted every two seconds", restarts, restartOutage, 0},
		{"A16: clocks are wrong by an hour", clocks, oneWay, 0},
		{"the leader is restarted", again(2, step{fault: restart, leader: true, gap: time.Second, last: time.Second}), failOver, 0},
		{"the leader's disk hangs", again(3, step{fault: hungDisk, leader: true, gap: time.Second, last: 4 * time.Second}), hungLeader, 0},
		{"a write to the leader's disk fails", again(3, step{fault: brokenDisk, leader: true, gap: time.Second, last: time.Second}), silent, 0}, // its machine is as one that is gone
	}
}

// noRoomLeft is the scenario of disks that are full beside other faults, and of a node that
// loses its blocks.
const noRoomLeft = "disks are full"

// hangsOnly is the scenario of nothing but disks that hang.
const hangsOnly = "two disks hang"

// deposedBesideAHang is the scenario of leaders that lose the lead together with a
// follower whose log hangs.
const deposedBesideAHang = "a leader is deposed beside a log that hangs"

// nineNodes is the scenario of many nodes whose lines are cut.
const nineNodes = "nine nodes under cuts"

// scenarios returns all that a run can be made of, by name.
func scenarios() map[string]scenario {
	all := mistaken()
	all[""] = scenario{sizes: true}
	all[noRoomLeft] = scenario{plan: noRoom, sizes: true}
	all[hangsOnly] = scenario{plan: hangs, sizes: true}
	all[nineNodes] = scenario{plan: cuts, nodes: manyNodes}
	all[deposedBesideAHang] = scenario{plan: deposed, nodes: maxNodes}
	for _, r := range requirements() {
		for i := range r.steps {
			r.steps[i].other = 1
			if with := r.steps[i].with; with != nil {
				with.other = 1
			}
		}
		all[r.name] = scenario{steps: r.steps, patience: 2 * refusal, probe: true, often: strings.HasPrefix(r.name, "A12")}
	}
	return all
}

// TestWritesGoOnSoonAfterAFault promises that after each kind of fault no write waits longer,
// and no more terms begin, than the requirement allows.
func TestWritesGoOnSoonAfterAFault(t *testing.T) {
	if !*longFlag {
		t.Skip("only with -long")
	}
	for _, tc := range requirements() {
		t.Run(tc.name, func(t *testing.T) {
			got, err := simulate(t, 1, tc.name)
			if err != nil {
				t.Fatal(err)
			}
			var median, worst time.Duration
			if n := len(got.Outages); n > 0 {
				median, worst = got.Outages[(n-1)/2], got.Outages[n-1]
			}
			minutes := got.Virtual.Minutes()
			t.Logf("%d calls in %v; longest %v; %d outages of writes, median %v, worst %v; %d terms; %d snapshots taken over; faults: %s",
				got.Ops, got.Virtual.Round(time.Second), got.Longest, len(got.Outages), median, worst, got.Terms, got.Snapshots, got.faults())
			if tc.terms > 0 && float64(got.Terms) > math.Ceil(minutes)*float64(tc.terms) {
				t.Errorf("%d terms in %v", got.Terms, got.Virtual)
			}
			if worst > tc.outage {
				t.Errorf("no write for %v, the most is %v", worst, tc.outage)
			}
			if got.Longest > refusal {
				t.Errorf("a call took %v, the most is %v", got.Longest, refusal)
			}
		})
	}
}
