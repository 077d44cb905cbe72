package consensus

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// resent answers for snapshots that come although this node has what follows them: late,
// or again, because the leader never heard so. Raft would take such a one over. It goes by
// the configuration of the snapshot then, and has dealt already with the entries behind it
// that change who votes: it, and the snapshots that it takes, would count voters as nobody
// else does until the next change, and two halves of a cluster could each be a majority.
// Where the log was cut behind the snapshot, it would look for entries that are gone.
type resent struct {
	raft     *raft.Raft
	log      raft.LogStore // not of Raft's: one entry may go to it beside Raft's own
	progress *progress
	disk     *disk
	run      func(func()) // runs what Close waits for
	// taken is the newest snapshot that was taken over; nil: none was.
	taken *atomic.Pointer[raft.SnapshotMeta]
}

// behind has Raft take what follows the snapshot that it took over last. Where the log ended
// at that very entry, with one of another term that nobody has committed, Raft remembers that
// term, refuses what follows, and is sent the snapshot again at once, for ever. Up to the
// snapshot's end there is nothing to compare: what a message goes on from is committed.
func (r *resent) behind(rpc raft.RPC) raft.RPC {
	args, ok := rpc.Command.(*raft.AppendEntriesRequest)
	if !ok || args.PrevLogEntry == 0 {
		return rpc
	}
	if s := r.taken.Load(); s != nil && args.PrevLogEntry == s.Index && args.PrevLogTerm == s.Term {
		from := *args
		from.PrevLogEntry, from.PrevLogTerm = 0, 0
		rpc.Command = &from
	}
	return rpc
}

// take has a snapshot answered that this node has, and returns at once; false: it is Raft's.
func (r *resent) take(rpc raft.RPC) bool {
	args, ok := rpc.Command.(*raft.InstallSnapshotRequest)
	if !ok || rpc.Reader == nil || args.Term < r.raft.CurrentTerm() || !r.has(args) {
		return false
	}
	r.run(func() {
		resp := &raft.InstallSnapshotResponse{Term: r.raft.CurrentTerm()}
		_, err := io.Copy(io.Discard, rpc.Reader) // what follows on the stream is behind it
		// Raft alone raises the term. The leader's heartbeats have it do so, and then it
		// sends the snapshot again.
		if err == nil && args.Term == resp.Term {
			err = r.goOn(raft.SnapshotMeta{Index: args.LastLogIndex, Term: args.LastLogTerm})
			resp.Success = err == nil
		}
		rpc.Respond(resp, err)
	})
	return true
}

// has tells whether the log leads from the snapshot on, or from behind it and the state has
// the rest.
func (r *resent) has(args *raft.InstallSnapshotRequest) bool {
	if args.LastLogIndex >= r.raft.LastIndex() {
		return false
	}
	first, err := r.log.FirstIndex()
	if err != nil || first == 0 {
		return false
	}
	applied := r.progress.index()
	if first > args.LastLogIndex {
		return applied >= args.LastLogIndex
	}
	var entry raft.Log
	err = r.log.GetLog(args.LastLogIndex, &entry)
	return err == nil && entry.Term == args.LastLogTerm && first <= applied+1
}

// goOn has what follows a snapshot be taken. An error of a full disk is answered, and the
// leader tries again; any other one ends the node.
func (r *resent) goOn(snapshot raft.SnapshotMeta) error {
	err := standIn(r.log, snapshot)
	if err != nil && !r.disk.full(err) {
		r.disk.fail(fmt.Errorf("%w: go on behind a snapshot: %w", ErrBroken, err))
	}
	return err
}
