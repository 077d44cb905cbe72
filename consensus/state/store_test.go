package state

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	radix "github.com/hashicorp/go-immutable-radix"
)

// memory is an ordered store in memory whose versions can be kept and compared.
type memory struct{ txn *radix.Txn }

func newMemory() *memory { return &memory{txn: radix.New().Txn()} }

func (m *memory) Get(key []byte) ([]byte, bool, error) {
	v, ok := m.txn.Root().Get(key)
	if !ok {
		return nil, false, nil
	}
	return slices.Clone(v.([]byte)), true, nil
}

func (m *memory) Set(key, value []byte) error {
	if _, ok := m.txn.Root().Get(key); ok && Passing(key) {
		return fmt.Errorf("row %x is set over another, and a deletion would remove only one", key)
	}
	m.txn.Insert(slices.Clone(key), append([]byte{}, value...))
	return nil
}

func (m *memory) Delete(key []byte) error {
	m.txn.Delete(key)
	return nil
}

func (m *memory) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	if reverse {
		it := m.txn.Root().ReverseIterator()
		it.SeekReverseLowerBound(upper)
		for {
			k, v, ok := it.Previous()
			if !ok || bytes.Compare(k, lower) < 0 {
				return nil
			}
			if bytes.Equal(k, upper) {
				continue
			}
			if more, err := fn(k, v.([]byte)); err != nil || !more {
				return err
			}
		}
	}
	it := m.txn.Root().Iterator()
	it.SeekLowerBound(lower)
	for {
		k, v, ok := it.Next()
		if !ok || upper != nil && bytes.Compare(k, upper) >= 0 {
			return nil
		}
		if more, err := fn(k, v.([]byte)); err != nil || !more {
			return err
		}
	}
}

// Walk implements walker.
func (m *memory) Walk(lower, upper []byte, fn func(k, v []byte) (on []byte, more bool, err error)) error {
	it := m.txn.Root().Iterator()
	it.SeekLowerBound(lower)
	for {
		k, v, ok := it.Next()
		if !ok || bytes.Compare(k, upper) >= 0 {
			return nil
		}
		on, more, err := fn(k, v.([]byte))
		if err != nil || !more {
			return err
		}
		if on != nil {
			if bytes.Compare(on, k) <= 0 {
				return errors.New("a walk goes back")
			}
			it = m.txn.Root().Iterator()
			it.SeekLowerBound(on)
		}
	}
}

// row is one key with its value.
type row struct{ key, value string }

// rows returns what is in a table, or in all but those of operations.
func (m *memory) rows(tables ...byte) (rows []row) {
	m.txn.Root().Walk(func(k []byte, v any) bool {
		operation := k[0] == tableOp || k[0] == tableOpOrder || string(k) == string(opNext)
		if len(tables) == 0 && !operation || slices.Contains(tables, k[0]) {
			rows = append(rows, row{string(k), string(v.([]byte))})
		}
		return false
	})
	return rows
}

// fork returns a copy that does not follow m.
func (m *memory) fork() *memory {
	tree := m.txn.Commit()
	m.txn = tree.Txn()
	return &memory{txn: tree.Txn()}
}

// reporter is a test, or one run of a property.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

var _ reporter = testing.TB(nil)

// machine is a store with the index of its newest entry.
type machine struct {
	*memory
	t     reporter
	index uint64
	op    uint64
	// narrow: entries have room for one pin only, so what arrives is not charged
	// to all who wait for it.
	narrow bool
	// firsts is the cache of the pins of new roots, for commands and views; nil means no cache.
	firsts *firstPins
	fx     Effects // of the newest command
}

// allFirstPins is a cache that forgets nothing, for one goroutine.
type allFirstPins map[RootKey]FirstPin

func (a allFirstPins) Get(k RootKey) (p FirstPin, known bool) { p, known = a[k]; return p, known }

func (a allFirstPins) Put(k RootKey, p FirstPin) { a[k] = p }

const (
	alice = AccountID("alice")
	bob   = AccountID("bob")
)

// found returns the state of a cluster of three nodes and two accounts; two of
// three copies make a pin pinned.
func found(t reporter) *machine {
	t.Helper()
	m := &machine{memory: newMemory(), t: t}
	m.must(&InitCluster{
		Cluster:  Cluster{ID: "c", Replication: 3, WriteCopies: 2, Operator: alice},
		Node:     Node{ID: "n1"},
		Operator: Account{ID: alice, Email: "alice@example.org"},
	})
	m.must(&CreateAccount{Account: Account{ID: bob, Email: "bob@example.org"}})
	m.must(&JoinNode{Node: Node{ID: "n2"}})
	m.must(&JoinNode{Node: Node{ID: "n3"}})
	return m
}

// opOf returns an operation by its number.
func opOf[N int | uint64](n N) OpID { return OpID{byte(n), byte(n >> 8), byte(n >> 16), 1} }

// apply applies a command as an operation of its own.
func (m *machine) apply(cmd Command) (Result, error) {
	m.op++
	return m.applyOp(opOf(m.op), cmd)
}

func (m *machine) applyOp(op OpID, cmd Command) (Result, error) {
	m.index++
	m.fx = Effects{}
	a := Applier{firsts: m.firsts}
	return a.Apply(m.memory, m.index, op, cmd, &m.fx)
}

func (m *machine) must(cmd Command) Result {
	m.t.Helper()
	r, err := m.apply(cmd)
	if err != nil {
		m.t.Fatalf("%T: %v", cmd, err)
	}
	return r
}

func (m *machine) view() View {
	a := Applier{firsts: m.firsts}
	return a.View(m.memory, m.index)
}

// status returns the status of a pin, or "gone".
func (m *machine) status(a AccountID, id RequestID) string {
	m.t.Helper()
	p, err := m.view().Pin(a, id)
	if errors.Is(err, ErrNotFound) {
		return "gone"
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return p.Status.String()
}

// report tells that a node has a phase of a root's copy.
func (m *machine) report(n NodeID, root RootKey, phase Phase, reason string) {
	m.t.Helper()
	r, err := m.view().Root(root)
	if err != nil {
		m.t.Fatal(err)
	}
	m.must(&ReportCopies{Node: n, Items: []CopyReport{{Root: root, Born: r.Born, Phase: phase, Size: 10, Blocks: 1, Reason: reason}}})
}

// hold makes a root pinned.
func (m *machine) hold(root RootKey) {
	m.t.Helper()
	m.report("n1", root, Held, "")
	m.report("n2", root, Held, "")
}

// giveUp makes a root failed.
func (m *machine) giveUp(root RootKey, reason string) {
	m.t.Helper()
	for _, n := range []NodeID{"n1", "n2", "n3"} {
		if _, err := m.view().Root(root); err == nil {
			m.report(n, root, GaveUp, reason)
		}
	}
}

func (m *machine) kept(root RootKey) bool {
	m.t.Helper()
	_, err := m.view().Root(root)
	if err != nil && !errors.Is(err, ErrNotFound) {
		m.t.Fatal(err)
	}
	return err == nil
}
