package tracker

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits for the scan after a lease.
const (
	// leaseLinger is the time between the end of a lease and the scan of its root. By then this
	// node has usually applied the command that references the root, and need not ask the
	// cluster.
	leaseLinger = time.Second
	// maxEndedLeases is the largest number of roots that wait for the scan. An audit finds
	// further ones.
	maxEndedLeases = 16 << 10
)

// Leases prevents the tracker from dropping a root while a command that references the root may
// be in progress. The tracker drops a root by a view of the state. It does not drop the root if a
// lease has existed since it requested that view, because a command after the view may reference
// the root.
//
// A lease also records how its root was sealed, and whether the tracker has seen the same in the
// state. Then the root needs no scan after the lease. ADR 24 explains why that is safe.
type Leases struct {
	some chan struct{} // contains a token while ended may have roots

	// mu guards the fields below. It is not held during calls of other code.
	mu    sync.Mutex
	roots map[state.RootKey]*lease
	ended []state.RootKey // roots whose leases have ended and that wait for the scan; listed is set for each
	more  bool            // ended was full, so some roots are missing in it
	// changing is the number of operations per root, other than puts, that may change its seal
	// now.
	changing map[state.RootKey]int
	reading  uint64 // bytes of roots that remain only for open readers
	// fenced is true once the state rejects commands under leases of earlier processes. Until
	// then, a cluster whose nodes use leases drops no complete root. kept is true if a root was
	// not dropped for that reason.
	fenced, kept bool
}

// lease is the entry of a root that has a lease or a reader, whose lease has just ended, or that
// is about to be dropped.
type lease struct {
	holders  int
	listed   bool          // the root is in ended
	doomed   bool          // the sweeper is about to drop the root by a view of the state
	dropping chan struct{} // closed at the end of the drop; nil if there is no drop
	readers  int           // number of open files of the root
	kept     uint64        // bytes that remain only for the readers

	owing  int  // number of calls of Begin that no Sealed or Found has followed yet
	sealed bool // the holder of a lease has sealed the root
	hidden bool // the root was sealed as hidden
	seen   bool // the state wants the root, records it as held on this node, and has the same privacy as the seal
	doubt  bool // a drop was refused, or hidden may be outdated
}

// quiet returns whether the root needs no scan after the end of its leases.
func (e *lease) quiet() bool { return !e.doubt && e.owing == 0 && (e.seen || !e.sealed) }

// NewLeases returns a Leases without leases.
func NewLeases() *Leases {
	return &Leases{
		some: make(chan struct{}, 1), roots: map[state.RootKey]*lease{}, changing: map[state.RootKey]int{},
	}
}

// of returns the entry of a root and creates it if there is none. The caller must hold mu.
func (g *Leases) of(root state.RootKey) *lease {
	e := g.roots[root]
	if e == nil {
		e = &lease{}
		g.roots[root] = e
	}
	return e
}

// Begin creates a lease on a root. The caller must call End for each Begin. If the root is being
// dropped, Begin waits for the end of the drop. It returns an error only if ctx ends first.
func (g *Leases) Begin(ctx context.Context, root state.RootKey) error {
	for {
		g.mu.Lock()
		e := g.of(root)
		wait := e.dropping
		if wait == nil {
			// A requested drop waits for the scan after the lease.
			e.doubt = e.doubt || e.doomed || g.changing[root] > 0
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

// Sealed records that the owner of a lease has sealed the root, and whether as hidden. The owner
// must call Sealed or Found once for each Begin. After an error it must call neither; then the
// tracker scans the root after End.
func (g *Leases) Sealed(root state.RootKey, hidden bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	e.owing--
	e.doubt = e.doubt || e.sealed && e.hidden != hidden // it is unknown which of the two was last
	e.sealed, e.hidden = true, hidden
}

// Found records that the root was sealed already and that the owner of the lease changed nothing.
func (g *Leases) Found(root state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.roots[root].owing--
}

// End ends the lease of one Begin. If necessary, the tracker scans the root after leaseLinger.
func (g *Leases) End(root state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	if e.holders--; e.holders > 0 || e.listed {
		return
	}
	g.list(root, e)
}

// list makes the tracker scan a root that has no lease any more. The caller must hold mu.
func (g *Leases) list(root state.RootKey, e *lease) {
	if len(g.ended) < maxEndedLeases {
		g.ended, e.listed = append(g.ended, root), true
	} else {
		g.more = true
		g.tidy(root, e)
	}
	token(g.some)
}

// agrees returns whether a root was sealed under a lease and is hidden exactly if private is
// true. private must come from a view that wants the root on this node and records it as held
// there. If agrees returns true, the root needs no scan after its leases.
func (g *Leases) agrees(root state.RootKey, private bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	if e == nil || e.doubt || e.owing > 0 || !e.sealed || e.hidden != private {
		return false
	}
	e.seen = true
	return true
}

// sealChanging announces that the seals of roots may change until sealChanged. The caller must
// read the state after this call. Roots that have leases meanwhile need a scan after these.
func (g *Leases) sealChanging(roots ...state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range roots {
		g.changing[k]++
		if e := g.roots[k]; e != nil {
			e.doubt = true
		}
	}
}

func (g *Leases) sealChanged(roots ...state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range roots {
		if g.changing[k]--; g.changing[k] == 0 {
			delete(g.changing, k)
		}
	}
}

// Fenced records that the state rejects commands under leases of earlier processes from now on.
func (g *Leases) Fenced() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fenced = true
	if g.kept {
		g.kept, g.more = false, true
		token(g.some)
	}
}

// requestDrop marks a root that the caller wants to drop. The caller must request the view by
// which it drops the root after this call. requestDrop returns false if the root has a lease.
func (g *Leases) requestDrop(root state.RootKey) bool {
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

// cancelDrop removes the mark of requestDrop.
func (g *Leases) cancelDrop(root state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.roots[root]; e != nil && e.dropping == nil {
		e.doomed = false
		g.tidy(root, e)
	}
}

// tidy deletes an entry that has no leases and no readers and waits for neither a drop nor a
// scan. The caller must hold mu.
func (g *Leases) tidy(root state.RootKey, e *lease) {
	if e.holders == 0 && e.readers == 0 && !e.listed && !e.doomed {
		delete(g.roots, root)
	}
}

// drop begins the drop of a root after requestDrop. The caller must call dropped at the end. drop
// returns false if the root has had a lease since requestDrop, or remains for its readers. bytes
// is the size of the root. It is 0 for incomplete content, which does not remain for readers.
func (g *Leases) drop(root state.RootKey, bytes uint64) bool {
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
		e.doomed, e.doubt = false, true // scanned after the last reader
		return false
	}
	e.dropping = make(chan struct{})
	return true
}

func (g *Leases) dropped(root state.RootKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	close(e.dropping)
	e.dropping, e.doomed, e.doubt = nil, false, true // the root is no longer sealed
	g.tidy(root, e)
}

// isFenced returns whether Fenced was called.
func (g *Leases) isFenced() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fenced
}

// mayDrop returns whether complete roots may be dropped by a linearizable view. level is the
// feature level in the view. fenced is the result of isFenced before the caller requested the
// view: if Fenced came after that, the view may lack commands under earlier leases.
func (g *Leases) mayDrop(level state.FeatureLevel, fenced bool) bool {
	if fenced || level < LeaseFeatureLevel {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fenced { // no later fence has the kept roots scanned
		g.more = true
		token(g.some)
	}
	g.kept = !g.fenced
	return false
}

// take removes the roots whose leases have ended, and returns those that must be scanned. more is
// true if there were too many, so that an audit must find the others.
func (g *Leases) take() (roots []state.RootKey, more bool) {
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

// LeaseFeatureLevel is the lowest feature level at which nodes seal content under leases, before
// the command that references it is in the state.
const LeaseFeatureLevel state.FeatureLevel = 3

// scanEnded scans roots whose leases have ended, until ctx ends. Usually there are none to scan,
// because this node applies the command within leaseLinger.
func (t *Tracker) scanEnded(ctx context.Context) error {
	timer := time.NewTimer(leaseLinger)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.leases.some:
		}
		timer.Reset(leaseLinger)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		roots, more := t.leases.take()
		if more {
			token(t.audits)
		}
		for len(roots) > 0 {
			page := roots[:min(len(roots), pageRoots)]
			roots = roots[len(page):]
			t.hides.add(page...) // they were sealed by an earlier state
			loose, err := t.loose(page)
			if err != nil {
				t.opts.Logger.ErrorContext(ctx, "cannot scan roots after their leases", "err", err)
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

// loose returns the roots of a page that the state does not record as held on this node.
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
