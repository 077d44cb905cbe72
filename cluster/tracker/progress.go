package tracker

import (
	"context"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// MaxPosition is the largest position in a queue that Look returns. Roots further back get this
// position too.
const MaxPosition = 1000

// Seen is what this node does for a root that it has to fetch.
type Seen struct {
	Fetching bool
	Bytes    uint64 // bytes that have arrived in this attempt and in earlier ones
	Blocks   uint64
	// Position is the position of the root in its account's queue for a slot, from 1 to
	// MaxPosition. It is 0 if the root does not wait for a slot.
	Position int
	Attempts int // number of attempts that have failed in a row
}

// question is a call of Look that the dispatcher must answer.
type question struct {
	root   state.RootKey
	answer chan Seen // capacity 1; closed without an answer if there is no work
}

// Look returns what this node does for a root. ok is false if it does nothing for the root, or if
// ctx ends first.
func (t *Tracker) Look(ctx context.Context, root state.RootKey) (seen Seen, ok bool) {
	q := question{root, make(chan Seen, 1)}
	select {
	case t.questions <- q:
	case <-ctx.Done():
		return Seen{}, false
	}
	select {
	case seen, ok = <-q.answer:
		return seen, ok
	case <-ctx.Done():
		return Seen{}, false
	}
}

// answer answers a call of Look.
func (d *dispatcher) answer(q question) {
	defer close(q.answer)
	e := d.known[q.root]
	if e == nil {
		return
	}
	seen := Seen{Attempts: e.attempts}
	switch e.stage {
	case fetching:
		seen.Fetching, seen.Bytes, seen.Blocks = true, e.run.bytes.Load(), e.run.blocks.Load()
	case queued:
		for place := e.place; place != nil && seen.Position < MaxPosition; place = place.Prev() {
			seen.Position++
		}
	}
	q.answer <- seen
}
