package gossip

import (
	"maps"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"golang.org/x/time/rate"
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

	// mu guards authors. It is never held while calling out.
	mu      sync.Mutex
	authors map[string]*rate.Limiter
}

// NewGate returns a Gate that goes by now.
func NewGate(now func() time.Time) *Gate {
	return &Gate{now: now, authors: map[string]*rate.Limiter{}}
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
	author := g.authors[from]
	if author == nil {
		if len(g.authors) >= state.MaxNodes { // whose burst is whole need not be remembered
			maps.DeleteFunc(g.authors, func(_ string, l *rate.Limiter) bool { return l.TokensAt(now) >= gateBurst })
		}
		if len(g.authors) >= state.MaxNodes {
			return false
		}
		author = rate.NewLimiter(rate.Every(gateEvery), gateBurst)
		g.authors[from] = author
	}
	return author.AllowN(now, 1)
}
