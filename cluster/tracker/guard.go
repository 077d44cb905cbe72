package tracker

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Bounds of what is looked at after a guard.
const (
	// guardLinger is how long a root is left alone after its guard: mostly the
	// command that names it is applied here by then, and there is nothing to ask
	// the cluster for.
	guardLinger = time.Second
	// maxUnguarded bounds the roots that wait for that look; an audit finds more.
	maxUnguarded = 16 << 10
)

// Guards keeps roots from being dropped while a command that names them may be on
// its way. A drop is for a view of the state; when a guard has been there since
// that view was asked for, there is none, for the guard's end may be news that
// came after it.
type Guards struct {
	some chan struct{} // has a token while there may be some in ended

	// mu guards what follows. It is never held while calling out.
	mu    sync.Mutex
	roots map[state.RootKey]*guard
	ended []state.RootKey // guards that are gone, for a look
	more  bool            // more than fit into ended
	// fenced says that no guard of an earlier process counts any more. Until then
	// nothing complete is dropped in a cluster that has guards; kept says that
	// something was not for that.
	fenced, kept bool
}

// guard is a root that is guarded, or to be dropped.
type guard struct {
	holders  int
	doomed   bool          // the sweeper has asked for a view to drop it by
	dropping chan struct{} // closed when the drop has ended; nil: there is none
}

// NewGuards returns guards of no root.
func NewGuards() *Guards {
	return &Guards{some: make(chan struct{}, 1), roots: map[state.RootKey]*guard{}}
}

// Begin guards a root until End, once for each Begin. It waits for the end of a
// drop of the root that is under way; the error is ctx's.
func (g *Guards) Begin(ctx context.Context, root state.RootKey) error {
	for {
		g.mu.Lock()
		e := g.roots[root]
		if e == nil {
			e = &guard{}
			g.roots[root] = e
		}
		wait := e.dropping
		if wait == nil {
			e.doomed = false
			e.holders++
		}
		g.mu.Unlock()
		if wait == nil {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// End ends what Begin began. The tracker looks at the root a little later.
func (g *Guards) End(root state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	if e.holders--; e.holders > 0 {
		return
	}
	delete(g.roots, root)
	if len(g.ended) < maxUnguarded {
		g.ended = append(g.ended, root)
	} else {
		g.more = true
	}
	token(g.some)
}

// Fenced says that no guard of an earlier process counts any more.
func (g *Guards) Fenced() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced = true
	if g.kept {
		g.kept, g.more = false, true
		token(g.some)
	}
}

// doom notes that a root is to be dropped by a view that has not been asked for
// yet; false: it is guarded.
func (g *Guards) doom(root state.RootKey) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	if e == nil {
		e = &guard{}
		g.roots[root] = e
	}
	if e.holders > 0 {
		return false
	}
	e.doomed = true
	return true
}

// spare takes doom back.
func (g *Guards) spare(root state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.roots[root]; e != nil && e.holders == 0 && e.dropping == nil {
		delete(g.roots, root)
	}
}

// drop begins the drop of a doomed root, which dropped ends; false: it has been
// guarded since.
func (g *Guards) drop(root state.RootKey) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	if e == nil || !e.doomed || e.holders > 0 {
		return false
	}
	e.dropping = make(chan struct{})
	return true
}

func (g *Guards) dropped(root state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	delete(g.roots, root)
	close(e.dropping)
}

// settled tells whether what is complete may be dropped by a view of the cluster.
func (g *Guards) settled(level state.Level) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fenced || level < GuardLevel {
		return true
	}
	g.kept = true
	return false
}

func (g *Guards) take() (roots []state.RootKey, more bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	roots, more = g.ended, g.more
	g.ended, g.more = nil, false
	return roots, more
}

// GuardLevel is the level from which content is sealed for commands that are not
// in the state yet.
const GuardLevel state.Level = 3

// unguard looks at roots whose guards have ended, until ctx ends.
func (t *Tracker) unguard(ctx context.Context) error {
	timer := time.NewTimer(guardLinger)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.guards.some:
		}
		timer.Reset(guardLinger)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		roots, more := t.guards.take()
		if more {
			token(t.audits)
		}
		for len(roots) > 0 {
			page := roots[:min(len(roots), pageRoots)]
			roots = roots[len(page):]
			t.hides.add(page...) // they were sealed by what the state said before
			loose, err := t.loose(page)
			if err != nil {
				t.opts.Logger.ErrorContext(ctx, "roots not looked at after their guards", "err", err)
				token(t.audits)
				break
			}
			for _, k := range loose {
				if err := t.offer(ctx, k); err != nil {
					return nil // ctx has ended
				}
			}
		}
	}
}

// loose returns of a page the roots that are not said to be held here.
func (t *Tracker) loose(page []state.RootKey) ([]state.RootKey, error) {
	view, release := t.opts.State.LocalView()
	defer release()
	var loose []state.RootKey
	for _, k := range page {
		_, own, err := wanted(view, k, t.opts.Self)
		if err != nil {
			return nil, err
		}
		if own == nil || own.Phase != state.Held {
			loose = append(loose, k)
		}
	}
	return loose, nil
}
