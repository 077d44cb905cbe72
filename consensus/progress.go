package consensus

import (
	"context"
	"sync"
)

// progress has the index of the newest entry in the local state, and notifies goroutines that
// wait for an index.
type progress struct {
	// mu guards the fields below.
	mu      sync.Mutex
	applied uint64
	term    uint64        // term of the newest applied entry
	moved   chan struct{} // closed and replaced whenever the index rises
}

func newProgress(applied uint64) *progress {
	return &progress{applied: applied, moved: make(chan struct{})}
}

func (p *progress) index() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.applied
}

// lastTerm returns the term of the newest entry that was applied since the start.
func (p *progress) lastTerm() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.term
}

func (p *progress) set(applied, term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applied, p.term = applied, max(p.term, term)
	close(p.moved)
	p.moved = make(chan struct{})
}

// changed returns the applied index, and a channel that is closed when the index rises.
func (p *progress) changed() (uint64, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.applied, p.moved
}

// wait blocks until the local state includes the entry at index and then returns nil, or returns
// the error of ctx.
func (p *progress) wait(ctx context.Context, index uint64) error {
	for {
		at, moved := p.changed()
		if at >= index {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
