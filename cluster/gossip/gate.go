package gossip

import (
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Bounds of what one author may send.
const (
	gateEvery = 250 * time.Millisecond // of one sample in the long run
	gateBurst = 8                      // samples at once
)

// Gate decides which messages of the topic are passed on. It costs an author
// who floods the topic its own samples, not the cluster's processors.
type Gate struct {
	now func() time.Time // set once

	// mu guards spent. It is never held while calling out.
	mu    sync.Mutex
	spent map[string]time.Time // author -> when its allowance is whole again
}

// NewGate returns a Gate that goes by now.
func NewGate(now func() time.Time) *Gate {
	return &Gate{now: now, spent: map[string]time.Time{}}
}

// Accept tells whether a message is a sample that its author made of itself,
// within the author's rate. It does not block and may be called at the same
// time from many goroutines.
func (g *Gate) Accept(from string, data []byte) bool {
	return g.allow(from) && Valid(from, data)
}

func (g *Gate) allow(from string) bool {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	whole, known := g.spent[from]
	if !known && len(g.spent) >= state.MaxNodes {
		for id, at := range g.spent { // whose allowance is whole need not be remembered
			if !at.After(now) {
				delete(g.spent, id)
			}
		}
		if len(g.spent) >= state.MaxNodes {
			return false
		}
	}
	if whole.Before(now) {
		whole = now
	}
	if whole.Sub(now) > (gateBurst-1)*gateEvery {
		return false
	}
	g.spent[from] = whole.Add(gateEvery)
	return true
}
