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
	// claimBlocks is the number of blocks in one call of Store.TakeOver. claimers is the number of
	// such calls that run at the same time; they share one flush of the disk.
	claimBlocks = 256
	claimers    = 8
)

// claim adds the reference to the blocks of a DAG that the store has already. It handles more
// blocks in one step than Fetch does. It reads the links of a node before it adds the reference to
// the node, so that one step can have blocks of several levels of the DAG. If a node disappears in
// between, a later step reports it as missing. all is true if the store has the complete DAG.
// Otherwise, also after an error, Fetch must get the remaining blocks.
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
			size, err := takeOver(ctx, req.Reference, store, step)
			got.Bytes += size
			if err != nil || limits.MaxBytes > 0 && got.Bytes > limits.MaxBytes {
				return got, false
			}
			step = step[:0]
		}
	}
	return got, true
}

// takeOver adds the reference to blocks, all of which must be in the store, and returns
// their size in bytes. It sorts them by codec and hash, the order of the store's index.
func takeOver(ctx context.Context, reference string, store taker, cids []cid.Cid) (uint64, error) {
	slices.SortFunc(cids, func(a, b cid.Cid) int { return strings.Compare(a.KeyString(), b.KeyString()) })
	var calls errgroup.Group
	var sum atomic.Uint64
	for len(cids) > 0 {
		some := cids[:min(claimBlocks, len(cids))]
		cids = cids[len(some):]
		calls.Go(func() error {
			size, missing, err := store.TakeOver(ctx, reference, some)
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
