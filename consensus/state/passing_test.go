package state

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

// passing counts the deleted rows that scans pass before they find one that is left: a
// store has to look at each of them.
type passing struct {
	Tx
	gone   []string // in order
	passed int
}

func (p *passing) Delete(k []byte) error {
	if at, found := slices.BinarySearch(p.gone, string(k)); !found {
		p.gone = slices.Insert(p.gone, at, string(k))
	}
	return p.Tx.Delete(k)
}

func (p *passing) Scan(lower, upper []byte, reverse bool, fn func(k, v []byte) (bool, error)) error {
	first := string(upper)
	err := p.Tx.Scan(lower, upper, reverse, func(k, v []byte) (bool, error) {
		if first == string(upper) {
			first = string(k)
		}
		return fn(k, v)
	})
	from, _ := slices.BinarySearch(p.gone, string(lower))
	to, _ := slices.BinarySearch(p.gone, first)
	if !reverse && to > from {
		p.passed += to - from
	}
	return err
}

// If MaxSettle pins of one CID are deleted in the order of their ids, or all fail at once, scans pass at most eight
// deleted rows per pin on average.
func TestLettingGoOfPopularContentCostsTheSameForEach(t *testing.T) {
	const most = 8 * MaxSettle
	m := rich(t, Unlimited)
	pins := func() {
		for i := range MaxSettle {
			m.must(create(bob, RequestID(fmt.Sprintf("p%05d", i)), contents[1]))
		}
	}
	watched := func(what string, cmds ...Command) {
		t.Helper()
		p := &passing{Tx: m.memory}
		for _, cmd := range cmds {
			m.index++
			m.op++
			if _, err := Apply(p, m.index, opOf(m.op), cmd, &m.fx); err != nil {
				t.Fatal(err)
			}
		}
		if p.passed > most {
			t.Errorf("%s: %d deleted rows were passed", what, p.passed)
		}
	}
	pins()
	var deletes []Command
	for i := range MaxSettle {
		deletes = append(deletes, &DeletePin{Account: bob, ID: RequestID(fmt.Sprintf("p%05d", i))})
	}
	watched("pins that are deleted", deletes...)
	pins()
	root := rootOf(t, contents[1])
	m.report("n1", root, GaveUp, "nobody offered it")
	m.report("n2", root, GaveUp, "nobody offered it")
	known, err := NewView(m.memory, 0).Root(root)
	if err != nil {
		t.Fatal(err)
	}
	watched("pins that fail", &ReportCopies{Node: "n3", Items: []CopyReport{{Root: root, Born: known.Born, Phase: GaveUp, Reason: "nobody offered it"}}})
	if got := m.status(bob, "p00000"); got != "failed" {
		t.Fatalf("a pin is %s", got)
	}
}

// BenchmarkCreateOnce is a request that is made once, of an account that has more of them
// than are remembered.
func BenchmarkCreateOnce(b *testing.B) {
	d := newOnDisk(b)
	n := 0
	some := func() {
		cmds := make([]Command, 100)
		for i := range cmds {
			n++
			var key Hash
			binary.BigEndian.PutUint64(key[:], uint64(n))
			cmds[i] = &CreateOnce{Key: key, Change: create(alice, RequestID(fmt.Sprintf("%08d", n)), contents[1])}
		}
		d.apply(b, cmds...)
	}
	for range 3 * MaxOnce / 100 {
		some()
	}
	b.ReportAllocs()
	for b.Loop() {
		some()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/100, "µs/request")
}
