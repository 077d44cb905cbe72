package tracker

import (
	"context"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// MaxPosition is the largest position in a line that Look returns. Roots further back have this
// position too.
const MaxPosition = 1000

// Seen is what this node is doing for a root that it does not hold yet.
type Seen struct {
	Fetching bool
	Bytes    uint64 // bytes that have arrived in this attempt and in earlier ones
	Blocks   uint64
	// Position is the position in the line of the account whose turns the root uses, from 1 to
	// MaxPosition. It is 0 if the root does not wait for a slot.
	Position int
	Attempts int // number of attempts that have failed in a row
}

// question is a call of Look that the dispatcher must answer.
type question struct {
	root   state.RootKey
	answer chan Seen // has room for the answer
}

// Look returns the work of this node for a root; ok is false if there is none or ctx ends
// first. It changes nothing.
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
