package dag

import (
	"context"

	"github.com/ipfs/go-cid"
	"golang.org/x/sync/errgroup"
)

const (
	// claimBlocks are taken over by one call of the store, claimers calls at the same
	// time, which share a flush of the disk.
	claimBlocks = 256
	claimers    = 8
)

// claim takes over what of a DAG is in the store already, in larger steps than those in
// which blocks are fetched. It tells whether that is all of it; what became of the rest,
// and of an error, is for Fetch to see.
func claim(ctx context.Context, req *FetchRequest, limits Limits) (got Result, all bool) {
	front := newFrontier(limits, req.Buffer.seen)
	defer front.end()
	reload := func(c cid.Cid) ([]cid.Cid, error) {
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
	for step := []item{{cid: req.Root}}; len(step) > 0; {
		if !adopt(ctx, req, step) {
			return got, false
		}
		for _, it := range step {
			b, inlined, err := inline(it.cid)
			if err != nil {
				return got, false
			}
			h := have{item: it, inline: inlined}
			if inlined {
				h.links, err = Links(b)
			} else {
				err = h.read(ctx, req.Store)
				got.Blocks++
				got.Bytes += uint64(h.bytes)
			}
			if err != nil || front.push(it, h.links) != nil || limits.MaxBytes > 0 && got.Bytes > limits.MaxBytes {
				return got, false
			}
		}
		step = step[:0]
		for len(step) < claimers*claimBlocks {
			it, ok, err := front.pop(reload)
			if err != nil {
				return got, false
			}
			if !ok {
				break
			}
			step = append(step, it)
		}
	}
	return got, true
}

// adopt makes blocks the owner's, and tells whether all of them were here.
func adopt(ctx context.Context, req *FetchRequest, step []item) bool {
	var calls errgroup.Group
	for len(step) > 0 {
		n := min(claimBlocks, len(step))
		cids := make([]cid.Cid, n)
		for i, it := range step[:n] {
			cids[i] = it.cid
		}
		step = step[n:]
		calls.Go(func() error {
			missing, err := req.Store.Adopt(ctx, req.Owner, cids)
			if err == nil && len(missing) > 0 {
				err = ErrNotFound
			}
			return err
		})
	}
	return calls.Wait() == nil
}
