package main

import (
	"math"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// made returns a series of one node in which every quantity is f of the time, as it
// is shown.
func made(f func(seconds float64) float64) *series {
	s := &series{nodes: []*harness.Node{{Name: "node1"}}, seen: make([][]sample, 1)}
	for i := range 101 {
		one := sample{at: time.Duration(i) * 10 * time.Second}
		for q := range one.values {
			one.values[q] = f(one.at.Seconds()) * quantities[q].unit
		}
		s.seen[0] = append(s.seen[0], one)
	}
	return s
}

// A series counts as growing only if its second half grows, and not if it fills up at first, swings or falls.
func TestASeriesIsJudgedByTheSlopeOfItsSecondHalf(t *testing.T) {
	for _, tc := range []struct {
		name string
		f    func(seconds float64) float64
		grow float64 // over the 500 s of the second half
		bad  int
	}{
		{"a leak", func(s float64) float64 { return 100 + s }, 500, len(quantities)},
		{"level", func(float64) float64 { return 100 }, 0, 0},
		{"filling up at first", func(s float64) float64 { return min(s, 400) }, 0, 0},
		{"a saw", func(s float64) float64 { return 1000 + 10*math.Mod(s, 50) }, 0, 0},
		{"falling", func(s float64) float64 { return 2000 - s }, -500, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := made(tc.f)
			if g, _ := s.growth(0, 0); math.Abs(g-tc.grow) > 25 {
				t.Errorf("grows by %.1f, want %.1f", g, tc.grow)
			}
			if grown := s.grown(); len(grown) != tc.bad {
				t.Errorf("found %v, want %d", grown, tc.bad)
			}
		})
	}
}

// At most maxLatencies latencies of a long load are kept, the first and the last among them.
func TestLatenciesOfALongLoadAreThinnedOut(t *testing.T) {
	var l latencies
	for i := range 5 * maxLatencies {
		l = l.keep(time.Duration(i))
	}
	if len(l) > maxLatencies || len(l) < maxLatencies/4 {
		t.Fatalf("%d are kept, at most %d may be", len(l), maxLatencies)
	}
	if got := l.sorted(); got[0] != 0 || got.at(1) != 5*maxLatencies-1 {
		t.Errorf("first %d, last %d", got[0], got.at(1))
	}
}
