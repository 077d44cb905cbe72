package members

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Bounds of counting the pins of members, which reads all roots.
const (
	// maxCounted is how many roots one call reads; the next one goes on from there.
	maxCounted = 500_000
	// countShare is how long a count is good for while the state changes, as a multiple of
	// the time that it took: at most 5 % of one processor goes into counting.
	countShare = 20
)

// pinned counts the pins whose content each member holds. The state has counters of roots
// only, which objects name too, and one root may have any number of pins.
type pinned struct {
	// mu guards what follows. It is held while roots are read, so that calls at the same
	// time share one count.
	mu    sync.Mutex
	last  map[state.NodeID]uint64 // of the newest count that has come to its end; nil: none has
	index uint64                  // of the state that it is of
	taken time.Time
	took  time.Duration

	// A count under way, of more than maxCounted roots.
	next  state.RootKey // to go on from; empty: none is under way
	sofar map[state.NodeID]uint64
	spent time.Duration
}

// counts are how many pins' content members hold, or, if partial, at least hold.
type counts struct {
	of      map[state.NodeID]uint64
	partial bool
}

// of returns the count for a view, of at most limit roots in one call. While the first count of very many roots is
// under way, it has those that were read so far and is partial.
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
		p.next = "" // from the beginning
		return counts{}, fmt.Errorf("count the pins of members: %w", err)
	}
	p.spent += time.Since(begun)
	if p.next == "" {
		p.last, p.index, p.taken, p.took = p.sofar, view.Index(), time.Now(), p.spent
	}
	if p.last == nil {
		return counts{of: maps.Clone(p.sofar), partial: true}, nil // it grows
	}
	return counts{of: p.last}, nil
}
