package state

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// dense makes pins of alice in bursts. In some bursts all pins have app=x, in some also env=prod, in
// others half of them; tier=1 is rare. Some pins have no meta, some very many pairs, some are not pinned.
func (m *machine) dense(rng *rand.Rand, bursts, each int) {
	m.t.Helper()
	m.must(create(bob, "first", contents[0]))
	m.hold(rootOf(m.t, contents[0])) // pins of it are pinned at once
	at := Millis(0)
	for burst := range bursts {
		at += Millis(rng.Int64N(1 << (8 + 4*(burst%5))))
		for i := range each {
			at += Millis(1 + rng.IntN(3))
			c := create(alice, RequestID(fmt.Sprintf("%d-%d", burst, i)), contents[0])
			if rng.IntN(50) == 0 {
				c.Pin = create(alice, c.Pin.ID, contents[1]).Pin // nobody has it
			}
			c.Pin.Created, c.Pin.Meta = at, map[string]string{"app": "x", "env": "prod"}
			switch {
			case burst%4 == 1 && rng.IntN(2) == 0:
				delete(c.Pin.Meta, "env")
			case burst%4 == 2 && rng.IntN(2) == 0:
				delete(c.Pin.Meta, []string{"app", "env"}[rng.IntN(2)])
			case burst%4 == 3 && rng.IntN(20) == 0:
				c.Pin.Meta = nil
			}
			if c.Pin.Meta != nil && rng.IntN(100) == 0 {
				c.Pin.Meta["tier"] = "1"
			}
			if burst%2 == 0 && rng.IntN(100) == 0 {
				maps.Copy(c.Pin.Meta, manyMeta(maxIndexedPairs+1))
			}
			m.must(c)
		}
	}
}

// TestListsOfSeveralPairsAreWhatLookingAtEveryPinGives promises that a list by several pairs, which
// counters or the entries of all pairs answer, is what looking at every pin gives.
func TestListsOfSeveralPairsAreWhatLookingAtEveryPinGives(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	rng := rand.New(rand.NewPCG(3, 4))
	m.dense(rng, 6, pairChunk+100)
	times := []Millis{0, 1 << counterShifts[0], 1 << counterShifts[1], maxCreated}
	for i, p := range m.allPins() {
		if i%100 == 0 {
			times = append(times, p.Created, p.Created>>counterShifts[0]<<counterShifts[0])
		}
	}
	for range 120 {
		q := PinQuery{
			Before: times[rng.IntN(len(times))], After: times[rng.IntN(len(times))], Limit: []int{0, 1, 10, 1000}[rng.IntN(4)],
			Statuses: [][]Status{{Pinned}, {Pinned}, nil, {Queued, Pinned}}[rng.IntN(4)], Meta: map[string]string{"app": "x", "env": "prod"},
		}
		if rng.IntN(4) == 0 {
			q.Before, q.After = 0, 0
		}
		switch rng.IntN(6) {
		case 0:
			q.Meta["tier"] = "1"
		case 1:
			q.Meta = map[string]string{"env": "prod", "tier": "1"}
		case 2:
			q.Meta["app"] = "y"
		}
		wantTotal, want := listed(m, alice, q)
		total, got, err := m.view().ListPins(t.Context(), alice, q)
		if err != nil {
			t.Fatal(err)
		}
		if total != wantTotal || !slices.EqualFunc(got, want, func(a, b Pin) bool { return a.ID == b.ID }) {
			t.Fatalf("%+v: counts %d and lists %d, want %d and %d", q, total, len(got), wantTotal, len(want))
		}
	}
}

// TestPairsThatAllPinsHaveAreCounted promises that a list by several pairs, of which all pins but a few
// have all but one, reads counters and the rows of the page, and not the pins.
func TestPairsThatAllPinsHaveAreCounted(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	m.must(create(bob, "first", contents[0]))
	m.hold(rootOf(t, contents[0]))
	for i := range 4 * briefRows {
		c := create(alice, RequestID(fmt.Sprint(i)), contents[0])
		c.Pin.Created = Millis(1 + i)
		if c.Pin.Meta = map[string]string{"app": "x", "env": "prod", "half": fmt.Sprint(i % 2)}; i%4 == 3 {
			c.Pin.Created += 1 << 30
		}
		if i == 0 {
			delete(c.Pin.Meta, "env") // alone in being read
			c.Pin.Created = 1 << 29
		}
		m.must(c)
	}
	for half, want := range map[string]uint64{"": 4*briefRows - 1, "0": 2*briefRows - 1} {
		q := PinQuery{Limit: 100, Statuses: []Status{Pinned}, Meta: map[string]string{"app": "x", "env": "prod"}, Brief: true}
		if half != "" {
			q.Meta["half"] = half
		}
		total, pins, err := m.view().ListPins(t.Context(), alice, q)
		if err != nil || total != want || len(pins) != q.Limit {
			t.Errorf("half %q: %d of %d pins, %v; want %d", half, len(pins), total, err, want)
		}
	}
}
