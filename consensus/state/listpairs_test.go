package state

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// dense makes pins of alice in bursts. In some bursts all pins have app=x, in some also env=prod, in
// others half of them; tier=1 is rare, and half=1 is on half of all. some=1 is on 600 of 1,009 pins in
// one of three bursts, and ends=1 on all pins of the first and of the last burst; in the other bursts
// the same few pins have both. Some pins have no meta, some very many pairs, some are not pinned.
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
				c.Pin = create(alice, c.Pin.ID, contents[2]).Pin // nobody has it
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
			if c.Pin.Meta != nil {
				few := i*7919%1009 < 5
				some := few || burst%3 == 0 && i*7919%1009 < 600
				ends := few || burst == 0 || burst == bursts-1
				for pair, has := range map[string]bool{"tier": i%97 == 0, "half": rng.Uint32()%2 == 0, "some": some, "ends": ends} {
					if has {
						c.Pin.Meta[pair] = "1"
					}
				}
			}
			if burst%2 == 0 && rng.IntN(100) == 0 {
				maps.Copy(c.Pin.Meta, manyMeta(maxIndexedPairs+1))
				if rng.IntN(2) == 0 {
					c.Pin.CID = contents[2]
				}
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
	m.listsByPairsAreRight(rng, 120, "packed on creation")
}

// listsByPairsAreRight compares n lists by one to four pairs with what looking at every pin gives.
func (m *machine) listsByPairsAreRight(rng *rand.Rand, n int, when string) {
	m.t.Helper()
	times := []Millis{0, 1 << counterShifts[0], 1 << counterShifts[1], maxCreated}
	for i, p := range m.allPins() {
		if i%100 == 0 {
			times = append(times, p.Created, p.Created>>counterShifts[0]<<counterShifts[0])
		}
	}
	pairs := []string{"app", "env", "half", "some", "ends", "tier", "none"}
	values := map[string]string{"app": "x", "env": "prod"}
	for range n {
		q := PinQuery{
			Before: times[rng.IntN(len(times))], After: times[rng.IntN(len(times))], Limit: []int{0, 1, 10, 1000}[rng.IntN(4)],
			Statuses: [][]Status{{Pinned}, {Pinned}, nil, {Queued, Pinned}}[rng.IntN(4)], Meta: map[string]string{},
		}
		if rng.IntN(4) == 0 {
			q.Before, q.After = 0, 0
		}
		for of := 1 + rng.IntN(4); len(q.Meta) < of; {
			pair := pairs[min(rng.IntN(4)+rng.IntN(4), rng.IntN(30))] // the first ones more often
			if q.Meta[pair] = "1"; values[pair] != "" {
				q.Meta[pair] = values[pair]
			}
		}
		if rng.IntN(8) == 0 {
			q.Meta = map[string]string{"some": "1", "ends": "1"}
		}
		wantTotal, want := listed(m, alice, q)
		total, got, err := m.view().ListPins(m.t.(*testing.T).Context(), alice, q)
		if err != nil {
			m.t.Fatal(err)
		}
		if total != wantTotal || !slices.EqualFunc(got, want, func(a, b Pin) bool { return a.ID == b.ID }) {
			m.t.Fatalf("%s, %+v: counts %d and lists %d, want %d and %d", when, q, total, len(got), wantTotal, len(want))
		}
	}
}

// TestListsOfPackedPairsAreWhatLookingAtEveryPinGives promises that a list by several pairs is what
// looking at every pin gives, while the pins of an older release are packed step by step, and when
// some pins were deleted or have failed.
func TestListsOfPackedPairsAreWhatLookingAtEveryPinGives(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: PackedNamesLevel - 1})
	rng := rand.New(rand.NewPCG(5, 6))
	m.dense(rng, 4, pairChunk+200)
	m.must(&RaiseLevel{FeatureLevel: PackedNamesLevel})
	for step := 0; ; step++ {
		next, _, _, err := m.view().NamesToPack()
		if err != nil {
			t.Fatal(err)
		}
		if next == nil {
			break
		}
		next.Most = 1500
		m.must(next)
		m.listsByPairsAreRight(rng, 25, fmt.Sprintf("after %d steps", step))
	}
	m.check()
	m.giveUp(rootOf(t, contents[2]), "nobody has it")
	for deleted := range 3 {
		m.deleted(rng, 6)
		m.listsByPairsAreRight(rng, 40, fmt.Sprintf("after %d deletions", deleted))
	}
	m.check()
	m.deleted(rng, 1)
	m.check()
	if rows := m.rows(tableNames); len(rows) != 1 {
		t.Errorf("%d packed rows of no pins", len(rows))
	}
}

// TestListsBySeveralPairsOfManyPinsAreShort promises that a list by pairs that thousands of pins have,
// independently of each other, reads few rows: it need not wait in the queue of long lists.
func TestListsBySeveralPairsOfManyPinsAreShort(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	m.must(create(bob, "first", contents[0]))
	m.hold(rootOf(t, contents[0]))
	const n = 12 * briefRows
	for i := range n {
		c := create(alice, RequestID(fmt.Sprint(i)), contents[0])
		c.Pin.Created, c.Pin.Meta = Millis(1+i), map[string]string{"half": fmt.Sprint(i % 2), "third": fmt.Sprint(i % 3)}
		m.must(c)
	}
	for before, want := range map[Millis]uint64{0: n / 6, n/2 + 1: n / 12} {
		q := PinQuery{Before: before, Limit: 10, Meta: map[string]string{"half": "1", "third": "1"}, Brief: true}
		total, pins, err := m.view().ListPins(t.Context(), alice, q)
		if err != nil || total != want || len(pins) != q.Limit {
			t.Errorf("before %d: %d of %d pins, %v; want %d", before, len(pins), total, err, want)
		}
	}
}

// TestNoErrorIsPassedOverByAListOfPairs promises that a list by several pairs ends with the error of the
// store, at whichever read it happens.
func TestNoErrorIsPassedOverByAListOfPairs(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	m.dense(rand.New(rand.NewPCG(7, 8)), 4, pairChunk+100)
	for _, pairs := range [][]string{{"half", "some"}, {"half", "ends"}, {"some", "ends"}} {
		q := PinQuery{Limit: 10, Meta: map[string]string{}}
		for _, p := range pairs {
			q.Meta[p] = "1"
		}
		m.tellsFailedReads(t, fmt.Sprint(pairs), q)
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
