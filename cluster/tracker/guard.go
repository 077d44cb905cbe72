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
//
// A guard also remembers how its root was sealed and that the tracker has seen the
// state say the same: then there is nothing to look at when it has ended. ADR 24 says
// why that is certain; what is not is looked at.
type Guards struct {
	some chan struct{} // has a token while there may be some in ended

	// mu guards what follows. It is never held while calling out.
	mu    sync.Mutex
	roots map[state.RootKey]*guard
	ended []state.RootKey // guards that have ended; each is listed
	more  bool            // more than fit into ended
	// turning are the roots whose seal something else than a put may be changing, with
	// how many.
	turning map[state.RootKey]int
	reading uint64 // bytes of roots that stay for their readers alone
	// fenced says that no guard of an earlier process counts any more. Until then
	// nothing complete is dropped in a cluster that has guards; kept says that
	// something was not for that.
	fenced, kept bool
}

// guard is a root that is guarded, was until a moment ago, or is to be dropped.
type guard struct {
	holders  int
	listed   bool          // in ended; stays until it is taken from there
	doomed   bool          // the sweeper has asked for a view to drop it by
	dropping chan struct{} // closed when the drop has ended; nil: there is none
	readers  int           // files of it that are open here
	kept     uint64        // bytes that stay for the readers alone; 0: nothing does

	owing  int  // holders, there or gone, that have not said Sealed or Found
	sealed bool // by a holder
	hidden bool // as it was sealed
	seen   bool // the state wants it, says that it is held here, and as hidden as it was sealed
	doubt  bool // a drop was refused, or hidden may not be true any more
}

// quiet tells whether there is nothing to look at when the guard has ended.
func (e *guard) quiet() bool { return !e.doubt && e.owing == 0 && (e.seen || !e.sealed) }

// NewGuards returns guards of no root.
func NewGuards() *Guards {
	return &Guards{
		some: make(chan struct{}, 1), roots: map[state.RootKey]*guard{}, turning: map[state.RootKey]int{},
	}
}

// of returns what is known of a root, from now on something. The caller has mu.
func (g *Guards) of(root state.RootKey) *guard {
	e := g.roots[root]
	if e == nil {
		e = &guard{}
		g.roots[root] = e
	}
	return e
}

// Begin guards a root until End, once for each Begin. It waits for the end of a
// drop of the root that is under way; the error is ctx's.
func (g *Guards) Begin(ctx context.Context, root state.RootKey) error {
	for {
		g.mu.Lock()
		e := g.of(root)
		wait := e.dropping
		if wait == nil {
			// A requested drop waits for the scan after the guard.
			e.doubt = e.doubt || e.doomed || g.turning[root] > 0
			e.doomed = false
			e.holders++
			e.owing++
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

// Sealed says how a root was sealed by who began a guard of it. Say it, or Found, once
// for each Begin, or nothing, as after an error: then End has the tracker look.
func (g *Guards) Sealed(root state.RootKey, hidden bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	e.owing--
	e.doubt = e.doubt || e.sealed && e.hidden != hidden // by which of two is not known
	e.sealed, e.hidden = true, hidden
}

// Found says that a root was sealed before, and nothing was changed.
func (g *Guards) Found(root state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.roots[root].owing--
}

// End ends what Begin began. The tracker looks at the root a little later, if there is
// something to look at then.
func (g *Guards) End(root state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	if e.holders--; e.holders > 0 || e.listed {
		return
	}
	g.list(root, e)
}

// list has the tracker look at a root that nothing guards any more.
func (g *Guards) list(root state.RootKey, e *guard) {
	if len(g.ended) < maxUnguarded {
		g.ended, e.listed = append(g.ended, root), true
	} else {
		g.more = true
		g.tidy(root, e)
	}
	token(g.some)
}

// agrees tells whether a root was sealed under a guard, and is as hidden as the state
// says: private is of a view that the caller had before, and that wants the root and
// says that it is held here.
func (g *Guards) agrees(root state.RootKey, private bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	if e == nil || e.doubt || e.owing > 0 || !e.sealed || e.hidden != private {
		return false
	}
	e.seen = true
	return true
}

// turn notes, before the state is read for it, that the seals of roots may change;
// turned ends it. Guards that are there meanwhile do not know how their roots are sealed.
func (g *Guards) turn(roots ...state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range roots {
		g.turning[k]++
		if e := g.roots[k]; e != nil {
			e.doubt = true
		}
	}
}

func (g *Guards) turned(roots ...state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range roots {
		if g.turning[k]--; g.turning[k] == 0 {
			delete(g.turning, k)
		}
	}
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
	e := g.of(root)
	if e.holders > 0 {
		e.doubt = true
		return false
	}
	e.doomed = true
	return true
}

// spare takes doom back.
func (g *Guards) spare(root state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.roots[root]; e != nil && e.dropping == nil {
		e.doomed = false
		g.tidy(root, e)
	}
}

// tidy forgets what is neither guarded, nor read, nor to be dropped, nor to be looked at.
func (g *Guards) tidy(root state.RootKey, e *guard) {
	if e.holders == 0 && e.readers == 0 && !e.listed && !e.doomed {
		delete(g.roots, root)
	}
}

// drop begins the drop of a doomed root of so many bytes, which dropped ends; false: it
// has been guarded since, or stays for those who read it. No bytes are parts of content,
// which stay for nobody.
func (g *Guards) drop(root state.RootKey, bytes uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	if e == nil {
		return false
	}
	if !e.doomed || e.holders > 0 {
		e.doubt = true
		return false
	}
	if g.keeps(e, bytes) {
		e.doomed, e.doubt = false, true // it is looked at when they have ended
		return false
	}
	e.dropping = make(chan struct{})
	return true
}

func (g *Guards) dropped(root state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	close(e.dropping)
	e.dropping, e.doomed, e.doubt = nil, false, true // nothing is sealed any more
	g.tidy(root, e)
}

// isFenced tells whether no guard of an earlier process counts any more.
func (g *Guards) isFenced() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fenced
}

// settled tells whether what is complete may be dropped by a view of the cluster that was
// asked for when isFenced said fenced. The first fence may have come since: then what was
// said before it may be news that the view does not show.
func (g *Guards) settled(level state.Level, fenced bool) bool {
	if fenced || level < GuardLevel {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fenced { // nobody else comes back to what is kept now
		g.more = true
		token(g.some)
	}
	g.kept = !g.fenced
	return false
}

// take returns the roots to look at of those whose guards have ended.
func (g *Guards) take() (roots []state.RootKey, more bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range g.ended {
		e := g.roots[k]
		e.listed = false
		if !e.quiet() {
			roots = append(roots, k)
		}
		g.tidy(k, e)
	}
	more = g.more
	g.ended, g.more = g.ended[:0], false
	return roots, more
}

// GuardLevel is the level from which content is sealed for commands that are not
// in the state yet.
const GuardLevel state.Level = 3

// unguard looks at roots whose guards have ended, until ctx ends. In the normal course
// there are none: the command was applied, and its event looked at, before guardLinger.
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
