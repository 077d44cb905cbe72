package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ipfs/go-cid"
	"pgregory.net/rapid"

	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// crowd is a state with pins of two accounts, all statuses, names and meta, at
// times near each other and far apart.
func crowd(t reporter, rng *rand.Rand, pins int) *machine {
	m := found(t)
	roots := map[string]RootKey{}
	at := Millis(0)
	for i := range pins {
		at += Millis(1 + rng.Int64N(1<<rng.IntN(24))) // creation times rise
		p := create([]AccountID{alice, bob}[rng.IntN(2)], RequestID(fmt.Sprintf("p%d", i)), contents[rng.IntN(len(contents))])
		p.Pin.Created = at
		p.Pin.Name = []string{"", "alpha", "Alpha", "ALPHABET", "beta", "straße"}[rng.IntN(6)]
		if rng.IntN(2) == 0 {
			p.Pin.Meta = map[string]string{"app": []string{"x", "y"}[rng.IntN(2)]}
		}
		roots[p.Pin.CID] = rootOf(t, p.Pin.CID)
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
	return m
}

// listed is what ListPins should return, by looking at every pin.
func listed(m *machine, a AccountID, q PinQuery) (total uint64, pins []Pin) {
	for _, p := range m.allPins() {
		name := p.Name
		want := q.Name
		if q.Match == IExact || q.Match == IPartial {
			name, want = strings.ToLower(name), strings.ToLower(want)
		}
		if p.Account != a ||
			len(q.Statuses) > 0 && !slices.Contains(q.Statuses, p.Status) ||
			len(q.CIDs) > 0 && !slices.ContainsFunc(q.CIDs, func(c cid.Cid) bool { return c.String() == p.CID }) ||
			q.Before != 0 && p.Created >= q.Before || p.Created <= q.After ||
			want != "" && (q.Match == Exact || q.Match == IExact) && name != want ||
			want != "" && (q.Match == Partial || q.Match == IPartial) && !strings.Contains(name, want) ||
			q.Meta["app"] != "" && p.Meta["app"] != q.Meta["app"] {
			continue
		}
		total++
		pins = append(pins, p)
	}
	slices.SortFunc(pins, func(a, b Pin) int { return cmp.Compare(b.Created, a.Created) })
	return total, pins[:min(len(pins), q.Limit)]
}

func TestListIsWhatLookingAtEveryPinGives(t *testing.T) {
	m := crowd(t, rand.New(rand.NewPCG(1, 2)), 1500)
	m.check()
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
			q.Meta = map[string]string{"app": rapid.SampledFrom([]string{"x", "z"}).Draw(rt, "app")}
		}
		a := rapid.SampledFrom([]AccountID{alice, bob, "nobody"}).Draw(rt, "account")
		wantTotal, want := listed(m, a, q)
		total, got, err := m.view().ListPins(a, q)
		if err != nil {
			rt.Fatal(err)
		}
		if total != wantTotal || !slices.EqualFunc(got, want, func(a, b Pin) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			rt.Fatalf("%+v: counts %d and lists %d, want %d and %d", q, total, len(got), wantTotal, len(want))
		}
	})
}

// Windows of time are counted without reading the rows in their middle.
func TestCountsBetweenAnyTwoTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	m := crowd(t, rng, 1500)
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
		if got, _, err := m.view().ListPins(alice, q); err != nil || got != want {
			t.Fatalf("between %d and %d: %d pins, want %d: %v", q.After, q.Before, got, want, err)
		}
	}
}

func TestNegativeTimesSelectNothingOlder(t *testing.T) {
	m := found(t)
	m.must(create(alice, "a", contentA))
	for _, tc := range []struct {
		before, after Millis
		want          uint64
	}{{0, -10, 1}, {1 << 40, -10, 1}, {-10, 0, 0}, {1000, 0, 0}, {1001, 0, 1}, {0, 1000, 0}, {0, 999, 1}} {
		total, _, err := m.view().ListPins(alice, PinQuery{Before: tc.before, After: tc.after, Limit: 10})
		if err != nil || total != tc.want {
			t.Errorf("before %d, after %d: %d, %v", tc.before, tc.after, total, err)
		}
	}
}

// onDisk is a machine whose state lies in the store that nodes use.
type onDisk struct {
	store *kv.Store
	index uint64
}

func newOnDisk(b *testing.B) *onDisk {
	b.Helper()
	store, err := kv.Open(b.TempDir(), kv.Options{Sparse: &kv.Sparse{Is: Sparse, After: SparseAfter}})
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
		if _, err := Apply(tx, 100+d.index, op, cmd, &Effects{}); err != nil {
			b.Fatal(err)
		}
	}
	if err := tx.Commit(false); err != nil {
		b.Fatal(err)
	}
}

func (d *onDisk) pins(b *testing.B, from, n int) {
	b.Helper()
	cmds := make([]Command, n)
	for i := range cmds {
		c := create(alice, RequestID(fmt.Sprintf("%08d", from+i)), contents[i%len(contents)])
		c.Pin.Name = fmt.Sprintf("name %d", from+i)
		cmds[i] = c
	}
	d.apply(b, cmds...)
}

func BenchmarkApplyCreatePin(b *testing.B) {
	for _, batch := range []int{1, 256} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			d := newOnDisk(b)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				d.pins(b, n, batch)
				n += batch
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "pins/s")
		})
	}
}

func BenchmarkListPinsOf20000(b *testing.B) {
	d := newOnDisk(b)
	for i := range 20 {
		d.pins(b, i*1000, 1000)
	}
	for _, bm := range []struct {
		name string
		q    PinQuery
	}{
		{"newest 10", PinQuery{Limit: 10}},
		{"newest 1000", PinQuery{Limit: 1000}},
		{"10 before the middle", PinQuery{Limit: 10, Before: 11_000}},
		{"by name", PinQuery{Limit: 10, Name: "name 777"}},
		{"by part of a name", PinQuery{Limit: 10, Name: "777", Match: IPartial}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				view := d.store.View()
				if _, _, err := NewView(view, 0).ListPins(alice, bm.q); err != nil {
					b.Fatal(err)
				}
				view.Close()
			}
		})
	}
}
