package consensus

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// resent answers for snapshots that arrive although this node already has the entries after
// them. Such a snapshot arrives late, or again because the leader missed the answer. Raft would
// restore the snapshot and use its configuration, although Raft has already processed later
// entries that change the voters. This node, and the snapshots that it takes, would then count
// voters differently from the other members until the next change, and two halves of a cluster
// could each be a majority. If the log was truncated after the snapshot, Raft would also look
// for entries that are gone.
type resent struct {
	raft     *raft.Raft
	log      raft.LogStore // the log below Raft's cache; resent may write one entry to it
	progress *progress
	disk     *disk
	run      func(func()) // starts goroutines for which Close waits
	// taken is the newest snapshot that was taken over; nil if there is none.
	taken *atomic.Pointer[raft.SnapshotMeta]
}

// behind makes Raft accept the entries that follow the last restored snapshot. If the log
// ended at exactly that index with an uncommitted entry of another term, Raft remembers
// that term, rejects the entries that follow, and gets the snapshot again at once, for
// ever. Up to the end of the snapshot there is nothing to compare, because everything
// before is committed.
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

// take answers the request for a snapshot that this node has, and returns at once. It returns
// false if Raft has to handle the request.
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

// has returns whether the log continues from the snapshot, or from a later entry and the
// state has the entries between.
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

// goOn makes Raft continue after a snapshot. If a full disk prevents this, the error is
// returned to the leader, which tries again; any other error ends the node.
func (r *resent) goOn(snapshot raft.SnapshotMeta) error {
	err := standIn(r.log, snapshot)
	if err != nil && !r.disk.full(err) {
		r.disk.fail(fmt.Errorf("%w: go on behind a snapshot: %w", ErrBroken, err))
	}
	return err
}
