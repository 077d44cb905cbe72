package consensus

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
)

// An entry that cannot be read fails with ErrBroken, once, and no later entry is applied.
func TestEntryThatCannotBeReadStopsTheStateMachine(t *testing.T) {
	for name, data := range map[string][]byte{
		"garbage":      []byte("garbage"),
		"unknown kind": unknownKind(t),
	} {
		t.Run(name, func(t *testing.T) {
			var failed []error
			f, err := openFSM(Options{Store: newMemStore(), CheckpointDir: t.TempDir(), Watch: &state.Watch{}, Logger: quiet()},
				func(err error) { failed = append(failed, err) })
			if err != nil {
				t.Fatal(err)
			}
			answers := f.ApplyBatch([]*raft.Log{{Index: 7, Term: 1, Type: raft.LogCommand, Data: data}})
			if err, ok := answers[0].(error); !ok || !errors.Is(err, ErrBroken) {
				t.Errorf("answered %v", answers[0])
			}
			empty, err := wire.EncodeEntry(nil)
			if err != nil {
				t.Fatal(err)
			}
			f.ApplyBatch([]*raft.Log{{Index: 8, Term: 1, Type: raft.LogCommand, Data: empty}})
			if len(failed) != 1 || !errors.Is(failed[0], ErrBroken) {
				t.Errorf("failed with %v", failed)
			}
			if at := f.progress.index(); at != 0 {
				t.Errorf("went on to %d", at)
			}
		})
	}
}

// harmless are entries that change nothing, from one index on.
func harmless(t *testing.T, from uint64, n int) []*raft.Log {
	t.Helper()
	var entries []*raft.Log
	for i := range uint64(n) {
		body, err := wire.EncodeCommand(wire.Command{Body: &state.RemoveNode{ID: "n"}})
		if err != nil {
			t.Fatal(err)
		}
		data, err := wire.EncodeEntry([][]byte{body})
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, &raft.Log{Index: from + i, Term: 1, Type: raft.LogCommand, Data: data})
	}
	return entries
}

// No snapshot is taken while the state is ahead of the entry that Raft has come to. The snapshot is labelled with
// that entry, so it must not hold what Raft tells again only later.
func TestNoSnapshotIsTakenOfAStateThatIsAhead(t *testing.T) {
	store, dir := newMemStore(), t.TempDir()
	entries := harmless(t, 10, 5)
	open := func() *fsm {
		f, err := openFSM(Options{Store: store, CheckpointDir: dir, Watch: &state.Watch{}, Logger: quiet()},
			func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	open().ApplyBatch(entries)
	f := open() // the node was restarted
	for i := range entries {
		f.ApplyBatch(entries[i : i+1])
		s, err := f.Snapshot()
		if last := i == len(entries)-1; last != (err == nil) || !last && !errors.Is(err, errReplaying) {
			t.Errorf("at entry %d of a state at 14: %v", entries[i].Index, err)
		}
		if err == nil {
			s.Release()
		}
	}
}

// Entries that the state has are skipped without a transaction, and those behind them in a batch are applied.
func TestEntriesThatTheStateHasAreSkipped(t *testing.T) {
	store := newMemStore()
	f, err := openFSM(Options{Store: store, CheckpointDir: t.TempDir(), Watch: &state.Watch{}, Logger: quiet()},
		func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	entries := harmless(t, 10, 5)
	f.ApplyBatch(entries[:3])
	began := store.transactions()
	for i, answer := range f.ApplyBatch(entries[1:3]) {
		if answer != nil {
			t.Errorf("entry %d was applied again", entries[1+i].Index)
		}
	}
	if store.transactions() != began {
		t.Error("a transaction for nothing new")
	}
	for i, answer := range f.ApplyBatch(entries[1:]) {
		if applied := answer != nil; applied != (i >= 2) {
			t.Errorf("entry %d applied: %t", entries[1+i].Index, applied)
		}
	}
	if at := f.progress.index(); at != 14 {
		t.Errorf("the state is at %d", at)
	}
}

func unknownKind(t *testing.T) []byte {
	t.Helper()
	b, err := wire.EncodeEntry([][]byte{append([]byte{0x7f}, make([]byte, 20)...)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
