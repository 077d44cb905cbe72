package tracker

import (
	"sync"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxRead is the largest number of bytes that remain on a node only for open readers. Further
// roots are dropped, and their readers get an error. Without this limit, a client that deletes
// content while it reads it slowly would use disk space without charge.
const maxRead = 8 << 30

// Read records that a file of a root is open on this node until done is called. If nobody wants
// the root any more, its blocks remain until then, hidden from peers that are not members. This
// applies as long as all such roots together have at most maxRead bytes.
func (g *Leases) Read(root state.RootKey) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.of(root)
	e.readers++
	return sync.OnceFunc(func() { g.unread(root, e) })
}

func (g *Leases) unread(root state.RootKey, e *lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.readers--; e.readers > 0 {
		return
	}
	if e.kept == 0 {
		g.tidy(root, e)
		return
	}
	g.reading -= e.kept
	e.kept = 0
	if e.holders == 0 && !e.listed {
		g.list(root, e)
	}
}

// keeps returns whether a root of bytes bytes remains for its readers, and counts its bytes if
// so. The caller must hold mu.
func (g *Leases) keeps(e *lease, bytes uint64) bool {
	if e.readers == 0 || bytes == 0 {
		return false
	}
	if e.kept > 0 {
		return true
	}
	if bytes > maxRead || g.reading > maxRead-bytes {
		return false
	}
	e.kept = bytes
	g.reading += bytes
	return true
}

// read returns whether a root remains on this node only for its readers.
func (g *Leases) read(root state.RootKey) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.roots[root]
	return e != nil && e.kept > 0
}
