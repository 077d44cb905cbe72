package dag

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	mh "github.com/multiformats/go-multihash"
)

const (
	// maxHeldLinks bounds the links that a walk keeps in memory, about 100 bytes each. The walk
	// reads nodes whose links do not fit again when it returns to them.
	maxHeldLinks = 200_000
	// maxSeenLeaves bounds the raw leaves that a walk remembers. When it is reached, the
	// walk forgets them all. It never forgets nodes, because a small DAG with shared nodes
	// could take for ever otherwise.
	maxSeenLeaves = 1 << 20
)

// item is a block to visit.
type item struct {
	cid   cid.Cid
	depth int
	part  part
}

// frame is a node with unvisited children.
type frame struct {
	node  cid.Cid
	depth int
	part  part
	next  int       // number of visited children
	count int       // number of children
	links []cid.Cid // nil if the links were dropped to save memory
}

// frontier is the state of a walk: the blocks that it must still visit, in depth-first order, and
// the blocks that it has seen.
type frontier struct {
	limits Limits
	share  Share // decides at which child of a node the walk begins
	room   int   // largest number of links that are kept in memory
	frames []frame
	held   int // number of links in memory
	low    int // frames below this index have dropped their links
	found  uint64

	nodes      *seen
	leaves     *seen
	remembered int  // number of leaves that the walk remembers
	exact      bool // the walk never forgets leaves

	// coming, unless it is nil, is called before a block is read, with leaves that follow it.
	coming func([]cid.Cid)
}

// newFrontier starts a walk. The memory for visited nodes is taken from free.
func newFrontier(limits Limits, free *atomic.Int64) *frontier {
	return &frontier{limits: limits, room: maxHeldLinks, nodes: newSeen(free), leaves: newSeen(free)}
}

// end returns the memory for visited nodes to free.
func (f *frontier) end() {
	f.nodes.forget()
	f.leaves.forget()
}

// newSeenBytes returns the memory for visited nodes of one walk or of several that share
// it.
func newSeenBytes() *atomic.Int64 {
	free := new(atomic.Int64)
	free.Store(maxSeenBytes)
	return free
}

// first returns whether c is seen for the first time.
func (f *frontier) first(c cid.Cid) (bool, error) {
	if c.Prefix().Codec != cid.Raw || f.exact {
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

// push adds the children of a node to the blocks to visit.
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

// pop returns the next block to visit, each block once; ok is false if there is none now.
// It calls reload to read the links of a node again if they were dropped.
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

// upcoming returns at most readAhead leaves that an exact walk will visit next, before any other block.
func (f *frontier) upcoming() (leaves []cid.Cid) {
	if len(f.frames) == 0 {
		return nil
	}
	fr := &f.frames[len(f.frames)-1]
	for i := fr.next; i < len(fr.links) && len(leaves) < readAhead; i++ {
		c := fr.links[i]
		if c.Prefix().Codec != cid.Raw || c.Prefix().MhType == mh.IDENTITY || checkCID(c) != nil {
			break
		}
		if !f.nodes.has(c.KeyString()) && !slices.Contains(leaves, c) {
			leaves = append(leaves, c)
		}
	}
	return leaves
}

// admit counts a block that the walk has found. It returns an error if the block exceeds the
// limits, or if its CID cannot be verified or decoded.
func (f *frontier) admit(c cid.Cid) error {
	if f.found++; f.found > f.limits.MaxBlocks {
		return fmt.Errorf("%w: more than %d blocks", ErrTooLarge, f.limits.MaxBlocks)
	}
	return checkCID(c)
}

// Walk visits every block of the DAG of root once, depth first, parents before children,
// and calls fn with each. It follows the links of identity CIDs but does not pass them to
// fn. If fn returns an error, Walk stops and returns it.
func Walk(ctx context.Context, from Getter, root cid.Cid, limits Limits, fn func(blocks.Block) error) error {
	f := newFrontier(limits.withDefaults(), newSeenBytes())
	defer f.end()
	return f.walk(ctx, from, root, func(b blocks.Block, inlined bool) error {
		if inlined {
			return nil
		}
		return fn(b)
	})
}

// walk visits every block of the DAG of root that f has not seen yet, depth first, parents before
// children. It calls fn with each; inlined is true for the content of an identity CID. If fn
// returns an error, walk stops and returns it.
func (f *frontier) walk(ctx context.Context, from Getter, root cid.Cid, fn func(b blocks.Block, inlined bool) error) error {
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
	if first, err := f.first(root); err != nil || !first {
		return err
	}
	if err := f.admit(root); err != nil {
		return err
	}
	for it, ok := (item{cid: root}), true; ok; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("dag: walk: %w", err)
		}
		if f.coming != nil {
			f.coming(f.upcoming())
		}
		b, inlined, err := load(it.cid)
		if err != nil {
			return err
		}
		if err := fn(b, inlined); err != nil {
			return err
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

// Verify walks a DAG that should be complete and verifies every hash. At the first block
// that is missing or wrong it returns ErrNotFound or ErrInvalidBlock.
func Verify(ctx context.Context, from Getter, root cid.Cid, limits Limits) (Result, error) {
	r := Result{Bytes: inlineBytes(root)}
	err := Walk(ctx, from, root, limits, func(b blocks.Block) error {
		r.Blocks++
		r.Bytes += uint64(len(b.RawData()))
		return checkHash(b.Cid(), b)
	})
	return r, err
}
