package dag

import (
	"context"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/ipfs/go-cid"
)

const (
	// followFirst is the first pause before other nodes that fetch the same DAG are asked again for
	// blocks that they did not have. The pause doubles each time. After a pause of followMost the
	// job stops waiting for them.
	followFirst = 10 * time.Millisecond
	followMost  = 160 * time.Millisecond
	// followPart limits how long one job waits for other nodes: to 1/followPart of the time that
	// the fetch has taken so far. A small DAG is complete before another node has its blocks, so
	// waiting would not help.
	followPart = 4
	// maxVain is how many times the jobs of a fetch may give up on the other nodes since a block last
	// came from them. From then on each job asks them once and does not wait, until a block comes again.
	maxVain = 3
)

// Share is the position of this node among the Of nodes that fetch the same DAG at the same time.
// The other nodes are among the sources and have the method Shares. In every node of the DAG, each
// cluster node starts with another child. It gets the blocks with which other cluster nodes started
// from them. So the cluster fetches the DAG about once from outside, and not once for each node. If
// another node does not get a block soon, the block is fetched like any other. The zero value means
// that no other node fetches the DAG.
type Share struct{ Index, Of int }

// alone returns whether there is no other node.
func (s Share) alone() bool { return s.Of <= 1 || s.Index < 0 || s.Index >= s.Of }

// begin returns the index of the child to start with.
func (s Share) begin(children int) int {
	if s.alone() {
		return 0
	}
	return children * s.Index / s.Of
}

// part returns whether the next child belongs to this node's part of the DAG or to that of
// another node.
func (s Share) part(f *frame) part {
	switch {
	case f.part != undecided || s.alone() || f.count < s.Of:
		return f.part
	case f.next < f.count*(s.Index+1)/s.Of-s.begin(f.count):
		return own
	default:
		return others
	}
}

// part says which node fetches a block first: this node or another one.
type part uint8

const (
	undecided part = iota // the walk is above the first node that has a child for every cluster node
	own
	others
)

// othersStart returns whether other nodes start with all of the blocks.
func othersStart(want map[cid.Cid]item) bool {
	for _, it := range want {
		if it.part != others {
			return false
		}
	}
	return len(want) > 0
}

// follow asks the sources that fetch the same DAG for the blocks in want, with which they have
// started. If they do not have the blocks yet, follow asks again after a short pause, as long as
// blocks arrive.
func (f *fetch) follow(ctx context.Context, want map[cid.Cid]item) error {
	most := time.Since(f.began) / followPart
	pauses := backoff.New(followFirst, 2*followMost)
	for len(want) > 0 && ctx.Err() == nil {
		before, reached := len(want), false
		for i := range f.req.Sources {
			if len(want) == 0 || ctx.Err() != nil {
				return nil
			}
			if !f.shares(i) || f.failing(i) && f.skip(i) {
				continue
			}
			lacks, err := f.askOne(ctx, i, want)
			if err != nil {
				return err
			}
			reached = reached || lacks
		}
		if len(want) < before {
			pauses.Reset()
		}
		pause := pauses.NextBackOff()
		if !f.worthWaiting(len(want) < before, reached && pause <= min(followMost, most)) {
			return nil
		}
		backoff.Wait(ctx, pause)
	}
	return nil
}

// sharer is an optional method of a Source. It returns whether the source may be fetching the
// same DAG now with its own Share.
type sharer interface{ Shares() bool }

func (f *fetch) shares(i int) bool {
	s, ok := f.req.Sources[i].(sharer)
	return ok && s.Shares()
}

// failing returns whether the last request to source i failed.
func (f *fetch) failing(i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faults[i].failed
}

// worthWaiting returns whether a job should go on waiting for blocks of other nodes. came says
// whether blocks have arrived since the last call, and more whether a further pause may still help.
// worthWaiting counts how often in a row jobs of this fetch have waited in vain, see maxVain.
func (f *fetch) worthWaiting(came, more bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if came {
		f.vain = 0
	}
	if !more {
		f.vain++
	}
	return more && f.vain < maxVain
}
