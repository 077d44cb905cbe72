package consensus

import "time"

// Bounds and parts of the patience: how long a leader may be silent before another
// one is elected (ADR 47).
const (
	// leastPatience tolerates a first pause of one second.
	leastPatience = 1500 * time.Millisecond
	// mostPatience is that of Raft's own timers, which are the last resort, and is as long
	// as a request waits for a leader.
	mostPatience = 5 * time.Second
	// roundTripParts is how many round trips fit into the patience at the least.
	roundTripParts = 5
	// gapParts is how many times the longest gap between two beats fits into it.
	gapParts = 2
	// beatsPerPatience is how many beats a leader sends within it.
	beatsPerPatience = 10
	// patienceWindow is how long an extreme value counts at the least; at the most twice that.
	patienceWindow = 5 * time.Minute
	// patienceFalls is how long the patience takes to fall to a third or so of itself.
	patienceFalls = time.Minute
)

// wantedPatience is the patience that suits a round trip to the farthest voter and the
// longest gap that any member has seen.
func wantedPatience(roundTrip, gap time.Duration) time.Duration {
	return boundedPatience(max(roundTripParts*roundTrip, gapParts*gap+roundTrip))
}

func boundedPatience(d time.Duration) time.Duration {
	return min(max(d.Round(time.Millisecond), leastPatience), mostPatience)
}

// extreme is the greatest, or the least, of the values of the last five to ten minutes. The
// zero value has none. Times are those of a detector's clock.
type extreme struct {
	least       bool
	now, before time.Duration // of this window and the one before; 0: none
	began       time.Duration // of this window
}

func (e *extreme) note(at, value time.Duration) {
	e.turn(at)
	e.now = e.pick(e.now, value)
}

// value is 0 if there is none.
func (e *extreme) value(at time.Duration) time.Duration {
	e.turn(at)
	return e.pick(e.now, e.before)
}

func (e *extreme) pick(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 || !e.least {
		return max(a, b)
	}
	return min(a, b)
}

// turn starts a new window when it is time.
func (e *extreme) turn(at time.Duration) {
	switch passed := at - e.began; {
	case passed >= 2*patienceWindow:
		e.now, e.before, e.began = 0, 0, at
	case passed >= patienceWindow:
		e.now, e.before, e.began = 0, e.now, e.began+patienceWindow
	}
}
