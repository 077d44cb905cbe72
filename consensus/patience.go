package consensus

import "time"

// Constants of the patience. The patience is the election timeout that the leader computes from
// measurements and announces in its beats: how long a leader may be silent before the voters
// elect another one (ADR 47).
const (
	// leastPatience is the shortest patience. It tolerates a pause of one second that no earlier
	// pause has announced.
	leastPatience = 1500 * time.Millisecond
	// mostPatience is the longest patience. Raft's own election timeout, which is then the last
	// resort, has this length, and a request waits this long for a leader.
	mostPatience = 5 * time.Second
	// roundTripParts is the smallest number of round trips that fit into the patience.
	roundTripParts = 5
	// gapParts is the smallest ratio of the patience to the longest measured gap between two
	// beats.
	gapParts = 2
	// beatsPerPatience is the number of beats that a leader sends within the patience.
	beatsPerPatience = 10
	// patienceWindow is the shortest time for which an extreme measurement counts. The longest
	// time is twice that, because windows are replaced as a whole.
	patienceWindow = 5 * time.Minute
	// patienceFalls is the time in which a falling patience shrinks to about a third.
	patienceFalls = time.Minute
)

// wantedPatience returns the patience for a round trip to the farthest voter and the longest gap
// between beats that any member has seen.
func wantedPatience(roundTrip, gap time.Duration) time.Duration {
	return boundedPatience(max(roundTripParts*roundTrip, gapParts*gap+roundTrip))
}

func boundedPatience(d time.Duration) time.Duration {
	return min(max(d.Round(time.Millisecond), leastPatience), mostPatience)
}

// extreme computes the maximum, or with least the minimum, of the values of the last five to ten
// minutes. The zero value is an empty maximum. Times are on a detector's clock.
type extreme struct {
	least       bool
	now, before time.Duration // extreme of this window and of the one before; 0 means no value
	began       time.Duration // start of this window
}

func (e *extreme) note(at, value time.Duration) {
	e.turn(at)
	e.now = e.pick(e.now, value)
}

// value returns the maximum or minimum, or 0 if there is no value.
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

// turn starts a new window if the present one has ended at the time at.
func (e *extreme) turn(at time.Duration) {
	switch passed := at - e.began; {
	case passed >= 2*patienceWindow:
		e.now, e.before, e.began = 0, 0, at
	case passed >= patienceWindow:
		e.now, e.before, e.began = 0, e.now, e.began+patienceWindow
	}
}
