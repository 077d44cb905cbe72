package consensus

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// apart puts a cluster's members so far apart, there and back.
func (c *testCluster) apart(roundTrip time.Duration) {
	c.t.Helper()
	c.network.buffered, c.network.latency = true, roundTrip/2
	for _, id := range c.ids() { // streams anew
		c.network.crash(id)
	}
}

// There is no election in two minutes if the heartbeat is long enough for the round trip, and there are some if not.
func TestOneLeaderWhereMembersAreFarApart(t *testing.T) {
	for _, tc := range []struct {
		heartbeat, roundTrip time.Duration
		stays                bool
	}{
		{300 * time.Millisecond, 100 * time.Millisecond, true},
		{300 * time.Millisecond, 300 * time.Millisecond, false},
		{1500 * time.Millisecond, 300 * time.Millisecond, true},
		{2 * time.Second, 400 * time.Millisecond, true},
	} {
		t.Run(fmt.Sprintf("%s apart with %s", tc.roundTrip, tc.heartbeat), func(t *testing.T) {
			inVirtualTime(t, 3, Timings{Heartbeat: tc.heartbeat}, func(t *testing.T, c *testCluster) {
				defer func() {
					c.stopAll()
					c.network.unbuffer()
				}()
				c.apart(tc.roundTrip)
				if tc.stays {
					c.until("all are ready", func() bool { return c.ready() == 3 })
				}
				<-time.After(time.Minute) // streams are there again
				n := c.running()
				before := n.raft.CurrentTerm()
				if tc.stays {
					for i := range 20 {
						c.nodes[c.ids()[i%3]].mustPin(fmt.Sprintf("p%02d", i))
					}
				}
				<-time.After(2 * time.Minute)
				if elections := n.raft.CurrentTerm() - before; (elections == 0) != tc.stays {
					t.Errorf("%d elections", elections)
				}
			})
		})
	}
}

// A member whose answers all take too long for the heartbeat is logged once, and again only after it was near.
func TestTheOperatorIsToldOfMembersThatAreTooFarAway(t *testing.T) {
	const near, nearly, far = 50 * time.Millisecond, 90 * time.Millisecond, 210 * time.Millisecond
	var out bytes.Buffer
	d := newDistances(300*time.Millisecond, slog.New(slog.NewTextHandler(&out, nil)))
	beat := func(times int, took time.Duration) {
		for range times {
			d.answered("n2", took)
		}
	}
	lines := func(want int) {
		t.Helper()
		if got := strings.Count(out.String(), "\n"); got != want {
			t.Errorf("%d lines, want %d: %s", got, want, out.String())
		}
	}
	for range 4 { // busy now and then, not far
		beat(distanceBeats-1, far)
		beat(1, near)
	}
	lines(0)
	for range distanceBeats - 1 {
		d.answered("n2", far)
		d.answered("n3", near)
	}
	lines(0)
	d.answered("n2", far)
	lines(1)
	for _, want := range []string{"node=n2", "round_trip=210ms", "heartbeat=300ms", "better=1.1s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, out.String())
		}
	}
	for range 4 { // it is known
		beat(distanceBeats, far)
		beat(distanceBeats, nearly)
	}
	lines(1)
	beat(distanceBeats, near)
	beat(distanceBeats, far) // far away again
	lines(2)
	for i := range 2 * maxDistances {
		d.answered(fmt.Sprint(i), near)
	}
	if n := d.of.Len(); n > maxDistances {
		t.Errorf("%d members are remembered", n)
	}
}
