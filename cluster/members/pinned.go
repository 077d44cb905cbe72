package members

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits for counting the pins of members, which reads all roots.
const (
	// maxCounted is the largest number of roots that one call reads. The next call continues
	// there.
	maxCounted = 500_000
	// countShare limits the work while the state changes: a count is reused for countShare times
	// the duration that it took. So counting takes at most 5 % of one processor.
	countShare = 20
)

// pinned counts the pins whose content each member holds. The state counts only the roots of a
// member, which differs: objects reference roots too, and a root can have many pins.
type pinned struct {
	// mu guards the fields below. It is held while roots are read, so that concurrent calls
	// share one count.
	mu    sync.Mutex
	last  map[state.NodeID]uint64 // the newest complete count; nil: none yet
	index uint64                  // log index of the state of last
	taken time.Time
	took  time.Duration

	// The count in progress, if there are more than maxCounted roots.
	next  state.RootKey // root at which to continue; empty if no count is in progress
	sofar map[state.NodeID]uint64
	spent time.Duration
}

// counts has, by member, the number of pins whose content it holds. If partial is true, the
// numbers are lower bounds.
type counts struct {
	of      map[state.NodeID]uint64
	partial bool
}

// of returns the counts for a view. One call reads at most limit roots. While the first count is
// in progress, it returns the numbers so far as partial.
func (p *pinned) of(view state.View, limit int) (counts, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	begun := time.Now()
	if p.last != nil && p.next == "" && (p.index == view.Index() || begun.Sub(p.taken) < countShare*p.took) {
		return counts{of: p.last}, nil
	}
	if p.next == "" {
		p.sofar, p.spent = make(map[state.NodeID]uint64), 0
	}
	from, left := p.next, limit
	p.next = ""
	err := view.Roots(from, func(r state.Root) (bool, error) {
		if left == 0 {
			p.next = r.Key
			return false, nil
		}
		left--
		for _, n := range r.Holders() {
			p.sofar[n] += r.Refs
		}
		return true, nil
	})
	if err != nil {
		p.next = "" // the next call starts again
		return counts{}, fmt.Errorf("count the pins of members: %w", err)
	}
	p.spent += time.Since(begun)
	if p.next == "" {
		p.last, p.index, p.taken, p.took = p.sofar, view.Index(), time.Now(), p.spent
	}
	if p.last == nil {
		return counts{of: maps.Clone(p.sofar), partial: true}, nil // a copy, because later calls change it
	}
	return counts{of: p.last}, nil
}
