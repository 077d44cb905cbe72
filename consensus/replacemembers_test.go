package consensus

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// stopped returns the options with which ReplaceMembers works on the disks of a node that does not run.
func (n *testNode) stopped() Options {
	return Options{
		ID: n.id, Store: n.store, Log: n.log, Stable: n.disk, Snapshots: n.snaps, CheckpointDir: n.cluster.t.TempDir(), Watch: &state.Watch{}, Logger: quiet(),
	}
}

// onlyMember is the change that makes a node the only member.
func onlyMember(id state.NodeID) state.ReplaceMembers {
	node := member(id)
	node.FeatureLevel = state.NewestFeatureLevel
	return state.ReplaceMembers{Node: node, At: 5, Action: state.ActionClusterRecover}
}

// A member whose two fellows are lost has everything that was acknowledged after ReplaceMembers, leads alone, and new
// nodes join it.
func TestASurvivorIsTheWholeCluster(t *testing.T) {
	for name, timings := range map[string]Timings{
		"with the whole log": {},
		"with snapshots":     {SnapshotInterval: time.Second, SnapshotThreshold: 16, TrailingLogs: 4},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, 3, timings, func(t *testing.T, c *testCluster) {
				var want []string
				for i := range 40 {
					want = append(want, string(rune('A'+i)))
					c.leader().mustPin(want[i])
					<-time.After(50 * time.Millisecond)
				}
				c.sameEverywhere()
				survivor := c.follower()
				lost := c.others(survivor.id)
				for _, id := range c.ids() {
					c.nodes[id].kill()
				}
				taken, err := ReplaceMembers(survivor.stopped(), onlyMember(survivor.id))
				if err != nil || len(taken.Removed) != 2 {
					t.Fatalf("%+v, %v", taken, err)
				}
				c.network.isolate(survivor.id, lost...)
				survivor.start()
				c.until("it leads alone", func() bool { return survivor.Ready() == nil && survivor.IsLeader() && survivor.voters() == 1 })
				survivor.wantPins(want...)
				survivor.mustPin("z")
				want = append(want, "z")
				for _, id := range lost {
					delete(c.nodes, id)
				}
				for _, id := range []state.NodeID{"n8", "n9"} {
					c.add(id)
					c.join(id)
				}
				c.until("three voters", func() bool { return c.know(3) && c.ready() == 3 })
				for _, n := range c.nodes {
					n.wantPins(want...)
				}
				c.sameEverywhere()
			})
		})
	}
}

// ReplaceMembers applies entries of the log that no majority has acknowledged, and leaves an empty log behind a snapshot
// of a later term. A second call, as after a crash, changes only the index.
func TestEntriesOfTheSurvivorsLogAreTaken(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		leader := c.leader()
		leader.mustPin("a")
		c.sameEverywhere()
		others := c.others(leader.id)
		for _, id := range others {
			c.nodes[id].kill()
		}
		before, err := leader.disk.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = leader.Propose(t.Context(), pin("b")) }() // nobody acknowledges it
		c.until("it is in the log", func() bool {
			last, err := leader.disk.LastIndex()
			return err == nil && last > before
		})
		leader.kill()
		term, err := leader.disk.GetUint64([]byte(termKey))
		if err != nil {
			t.Fatal(err)
		}
		first, err := ReplaceMembers(leader.stopped(), onlyMember(leader.id))
		if err != nil || first.Taken == 0 {
			t.Fatalf("%+v, %v", first, err)
		}
		metas, err := leader.snaps.List()
		if err != nil || len(metas) == 0 || metas[0].Index != first.Index || metas[0].Term <= term || len(metas[0].Configuration.Servers) != 1 {
			t.Fatalf("snapshots %+v, term %d, %v", metas, term, err)
		}
		if last, err := leader.disk.LastIndex(); err != nil || last != 0 {
			t.Errorf("the log ends at %d, %v", last, err)
		}
		second, err := ReplaceMembers(leader.stopped(), onlyMember(leader.id))
		if err != nil || second.Taken != 0 || second.Index <= first.Index || len(second.Removed) != 0 {
			t.Errorf("%+v after %+v, %v", second, first, err)
		}
		leader.start()
		c.until("it leads alone", func() bool { return leader.Ready() == nil && leader.IsLeader() })
		leader.wantPins("a", "b")
	})
}

// A crash in the middle of ReplaceMembers, before the snapshot is stored, leaves disks on which a second call succeeds.
func TestReplacingMembersIsContinuedAfterACrash(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		survivor := c.follower()
		c.leader().mustPin("a")
		c.sameEverywhere()
		for _, id := range c.ids() {
			c.nodes[id].kill()
		}
		broken := survivor.stopped()
		broken.Snapshots = refusing{survivor.snaps}
		if _, err := ReplaceMembers(broken, onlyMember(survivor.id)); !errors.Is(err, errInjected) {
			t.Fatalf("without a snapshot: %v", err)
		}
		if _, err := ReplaceMembers(survivor.stopped(), onlyMember(survivor.id)); err != nil {
			t.Fatal(err)
		}
		survivor.start()
		c.until("it leads alone", func() bool { return survivor.Ready() == nil && survivor.IsLeader() })
		survivor.wantPins("a")
	})
}

// refusing is a snapshot store that stores nothing.
type refusing struct{ raft.SnapshotStore }

func (refusing) Create(raft.SnapshotVersion, uint64, uint64, raft.Configuration, uint64, raft.Transport) (raft.SnapshotSink, error) {
	return nil, errInjected
}

// A copy of the state that is made while others write equals the state at its index, has everything that was
// acknowledged before, and leaves no files.
func TestACopyIsTheStateAtOneIndex(t *testing.T) {
	dir := t.TempDir()
	n := openOnDisk(t, newMemNetwork(), "n1", dir)
	n.found(t)
	defer n.end()
	var acked []string
	write := func(name string) {
		if _, err := n.Propose(t.Context(), pin(name)); err != nil {
			t.Error(err)
		}
	}
	for i := range 5 {
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for j := 0; ; j++ {
				select {
				case <-stop:
					return
				default:
					write(string(rune('a'+i)) + string(rune('0'+j%10)) + string(rune('A'+j/10)))
				}
			}
		}()
		name := string(rune('a'+i)) + " before"
		write(name)
		acked = append(acked, name)
		made, err := n.CopyState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want, err := made.Hash(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		index, hash := copied(t, made.Dir)
		if index != made.Index || hash != want {
			t.Errorf("the files have the state at %d with hash %s, want %d and %s", index, hash, made.Index, want)
		}
		for _, name := range acked {
			if _, err := made.View().Pin(account, state.RequestID(name)); err != nil {
				t.Errorf("pin %q was acknowledged before: %v", name, err)
			}
		}
		close(stop)
		<-done
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "raft", "checkpoints", "*copy*"))
	if err != nil || len(left) > 0 {
		t.Errorf("copies remain: %v, %v", left, err)
	}
}

// copied returns the index and the hash of the state in the folder of a copy, by way of an archive.
func copied(t *testing.T, dir string) (uint64, state.Hash) {
	t.Helper()
	store := restoredStore(t, dir)
	view := store.View()
	defer view.Close()
	index, err := readApplied(view)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := state.NewView(view, index).Hash(func(int) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return index, hash
}

// Without a majority there is no copy, because it could lack what was acknowledged.
func TestWithoutAMajorityThereIsNoCopy(t *testing.T) {
	inVirtualTime(t, 3, Timings{}, func(t *testing.T, c *testCluster) {
		n := c.follower()
		for _, id := range c.others(n.id) {
			c.nodes[id].kill()
		}
		if made, err := n.CopyState(t.Context()); !errors.Is(err, state.ErrUnavailable) {
			t.Errorf("%+v, %v", made, err)
		}
	})
}
