package dag

import (
	"context"
	"errors"
	"fmt"
	"time"

	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// strikes counts how often a source has delivered nothing, see maxStrikes.
type strikes struct {
	inRow  int
	skips  int
	failed bool // the last request ended with an error; false if the source only lacked the blocks
}

// job gets the blocks of its items: from identity CIDs, from the store, as empty blocks, and all
// other blocks from the sources. It returns nil when every block is in the store or in the queue of
// blocks to store.
func (f *fetch) job(items []item) error {
	var here []have
	ask := make([]cid.Cid, 0, len(items))
	want := make(map[cid.Cid]item, len(items))
	for _, it := range items {
		b, inlined, err := inline(it.cid)
		if err != nil {
			return err
		}
		if inlined {
			links, err := Links(b)
			if err != nil {
				return err
			}
			h := have{item: it, links: links, inline: true}
			if it.cid.Equals(f.req.Root) {
				h.bytes = len(b.RawData())
			}
			here = append(here, h)
			continue
		}
		want[it.cid] = it
		ask = append(ask, it.cid)
	}
	missing, err := f.req.Store.Adopt(f.ctx, f.req.Reference, ask)
	if err != nil {
		return fmt.Errorf("%w: adopt: %w", ErrStore, err)
	}
	absent := make(map[cid.Cid]bool, len(missing))
	for _, c := range missing {
		absent[c] = true
	}
	for _, c := range ask {
		if absent[c] {
			continue
		}
		h, err := f.local(want[c])
		if err != nil {
			return err
		}
		if h == nil {
			continue // in the store but not readable: fetch it again
		}
		here = append(here, *h)
		delete(want, c)
	}
	if len(here) > 0 {
		f.report(event{have: here})
	}
	for c, it := range want {
		b := hollow(c)
		if b == nil {
			continue
		}
		if err := f.take(it, checked{b}); err != nil {
			return err
		}
		delete(want, c)
	}
	return f.pull(want)
}

// local returns the links and the size of a block in the store; nil if it is not readable.
func (f *fetch) local(it item) (*have, error) {
	h := have{item: it}
	if err := h.read(f.ctx, f.req.Store); errors.Is(err, errUnreadable) {
		return nil, f.ctx.Err()
	} else if err != nil {
		return nil, err
	}
	return &h, f.plan(h.bytes)
}

// errUnreadable means that a block is in the store and cannot be read.
var errUnreadable = errors.New("the block cannot be read")

// read sets the size and the links of a block in the store.
func (h *have) read(ctx context.Context, store Store) (err error) {
	if s, ok := store.(sizer); ok && h.item.cid.Prefix().Codec == cid.Raw {
		if h.bytes, err = s.GetSize(ctx, h.item.cid); err != nil {
			err = errUnreadable
		}
		return err
	}
	b, err := get(ctx, store, h.item.cid)
	if err != nil {
		return errUnreadable
	}
	h.links, err = Links(b)
	h.bytes = len(b.RawData())
	return err
}

// plan adds n to the number of bytes that the fetch has found or received. It returns ErrTooLarge
// if the sum exceeds Limits.MaxBytes.
func (f *fetch) plan(n int) error {
	if sum := f.planned.Add(uint64(n)); f.limits.MaxBytes > 0 && sum > f.limits.MaxBytes {
		return fmt.Errorf("%w: more than %s allowed", ErrTooLarge, size(f.limits.MaxBytes))
	}
	return nil
}

// pull asks the sources until all blocks of want have arrived.
func (f *fetch) pull(want map[cid.Cid]item) error {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for c := range want {
			f.lack = c
			return
		}
	}()
	for len(want) > 0 {
		f.mu.Lock()
		try := f.attempt
		f.mu.Unlock()
		absent, err := f.ask(try.ctx, want)
		if err != nil {
			return err
		}
		if len(want) == 0 {
			return nil
		}
		if absent {
			for c := range want {
				return &FetchError{Kind: ErrNotFound, Cid: c}
			}
		}
		if try.ctx.Err() != nil && f.ctx.Err() == nil {
			continue // the sources were renewed
		}
		t := time.NewTimer(retryEvery)
		select {
		case <-f.ctx.Done():
			t.Stop()
			return context.Cause(f.ctx)
		case <-try.ctx.Done():
			t.Stop()
		case <-t.C:
		}
	}
	return nil
}

// ask asks each source once and removes the blocks that arrive from want. absent is true if every
// source answered that it does not have the remaining blocks. An error ends the whole fetch; the
// failure of a single source is not an error.
func (f *fetch) ask(ctx context.Context, want map[cid.Cid]item) (absent bool, err error) {
	followed := othersStart(want)
	if followed {
		if err := f.follow(ctx, want); err != nil {
			return false, err
		}
	}
	absent = true
	for i := range f.req.Sources {
		if len(want) == 0 || ctx.Err() != nil {
			return false, nil
		}
		if followed && f.shares(i) {
			absent = false // it may have later what it lacks now
			continue
		}
		if f.skip(i) {
			absent = false
			continue
		}
		lacks, err := f.askOne(ctx, i, want)
		if err != nil {
			return false, err
		}
		absent = absent && lacks
	}
	return absent, nil
}

// askOne asks one source. lacks is true if the source answered that it does not have the remaining
// blocks. ctx ends at the next renewal; it applies only to a source that implements renewer.
// Requests to other sources continue after a renewal, because on a slow line restarted requests
// might never complete.
func (f *fetch) askOne(ctx context.Context, i int, want map[cid.Cid]item) (lacks bool, err error) {
	s := f.req.Sources[i]
	if _, ok := s.(renewer); !ok {
		ctx = f.ctx
	}
	cids := make([]cid.Cid, 0, len(want))
	for c := range want {
		cids = append(cids, c)
	}
	var fatal error
	_, err = s.Blocks(ctx, cids, func(b blocks.Block) error {
		it, ok := want[b.Cid()]
		if !ok {
			return nil // a repeated block, or one that was not requested
		}
		if c, ok := s.(checker); !ok || !c.ChecksHashes() {
			if err := checkHash(it.cid, b); err != nil {
				return err // this source is bad; the next one may be good
			}
		}
		if fatal = f.take(it, checked{b}); fatal != nil {
			return fatal
		}
		delete(want, it.cid)
		return nil
	})
	if fatal != nil {
		return false, fatal
	}
	if ctx.Err() == nil {
		f.judge(i, len(cids) > len(want), err != nil)
	}
	return err == nil, nil
}

// take queues a block for the store. It blocks while Buffer is full.
func (f *fetch) take(it item, b blocks.Block) error {
	links, err := Links(b)
	if err != nil {
		return err
	}
	n := len(b.RawData())
	if err := f.plan(n); err != nil {
		return err
	}
	gathered, err := f.gather(b)
	if err != nil {
		return err
	}
	if gathered {
		f.pulled.Add(1)
		f.pulledBytes.Add(uint64(n))
		f.report(event{have: []have{{item: it, links: links, bytes: n}}})
		return nil
	}
	f.write.Do(func() {
		f.puts = make(chan got, putBlocks)
		for range putters {
			f.work.Go(f.store)
		}
	})
	cost := int64(n + linkCost*len(links))
	if err := f.req.Buffer.free.Acquire(f.ctx, cost); err != nil {
		return context.Cause(f.ctx)
	}
	f.buffered.Add(cost)
	select {
	case f.puts <- got{item: it, block: b, links: links, cost: cost}:
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	}
	f.pulled.Add(1)
	f.pulledBytes.Add(uint64(n))
	return nil
}

// skip returns whether to skip source i this time.
func (f *fetch) skip(i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &f.faults[i]
	if s.inRow < maxStrikes || i == len(f.faults)-1 {
		return false
	}
	s.skips++
	return s.skips%strikePeriod != 0
}

func (f *fetch) judge(i int, delivered, failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[i].failed = failed
	if delivered {
		f.faults[i].inRow = 0
		return
	}
	f.faults[i].inRow++
}

// store is one putter: it stores the queued blocks, as many as fit in one Put, and reports
// to run when they are durable.
func (f *fetch) store() {
	for {
		var first got
		select {
		case <-f.ctx.Done():
			return
		case first = <-f.puts:
		}
		batch := []got{first}
		bytes := len(first.block.RawData())
	gather:
		for bytes < putBytes && len(batch) < putBlocks {
			select {
			case g := <-f.puts:
				batch = append(batch, g)
				bytes += len(g.block.RawData())
			default:
				break gather
			}
		}
		f.put(batch)
	}
}

func (f *fetch) put(batch []got) {
	cost := int64(0)
	blks := make([]blocks.Block, len(batch))
	done := make([]have, len(batch))
	for i, g := range batch {
		cost += g.cost
		blks[i] = g.block
		done[i] = have{item: g.item, links: g.links, bytes: len(g.block.RawData())}
	}
	err := f.req.Store.Put(f.ctx, f.req.Reference, blks)
	f.buffered.Add(-cost)
	f.req.Buffer.free.Release(cost)
	if err != nil {
		f.report(event{err: fmt.Errorf("%w: put: %w", ErrStore, err)})
		return
	}
	f.report(event{have: done})
}
