package gossip

import (
	"maps"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"golang.org/x/time/rate"
)

// Limits of the rate at which samples of one author are forwarded.
const (
	gateEvery = 250 * time.Millisecond // interval of samples in the long run
	gateBurst = 8                      // samples in one burst
)

// Gate decides which messages of the pubsub topic members forward. It limits the rate of each
// author, so that a node that floods the topic only loses its own samples, and does not occupy
// the processors of the cluster.
type Gate struct {
	now func() time.Time // set once

	// mu guards authors. It is not held during calls of other code.
	mu      sync.Mutex
	authors map[string]*rate.Limiter
}

// NewGate returns a Gate that uses the clock now.
func NewGate(now func() time.Time) *Gate {
	return &Gate{now: now, authors: map[string]*rate.Limiter{}}
}

// Accept returns whether to forward a message: it is a valid sample of its author, within the
// author's rate. It does not block and is safe for concurrent use.
func (g *Gate) Accept(from string, data []byte) bool {
	return g.allow(from) && Valid(from, data)
}

func (g *Gate) allow(from string) bool {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	author := g.authors[from]
	if author == nil {
		if len(g.authors) >= state.MaxNodes { // an author whose full burst is available again need not be remembered
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
