package consensus

import "time"

// Bounds and parts of the patience. The patience is how long a leader may be silent before the
// voters elect another leader (ADR 47).
const (
	// leastPatience is the shortest patience. It tolerates a first pause of one second.
	leastPatience = 1500 * time.Millisecond
	// mostPatience is the longest patience. Raft's own timers, which are the last resort, have
	// the same time-out, and a request waits as long for a leader.
	mostPatience = 5 * time.Second
	// roundTripParts is the smallest number of round trips for which a member waits for its
	// silent leader.
	roundTripParts = 5
	// gapParts is how many times as long as the longest gap between two beats a member waits.
	gapParts = 2
	// beatsPerPatience is the number of beats that a leader sends within the patience.
	beatsPerPatience = 10
	// patienceWindow is the shortest time for which an extreme value counts; the longest is
	// twice that.
	patienceWindow = 5 * time.Minute
	// patienceFalls is the time in which a falling patience shrinks to about a third.
	patienceFalls = time.Minute
)

// wantedPatience returns the patience that fits a round trip to the farthest voter and the
// longest gap that any member has seen.
func wantedPatience(roundTrip, gap time.Duration) time.Duration {
	return boundedPatience(max(roundTripParts*roundTrip, gapParts*gap+roundTrip))
}

func boundedPatience(d time.Duration) time.Duration {
	return min(max(d.Round(time.Millisecond), leastPatience), mostPatience)
}

// extreme keeps the greatest, or the least, of the values of the last five to ten minutes. The
// zero value has no values. Times are those of a detector's clock.
type extreme struct {
	least       bool
	now, before time.Duration // extreme of this window and of the one before; 0 means no value
	began       time.Duration // start of this window
}

func (e *extreme) note(at, value time.Duration) {
	e.turn(at)
	e.now = e.pick(e.now, value)
}

// value returns the extreme value, or 0 if there is none.
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

// turn starts a new window when the present one has ended.
func (e *extreme) turn(at time.Duration) {
	switch passed := at - e.began; {
	case passed >= 2*patienceWindow:
		e.now, e.before, e.began = 0, 0, at
	case passed >= patienceWindow:
		e.now, e.before, e.began = 0, e.now, e.began+patienceWindow
	}
}
