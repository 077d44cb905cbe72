package dag

import (
	"context"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/ipfs/go-cid"
)

const (
	// followFirst is the pause before the others are asked again for what they
	// had not got yet; it doubles up to followMost, and then they are not waited
	// for any more.
	followFirst = 10 * time.Millisecond
	followMost  = 160 * time.Millisecond
	// followPart is how much of the time that the fetch has taken so far one job
	// may wait: what is small is fetched sooner than anybody else has it.
	followPart = 4
	// maxVain is how often in a row they may be waited for in vain before nobody
	// waits.
	maxVain = 3
)

// Share says which of several nodes this is that fetch the same DAG at the same
// time; the others are among the sources, and say that they share it. Each begins
// at another place among the children of every node, and takes what the others
// began with from them. So the DAG comes from afar about once, and not once for
// each of them. Nothing depends on the others: what they do not have soon is
// fetched like the rest. The zero value is one node alone.
type Share struct{ Index, Of int }

// alone says that there is nothing to share.
func (s Share) alone() bool { return s.Of <= 1 || s.Index < 0 || s.Index >= s.Of }

// begin is the child to begin with.
func (s Share) begin(children int) int {
	if s.alone() {
		return 0
	}
	return children * s.Index / s.Of
}

// part is that of the child which is next.
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

// part tells the blocks with which this node begins from those with which
// others do.
type part uint8

const (
	undecided part = iota // above the first node with a child for everybody
	own
	others
)

// late tells whether others have begun with all of the blocks.
func late(want map[cid.Cid]item) bool {
	for _, it := range want {
		if it.part != others {
			return false
		}
	}
	return len(want) > 0
}

// follow asks the sources that fetch the same DAG for what they began with. They
// may be just about to have it, so they get a moment, and another as long as
// something comes.
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

// sharer is a Source that may be fetching the same DAG now, with a Share of its
// own.
type sharer interface{ Shares() bool }

func (f *fetch) shares(i int) bool {
	s, ok := f.req.Sources[i].(sharer)
	return ok && s.Shares()
}

// failing tells whether source i is passed over because it fails, and not for
// what it lacks.
func (f *fetch) failing(i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faults[i].failed
}

// worthWaiting notes whether something came and tells whether to wait for more.
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
