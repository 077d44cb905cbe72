package peer

import (
	"context"
	"sync"

	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
)

// places bounds what is done for all members at once. One may have as many places as are
// left when it has them, at least one: so that those on slow lines, which keep theirs for
// long, do not keep all.
type places struct {
	// mu guards what follows.
	mu      sync.Mutex
	free    int
	held    map[libp2ppeer.ID]int
	changed chan struct{} // closed when a place has been given back; nil: nobody waits
}

func newPlaces(n int) *places {
	return &places{free: n, held: map[libp2ppeer.ID]int{}}
}

// take waits for a place, which the caller gives back, or for the end of ctx.
func (p *places) take(ctx context.Context, member libp2ppeer.ID) error {
	for {
		p.mu.Lock()
		if p.held[member] < p.free {
			p.free--
			p.held[member]++
			p.mu.Unlock()
			return nil
		}
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *places) giveBack(member libp2ppeer.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	if p.held[member]--; p.held[member] == 0 {
		delete(p.held, member)
	}
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}
