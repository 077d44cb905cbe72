package consensus

import (
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// arrivalPatience is how long a node that receives a snapshot waits for the next byte while the
// sender is also silent otherwise. Raft's main loop does nothing else while it reads a snapshot,
// so without this limit the node could not take part in elections until the connection to a lost
// sender times out after 40 s. The limit equals Raft's time-out for one message.
const arrivalPatience = 5 * time.Second

// arrivals aborts the transfer of a snapshot whose sender has stopped sending.
type arrivals struct {
	// heard returns when this node last heard from a leader.
	heard func() time.Time
	// drop closes the streams from the member with the id from.
	drop func(from string)
}

// watch wraps the snapshot stream of an InstallSnapshot request, so that a transfer without
// progress is aborted. It returns other requests unchanged.
func (a arrivals) watch(rpc raft.RPC) raft.RPC {
	if args, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok && rpc.Reader != nil {
		rpc.Reader = newArrival(rpc.Reader, a, string(args.ID))
	}
	return rpc
}

// arrival is a snapshot that is being received. One goroutine reads it.
type arrival struct {
	arrivals
	from   io.Reader
	sender string

	// mu guards the fields below.
	mu    sync.Mutex
	since time.Time   // when the waiting Read began; zero if none waits
	stuck *time.Timer // timer that runs while a Read waits
}

func newArrival(from io.Reader, a arrivals, sender string) *arrival {
	r := &arrival{arrivals: a, from: from, sender: sender}
	r.stuck = time.AfterFunc(arrivalPatience, r.check)
	r.stuck.Stop()
	return r
}

// Read implements io.Reader.
func (r *arrival) Read(p []byte) (int, error) {
	r.waits(time.Now())
	defer r.waits(time.Time{})
	return r.from.Read(p)
}

func (r *arrival) waits(since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = since
	if since.IsZero() {
		r.stuck.Stop()
		return
	}
	r.stuck.Reset(arrivalPatience)
}

// check runs when the timer fires. It aborts the transfer if Read has waited for arrivalPatience
// without a byte and the node has heard nothing from a leader in that time.
func (r *arrival) check() {
	silent := time.Since(r.heard()) >= arrivalPatience
	if r.gaveUp(silent) {
		r.drop(r.sender)
	}
}

func (r *arrival) gaveUp(silent bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() || time.Since(r.since) < arrivalPatience {
		return false
	}
	if !silent {
		r.stuck.Reset(arrivalPatience)
	}
	return silent
}
