package consensus

import (
	"encoding/binary"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Replaced is the result of ReplaceMembers.
type Replaced struct {
	Index   uint64       // index of the change
	Taken   uint64       // number of log entries that were not known to be committed or not applied yet, and were applied
	Removed []state.Node // former members
}

// replayBatch is the largest number of log entries that ReplaceMembers applies in one transaction.
const replayBatch = 64

// ReplaceMembers makes a stopped node the only member and voter of its cluster, with the state that
// it has. First it applies all entries of its log, because each of them may be committed. Then it
// applies change, in which it sets the Raft store of the node, and stores the result as a Raft
// snapshot whose configuration has this node alone. The log becomes empty. The state must have no
// other user. Options need no Network.
//
// A crash leaves a node that cannot lead, or one that has changed; in both cases a second call
// completes the work. Errors: ErrIncomplete if the log lacks entries after the state; those of
// state.ReplaceMembers.Apply.
func ReplaceMembers(opts Options, change state.ReplaceMembers) (r Replaced, err error) {
	opts.Timings = opts.Timings.withDefaults()
	n := &Node{opts: opts, timings: opts.Timings, log: opts.Logger, fatal: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = fmt.Errorf("consensus: replace the members: %w", err)
		}
	}()
	if n.fsm, err = openFSM(opts, n.fail); err != nil {
		return r, err
	}
	defer n.fsm.checks.close()
	n.disk = &disk{ran: n.fsm.ran, fail: n.fail, noSpace: opts.NoSpace, log: opts.Logger, closing: make(chan struct{})}
	if err := n.recover(); err != nil {
		return r, err
	}
	before := n.Applied()
	last, term, err := n.replay()
	if err != nil {
		return r, err
	}
	r.Taken = n.Applied() - before
	r.Index = max(n.Applied(), last) + 1
	// A term that no other member can have used for this index.
	if term, err = n.newTerm(term); err != nil {
		return r, err
	}
	store := n.eligibility.read()
	change.Node.Store, change.Node.Votes = store.store, true
	if r.Removed, err = n.fsm.replaceMembers(change, r.Index); err != nil {
		return r, err
	}
	n.fsm.progress.set(r.Index, term)
	if err := n.keepAlone(r.Index, term); err != nil {
		return r, err
	}
	return r, n.forgetLog()
}

// replay applies the entries of the log that the state lacks. It returns the index of the last
// entry or snapshot, and the highest term among the log and the snapshots.
func (n *Node) replay() (last, term uint64, err error) {
	metas, err := n.snapshots.List()
	if err != nil {
		return 0, 0, fmt.Errorf("list snapshots: %w", err)
	}
	for _, m := range metas {
		last, term = max(last, m.Index), max(term, m.Term)
	}
	end, err := n.opts.Log.LastIndex()
	if err != nil {
		return 0, 0, fmt.Errorf("read the log: %w", err)
	}
	var batch []*raft.Log
	for i := n.Applied() + 1; i <= end; i++ {
		entry := new(raft.Log)
		if err := n.opts.Log.GetLog(i, entry); err != nil {
			return 0, 0, fmt.Errorf("read entry %d of the log: %w", i, err)
		}
		term = max(term, entry.Term)
		if batch = append(batch, entry); len(batch) == replayBatch || i == end {
			n.fsm.ApplyBatch(batch)
			if n.fsm.broken != nil {
				return 0, 0, n.fsm.broken
			}
			batch = batch[:0]
		}
	}
	return max(last, end), term, nil
}

// newTerm makes the term of Raft higher than both the stored term and term, and lets the store of
// this node vote in it.
func (n *Node) newTerm(term uint64) (uint64, error) {
	term = max(term, n.eligibility.term.Load()) + 1
	if err := n.eligibility.raise(term); err != nil {
		return 0, fmt.Errorf("raise the term: %w", err)
	}
	return term, n.eligibility.grant(n.eligibility.read().after)
}

// replaceMembers applies change as the entry at index, durably.
func (f *fsm) replaceMembers(change state.ReplaceMembers, index uint64) ([]state.Node, error) {
	tx := f.store.Begin()
	defer tx.Discard()
	removed, err := change.Apply(tx, index)
	if err != nil {
		return nil, err
	}
	if err := tx.Set(appliedKey(), binary.BigEndian.AppendUint64(nil, index)); err != nil {
		return nil, err
	}
	if err := tx.Commit(true); err != nil {
		return nil, err
	}
	return removed, f.learn()
}

// keepAlone stores the state as a Raft snapshot with this node as the only server.
func (n *Node) keepAlone(index, term uint64) error {
	dir := filepath.Join(n.fsm.dir, fmt.Sprintf("%s%d-alone", checkpointPrefix, index))
	if err := n.fsm.store.Checkpoint(dir); err != nil {
		return fmt.Errorf("copy the state: %w", err)
	}
	made := &checkpoint{dir: dir, log: n.log, kept: func() {}}
	defer made.Release()
	id := raft.ServerID(n.opts.ID)
	alone := raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: id, Address: raft.ServerAddress(id)}}}
	sink, err := n.opts.Snapshots.Create(raft.SnapshotVersionMax, index, term, alone, index, nil)
	if err != nil {
		return fmt.Errorf("keep the state: %w", err)
	}
	return made.Persist(sink)
}

// forgetLog removes all entries of the log: the newest snapshot has them.
func (n *Node) forgetLog() error {
	first, err := n.opts.Log.FirstIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	last, err := n.opts.Log.LastIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if last == 0 {
		return nil
	}
	if err := n.opts.Log.DeleteRange(first, last); err != nil {
		return fmt.Errorf("remove the entries of the log: %w", err)
	}
	return nil
}
