package node

import (
	"fmt"
	"testing"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// openState opens an empty store with the settings of the state of a node.
func openState(b *testing.B) *kv.Store {
	b.Helper()
	s, err := kv.Open(b.TempDir(), kv.Options{Sparse: &kv.Sparse{Is: state.Sparse, After: state.SparseAfter}, Passing: state.Passing})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// BenchmarkApply is what one command costs one node, in entries of several, in
// a state that has some pins already.
func BenchmarkApply(b *testing.B) {
	for _, size := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("create and hold/entries of %d", size), func(b *testing.B) {
			s := openState(b)
			l := &log{b: b, store: ordered{s}}
			l.found()
			for range 20_000 / size {
				l.pins(size)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += size {
				l.pins(size)
			}
		})
	}
}

// log is entries that are applied as the state machine does.
type log struct {
	b     *testing.B
	store ordered
	index uint64
	made  uint64 // pins
}

var nodes = []state.NodeID{"12D3KooWNodeNumberOne", "12D3KooWNodeNumberTwo", "12D3KooWNodeNumberThree"}

func (l *log) found() {
	operator := state.Account{ID: "operator", Email: "o@localhost", Created: 1}
	l.entry(&state.InitCluster{
		Cluster:  state.Cluster{ID: "c", Created: 1, Replication: 2, WriteCopies: 2, Operator: operator.ID},
		Node:     state.Node{ID: nodes[0], Name: "n"},
		Operator: operator,
	})
	for _, n := range nodes[1:] {
		l.entry(&state.JoinNode{Node: state.Node{ID: n, Name: "n"}, At: 1})
	}
}

// pins creates new pins in one entry; then two nodes report that they hold them.
func (l *log) pins(count int) {
	creates := make([]state.Command, count)
	items := make([]state.CopyReport, count)
	for i := range count {
		l.made++
		hash, err := multihash.Sum(fmt.Append(nil, l.made), multihash.SHA2_256, -1)
		if err != nil {
			l.b.Fatal(err)
		}
		c := cid.NewCidV1(cid.Raw, hash)
		creates[i] = &state.CreatePin{
			Pin:   state.Pin{ID: state.RequestID(fmt.Sprintf("%x", hash[4:20])), Account: "operator", Created: state.Millis(l.made), CID: c.String(), Name: "bench"},
			Nodes: nodes[:2],
		}
		items[i] = state.CopyReport{Root: state.RootOf(c), Born: l.index + 1, Phase: state.Held, Size: 1024, Blocks: 1}
	}
	l.entry(creates...)
	for _, n := range nodes[:2] {
		l.entry(&state.ReportCopies{Node: n, Items: items})
	}
}

func (l *log) entry(commands ...state.Command) {
	l.index++
	tx := l.store.Begin()
	defer tx.Discard()
	var fx state.Effects
	for i, c := range commands {
		var op state.OpID
		if _, report := c.(*state.ReportCopies); !report {
			copy(op[:], fmt.Sprintf("%08d%08d", l.index, i))
		}
		if _, err := state.Apply(tx, l.index, op, c, &fx); err != nil {
			l.b.Fatal(err)
		}
	}
	if err := tx.Commit(false); err != nil {
		l.b.Fatal(err)
	}
}
