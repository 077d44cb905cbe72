package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// bigPin makes a result of some 60 KiB.
func bigPin(i int) *CreatePin {
	return &CreatePin{
		Pin: Pin{
			ID: RequestID(fmt.Sprintf("p%d", i)), Account: alice, CID: contents[2], Created: Millis(i + 1),
			Meta: map[string]string{"m": strings.Repeat("x", 60<<10)},
		},
		Nodes: []NodeID{"n1"},
	}
}

func (m *machine) operations() operations {
	m.t.Helper()
	o, err := readOperations(m)
	if err != nil {
		m.t.Fatal(err)
	}
	sum := uint64(0)
	rows := m.rows(tableOp)
	for _, r := range rows {
		sum += uint64(len(r.value))
	}
	if n := uint64(len(rows)); n != o.next-o.first || n != uint64(len(m.rows(tableOpOrder))) {
		m.t.Fatalf("%d results and %d in order, from %d to %d", n, len(m.rows(tableOpOrder)), o.first, o.next)
	}
	if o.bounded && o.bytes != sum {
		m.t.Fatalf("%d bytes of results, %d on record", sum, o.bytes)
	}
	return o
}

// From feature level 1 on, the results of operations take at most MaxOpBytes, and one command forgets at most
// maxForget. What an older release remembered goes too. A retry of a remembered operation changes nothing.
func TestRememberedOperationsAreBoundedInBytes(t *testing.T) {
	m := found(t)
	const above = MaxOpBytes/(60<<10) + 200
	for i := range above {
		m.must(bigPin(i))
	}
	if o := m.operations(); o.bounded || o.next != above+4 {
		t.Fatalf("before level 1: %+v", o)
	}
	m.must(&RaiseLevel{FeatureLevel: 1})
	before := m.operations()
	if before.bytes <= MaxOpBytes {
		t.Fatalf("%d bytes are not above the bound", before.bytes)
	}
	m.must(bigPin(above))
	if o := m.operations(); o.first-before.first > maxForget {
		t.Errorf("one command forgot %d operations", o.first-before.first)
	}
	for i := range 20 {
		m.must(bigPin(above + 1 + i))
	}
	o := m.operations()
	if o.bytes > MaxOpBytes || o.bytes < MaxOpBytes*9/10 {
		t.Errorf("%d bytes remembered, the bound is %d", o.bytes, MaxOpBytes)
	}
	// The newest are answered from memory: nothing changes, and the pin is told.
	last, index := opOf(m.op), m.index
	r, err := m.applyOp(last, bigPin(above+20))
	if err != nil || r.Pin == nil || m.operations() != o {
		t.Errorf("at %d: %+v, %v", index, r, err)
	}
}

// A put that is retried after many large pins were created does not take the place of a later put. A retry that
// creates a pin returns the pin of the first try.
func TestLargePinsHaveNoOperationForgotten(t *testing.T) {
	s := shelved(t, Unlimited)
	old, op := s.putOf("k", "v1", contents[1]), OpID{1, 2, 3, 4}
	if _, err := s.applyOp(op, old); err != nil {
		t.Fatal(err)
	}
	s.must(s.putOf("k", "v2", contents[1]))
	for i := range MaxOpBytes/(60<<10) + 1 {
		s.must(bigPin(i))
	}
	if _, err := s.applyOp(op, old); err != nil {
		t.Fatal(err)
	}
	if o, err := s.view().Object(&s.b, "k"); err != nil || o.ID != "v2" {
		t.Errorf("the object is %s, %v", o.ID, err)
	}
	for i, cmd := range []Command{
		bigPin(1 << 20), replace(alice, "p1048576", "next", contents[1]),
		&CreateOnce{Change: bigPin(1 << 21)}, &CreateOnce{Change: bigPin(1 << 22)}, // once, so with the first one's id
		&CreatePin{Pin: Pin{ID: "next", Account: alice, CID: contents[2], Created: 1}},
	} {
		op := OpID{byte(i), 9}
		first, err := s.applyOp(op, cmd)
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.applyOp(op, cmd)
		if err != nil || fmt.Sprint(*again.Pin) != fmt.Sprint(*first.Pin) {
			t.Errorf("%T gave %.200v, then %.200v, %v", cmd, *first.Pin, again.Pin, err)
		}
	}
}

// The state remembers the newest MaxOps operations and no older ones, below feature level 1 and at it.
func TestRememberedOperationsAreBoundedInNumber(t *testing.T) {
	for _, level := range []FeatureLevel{0, 1} {
		m := found(t)
		if level > 0 {
			m.must(&RaiseLevel{FeatureLevel: level})
		}
		first := opOf(m.op)
		for range MaxOps + 10 {
			if _, err := m.apply(&RemoveNode{ID: "nobody"}); err == nil {
				t.Fatal("removed nobody")
			}
		}
		if o := m.operations(); o.next-o.first != MaxOps {
			t.Errorf("level %d: %+v", level, o)
		}
		if done, err := has(m, opKey(first)); done || err != nil {
			t.Errorf("level %d: an old operation is remembered, %v", level, err)
		}
	}
}

// An Applier that has operations at hand comes to the same state as one that has none, also after a restart.
func TestOperationsAtHandChangeNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	bare, full := found(t), found(t)
	bare.must(&RaiseLevel{FeatureLevel: 1})
	full.must(&RaiseLevel{FeatureLevel: 1})
	same := func() {
		t.Helper()
		if !slices.Equal(bare.txnRows(), full.txnRows()) {
			t.Fatalf("the states differ after %d", bare.index)
		}
	}
	var applier Applier
	for i := range MaxOps + 2000 {
		var cmd Command = &RemoveNode{ID: "nobody"}
		if rng.IntN(100) == 0 {
			pin := bigPin(i)
			pin.Pin.Meta["m"] = pin.Pin.Meta["m"][:rng.IntN(60<<10)]
			cmd = pin
		}
		op := opOf(1<<20 + i)
		by := &applier
		switch rng.IntN(2000) {
		case 0:
			applier = Applier{} // it was started again
		case 1:
			by = new(Applier) // others were applied while it was not there
		}
		full.index++
		if _, err := by.Apply(full.memory, full.index, op, cmd, &full.fx); err != nil && !errors.As(err, new(*Error)) {
			t.Fatal(err)
		}
		if _, err := bare.applyOp(op, cmd); err != nil && !errors.As(err, new(*Error)) {
			t.Fatal(err)
		}
		if i == 10_000 {
			same()
		}
	}
	same()
	if o := full.operations(); o.first < 1500 {
		t.Errorf("the oldest is %d, so little was forgotten", o.first)
	}
}

// An Applier reads none of the operations that it has applied itself, although it forgets one for each that comes.
func TestOperationsAtHandAreNotRead(t *testing.T) {
	m := found(t)
	m.must(&RaiseLevel{FeatureLevel: 1})
	read, before := &opReads{memory: m.memory}, int(m.operations().next)
	var applier Applier
	for i := range MaxOps + 100 {
		op := opOf(1<<20 + i)
		if _, err := applier.Apply(read, uint64(i), op, &RemoveNode{ID: "nobody"}, &m.fx); !errors.As(err, new(*Error)) {
			t.Fatal(err)
		}
	}
	if o := m.operations(); o.next-o.first != MaxOps || o.first < 90 {
		t.Fatalf("%+v", o)
	}
	if read.found > 2*before { // each of those and its place
		t.Errorf("%d records of operations were read", read.found)
	}
}

// opReads counts the reads that found something of an operation.
type opReads struct {
	*memory
	found int
}

func (r *opReads) Get(key []byte) ([]byte, bool, error) {
	value, ok, err := r.memory.Get(key)
	if ok && (key[0] == table(tableOp)[0] || key[0] == table(tableOpOrder)[0]) {
		r.found++
	}
	return value, ok, err
}

// The bookkeeping of operations that an older release wrote is read, and one of a wrong length is an error.
func TestBookkeepingOfTheReleaseBeforeIsRead(t *testing.T) {
	m := newMemory()
	_ = m.Set(opNext, binary.BigEndian.AppendUint64(nil, MaxOps+7))
	if o, err := readOperations(m); err != nil || o != (operations{next: MaxOps + 7, first: 7}) {
		t.Errorf("%+v, %v", o, err)
	}
	_ = m.Set(opNext, []byte{1})
	if _, err := readOperations(m); err == nil {
		t.Error("one byte is taken for bookkeeping")
	}
}

// The state keeps the code of a rejected operation and not its text. Releases may word an error differently, and
// members of two releases have to have one state.
func TestOfAnErrorTheCodeIsRemembered(t *testing.T) {
	const newer = Code(60_000) // of a newer release
	for _, code := range append(Codes(), newer) {
		op := OpID{byte(code), 1}
		var states []*memory
		for _, text := range []string{"as one release says it", "or another", ""} {
			m := newMemory()
			if err := new(Applier).remember(m, op, Result{}, Errorf(code, "%s", text)); err != nil {
				t.Fatal(err)
			}
			states = append(states, m)
		}
		for _, m := range states[1:] {
			if !slices.Equal(m.rows(tableOp, tableOpOrder, tableMeta), states[0].rows(tableOp, tableOpOrder, tableMeta)) {
				t.Errorf("code %d: the text is part of the state", code)
			}
		}
		b, _, err := states[0].Get(opKey(op))
		if err != nil {
			t.Fatal(err)
		}
		var got *Error
		if _, err := decodeOutcome(b); !errors.As(err, &got) || got.Code != code || (got.Detail == Errorf(code, "refused, by code %d", code).Detail) != (code == newer) {
			t.Errorf("code %d comes back as %v", code, err)
		}
	}
	m := found(t)
	drop, op := &DeletePin{Account: alice, ID: "none"}, OpID{9}
	for range 2 {
		if _, err := m.applyOp(op, drop); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
}

// The texts of failures and of exceeded quotas, which Apply writes into records, have the fixed words below. They
// change only where all members understand the change, as the forms of records do.
func TestTextsOfRecordsKeepTheirWords(t *testing.T) {
	root := &Root{Copies: []Copy{{"n1", GaveUp, "a"}, {"n2", GaveUp, ""}, {"n3", GaveUp, "b"}, {"n4", GaveUp, "a"}}}
	for text, want := range map[string]string{
		failure(root): "nodes n1, n4: a; node n3: b",
		tooMuch(7):    "the content, 7 bytes or more, does not fit into what is left of the account's free storage, and the account has no credits",
	} {
		if text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
}
