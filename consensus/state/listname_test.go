package state

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// oddLetters are characters of one to four bytes, and letters with more than two forms, with forms of
// other lengths, or without a counterpart: K and the Kelvin sign, s and ſ, σ and ς, ß and ẞ, İ, ı, Å
// and the Ångström sign, and Ꭰ, whose small form is the younger one.
var oddLetters = []string{
	"a", "A", "b", "k", "K", "\u212a", "s", "S", "ſ", "i", "I", "İ", "ı", "ß", "ẞ", "Σ", "σ", "ς", "å", "Å", "\u212b", "Ꭰ", "ꭰ",
	"ǆ", "ǅ", "Ǆ", "я", "Я", "漢", "한", "😀", "\U00010400", "\U00010428", "\ufffd", "\x00", " ", "-", "0",
}

// anyName returns a name of up to most letters, of few different ones half of the time.
func anyName(rng *rand.Rand, most int) string {
	letters := oddLetters
	if rng.IntN(2) == 0 {
		letters = []string{"k", "K", "s", "a", "1"}
	}
	var b strings.Builder
	for range rng.IntN(most + 1) {
		b.WriteString(letters[rng.IntN(len(letters))])
	}
	return b.String()
}

// nameIs compares a name as a list should, by one character after the other.
func nameIs(name, want string, how Match) bool {
	switch how {
	case Exact:
		return name == want
	case IExact:
		return strings.EqualFold(name, want)
	case Partial:
		return strings.Contains(name, want)
	default:
		runes := []rune(name)
		n := len([]rune(want))
		for i := 0; i+n <= len(runes); i++ {
			if strings.EqualFold(string(runes[i:i+n]), want) {
				return true
			}
		}
		return false
	}
}

// TestNamesInChunksMatchAsEachNameDoes promises that names are found in a chunk, and one by one,
// exactly if comparing character after character finds them.
func TestNamesInChunksMatchAsEachNameDoes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	matched := 0
	for range 4000 {
		names := make([]pinName, 1+rng.IntN(40))
		for i := range names {
			names[i] = pinName{created: Millis(1000 - i), name: []byte(anyName(rng, 12))}
		}
		c := newChunk(1, names)
		want := anyName(rng, 3)
		if rng.IntN(4) == 0 {
			want = string(names[rng.IntN(len(names))].name)
		}
		if want == "" {
			continue
		}
		for _, how := range []Match{IExact, Partial, IPartial} {
			var should []int
			one := nameMatcher(want, how)
			for i, n := range names {
				is := nameIs(string(n.name), want, how)
				if is {
					should = append(should, i)
				}
				if one(n.name) != is {
					t.Fatalf("match %d of %q: %q is %t", how, want, n.name, !is)
				}
			}
			if got := newChunkMatcher(want, how).find(c, nil); !slices.Equal(got, should) {
				t.Fatalf("match %d of %q in %q: %d, want %d", how, want, c.names, got, should)
			}
			if got := newChunkMatcher(want, how).count(c); got != len(should) {
				t.Fatalf("match %d of %q in %q counts %d, want %d", how, want, c.names, got, len(should))
			}
			matched += len(should)
		}
	}
	if matched < 10_000 {
		t.Errorf("only %d names matched", matched)
	}
}

// TestBytesThatAreNoTextMatchNoName promises that a query with the byte that separates packed names matches no
// name.
func TestBytesThatAreNoTextMatchNoName(t *testing.T) {
	c := newChunk(1, []pinName{{3, []byte("a")}, {2, []byte("b")}})
	for _, how := range []Match{IExact, Partial, IPartial} {
		for _, want := range []string{"\xff", "a\xffb", "\xffa\xff"} {
			if got := newChunkMatcher(want, how).find(c, nil); got != nil {
				t.Errorf("match %d of %q: %d", how, want, got)
			}
		}
	}
}

// named adds pins of alice with any names, most of them pinned, a millisecond after each other.
func (m *machine) named(rng *rand.Rand, n int) {
	m.t.Helper()
	first := len(m.allPins())
	for i := range n {
		content := contents[0]
		if rng.IntN(20) == 0 {
			content = contents[1+rng.IntN(len(contents)-1)]
		}
		c := create(alice, RequestID(fmt.Sprintf("n%d", first+i)), content)
		c.Pin.Name = anyName(rng, 8)
		switch rng.IntN(8) {
		case 0:
			c.Pin.Meta = map[string]string{"app": "x"}
		case 1:
			c.Pin.Meta = manyMeta(maxIndexedPairs + 1)
		}
		m.must(c)
		switch first + i {
		case 20:
			m.hold(rootOf(m.t, contents[0])) // so the next ones are pinned at once
		case 200:
			m.report("n1", rootOf(m.t, contents[4]), Fetching, "")
		}
		if rng.IntN(200) == 0 {
			m.giveUp(rootOf(m.t, contents[2]), "nobody has it")
		}
	}
}

// deleted removes one in each of alice's pins.
func (m *machine) deleted(rng *rand.Rand, each int) {
	m.t.Helper()
	for _, p := range m.allPins() {
		if p.Account == alice && rng.IntN(each) == 0 {
			m.must(&DeletePin{Account: alice, ID: p.ID})
		}
	}
}

// TestListsByNamesAreWhatLookingAtEveryPinGives promises the right total and the right rows of lists
// by a part of a name and by a name in any case, with any other filters: before names are packed,
// while those of an older release are packed step by step, and when most of the names are gone.
func TestListsByNamesAreWhatLookingAtEveryPinGives(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: PackedNamesLevel - 1})
	m.named(rng, 1200)
	m.listsByNamesAreRight(rng, "not packed")
	m.must(&RaiseLevel{FeatureLevel: PackedNamesLevel})
	for step := 0; ; step++ {
		next, _, of, err := m.view().NamesToPack()
		if err != nil {
			t.Fatal(err)
		}
		if next == nil {
			break
		}
		if of != uint64(len(m.allPins())) {
			t.Errorf("%d pins are said to be there", of)
		}
		next.Most = 300
		m.must(next)
		m.check()
		m.listsByNamesAreRight(rng, fmt.Sprintf("after %d steps", step))
		m.named(rng, 20)
		m.deleted(rng, 200)
	}
	if rows := m.rows(tableNames); len(rows) < 4 {
		t.Fatalf("%d rows of packed names", len(rows))
	}
	for left := 1; left < 6; left++ {
		m.check()
		m.listsByNamesAreRight(rng, fmt.Sprintf("after %d deletions", left))
		m.deleted(rng, 3)
		m.named(rng, 60)
	}
	m.deleted(rng, 1)
	m.check()
	if rows := m.rows(tableNames); len(rows) != 1 {
		t.Errorf("%d rows of packed names of no pins", len(rows))
	}
	m.listsByNamesAreRight(rng, "empty")
}

// listsByNamesAreRight compares lists by names with what looking at every pin gives.
func (m *machine) listsByNamesAreRight(rng *rand.Rand, when string) {
	m.t.Helper()
	times := []Millis{0, 0, 0, 1000, maxCreated}
	for _, p := range m.allPins() {
		times = append(times, p.Created)
	}
	metas := []map[string]string{nil, nil, nil, {"app": "x"}, {"app": "x", "0": ""}}
	statuses := [][]Status{nil, {Pinned}, {Pinned}, {Failed}, {Queued, Pinned}, {Queued, Pinning, Failed}}
	for range 40 {
		q := PinQuery{
			Name: anyName(rng, 2), Match: []Match{IExact, Partial, IPartial}[rng.IntN(3)], Limit: []int{0, 1, 10, 1000}[rng.IntN(4)],
			Before: times[rng.IntN(len(times))], After: times[rng.IntN(5)] * Millis(rng.IntN(2)),
			Statuses: statuses[rng.IntN(len(statuses))], Meta: metas[rng.IntN(len(metas))],
		}
		wantTotal, want := listed(m, alice, q)
		total, got, err := m.view().ListPins(m.t.(*testing.T).Context(), alice, q)
		if err != nil {
			m.t.Fatal(err)
		}
		if total != wantTotal || !slices.EqualFunc(got, want, func(a, b Pin) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			m.t.Fatalf("%s, %+v: counts %d and lists %d, want %d and %d", when, q, total, len(got), wantTotal, len(want))
		}
	}
}

// TestNoErrorIsPassedOverByAListOfPackedNames promises that a list ends with the error of the store, at
// whichever read it happens.
func TestNoErrorIsPassedOverByAListOfPackedNames(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	m.named(rng, 1100)
	m.deleted(rng, 20)
	for name, q := range map[string]PinQuery{
		"a part":       {Name: "k", Match: IPartial, Limit: 10},
		"with meta":    {Name: "k", Match: Partial, Limit: 10, Meta: map[string]string{"app": "x"}},
		"in one time":  {Name: "k", Match: Partial, Limit: 10, After: 1100, Before: 1300},
		"in any case":  {Name: "k", Match: IExact, Limit: 10, Statuses: []Status{Pinned}},
		"only a total": {Name: "s", Match: IPartial},
	} {
		m.tellsFailedReads(t, name, q)
	}
}

// TestDamagedPackedNamesAreAnError promises that a row of packed names that is not one ends a list, or the
// removal of a pin, with an error.
func TestDamagedPackedNamesAreAnError(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	m.named(rand.New(rand.NewPCG(13, 14)), 600)
	var k, good []byte
	prefix := chunksOf(alice)
	err := m.Scan(prefix, prefix.end(), false, func(key, value []byte) (bool, error) {
		k, good = slices.Clone(key), slices.Clone(value)
		return false, nil
	})
	if err != nil || k == nil {
		t.Fatal(err)
	}
	whole, err := readChunk(1, good)
	if err != nil {
		t.Fatal(err)
	}
	short := whole
	short.times = short.times[:len(short.times)/2]
	longer := whole
	longer.names = slices.Concat(longer.names, []byte("kkk\xff"))
	for name, change := range map[string]func(*memory) error{
		"no record":       func(s *memory) error { return s.Set(k, good[:len(good)/2]) },
		"a longer key":    func(s *memory) error { return s.Set(append(slices.Clone(k), 0), good) },
		"too few times":   func(s *memory) error { return put(s, k, &short) },
		"too many names":  func(s *memory) error { return put(s, k, &longer) },
		"an unknown form": func(s *memory) error { return s.Set(append(slices.Clone(k[:len(k)-1]), 7), good) },
	} {
		s := m.fork()
		if err := change(s); err != nil {
			t.Fatal(err)
		}
		if _, _, err := NewView(s, m.index).ListPins(t.Context(), alice, PinQuery{Name: "k", Match: IPartial, Limit: 1000}); err == nil {
			t.Errorf("%s: a list has no error", name)
		}
	}
	s := m.fork()
	if err := s.Delete(k); err != nil {
		t.Fatal(err)
	}
	for _, p := range m.allPins() {
		if p.Name != "" && p.Created < 1400 {
			if err := unpackName(s, &p); err == nil {
				t.Error("a name that is not there is removed without an error")
			}
			break
		}
	}
}

// TestAClosedAccountLeavesNoPackedNames promises that nothing stays of the packed names of an account
// that is cleared.
func TestAClosedAccountLeavesNoPackedNames(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: NewestFeatureLevel})
	for i := range 600 {
		c := create(bob, RequestID(fmt.Sprint(i)), contents[0])
		c.Pin.Name = "name"
		m.must(c)
	}
	if len(m.rows(tableNames)) == 0 {
		t.Fatal("nothing is packed")
	}
	m.leavesNothingPacked(bob)
}

// leavesNothingPacked closes an account and clears it. Nothing packed may be left.
func (m *machine) leavesNothingPacked(a AccountID) {
	m.t.Helper()
	m.must(&CloseAccount{Account: a})
	for {
		closing, err := m.view().Closing(10)
		if err != nil {
			m.t.Fatal(err)
		}
		if len(closing) == 0 {
			break
		}
		m.must(&ClearAccounts{Accounts: closing})
	}
	if rows := m.rows(tableNames); len(rows) != 0 {
		m.t.Errorf("%d rows are left", len(rows))
	}
}

// TestPackingEndsWithItsBounds promises that one packing reads no more than it may, with pins of all
// statuses and large rows, and that the next one goes on where it ended.
func TestPackingEndsWithItsBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := found(rt)
		m.named(rand.New(rand.NewPCG(15, rapid.Uint64().Draw(rt, "seed"))), rapid.IntRange(1, 60).Draw(rt, "pins"))
		rows, bytes := rapid.IntRange(1, 20).Draw(rt, "rows"), rapid.SampledFrom([]int{1, 1000, packBytes}).Draw(rt, "bytes")
		for passed := 0; ; {
			may := &packing{rows: rows, bytes: bytes}
			n, all, err := packNames(m, alice, may)
			if err != nil {
				rt.Fatal(err)
			}
			m.wantPackedNames(m.allPins())
			if passed += n; n == 0 && !all || n > len(Statuses())*rows || may.rows < 0 {
				rt.Fatalf("a packing passed %d pins, %d rows are left of %d", n, may.rows, rows)
			}
			if all {
				if passed != len(m.allPins()) {
					rt.Errorf("%d pins were passed of %d", passed, len(m.allPins()))
				}
				return
			}
		}
	})
}

// tellsFailedReads lists pins of alice and lets each read of the store fail once. The list must tell it.
func (m *machine) tellsFailedReads(t *testing.T, name string, q PinQuery) {
	t.Helper()
	read := func(r Reader) error {
		_, _, err := NewView(r, m.index).ListPins(t.Context(), alice, q)
		return err
	}
	whole := &broken{m.memory, never}
	if err := read(whole); err != nil {
		t.Fatal(err)
	}
	for at := range never - whole.left {
		if err := read(&broken{m.memory, at}); !errors.Is(err, errBroken) {
			t.Fatalf("%s: call %d failed, and the answer is %v", name, at, err)
		}
	}
}
