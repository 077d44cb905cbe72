package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
	"github.com/holdfast-ipfs/holdfast/storage/raftlog"
)

// pebbled is the ordered store of nodes as a Store.
type pebbled struct{ *kv.Store }

func (s pebbled) Begin() Tx      { return s.Store.Begin() }
func (s pebbled) View() Snapshot { return s.Store.View() }

// diskNode is a node on the storage that nodes use, in real time.
type diskNode struct {
	*Node
	end func()
}

func openOnDisk(t testing.TB, network *memNetwork, id state.NodeID, dir string) *diskNode {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	store, err := kv.Open(filepath.Join(dir, "state"), kv.Options{Sparse: &kv.Sparse{Is: state.Sparse, After: state.SparseAfter}, Passing: state.Passing})
	must(err)
	log, err := raftlog.Open(filepath.Join(dir, "raft", "log"))
	must(err)
	snapshots, err := raftlog.OpenSnapshots(filepath.Join(dir, "raft", "snapshots"), 2, quiet())
	must(err)
	n, err := Open(Options{
		ID: id, Store: pebbled{store}, Log: log, Stable: log, Snapshots: snapshots,
		CheckpointDir: filepath.Join(dir, "raft", "checkpoints"), Network: network.of(id), Watch: &state.Watch{}, Logger: quiet(),
		Timings: Timings{
			Reconcile: 100 * time.Millisecond, SnapshotInterval: 100 * time.Millisecond, SnapshotThreshold: 64, TrailingLogs: 8,
		},
	})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	return &diskNode{Node: n, end: func() {
		t.Helper()
		cancel()
		if err := errors.Join(<-ended, n.Close(), log.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	}}
}

// soon waits in real time for what a healthy machine does in seconds.
func soon(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (n *diskNode) found(t testing.TB) {
	t.Helper()
	if err := n.Bootstrap(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Propose(context.Background(), &state.InitCluster{
		Cluster: state.Cluster{ID: "c", Replication: 3, WriteCopies: 2, Operator: account},
		Node:    n.record(), Operator: state.Account{ID: account, Email: "operator@localhost"},
	}); err != nil {
		t.Fatal(err)
	}
}

// record returns what a node says of itself.
func (n *diskNode) record() state.Node {
	record := member(n.opts.ID)
	record.FeatureLevel = state.NewestFeatureLevel
	record.Store, record.Votes = n.Store()
	return record
}

// admit makes another node a member.
func (n *diskNode) admit(t testing.TB, other *diskNode) {
	t.Helper()
	for _, cmd := range []state.Command{&state.JoinNode{Node: other.record(), At: 1}, &state.UpdateNode{Node: other.record()}} {
		if _, err := n.Propose(context.Background(), cmd); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *diskNode) names(t testing.TB) []string {
	t.Helper()
	names, err := (&testNode{Node: n.Node}).pins()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// On real storage a new member has all pins by a snapshot, and both nodes have them after a restart.
func TestOnRealDisksASnapshotTravelsAndARestartFindsAll(t *testing.T) {
	network, dirs := newMemNetwork(), []string{t.TempDir(), t.TempDir()}
	first := openOnDisk(t, network, "n1", dirs[0])
	first.found(t)
	var want []string
	for i := range 300 {
		want = append(want, fmt.Sprintf("p%03d", i))
		if _, err := first.Propose(t.Context(), pin(want[i])); err != nil {
			t.Fatal(err)
		}
	}
	soon(t, "a snapshot that shortens the log", func() bool {
		metas, err := first.opts.Snapshots.List()
		at, lerr := first.opts.Log.FirstIndex()
		return err == nil && lerr == nil && len(metas) > 0 && at > 100
	})
	second := openOnDisk(t, network, "n2", dirs[1])
	first.admit(t, second)
	soon(t, "n2 votes", func() bool { return second.Ready() == nil && first.Roles()["n2"] == roleVoter })
	if got := second.names(t); !slices.Equal(got, want) {
		t.Fatalf("n2 has %d pins by a snapshot, want %d", len(got), len(want))
	}

	second.end()
	first.end()
	first, second = openOnDisk(t, network, "n1", dirs[0]), openOnDisk(t, network, "n2", dirs[1])
	soon(t, "both are back", func() bool { return first.Ready() == nil && second.Ready() == nil })
	for _, n := range []*diskNode{first, second} {
		if got := n.names(t); !slices.Equal(got, want) {
			t.Errorf("after a restart %s has %d pins, want %d", n.opts.ID, len(got), len(want))
		}
	}
	first.end()
	second.end()
}

var _ raft.LogStore = (*raftlog.Log)(nil)

// BenchmarkPropose is three nodes on real disks, many clients, through a follower.
func BenchmarkPropose(b *testing.B) {
	for _, clients := range []int{1, 256} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			network := newMemNetwork()
			var nodes []*diskNode
			for _, id := range []state.NodeID{"n1", "n2", "n3"} {
				nodes = append(nodes, openOnDisk(b, network, id, b.TempDir()))
			}
			nodes[0].found(b)
			for _, other := range nodes[1:] {
				nodes[0].admit(b, other)
			}
			soon(b, "all vote", func() bool {
				voters := 0
				for _, role := range nodes[0].Roles() {
					if role == roleVoter {
						voters++
					}
				}
				return voters == 3 && nodes[1].Ready() == nil && nodes[2].Ready() == nil
			})
			b.ReportAllocs()
			b.SetParallelism(clients / 2) // two processors here
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := nodes[2].Propose(context.Background(), pin(fmt.Sprintf("%d", time.Now().UnixNano()))); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pins/s")
			for _, n := range nodes {
				n.end()
			}
		})
	}
}

// restoredStore returns a store with the content of the checkpoint in a folder.
func restoredStore(t *testing.T, checkpoint string) *kv.Store {
	t.Helper()
	store, err := kv.Open(t.TempDir(), kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r, w := io.Pipe()
	go func() { w.CloseWithError(kv.WriteArchive(w, checkpoint)) }()
	if err := store.Restore(r); err != nil {
		t.Fatal(err)
	}
	return store
}
