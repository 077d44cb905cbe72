package state

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// wantPairBits compares the bitmap index of all accounts with their pins, by what each row says and
// not by how it came about.
func (m *machine) wantPairBits(pins []Pin) {
	m.t.Helper()
	for _, a := range everyone() {
		to, err := packedTo(m, a)
		if err != nil {
			m.t.Fatal(err)
		}
		want := map[string]string{} // rows of bits that should be there
		may := map[string]string{}  // and those that may be there
		prefix := runsOf(a)
		before := to + 1 // when the run read last begins
		var gone bitmap
		err = m.Scan(prefix, prefix.end(), false, func(k, value []byte) (bool, error) {
			oldest, form, err := readChunkKey(k[len(prefix):])
			if err != nil {
				return false, err
			}
			if form == chunkGone {
				gone, err = readBitmap(value)
				if gone.count() == 0 || oldest >= before {
					m.t.Errorf("%s has gone pins %x of a run at %d", a, gone, oldest)
				}
				return true, err
			}
			run, err := readRun(oldest, value)
			if err != nil {
				return false, err
			}
			made, err := run.created(nil)
			if err != nil {
				return false, err
			}
			if run.newest >= before || len(made) == 0 || len(made) > runPins || gone.count() >= len(made) {
				m.t.Errorf("the run of %s from %d to %d, before %d, has %d pins, and %d are gone", a, oldest, run.newest, before, len(made), gone.count())
			}
			m.wantRun(run, made, &gone, slices.DeleteFunc(slices.Clone(pins), func(p Pin) bool { return p.Account != a }), want, may)
			before, gone = oldest, bitmap{}
			return true, nil
		})
		if err != nil {
			m.t.Fatal(err)
		}
		if gone != (bitmap{}) {
			m.t.Errorf("%x of no run of %s are gone", gone, a)
		}
		prefix = packedNames(a).byte(namesPair)
		err = m.Scan(prefix, prefix.end(), false, func(k, value []byte) (bool, error) {
			if may[string(k)] != string(value) {
				m.t.Errorf("bits of a pair of %s: %x = %x, want %x", a, k, value, may[string(k)])
			}
			delete(want, string(k))
			return true, nil
		})
		if err != nil {
			m.t.Fatal(err)
		}
		for k, value := range want {
			m.t.Errorf("bits of a pair of %s: %x = %x is missing", a, k, value)
		}
	}
}

// wantRun compares a run with the pins of its account, and adds the rows of bits that should and
// may be there.
func (m *machine) wantRun(run *pinRun, made []Millis, gone *bitmap, pins []Pin, want, may map[string]string) {
	m.t.Helper()
	left := map[Millis]int{}
	for i, created := range made {
		if created < run.oldest || created > run.newest || i > 0 && created >= made[i-1] {
			m.t.Errorf("the run from %d to %d has times %d", run.oldest, run.newest, made)
		}
		if !gone.has(i) {
			left[created] = i
		}
	}
	rows := map[pair]*pairBits{}
	for i := range pins {
		p := &pins[i]
		if p.Created < run.oldest || p.Created > run.newest || len(p.Meta) == 0 || len(p.Meta) > maxIndexedPairs {
			continue
		}
		at, ok := left[p.Created]
		if !ok {
			m.t.Errorf("pin %s of %d is not in its run at %d", p.ID, p.Created, run.oldest)
		}
		delete(left, p.Created)
		for k, v := range p.Meta {
			id := pairOf(k, v)
			if rows[id] == nil {
				rows[id] = &pairBits{oldest: run.oldest, newest: run.newest}
			}
			rows[id].bits.set(at)
		}
	}
	if len(left) > 0 {
		m.t.Errorf("the run at %d has pins of %v that do not exist", run.oldest, left)
	}
	for id, row := range rows {
		text, err := appendPairBits(nil, row)
		if err != nil {
			m.t.Fatal(err)
		}
		k := string(bitsKey(pins[0].Account, id, run.oldest))
		if may[k] = string(text); row.bits.count() >= minPairPins {
			want[k] = string(text)
		}
	}
}

// TestAnyHistoryOfPairsKeepsTheirBits promises that the bitmap index agrees with the pins after any
// commands on pins with few different pairs, of which some were packed before. All that
// TestAnyHistoryKeepsEveryIndexAndCounter promises holds too.
func TestAnyHistoryOfPairsKeepsTheirBits(t *testing.T) {
	rows := 0
	rapid.Check(t, func(rt *rapid.T) {
		m := found(rt)
		if rapid.Bool().Draw(rt, "packed from the start") {
			m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
		}
		drawn, last := 0, Millis(0)
		pin := func() Pin {
			drawn++
			last += Millis(rapid.IntRange(1, 3).Draw(rt, "later"))
			if rapid.IntRange(0, 15).Draw(rt, "packs") == 0 {
				last = (last/packEvery + 1) * packEvery
			}
			return Pin{
				ID: RequestID(fmt.Sprintf("p%d", drawn)), Account: alice, CID: rapid.SampledFrom(contents[:3]).Draw(rt, "cid"), Created: last,
				Meta: rapid.SampledFrom([]map[string]string{
					nil, {"a": "x"}, {"a": "x"}, {"a": "x", "b": ""}, {"a": "x", "b": ""}, {"b": "", "c": ""}, manyMeta(maxIndexedPairs), manyMeta(maxIndexedPairs + 1),
				}).Draw(rt, "meta"),
			}
		}
		nodes := []NodeID{"n1", "n2", "n3"}
		for range rapid.IntRange(0, 40).Draw(rt, "pins before") {
			m.must(&CreatePin{Pin: pin(), Nodes: nodes})
		}
		m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
		history(rt, m, func() Command {
			old := rapid.SampledFrom(append(m.allPins(), Pin{ID: "none"})).Draw(rt, "old").ID
			switch rapid.IntRange(0, 9).Draw(rt, "kind") {
			case 0, 1, 2:
				return &CreatePin{Pin: pin(), Nodes: nodes}
			case 3, 4, 5:
				return &DeletePin{Account: alice, ID: old}
			case 6:
				return &ReplacePin{Old: old, Pin: pin(), Nodes: nodes}
			case 7:
				return anyUpkeep(rt, m)
			}
			k := rootOf(rt, rapid.SampledFrom(contents[:3]).Draw(rt, "root"))
			r, err := m.view().Root(k)
			if err != nil {
				return &SettleRoots{Roots: []RootKey{k}}
			}
			phase := rapid.SampledFrom([]Phase{Held, GaveUp}).Draw(rt, "phase")
			return &ReportCopies{Node: rapid.SampledFrom(nodes).Draw(rt, "node"), Items: []CopyReport{{Root: k, Born: r.Born, Phase: phase, Size: sizeOf(k), Blocks: 1}}}
		})
		rows += len(m.rows(tableNames))
	})
	if rows < 100 {
		t.Errorf("there were %d packed rows", rows)
	}
}

// TestDamagedBitsOfPairsAreAnError promises that a row of the bitmap index that is not one, or that
// does not agree with its run, ends a list or the removal of a pin with an error.
func TestDamagedBitsOfPairsAreAnError(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	m.dense(rand.New(rand.NewPCG(21, 22)), 4, pairChunk)
	to, err := packedTo(m, alice)
	if err != nil {
		t.Fatal(err)
	}
	first := func(prefix key) (k, value []byte) {
		err := m.Scan(prefix, prefix.end(), false, func(key, row []byte) (bool, error) {
			k, value = slices.Clone(key), slices.Clone(row)
			return false, nil
		})
		if err != nil || k == nil {
			t.Fatalf("no row under %x: %v", prefix, err)
		}
		return k, value
	}
	app := pairOf("app", "x")
	k, good := first(bitsOf(alice, app))
	runAt, runRow := first(runsOf(alice))
	row, err := readPairBits(0, good)
	if err != nil {
		t.Fatal(err)
	}
	row.newest++
	other, err := appendPairBits(nil, &row)
	if err != nil {
		t.Fatal(err)
	}
	q := PinQuery{Statuses: []Status{Pinned}, Meta: map[string]string{"app": "x", "env": "prod"}, Limit: 10_000}
	for name, change := range map[string]func(*memory) error{
		"no record":              func(s *memory) error { return s.Set(k, good[:len(good)/2]) },
		"a longer key":           func(s *memory) error { return s.Set(append(slices.Clone(k), 0), good) },
		"another end of the run": func(s *memory) error { return s.Set(k, other) },
		"no run":                 func(s *memory) error { return s.Delete(runAt) },
		"half a run":             func(s *memory) error { return s.Set(runAt, runRow[:len(runRow)/2]) },
		"a run of another form": func(s *memory) error {
			return errors.Join(s.Delete(runAt), s.Set(append(slices.Clone(runAt[:len(runAt)-1]), 7), runRow))
		},
		"a run with too many pins": func(s *memory) error { return put(s, runAt, &pinRun{newest: to, count: runPins + 1}) },
		"a run with too few times": func(s *memory) error { return put(s, runAt, &pinRun{newest: to, count: runPins}) },
		"a run with other pins":    func(s *memory) error { return put(s, runAt, &pinRun{newest: to, count: 1, times: []byte{0}}) },
		"a run without pins":       func(s *memory) error { return put(s, runAt, &pinRun{newest: to}) },
	} {
		s := m.fork()
		if err := change(s); err != nil {
			t.Fatal(err)
		}
		if _, _, err := NewView(s, m.index).ListPins(t.Context(), alice, q); err == nil {
			t.Errorf("%s: a list has no error", name)
		}
	}
	m.removalsFindTheirBits(app, to)
}

// removalsFindTheirBits removes pins of alice with the pair from damaged rows of bits and runs.
func (m *machine) removalsFindTheirBits(p pair, to Millis) {
	m.t.Helper()
	for _, pin := range m.allPins() {
		run, _, err := runAt(m, alice, pin.Created)
		if err != nil {
			m.t.Fatal(err)
		}
		if pin.Account != alice || !slices.Contains(pin.pairs(), p) || pin.Created > to || run == nil {
			continue
		}
		twice := m.fork()
		if err := unpackPairs(twice, &pin); err != nil {
			m.t.Fatal(err)
		}
		if err := unpackPairs(twice, &pin); err == nil {
			m.t.Errorf("a pin is removed twice from the bits of its pairs, without an error")
		}
		other := m.fork()
		if err := putBits(other, alice, p, &pairBits{oldest: run.oldest, newest: run.newest, bits: bitmap{1, 1}}); err != nil {
			m.t.Fatal(err)
		}
		made, err := run.created(nil)
		if err != nil {
			m.t.Fatal(err)
		}
		if at, _ := placeIn(made, pin.Created); at == 0 || at == 64 {
			continue
		}
		if err := unpackPairs(other, &pin); err == nil {
			m.t.Errorf("a pin is removed from bits that do not have it, without an error")
		}
		return
	}
	m.t.Errorf("no pin of a run was found")
}

// TestAClosedAccountLeavesNoBitsOfPairs promises that nothing stays of the bitmap index of an account
// that is cleared.
func TestAClosedAccountLeavesNoBitsOfPairs(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	for i := range 1200 {
		c := create(bob, RequestID(fmt.Sprint(i)), contents[0])
		c.Pin.Meta = map[string]string{"app": "x", "half": fmt.Sprint(i % 2)}
		m.must(c)
	}
	bits, runs := 0, 0
	for _, r := range m.rows(tableNames) {
		switch r.key[len(packedNames(bob))] {
		case namesPair:
			bits++
		case namesRun:
			runs++
		}
	}
	if runs < 2 || bits != 3*runs {
		t.Fatalf("%d runs and %d rows of bits", runs, bits)
	}
	m.leavesNothingPacked(bob)
}

// BenchmarkDeletePins is what Apply costs for deletions in entries of 256 pins, without and with two
// pairs of meta, one of them on all pins. The pins are packed.
func BenchmarkDeletePins(b *testing.B) {
	for _, meta := range []bool{false, true} {
		b.Run(fmt.Sprintf("meta=%t", meta), func(b *testing.B) {
			d := newOnDisk(b)
			d.apply(b, &RaiseLevel{FeatureLevel: NewestFeatureLevel})
			deletes := 0
			for b.Loop() {
				b.StopTimer()
				if deletes%8192 == 0 {
					for from := 0; from < 8192; from += 256 {
						d.pins(b, deletes+from, 256, meta)
					}
				}
				cmds := make([]Command, 256)
				for i := range cmds {
					cmds[i] = &DeletePin{Account: alice, ID: RequestID(fmt.Sprintf("%08d", deletes+i))}
				}
				deletes += len(cmds)
				b.StartTimer()
				d.apply(b, cmds...)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(deletes), "µs/pin")
		})
	}
}
