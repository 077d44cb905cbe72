package dag

import (
	"context"
	"fmt"
	"sync/atomic"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

const (
	// maxHeldLinks bounds the links that a walk keeps in memory, about 100
	// bytes each. Nodes whose links do not fit are read again when the walk
	// comes back to them.
	maxHeldLinks = 200_000
	// maxSeenLeaves bounds the raw leaves that a walk remembers; when it is
	// reached they are all forgotten. Nodes are remembered always, or a small
	// DAG with shared nodes could take for ever.
	maxSeenLeaves = 1 << 20
)

// item is one block to visit.
type item struct {
	cid   cid.Cid
	depth int
	part  part
}

// frame is a node whose children are not all visited.
type frame struct {
	node  cid.Cid
	depth int
	part  part
	next  int       // how many children were visited
	count int       // children
	links []cid.Cid // nil when let go
}

// frontier is what a walk has still to visit, depth first, and what it has
// seen.
type frontier struct {
	limits Limits
	share  Share // where among the children of a node the walk begins
	room   int   // links that may be held
	frames []frame
	held   int // links in memory
	low    int // frames below it have let go of their links
	found  uint64

	nodes      *seen
	leaves     *seen
	remembered int // leaves in leaves
}

// newFrontier begins a walk that remembers nodes in what is left of free bytes.
func newFrontier(limits Limits, free *atomic.Int64) *frontier {
	return &frontier{limits: limits, room: maxHeldLinks, nodes: newSeen(free), leaves: newSeen(free)}
}

// end gives back what the walk remembers.
func (f *frontier) end() {
	f.nodes.forget()
	f.leaves.forget()
}

// newSeenBytes is the memory of one walk, or of several that share it.
func newSeenBytes() *atomic.Int64 {
	free := new(atomic.Int64)
	free.Store(maxSeenBytes)
	return free
}

// first tells whether c is seen for the first time.
func (f *frontier) first(c cid.Cid) (bool, error) {
	if c.Prefix().Codec != cid.Raw {
		return f.nodes.add(c.KeyString())
	}
	if f.remembered >= maxSeenLeaves {
		f.leaves.forget()
		f.remembered = 0
	}
	first, err := f.leaves.add(c.KeyString())
	if first {
		f.remembered++
	}
	return first, err
}

// push adds the children of a node.
func (f *frontier) push(node item, links []cid.Cid) error {
	if len(links) == 0 {
		return nil
	}
	if node.depth+1 >= f.limits.MaxDepth {
		return fmt.Errorf("%w: more than %d levels deep", ErrTooLarge, f.limits.MaxDepth)
	}
	f.frames = append(f.frames, frame{
		node: node.cid, depth: node.depth, part: node.part, count: len(links), links: links,
	})
	f.held += len(links)
	for f.held > f.room && f.low < len(f.frames)-1 {
		fr := &f.frames[f.low]
		f.held -= len(fr.links)
		fr.links = nil
		f.low++
	}
	return nil
}

// pop returns the next block to visit, each once; ok is false when there is
// none now. reload reads the links of a node whose children were pushed before.
func (f *frontier) pop(reload func(cid.Cid) ([]cid.Cid, error)) (it item, ok bool, err error) {
	for len(f.frames) > 0 {
		top := len(f.frames) - 1
		fr := &f.frames[top]
		if fr.links == nil {
			links, err := reload(fr.node)
			if err != nil {
				return item{}, false, err
			}
			if len(links) != fr.count {
				return item{}, false, fmt.Errorf("%w: %s has changed", ErrStore, fr.node)
			}
			fr.links = links
			f.held += len(links)
			f.low = min(f.low, top)
		}
		it = item{cid: fr.links[(f.share.begin(fr.count)+fr.next)%fr.count], depth: fr.depth + 1, part: f.share.part(fr)}
		if fr.next++; fr.next == fr.count {
			f.held -= len(fr.links)
			f.frames = f.frames[:top]
			f.low = min(f.low, top)
		}
		if first, err := f.first(it.cid); err != nil {
			return item{}, false, err
		} else if !first {
			continue
		}
		if err := f.admit(it.cid); err != nil {
			return item{}, false, err
		}
		return it, true, nil
	}
	return item{}, false, nil
}

// admit counts a block that is found and refuses what cannot be walked.
func (f *frontier) admit(c cid.Cid) error {
	if f.found++; f.found > f.limits.MaxBlocks {
		return fmt.Errorf("%w: more than %d blocks", ErrTooLarge, f.limits.MaxBlocks)
	}
	return checkCID(c)
}

// Walk visits every block below and with root once, depth first, parents before
// children, and calls fn with each. Blocks inside identity CIDs are not handed
// to fn, only their links are followed. An error of fn ends the walk and is
// returned.
func Walk(ctx context.Context, from Getter, root cid.Cid, limits Limits, fn func(blocks.Block) error) error {
	f := newFrontier(limits.withDefaults(), newSeenBytes())
	defer f.end()
	load := func(c cid.Cid) (blocks.Block, bool, error) {
		b, inlined, err := inline(c)
		if inlined || err != nil {
			return b, true, err
		}
		b, err = get(ctx, from, c)
		if ipld.IsNotFound(err) {
			return nil, false, fmt.Errorf("%w: %s: %w", ErrNotFound, c, err)
		}
		if err != nil {
			return nil, false, fmt.Errorf("dag: walk: %s: %w", c, err)
		}
		return b, false, nil
	}
	reload := func(c cid.Cid) ([]cid.Cid, error) {
		b, _, err := load(c)
		if err != nil {
			return nil, err
		}
		return Links(b)
	}
	if _, err := f.first(root); err != nil {
		return err
	}
	if err := f.admit(root); err != nil {
		return err
	}
	for it, ok := (item{cid: root}), true; ok; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("dag: walk: %w", err)
		}
		b, inlined, err := load(it.cid)
		if err != nil {
			return err
		}
		if !inlined {
			if err := fn(b); err != nil {
				return err
			}
		}
		links, err := Links(b)
		if err != nil {
			return err
		}
		if err := f.push(it, links); err != nil {
			return err
		}
		if it, ok, err = f.pop(reload); err != nil {
			return err
		}
	}
	return nil
}

// Verify walks a DAG that should be here whole, and checks every hash. The
// first block that is missing or wrong ends it with ErrNotFound or
// ErrInvalidBlock.
func Verify(ctx context.Context, from Getter, root cid.Cid, limits Limits) (Result, error) {
	r := Result{Bytes: inlineBytes(root)}
	err := Walk(ctx, from, root, limits, func(b blocks.Block) error {
		r.Blocks++
		r.Bytes += uint64(len(b.RawData()))
		return checkHash(b.Cid(), b)
	})
	return r, err
}
