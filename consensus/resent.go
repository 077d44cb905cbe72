package consensus

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// resent answers requests to install a snapshot for which this node already has the following
// entries. Such a snapshot arrives late, or again because the leader missed the answer. Raft
// would restore it and use its configuration, although Raft has already processed later changes
// of the voters. This node, and every snapshot that it takes, would then count voters differently
// from the other members until the next change, and two halves of a cluster could each believe to
// be a majority. If the log was truncated after the snapshot, Raft would also look for entries
// that no longer exist.
type resent struct {
	raft     *raft.Raft
	log      raft.LogStore // the log below Raft's cache; resent may write one entry to it
	progress *progress
	disk     *disk
	run      func(func()) // starts goroutines for which Close waits
	// taken is the newest snapshot that was taken over; nil if there is none.
	taken *atomic.Pointer[raft.SnapshotMeta]
}

// behind changes an append request that follows the last installed snapshot so that Raft accepts
// it. If the log ended at exactly the index of the snapshot with an uncommitted entry of another
// term, Raft remembers that term, rejects the entries that follow, and gets the same snapshot
// again, forever. behind therefore clears the previous index and term in the request. No
// comparison is needed there, because everything up to the snapshot is committed.
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

// take answers a request to install a snapshot if this node already has the snapshot's entries
// and later ones. It does so in a goroutine and returns true. It returns false if Raft has to
// handle the request.
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

// has returns whether this node needs no entry of the snapshot: the log has the snapshot's last
// entry and later ones, or it begins later and the state has applied everything before.
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

// goOn prepares the log so that Raft can append the entries after a snapshot. If a full disk
// prevents this, goOn returns an error, and the leader tries again; any other error ends the
// node.
func (r *resent) goOn(snapshot raft.SnapshotMeta) error {
	err := standIn(r.log, snapshot)
	if err != nil && !r.disk.full(err) {
		r.disk.fail(fmt.Errorf("%w: go on behind a snapshot: %w", ErrBroken, err))
	}
	return err
}
