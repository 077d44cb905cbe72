package peer

import (
	"context"
	"sync"

	libp2ppeer "github.com/libp2p/go-libp2p/core/peer"
)

// places limits the work that the node does for members at the same time. Each piece of work needs
// a place. A member can take another place only while it has fewer places than are free. So members
// on slow lines, which keep their places for a long time, cannot take all of them.
type places struct {
	// mu guards the fields below.
	mu      sync.Mutex
	free    int
	held    map[libp2ppeer.ID]int
	changed chan struct{} // closed when a place becomes free; nil: no caller waits
}

func newPlaces(n int) *places {
	return &places{free: n, held: map[libp2ppeer.ID]int{}}
}

// take waits until the member can have one more place, and takes it. If ctx ends first, it returns
// the cause. The caller must return the place with giveBack.
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
