package chaos

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// TestAWrongEndOfAPinIsFound promises that the check of a history accepts a pin that is gone after its end,
// and finds one that is gone before, comes back, or is gone without an end.
func TestAWrongEndOfAPinIsFound(t *testing.T) {
	begin := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	const ends, stays = 0, 1
	for _, tc := range []struct {
		name  string
		pin   int
		skews bool
		seen  []outcome // by reads 400 ms after one another, the first one 400 ms after the pin was created
		wrong bool
	}{
		{"gone after the end", ends, false, []outcome{done, done, missing, missing}, false},
		{"there after the end", ends, false, []outcome{done, done, done, missing}, false},
		{"gone before the end", ends, false, []outcome{done, missing, missing}, true},
		{"gone before the end by a wrong clock", ends, true, []outcome{done, missing, missing}, false},
		{"there again", ends, false, []outcome{done, done, missing, done}, true},
		{"gone without an end", stays, false, []outcome{done, done, done, missing}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &history{clock: new(atomic.Int64), ends: true, skews: tc.skews, count: 2}
			call := func(o *op, at time.Time) {
				o.when, o.call, o.created = at, h.clock.Add(1), state.MillisOf(begin)
				h.record(o)
				o.back = at
			}
			made := &op{kind: create, pin: tc.pin}
			if d := endsAfter(tc.pin); d > 0 {
				made.until = state.MillisOf(begin.Add(d))
			}
			call(made, begin)
			for i, seen := range tc.seen {
				call(&op{kind: get, pin: tc.pin, outcome: seen}, begin.Add(time.Duration(i+1)*400*time.Millisecond))
			}
			if err := h.check(); (err != nil) != tc.wrong {
				t.Errorf("the check says %v", err)
			}
		})
	}
}
