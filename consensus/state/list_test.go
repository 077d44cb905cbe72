package state

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"
	"pgregory.net/rapid"

	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// crowd returns a state with pins of two accounts, all statuses, names and meta, at
// times near each other and far apart. With big above 0, two of three pins have up to
// so many bytes of meta, in few pairs or in many.
func crowd(t reporter, rng *rand.Rand, pins, big int) *machine {
	m := found(t)
	m.fill(rng, pins, big)
	return m
}

// fill adds pins as crowd describes them.
func (m *machine) fill(rng *rand.Rand, pins, big int) {
	m.t.Helper()
	roots := map[string]RootKey{}
	at := Millis(0)
	for i := range pins {
		at += Millis(1 + rng.Int64N(1<<rng.IntN(24))) // creation times rise
		p := create([]AccountID{alice, bob}[rng.IntN(2)], RequestID(fmt.Sprintf("p%d", i)), contents[rng.IntN(len(contents))])
		p.Pin.Created = at
		p.Pin.Name = []string{"", "alpha", "Alpha", "ALPHABET", "beta", "straße"}[rng.IntN(6)]
		if rng.IntN(2) == 0 {
			p.Pin.Meta = map[string]string{"app": []string{"x", "y"}[rng.IntN(2)]}
			switch rng.IntN(8) {
			case 0:
				for i := range maxIndexedPairs {
					p.Pin.Meta[fmt.Sprint(i)] = ""
				}
			case 1, 2, 3:
				p.Pin.Meta["0"] = []string{"", "1"}[rng.IntN(2)]
			}
		}
		if rng.IntN(4) == 0 {
			p.Pin.Origins = []string{"/ip4/203.0.113.7/tcp/4001", "/app/x"}
		}
		if big > 0 && rng.IntN(3) > 0 {
			p.Pin.Meta = map[string]string{"app": "x", "big": strings.Repeat("m", rng.IntN(big))}
			if rng.IntN(2) == 0 {
				for i := range 500 {
					p.Pin.Meta[fmt.Sprint(i)] = ""
				}
			}
		}
		roots[p.Pin.CID] = rootOf(m.t, p.Pin.CID)
		m.must(p)
		switch rng.IntN(20) {
		case 0:
			m.hold(roots[p.Pin.CID])
		case 1:
			m.giveUp(roots[p.Pin.CID], "nobody has it")
		case 2:
			m.must(&DeletePin{Account: p.Pin.Account, ID: p.Pin.ID})
		}
	}
}

// index100 builds the index by meta, 100 pins at a time.
func (m *machine) index100() {
	m.t.Helper()
	for {
		next, _, _, err := m.view().PinsToIndex()
		if err != nil {
			m.t.Fatal(err)
		}
		if next == nil {
			return
		}
		next.Most = 100
		m.must(next)
		m.check()
	}
}

// manyMeta returns meta with n pairs, as some pins of crowd have it.
func manyMeta(n int) map[string]string {
	m := map[string]string{"app": "x"}
	for i := range n - 1 {
		m[fmt.Sprint(i)] = ""
	}
	return m
}

// listed returns what ListPins should return, by looking at every pin.
func listed(m *machine, a AccountID, q PinQuery) (total uint64, pins []Pin) {
	for _, p := range m.allPins() {
		if p.Account != a ||
			len(q.Statuses) > 0 && !slices.Contains(q.Statuses, p.Status) ||
			len(q.CIDs) > 0 && !slices.ContainsFunc(q.CIDs, func(c cid.Cid) bool { return c.String() == p.CID }) ||
			q.Before != 0 && p.Created >= q.Before || p.Created <= q.After ||
			q.Name != "" && !nameIs(p.Name, q.Name, q.Match) ||
			slices.ContainsFunc(slices.Collect(maps.Keys(q.Meta)), func(k string) bool { got, ok := p.Meta[k]; return !ok || got != q.Meta[k] }) {
			continue
		}
		total++
		pins = append(pins, p)
	}
	slices.SortFunc(pins, func(a, b Pin) int { return cmp.Compare(b.Created, a.Created) })
	pins = pins[:min(len(pins), q.Limit)]
	sum := 0
	for i := range pins {
		if sum += ListBytes(&pins[i]); sum > MaxListBytes && i > 0 {
			return total, pins[:i]
		}
	}
	return total, pins
}

// TestListIsWhatLookingAtEveryPinGives promises that a list with any filters is what looking at
// every pin gives: without the index by meta, with one that was there from the start, and with one
// that was built from the pins of an older release.
func TestListIsWhatLookingAtEveryPinGives(t *testing.T) {
	for name, levels := range map[string][2]FeatureLevel{
		"without an index": {1, 1}, "with an index": {NewestFeatureLevel, NewestFeatureLevel}, "with an index that was built": {1, NewestFeatureLevel},
	} {
		t.Run(name, func(t *testing.T) {
			m := found(t)
			m.must(&RaiseLevel{FeatureLevel: levels[0]})
			m.fill(rand.New(rand.NewPCG(1, 2)), 600, 0)
			m.must(&RaiseLevel{FeatureLevel: levels[1]})
			m.index100()
			m.check()
			listsAreRight(t, m)
		})
	}
}

// listsAreRight compares lists of any queries with what looking at every pin gives.
func listsAreRight(t *testing.T, m *machine) {
	var parsed []cid.Cid
	for _, text := range contents {
		c, err := cid.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, c)
	}
	times := []Millis{0, 1, -5, 1 << 12, 1 << 22, 1<<22 + 1, maxCreated}
	for _, p := range m.allPins() {
		times = append(times, p.Created, p.Created+1)
	}
	rapid.Check(t, func(rt *rapid.T) {
		q := PinQuery{
			Before:   rapid.SampledFrom(times).Draw(rt, "before"),
			After:    rapid.SampledFrom(times).Draw(rt, "after"),
			Statuses: rapid.SliceOfN(rapid.SampledFrom(Statuses()), 0, 3).Draw(rt, "statuses"),
			Limit:    rapid.SampledFrom([]int{0, 1, 10, 1000}).Draw(rt, "limit"),
			Match:    rapid.SampledFrom([]Match{Exact, IExact, Partial, IPartial}).Draw(rt, "match"),
		}
		if rapid.Bool().Draw(rt, "by name") {
			q.Name = rapid.SampledFrom([]string{"alpha", "lph", "BETA", "straße", "none"}).Draw(rt, "name")
		}
		if rapid.Bool().Draw(rt, "by cid") {
			q.CIDs = rapid.SliceOfN(rapid.SampledFrom(parsed), 1, 3).Draw(rt, "cids")
		}
		if rapid.Bool().Draw(rt, "by meta") {
			q.Meta = rapid.SampledFrom([]map[string]string{{"app": "x"}, {"app": "z"}, {"0": ""}, {"app": "y", "0": ""}, {"0": "1", "app": "x"}, manyMeta(maxIndexedPairs + 1)}).Draw(rt, "meta")
		}
		a := rapid.SampledFrom([]AccountID{alice, bob, "nobody"}).Draw(rt, "account")
		wantTotal, want := listed(m, a, q)
		total, got, err := m.view().ListPins(t.Context(), a, q)
		if err != nil {
			rt.Fatal(err)
		}
		if total != wantTotal || !slices.EqualFunc(got, want, func(a, b Pin) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			rt.Fatalf("%+v: counts %d and lists %d, want %d and %d", q, total, len(got), wantTotal, len(want))
		}
	})
}

// Pages that end early because their pins are large list every pin of a query exactly once.
func TestPagesOfLargePinsLoseAndRepeatNothing(t *testing.T) {
	m := crowd(t, rand.New(rand.NewPCG(5, 6)), 500, MaxMetaBytes-2000)
	all, err := cid.Decode(contents[0])
	if err != nil {
		t.Fatal(err)
	}
	other, err := cid.Decode(contents[1])
	if err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]PinQuery{
		"all":            {},
		"two statuses":   {Statuses: []Status{Queued, Pinned}},
		"by cid":         {CIDs: []cid.Cid{all}},
		"by cids":        {CIDs: []cid.Cid{other, all, other}},
		"by name":        {Name: "alpha"},
		"by any case":    {Name: "alpha", Match: IExact},
		"by part":        {Name: "lph", Match: Partial},
		"by meta":        {Meta: map[string]string{"app": "x"}},
		"by meta, name":  {Meta: map[string]string{"app": "x"}, Name: "A", Match: IPartial},
		"since some day": {After: 1 << 26},
	} {
		t.Run(name, func(t *testing.T) {
			short, rows := false, 0
			want, _ := listed(m, alice, q)
			for q.Limit = 1000; ; {
				wantTotal, wantPage := listed(m, alice, q)
				total, got, err := m.view().ListPins(t.Context(), alice, q)
				if err != nil {
					t.Fatal(err)
				}
				same := func(a, b Pin) bool { return a.ID == b.ID && a.Created == b.Created && ListBytes(&a) == ListBytes(&b) }
				if total != wantTotal || !slices.EqualFunc(got, wantPage, same) {
					t.Fatalf("before %d: counts %d and lists %d, want %d and %d", q.Before, total, len(got), wantTotal, len(wantPage))
				}
				if len(got) == 0 {
					break
				}
				short = short || len(got) < q.Limit && uint64(len(got)) < total
				rows += len(got)
				q.Before = got[len(got)-1].Created
			}
			if rows != int(want) || rows == 0 {
				t.Errorf("%d rows in all pages, want %d", rows, want)
			}
			if !short && rows > 200 {
				t.Error("no page was too large: the test shows nothing")
			}
		})
	}
}

// A page holds at most twice MaxListBytes and 200,000 bytes while it is gathered, also from ten full sources.
// Sources are the statuses, or the CIDs of the query.
func TestPagesHoldLittleMoreThanTheyReturn(t *testing.T) {
	p := page{limit: 1000}
	meta := map[string]string{"k": strings.Repeat("m", MaxMetaBytes-1)}
	at := Millis(1 << 40)
	for range 10 {
		for p.wants() {
			at--
			p.add(&Pin{Created: at, Meta: meta})
		}
		if p.bytes > 2*MaxListBytes+200_000 {
			t.Fatalf("%d bytes are held", p.bytes)
		}
		p.next()
	}
	if got := p.done(); len(got) != MaxListBytes/ListBytes(&got[0]) {
		t.Errorf("%d rows of %d bytes", len(got), ListBytes(&got[0]))
	}
}

// A page has at least one row, even if that row is larger than MaxListBytes.
func TestAPageHasARow(t *testing.T) {
	p := page{limit: 10}
	p.add(&Pin{ID: "large", Created: 2, Name: strings.Repeat("n", MaxListBytes)})
	if p.next(); p.wants() {
		p.add(&Pin{ID: "older", Created: 1})
	}
	if got := p.done(); len(got) != 1 || got[0].ID != "large" {
		t.Errorf("%d rows", len(got))
	}
}

// A brief list that would read or return too much fails with ErrLong, and a long list ends with its context.
func TestListsAreBriefOrEndWithTheirContext(t *testing.T) {
	many, large := found(t), found(t)
	packed := found(t)
	packed.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	packed.named(rand.New(rand.NewPCG(1, 1)), 3*briefRows)
	ordinary := found(t) // as many as an edge of a count can have, of 800 bytes each
	for i := range 1 << counterShifts[0] {
		c := create(alice, RequestID(fmt.Sprint(i)), contents[0])
		c.Pin.Created, c.Pin.Name, c.Pin.Meta = Millis(1<<30+i), "name", map[string]string{"k": strings.Repeat("m", 700)}
		ordinary.must(c)
	}
	for i := range briefRows + 100 {
		c := create(alice, RequestID(fmt.Sprint(i)), contents[0])
		c.Pin.Name = "name"
		many.must(c)
	}
	indexed := found(t)
	indexed.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	for i := range briefRows + 100 {
		c := create(alice, RequestID(fmt.Sprint(i)), contents[0])
		c.Pin.Meta = map[string]string{"app": "x", "n": fmt.Sprint(i), "half": fmt.Sprint(i % 2)}
		indexed.must(c)
	}
	indexed.hold(rootOf(t, contents[0]))
	for i := range 40 {
		c := create(alice, RequestID(fmt.Sprint(i)), contents[0])
		c.Pin.Name, c.Pin.Meta = "name", map[string]string{"k": strings.Repeat("m", MaxMetaBytes-1)}
		large.must(c)
	}
	for _, tc := range []struct {
		name string
		of   *machine
		q    PinQuery
		want error
	}{
		{"a page", many, PinQuery{Limit: 1000}, nil},
		{"a page below a time", many, PinQuery{Limit: 1000, Before: 1 << 40}, nil},
		{"a page of ordinary rows", ordinary, PinQuery{Limit: 1000}, nil},
		{"a page of ordinary rows below a time", ordinary, PinQuery{Limit: 1000, Before: 1<<30 + 4000}, nil},
		{"a count at an edge of large rows", large, PinQuery{Before: 1 << 11, After: 1}, ErrLong},
		{"a page of large rows", large, PinQuery{Limit: 1000}, ErrLong},
		{"a small page of large rows", large, PinQuery{Limit: 10}, nil},
		{"meta of many", many, PinQuery{Limit: 10, Meta: map[string]string{"a": "b"}}, ErrLong},
		{"meta of large rows", large, PinQuery{Limit: 10, Meta: map[string]string{"a": "b"}}, ErrLong},
		{"meta of many, indexed", indexed, PinQuery{Limit: 10, Meta: map[string]string{"app": "x"}}, nil},
		{"a page of 1,000 by meta, indexed", indexed, PinQuery{Limit: 1000, Meta: map[string]string{"app": "x"}}, nil},
		{"meta of nothing, indexed", indexed, PinQuery{Limit: 10, Meta: map[string]string{"app": "z"}}, nil},
		{"two pairs, one of them rare, indexed", indexed, PinQuery{Limit: 10, Meta: map[string]string{"app": "x", "n": "7"}}, nil},
		{"two pairs and a part of a name, indexed", indexed, PinQuery{Limit: 10, Name: "zzz", Match: Partial, Meta: map[string]string{"app": "x", "n": "7"}}, nil},
		{"two pairs that many have, indexed", indexed, PinQuery{Limit: 10, Statuses: []Status{Pinned}, Meta: map[string]string{"app": "x", "half": "0"}}, nil},
		{"part of many names", many, PinQuery{Limit: 10, Name: "zzz", Match: Partial}, ErrLong},
		{"part of many names, packed", packed, PinQuery{Limit: 10, Name: "zzz", Match: Partial}, nil},
		{"part of many names, packed, that many match", packed, PinQuery{Limit: 1000, Name: "k", Match: IPartial}, nil},
		{"part of the names of large rows", large, PinQuery{Limit: 10, Name: "zzz", Match: Partial}, nil},
		{"one name of many", many, PinQuery{Limit: 10, Name: "name"}, ErrLong},
		{"no such name", many, PinQuery{Limit: 10, Name: "zzz"}, nil},
	} {
		tc.q.Brief = true
		if _, _, err := tc.of.view().ListPins(t.Context(), alice, tc.q); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
		tc.q.Brief = false
		if _, _, err := tc.of.view().ListPins(t.Context(), alice, tc.q); err != nil {
			t.Errorf("%s, not brief: %v", tc.name, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := tc.of.view().ListPins(ended, alice, tc.q); tc.of == many && tc.want != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s, nobody waits: %v", tc.name, err)
		}
	}
}

// The total of a list between any two times is the number of pins that were created between them.
func TestCountsBetweenAnyTwoTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	m := crowd(t, rng, 1500, 0)
	pins := m.allPins()
	at := func() Millis { return pins[rng.IntN(len(pins))].Created + Millis(rng.IntN(3)-1) }
	for range 300 {
		q := PinQuery{After: at(), Before: at()}
		q.After, q.Before = min(q.After, q.Before), max(q.After, q.Before)
		if rng.IntN(4) == 0 {
			q.After &^= 1<<22 - 1 // at the edge of a bucket
		}
		if rng.IntN(4) == 0 {
			q.Before &^= 1<<12 - 1
		}
		want, _ := listed(m, alice, q)
		if got, _, err := m.view().ListPins(t.Context(), alice, q); err != nil || got != want {
			t.Fatalf("between %d and %d: %d pins, want %d: %v", q.After, q.Before, got, want, err)
		}
	}
}

// A list has the pins that were created after After and before Before, also if these times are negative.
func TestNegativeTimesSelectNothingOlder(t *testing.T) {
	m := found(t)
	m.must(create(alice, "a", contentA))
	for _, tc := range []struct {
		before, after Millis
		want          uint64
	}{{0, -10, 1}, {1 << 40, -10, 1}, {-10, 0, 0}, {1000, 0, 0}, {1001, 0, 1}, {0, 1000, 0}, {0, 999, 1}} {
		total, _, err := m.view().ListPins(t.Context(), alice, PinQuery{Before: tc.before, After: tc.after, Limit: 10})
		if err != nil || total != tc.want {
			t.Errorf("before %d, after %d: %d, %v", tc.before, tc.after, total, err)
		}
	}
}

// onDisk is a machine whose state lies in the store that nodes use.
type onDisk struct {
	store   *kv.Store
	index   uint64
	applier Applier
}

func newOnDisk(b *testing.B) *onDisk {
	b.Helper()
	store, err := kv.Open(b.TempDir(), kv.Options{Sparse: &kv.Sparse{Is: Sparse, After: SparseAfter}, Passing: Passing})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	d := &onDisk{store: store}
	seed := found(b)
	tx := store.Begin()
	for _, r := range seed.txnRows() {
		if err := tx.Set([]byte(r.key), []byte(r.value)); err != nil {
			b.Fatal(err)
		}
	}
	if err := tx.Commit(false); err != nil {
		b.Fatal(err)
	}
	return d
}

func (m *memory) txnRows() (rows []row) {
	m.txn.Root().Walk(func(k []byte, v any) bool {
		rows = append(rows, row{string(k), string(v.([]byte))})
		return false
	})
	return rows
}

// apply applies commands in one transaction, as one batch of the log would.
func (d *onDisk) apply(b *testing.B, cmds ...Command) {
	b.Helper()
	tx := d.store.Begin()
	defer tx.Discard()
	for _, cmd := range cmds {
		d.index++
		var op OpID
		binary.BigEndian.PutUint64(op[:], d.index)
		if _, err := d.applier.Apply(tx, 100+d.index, op, cmd, &Effects{}); err != nil {
			b.Fatal(err)
		}
	}
	if err := tx.Commit(false); err != nil {
		b.Fatal(err)
	}
}

// pins creates pins, with two pairs of meta each if meta is true.
func (d *onDisk) pins(b *testing.B, from, n int, meta bool) {
	b.Helper()
	cmds := make([]Command, n)
	for i := range cmds {
		c := create(alice, RequestID(fmt.Sprintf("%08d", from+i)), contents[i%len(contents)])
		c.Pin.Name = fmt.Sprintf("name %d", from+i)
		if meta {
			c.Pin.Meta = map[string]string{"app": "bench", "n": fmt.Sprint(from + i)}
		}
		cmds[i] = c
	}
	d.apply(b, cmds...)
}

func BenchmarkApplyCreatePin(b *testing.B) {
	for _, batch := range []int{1, 256} {
		for _, meta := range []bool{false, true} {
			b.Run(fmt.Sprintf("batch=%d/meta=%t", batch, meta), func(b *testing.B) {
				d := newOnDisk(b)
				d.apply(b, &RaiseLevel{FeatureLevel: NewestFeatureLevel})
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					d.pins(b, n, batch, meta)
					n += batch
				}
				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "pins/s")
			})
		}
	}
}

// pinned writes n pinned pins, each with a name and two pairs of meta, one of them its own.
func (d *onDisk) pinned(b *testing.B, n int) {
	b.Helper()
	content, err := cid.Decode(contents[0])
	if err != nil {
		b.Fatal(err)
	}
	d.apply(b, &RaiseLevel{FeatureLevel: NewestFeatureLevel})
	for from := 0; from < n; from += 1000 {
		tx := d.store.Begin()
		for i := from; i < from+1000; i++ {
			p := create(alice, RequestID(fmt.Sprintf("01980000-0000-7000-8000-%012d", i)), contents[0]).Pin
			p.Status, p.Created, p.Name = Pinned, Millis(1<<40+i), fmt.Sprintf("name %d", i)
			p.Meta = map[string]string{"app": "bench", "env": "prod", "n": fmt.Sprint(i), "half": fmt.Sprint(i % 2), "third": fmt.Sprint(i % 3)}
			if err := insertPin(tx, &p, content); err != nil {
				b.Fatal(err)
			}
		}
		if err := tx.Commit(false); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkListPins(b *testing.B) {
	for _, n := range []int{20_000, 1_000_000} {
		d := newOnDisk(b)
		d.pinned(b, n)
		middle := Millis(1<<40 + n/2)
		app := map[string]string{"app": "bench"}
		for _, bm := range []struct {
			name string
			q    PinQuery
		}{
			{"newest 10", PinQuery{Limit: 10}},
			{"newest 1000", PinQuery{Limit: 1000}},
			{"10 before the middle", PinQuery{Limit: 10, Before: middle}},
			{"by name", PinQuery{Limit: 10, Name: "name 777"}},
			{"by part of a name", PinQuery{Limit: 10, Name: "7777", Match: IPartial}},
			{"by meta of all", PinQuery{Limit: 10, Meta: app}},
			{"1000 by meta of all", PinQuery{Limit: 1000, Meta: app}},
			{"by meta of all before the middle", PinQuery{Limit: 10, Before: middle, Meta: app}},
			{"by meta of one", PinQuery{Limit: 10, Meta: map[string]string{"n": "777"}}},
			{"by two pairs of meta", PinQuery{Limit: 10, Meta: map[string]string{"app": "bench", "n": "777"}}},
			{"by two pairs that all have", PinQuery{Limit: 10, Meta: map[string]string{"app": "bench", "env": "prod"}}},
			{"by a pair that all have and one that half have, before the middle", PinQuery{Limit: 10, Before: middle, Meta: map[string]string{"app": "bench", "half": "1"}}},
			{"by pairs that half and a third have", PinQuery{Limit: 10, Meta: map[string]string{"half": "1", "third": "1"}}},
			{"by meta that failed pins have", PinQuery{Limit: 10, Statuses: []Status{Failed}, Meta: app}},
			{"by meta of all and part of a name", PinQuery{Limit: 10, Name: "7777", Match: Partial, Meta: app}},
		} {
			b.Run(fmt.Sprintf("pins=%d/%s", n, bm.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					view := d.store.View()
					if _, _, err := NewView(view, 0).ListPins(b.Context(), alice, bm.q); err != nil {
						b.Fatal(err)
					}
					view.Close()
				}
			})
		}
	}
}
