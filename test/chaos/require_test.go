package chaos

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
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
			pause(ctx, probeEvery)
		case errors.Is(err, state.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			at = (at + 1) % nodes
			pause(ctx, time.Millisecond) // a node that is down says so at once
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
	failOver = 1500 * time.Millisecond // A1, P10
	oneWay   = 3 * time.Second         // A4
	// refusal is P13 and A3, and a little for what else the call does.
	refusal = 10*time.Second + 50*time.Millisecond
)

func TestWritesGoOnSoonAfterAFault(t *testing.T) {
	if !*longFlag {
		t.Skip("only with -long")
	}
	for _, tc := range []struct {
		name   string
		steps  []step
		outage time.Duration
	}{
		{"A1, P10: the leader loses its power", again(100, step{fault: powerLoss, leader: true, gap: time.Second, last: time.Second}), failOver},
		{"A3: the leader is cut off for 30 s", again(1, step{fault: partition, leader: true, last: 30 * time.Second}), oneWay},
		{"A4: the leader hears nothing", again(2, step{fault: deaf, leader: true, gap: time.Second, last: 10 * time.Second}), oneWay},
		{"A4: nobody hears the leader", again(2, step{fault: mute, leader: true, gap: time.Second, last: 10 * time.Second}), oneWay},
		{"the leader is restarted", again(2, step{fault: restart, leader: true, gap: time.Second, last: time.Second}), failOver},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for at := range tc.steps {
				tc.steps[at].other = 1
			}
			got, err := simulate(t, 1, scenario{steps: tc.steps, patience: 2 * refusal, probe: true})
			if err != nil {
				t.Fatal(err)
			}
			var median, worst time.Duration
			if n := len(got.outages); n > 0 {
				median, worst = got.outages[(n-1)/2], got.outages[n-1]
			}
			t.Logf("%d calls; longest %v; %d outages of writes, median %v, worst %v", got.ops, got.longest, len(got.outages), median, worst)
			if worst > tc.outage {
				t.Errorf("no write for %v, the most is %v", worst, tc.outage)
			}
			if got.longest > refusal {
				t.Errorf("a call took %v, the most is %v", got.longest, refusal)
			}
		})
	}
}
