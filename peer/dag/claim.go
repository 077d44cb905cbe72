package dag

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ipfs/go-cid"
	mh "github.com/multiformats/go-multihash"
	"golang.org/x/sync/errgroup"
)

const (
	// claimBlocks are taken over by one call of the store, claimers calls at the same
	// time, which share a flush of the disk.
	claimBlocks = 256
	claimers    = 8
)

// claim takes over what of a DAG is in the store already, in larger steps than those in
// which blocks are fetched. Nodes are read before they are taken over, so that the blocks
// of several levels go in one step; one that is gone meanwhile is found missing then. It
// tells whether all of it is here; what became of the rest, and of an error, is for Fetch
// to see.
func claim(ctx context.Context, req *FetchRequest, store taker, limits Limits) (got Result, all bool) {
	front := newFrontier(limits, req.Buffer.here)
	defer front.end()
	load := func(c cid.Cid) ([]cid.Cid, error) {
		b, inlined, err := inline(c)
		if !inlined {
			b, err = get(ctx, req.Store, c)
		}
		if err != nil {
			return nil, err
		}
		return Links(b)
	}
	if _, err := front.first(req.Root); err != nil || front.admit(req.Root) != nil {
		return got, false
	}
	got.Bytes = inlineBytes(req.Root)
	step := make([]cid.Cid, 0, claimers*claimBlocks)
	for it, more := (item{cid: req.Root}), true; more; {
		kind := it.cid.Prefix()
		inlined := kind.MhType == mh.IDENTITY
		if inlined || kind.Codec != cid.Raw {
			links, err := load(it.cid)
			if err != nil || front.push(it, links) != nil {
				return got, false
			}
		}
		if !inlined {
			got.Blocks++
			step = append(step, it.cid)
		}
		var err error
		if it, more, err = front.pop(load); err != nil {
			return got, false
		}
		if !more || len(step) == cap(step) {
			size, err := takeOver(ctx, req.Owner, store, step)
			got.Bytes += size
			if err != nil || limits.MaxBytes > 0 && got.Bytes > limits.MaxBytes {
				return got, false
			}
			step = step[:0]
		}
	}
	return got, true
}

// takeOver makes blocks the owner's, all of which have to be here, and returns their
// bytes. They go in the order of their hashes, by codec, in which the store's index is
// read and written best.
func takeOver(ctx context.Context, owner string, store taker, cids []cid.Cid) (uint64, error) {
	slices.SortFunc(cids, func(a, b cid.Cid) int { return strings.Compare(a.KeyString(), b.KeyString()) })
	var calls errgroup.Group
	var sum atomic.Uint64
	for len(cids) > 0 {
		some := cids[:min(claimBlocks, len(cids))]
		cids = cids[len(some):]
		calls.Go(func() error {
			size, missing, err := store.TakeOver(ctx, owner, some)
			if err == nil && len(missing) > 0 {
				err = fmt.Errorf("%w: %s", ErrNotFound, missing[0])
			}
			sum.Add(size)
			return err
		})
	}
	err := calls.Wait()
	return sum.Load(), err
}
