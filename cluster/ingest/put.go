package ingest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	block "github.com/ipfs/go-block-format"
)

// After enough nodes have stored the content durably, a put waits a little for the other nodes,
// because the copy of a node that is later needs a separate command.
const (
	minLinger = 20 * time.Millisecond
	maxLinger = time.Second
	lingerOf  = 8 // the put waits for 1/lingerOf of the time that it has taken so far
)

// dest is one node on which a put stores content, this node or another one. Only one goroutine
// uses it.
type dest interface {
	// put stores blocks on this node, or sends them to the other node without waiting until they
	// are stored.
	put(ctx context.Context, blks []block.Block) error
	// end completes the content on the node from the blocks that were put, from last, and from
	// blocks that the node fetches from others. When it returns, the node has a lease on the
	// content.
	end(ctx context.Context, e end, last []block.Block) (kept, error)
	// renew asks the node for its current epoch.
	renew(ctx context.Context) (kept, error)
	// done, quit and lost end a put. done reports the outcome after the content was stored. quit
	// ends the put earlier. lost ends it without reporting an outcome.
	done(outcome byte)
	quit()
	lost()
}

// whole describes complete content. blks has the blocks that must be sent.
type whole struct {
	blks []block.Block
	end  end
	past bool // the body was streamed and is not in memory any more, so only nodes that stored it have the blocks
}

// put is the storing of one content on several nodes.
type put struct {
	i      *Ingest
	id     putID
	copies int
	spare  []state.NodeID // spare nodes that were not tried yet
	began  time.Time

	ctx     context.Context // context of the work of the holders; ends when the put is given up or Ingest ends
	cancel  context.CancelFunc
	results chan *holder // receives the holders that have finished; has capacity for all of them
	silence chan *holder // receives the holders that do not answer; a holder drops the message if the channel is full and repeats it later
	decided chan struct{}
	once    sync.Once
	outcome byte         // set before decided is closed; 0 means unknown
	left    atomic.Int32 // number of working holders, plus one until the outcome is decided
	body    *memory      // memory of the body, which leave returns to the pool; nil if there is none
	late    int64        // bytes of Ingest.late that this put uses
	cut     atomic.Bool  // a holder has failed and may still use the memory, so it must not be reused

	// The following fields are used only by the goroutine that calls Store and the methods of
	// Stored.
	running int
	silent  int // number of running holders that are silent
	kept    []*holder
	errs    []error
}

// holder is a node on which the content is to be stored.
type holder struct {
	node state.NodeID
	dest dest

	// The following fields are used only for a body that is still arriving.
	feed   chan *batch
	failed chan struct{} // closed when the holder accepts no more blocks, because of err
	end    end           // set before feed is closed, unless the put was given up

	renews chan renewal
	kept   kept  // result of the node
	err    error // error of the node

	// The following fields are used only by the goroutine that calls Store.
	silent bool // the holder counts as silent
	ended  bool // the result of the holder has arrived
}

// renewal is a request to a holder for its current epoch.
type renewal struct {
	ctx    context.Context // context of the caller of renew
	answer chan<- *holder
}

// batch is a group of blocks that is passed to several holders.
type batch struct {
	blks []block.Block
	left atomic.Int32
	// freed releases the memory of the batch, so that other bodies can use it. It also returns
	// the buffers to the pool, unless cut is true: then a holder has failed and may still use the
	// buffers.
	freed func(cut bool)
	cut   atomic.Bool
}

func (b *batch) done() {
	if b.left.Add(-1) == 0 {
		b.freed(b.cut.Load())
	}
}

// begin creates a put. Until release is called, the end of ctx aborts it.
func (i *Ingest) begin(ctx context.Context, place Placement) (p *put, release func() bool) {
	p = &put{
		i: i, id: newID(), copies: place.Copies, spare: place.Spare, began: time.Now(),
		results: make(chan *holder, len(place.Nodes)+len(place.Spare)), decided: make(chan struct{}),
		silence: make(chan *holder, len(place.Nodes)+len(place.Spare)),
	}
	p.ctx, p.cancel = context.WithCancel(i.life)
	p.left.Store(1)
	return p, context.AfterFunc(ctx, p.cancel)
}

// try starts to store content on a node, in a new goroutine. w is the complete content, or nil
// for a body that is still arriving.
func (p *put) try(node state.NodeID, w *whole) (*holder, error) {
	h := &holder{node: node, renews: make(chan renewal)}
	if node == p.i.opts.Self {
		h.dest = p.i.keeper.open(string(node) + "/" + fmt.Sprintf("%x", p.id))
	} else {
		h.dest = &remote{pool: p.i.pool, node: node, id: p.id, silent: func() {
			select {
			case p.silence <- h:
			default:
			}
		}}
	}
	p.i.mu.Lock()
	defer p.i.mu.Unlock()
	if p.i.closed {
		return nil, net.ErrClosed
	}
	p.running++
	if w == nil {
		h.feed, h.failed = make(chan *batch, 1), make(chan struct{})
	}
	p.left.Add(1)
	p.i.work.Go(func() {
		p.hold(h, w)
		p.leave()
	})
	return h, nil
}

// hold stores the content on one node, sends the holder to results, and then waits for the
// outcome and reports it to the node.
func (p *put) hold(h *holder, w *whole) {
	if w != nil {
		h.kept, h.err = h.dest.end(p.ctx, w.end, w.blks)
	} else {
		p.follow(h)
	}
	if h.err == nil && p.ctx.Err() != nil {
		h.err = p.ctx.Err()
	}
	if h.err != nil {
		p.cut.Store(true)
		p.results <- h
		h.dest.quit()
		return
	}
	p.results <- h
	for {
		select {
		case r := <-h.renews:
			next := &holder{node: h.node}
			next.kept, next.err = h.dest.renew(r.ctx)
			r.answer <- next
			if next.err != nil {
				h.dest.lost()
				return
			}
		case <-p.decided:
			if p.outcome == 0 {
				h.dest.lost()
			} else {
				h.dest.done(p.outcome)
			}
			return
		case <-p.i.life.Done():
			h.dest.lost()
			return
		}
	}
}

// follow passes the batches and the end of an arriving body to a holder. It returns at once when
// the put is given up.
func (p *put) follow(h *holder) {
	for {
		select {
		case b, more := <-h.feed:
			switch {
			case more && h.err == nil:
				if h.err = h.dest.put(p.ctx, b.blks); h.err != nil {
					b.cut.Store(true)
					close(h.failed)
				}
				b.done()
			case more:
				b.done()
			case h.err == nil:
				h.kept, h.err = h.dest.end(p.ctx, h.end, nil)
				return
			default:
				return
			}
		case <-p.ctx.Done():
			if h.err == nil {
				h.err = p.ctx.Err()
			}
			h.skip()
			return
		}
	}
}

// skip discards the batches in the feed of a put that was given up, so that their memory is
// released.
func (h *holder) skip() {
	for {
		select {
		case b, more := <-h.feed:
			if !more {
				return
			}
			b.done()
		default:
			return
		}
	}
}

// leave is called when one user of the put has ended. After the last one, it releases the context
// and the memory of the put.
func (p *put) leave() {
	if p.left.Add(-1) > 0 {
		return
	}
	p.cancel()
	p.i.late.Release(p.late)
	if p.body != nil && !p.cut.Load() {
		p.body.reuse()
	}
}

// linger lets slow holders continue with a small body that enough nodes have stored, while the
// body's memory is counted in Ingest.late. If that is used up, linger cancels the remaining
// holders, because one that hangs would otherwise occupy memory forever. Their nodes fetch the
// content later.
func (p *put) linger() {
	if p.running == 0 || p.body == nil {
		return
	}
	if n := int64(len(*p.body.buf)); p.i.late.TryAcquire(n) {
		p.late = n
	} else {
		p.cancel()
	}
}

// decide sets the outcome and makes the holders report it to their nodes. Only the first call has
// an effect.
func (p *put) decide(outcome byte) {
	p.once.Do(func() {
		p.outcome = outcome
		close(p.decided)
		if outcome == outcomeGivenUp {
			p.cancel()
		}
		p.leave()
	})
}

// giveUp ends a put that has failed with err, and returns the error for the caller: that of ctx,
// an error about the shutdown, or err.
func (p *put) giveUp(ctx context.Context, err error) error {
	ending := p.i.life.Err() != nil
	p.decide(outcomeGivenUp)
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if ending {
		return state.Errorf(state.CodeUnavailable, "this node is shutting down")
	}
	return err
}

// place stores complete content on nodes. Its blocks are in w, or on some member. m is the memory
// of the body, or nil.
func (i *Ingest) place(ctx context.Context, place Placement, w whole, m *memory) (*Stored, error) {
	p, release := i.begin(ctx, place)
	defer release()
	p.body = m
	w.end.sources = slices.Concat(place.Nodes, place.Spare)
	defer func() {
		if m != nil {
			m.free() // late holders still have it, see linger
		}
	}()
	for _, node := range place.Nodes {
		if _, err := p.try(node, &w); err != nil {
			return nil, p.giveUp(ctx, err)
		}
	}
	s, err := p.gather(ctx, release, place, &w)
	if err == nil {
		p.linger()
	}
	return s, err
}

// stream stores a body on nodes while it arrives.
func (i *Ingest) stream(ctx context.Context, body *rest, place Placement) (*Stored, error) {
	p, release := i.begin(ctx, place)
	defer release()
	m := body.m
	var feeds []*holder
	stop := func(e end) {
		for _, h := range feeds {
			h.end = e
			close(h.feed)
		}
	}
	defer func() { // batches that no holder took, if the put was given up
		for _, h := range feeds {
			if p.ctx.Err() == nil {
				return
			}
			for b := range h.feed {
				b.done()
			}
		}
	}()
	for _, node := range place.Nodes {
		h, err := p.try(node, nil)
		if err != nil {
			err = p.giveUp(ctx, err)
			stop(end{})
			m.free()
			return nil, err
		}
		feeds = append(feeds, h)
	}
	root, size, err := i.opts.DAGs.Import(p.ctx, body, i.opts.Batch, func(blks []block.Block, free func()) error {
		bytes := int64(0)
		for k, b := range blks {
			bytes += int64(len(b.RawData()))
			blks[k] = hashed{b}
		}
		bytes = m.hand(bytes) // nodes above the leaves are not counted
		return p.give(feeds, &batch{blks: blks, freed: func(cut bool) {
			if !cut {
				free()
			}
			m.release(bytes)
		}})
	})
	m.free()
	if err != nil {
		err = p.giveUp(ctx, err)
		stop(end{})
		return nil, err
	}
	var sources []state.NodeID
	for _, h := range feeds {
		select {
		case <-h.failed:
		default:
			sources = append(sources, h.node)
		}
	}
	e := end{root: root, sources: sources}
	stop(e)
	s, err := p.gather(ctx, release, place, &whole{end: e, past: true})
	return withSize(s, size), err
}

// give passes a batch to all holders that have not failed, and waits until the slowest has
// accepted it. It returns an error if too few holders are left.
func (p *put) give(feeds []*holder, b *batch) error {
	b.left.Store(int32(len(feeds)) + 1)
	defer b.done()
	alive := 0
	var failed []*holder
	for _, h := range feeds {
		select {
		case <-h.failed:
			failed = append(failed, h)
			b.done()
			continue
		default:
		}
		select {
		case h.feed <- b:
			alive++
		case <-h.failed:
			failed = append(failed, h)
			b.done()
		case <-p.ctx.Done():
			b.done()
		}
	}
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if alive == 0 || alive+len(p.spare) < p.copies {
		for _, h := range failed {
			p.errs = append(p.errs, fmt.Errorf("node %s: %w", h.node, h.err))
		}
		return p.reason(alive)
	}
	return nil
}

// collect processes the results that have arrived from holders.
func (p *put) collect() {
	for {
		select {
		case h := <-p.results:
			p.result(h)
		default:
			return
		}
	}
}

func (p *put) result(h *holder) {
	p.running--
	h.ended = true
	if h.silent {
		p.silent--
	}
	switch {
	case h.err != nil:
		p.errs = append(p.errs, fmt.Errorf("node %s: %w", h.node, h.err))
	case len(p.kept) > 0 && (h.kept.bytes != p.kept[0].kept.bytes || h.kept.blocks != p.kept[0].kept.blocks):
		p.errs = append(p.errs, fmt.Errorf("node %s: it counts %d bytes in %d blocks, and another %d in %d", h.node,
			h.kept.bytes, h.kept.blocks, p.kept[0].kept.bytes, p.kept[0].kept.blocks))
	default:
		p.kept = append(p.kept, h)
	}
}

// gather waits until enough nodes have stored the content. It starts a spare node for each node
// that fails or does not answer.
func (p *put) gather(ctx context.Context, release func() bool, place Placement, w *whole) (*Stored, error) {
	var late <-chan time.Time
	for p.running > p.silent || len(p.kept) < p.copies {
		if late == nil && len(p.kept) >= p.copies {
			timer := time.NewTimer(min(maxLinger, max(minLinger, time.Since(p.began)/lingerOf)))
			defer timer.Stop()
			late = timer.C
		}
		// If the body is no longer in memory, a spare node can get the content only from a
		// node that keeps it.
		for len(p.kept)+p.running-p.silent < p.copies && len(p.spare) > 0 && (!w.past || len(p.kept) > 0) {
			node := p.spare[0]
			p.spare = p.spare[1:]
			if _, err := p.try(node, w); err != nil {
				return nil, p.giveUp(ctx, err)
			}
		}
		if left := len(p.kept) + p.running; left < p.copies && (left == 0 || left+len(p.spare) < p.copies) {
			return nil, p.giveUp(ctx, p.reason(left))
		}
		select {
		case h := <-p.results:
			p.result(h)
			continue
		case h := <-p.silence:
			if !h.silent && !h.ended {
				h.silent = true
				p.silent++
			}
			continue
		case <-late:
		case <-ctx.Done():
			return nil, p.giveUp(ctx, ctx.Err())
		}
		break
	}
	if !release() { // ctx has ended
		return nil, p.giveUp(ctx, ctx.Err())
	}
	if len(p.errs) > 0 {
		p.i.opts.Logger.InfoContext(ctx, "content is not on all its nodes yet", "root", w.end.root, "err", errors.Join(p.errs...))
	}
	first := p.kept[0].kept
	s := &Stored{p: p, Content: state.Content{
		Root: state.RootOf(w.end.root), Bytes: first.bytes, Blocks: first.blocks, Nodes: slices.Clone(place.Nodes),
	}}
	s.Content.Held = p.holdings()
	return s, nil
}

func (p *put) holdings() []state.Holding {
	held := make([]state.Holding, len(p.kept))
	for k, h := range p.kept {
		held[k] = state.Holding{Node: h.node, Epoch: h.kept.epoch}
	}
	return held
}

// reason returns the error of a put that has failed because only left nodes could still store the
// content. It is state.ErrNoSpace if there would have been enough nodes but for full disks, and
// otherwise state.ErrUnavailable.
func (p *put) reason(left int) error {
	full := 0
	for _, err := range p.errs {
		if errors.Is(err, state.ErrNoSpace) {
			full++
		}
	}
	code := state.CodeUnavailable
	if full > 0 && left+full >= p.copies {
		code = state.CodeNoSpace
	}
	return state.Errorf(code, "%d of %d nodes can keep the content: %v", left, p.copies, errors.Join(p.errs...))
}

// renew asks all nodes that have stored the content for their current epochs.
func (p *put) renew(ctx context.Context, s *Stored) error {
	p.collect()
	answers := make(chan *holder, len(p.kept))
	asked := map[state.NodeID]*holder{}
	for _, h := range p.kept {
		asked[h.node] = h
		go func() {
			select {
			case h.renews <- renewal{ctx, answers}:
			case <-ctx.Done():
				answers <- &holder{node: h.node, err: ctx.Err()}
			case <-p.i.life.Done():
				answers <- &holder{node: h.node, err: net.ErrClosed}
			case <-p.decided:
				answers <- &holder{node: h.node, err: net.ErrClosed}
			}
		}()
	}
	var kept []*holder
	for range len(asked) {
		next := <-answers
		if next.err != nil {
			p.errs = append(p.errs, fmt.Errorf("node %s: %w", next.node, next.err))
			continue
		}
		h := asked[next.node]
		h.kept = next.kept
		kept = append(kept, h)
	}
	p.kept = kept
	s.Content.Held = p.holdings()
	if len(p.kept) < p.copies {
		return p.reason(len(p.kept))
	}
	return nil
}
