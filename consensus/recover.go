package consensus

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

// ErrIncomplete says that the entries between the state and the log are gone,
// and no snapshot has them: this node cannot go on from what it has.
var ErrIncomplete = errors.New("the state, the snapshots and the log do not reach each other")

// goodSnapshots are the snapshots that Raft may take for good: those that could
// not be read are left out.
type goodSnapshots struct {
	raft.SnapshotStore
	bad map[string]bool // by id; written before Raft starts
}

// List implements raft.SnapshotStore.
func (s *goodSnapshots) List() ([]*raft.SnapshotMeta, error) {
	metas, err := s.SnapshotStore.List()
	var good []*raft.SnapshotMeta
	for _, m := range metas {
		if !s.bad[m.ID] {
			good = append(good, m)
		}
	}
	return good, err
}

// recover brings state, snapshots and log together before Raft starts, which
// takes all of them for good. The state goes forward to the newest snapshot if
// it is behind it; a crash between a snapshot's arrival and its use leaves it
// so, and so does a state that was lost. Behind the state, the log may only be
// longer: if it is shorter, this is not the log that the node had.
func (n *Node) recover() error {
	n.snapshots = &goodSnapshots{SnapshotStore: n.opts.Snapshots, bad: map[string]bool{}}
	newest, err := n.restoreNewest()
	if err != nil {
		return err
	}
	if err := forgetCovered(n.opts.Log, newest); err != nil {
		return err
	}
	base := newest.Index
	first, err := n.opts.Log.FirstIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	last, err := n.opts.Log.LastIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	applied := n.fsm.progress.index()
	if last > 0 && first > base+1 {
		return fmt.Errorf("%w: the state is at %d, the newest good snapshot at %d, and the log begins at %d",
			ErrIncomplete, applied, base, first)
	}
	lost := applied > max(last, base)
	if lost {
		n.log.Warn("the log ends before the state: an older log than this node had, so it does not vote until the leader says so",
			"state", applied, "log", last, "snapshot", base)
	}
	if n.franchise, err = openFranchise(n.opts.Stable, lost); err != nil {
		return err
	}
	n.franchise.StableStore = watchedValues{StableStore: n.opts.Stable, disk: n.disk}
	return nil
}

// forgetBehind is forgetCovered for a snapshot that a leader has just sent.
func (n *Node) forgetBehind(log raft.LogStore, index uint64) error {
	metas, err := n.snapshots.List()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, m := range metas {
		if m.Index == index {
			return forgetCovered(log, *m)
		}
	}
	return fmt.Errorf("the snapshot at %d is not listed", index)
}

// forgetCovered removes the entries that a leader's snapshot covers, when the log
// does not lead to it: entries that nobody has committed may be among them. Raft
// leaves them in the log, below a gap, and if this node leads later it would send
// them to who has the one before them, and not notice.
//
// Entries behind the snapshot stay. A snapshot can come twice, late, and then
// they are those that this node has told the leader it has.
func forgetCovered(log raft.LogStore, snapshot raft.SnapshotMeta) error {
	first, err := log.FirstIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	last, err := log.LastIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if last == 0 || first > snapshot.Index {
		return nil
	}
	var entry raft.Log
	err = log.GetLog(snapshot.Index, &entry)
	if err == nil && entry.Term == snapshot.Term {
		return nil
	}
	if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		return fmt.Errorf("read the log: %w", err)
	}
	if err := log.DeleteRange(first, min(last, snapshot.Index)); err != nil {
		return fmt.Errorf("forget what a snapshot covers: %w", err)
	}
	return nil
}

// restoreNewest makes the state at least as new as the newest snapshot that can
// be read, and tells which that is, one at 0 without any.
func (n *Node) restoreNewest() (raft.SnapshotMeta, error) {
	metas, err := n.snapshots.List()
	if err != nil {
		return raft.SnapshotMeta{}, fmt.Errorf("list snapshots: %w", err)
	}
	for _, m := range metas {
		if n.fsm.progress.index() >= m.Index {
			return *m, nil
		}
		stream, err := n.openSnapshot(m.ID)
		if err == nil {
			err = n.fsm.Restore(stream)
		}
		if err == nil && n.fsm.progress.index() != m.Index {
			err = fmt.Errorf("it holds the state at %d, not at %d", n.fsm.progress.index(), m.Index)
		}
		if err == nil {
			n.log.Info("state restored from a snapshot", "snapshot", m.ID)
			return *m, nil
		}
		n.log.Error("snapshot cannot be used", "snapshot", m.ID, "err", err)
		n.snapshots.bad[m.ID] = true
	}
	return raft.SnapshotMeta{}, nil
}

func (n *Node) openSnapshot(id string) (io.ReadCloser, error) {
	_, stream, err := n.snapshots.Open(id)
	return stream, err
}
