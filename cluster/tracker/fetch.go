package tracker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Why a fetch was stopped from here.
var (
	errNotWanted = errors.New("not wanted any more")
	errYield     = errors.New("yields to those that wait")
)

// run is one attempt to fetch a root.
type run struct {
	entry *entry
	begin time.Time
	floor uint64 // blocks that an earlier turn came to
	stop  context.CancelCauseFunc

	bytes  atomic.Uint64
	blocks atomic.Uint64
	moved  atomic.Int64 // nanoseconds from begin to the last new block; 0: none has come

	yielding bool // errYield was sent; the dispatcher's

	// of the end
	gotBytes  uint64
	gotBlocks uint64
	err       error
	cause     error // errNotWanted or errYield when it was stopped from here
}

// idle is how long no block has come.
func (r *run) idle(now time.Time) time.Duration {
	return now.Sub(r.begin) - time.Duration(r.moved.Load())
}

// slots sorts the running fetches into those that move and those that wait for
// a block. A fetch begins among the waiting, joins the moving with its first
// block, and falls back when none has come for a Turn.
func (d *dispatcher) slots(now time.Time) (moving, waiting int) {
	for r := range d.running {
		if r.moved.Load() > 0 && r.idle(now) < d.t.limits.Turn {
			moving++
		} else {
			waiting++
		}
	}
	return moving, waiting
}

// yield stops waiting fetches that have had their turn, as many as others wait
// for a slot. So content that nobody has cannot keep out content that is there.
func (d *dispatcher) yield(now time.Time, others int) {
	for r := range d.running {
		if r.yielding {
			others--
		}
	}
	for r := range d.running {
		if others <= 0 {
			return
		}
		if !r.yielding && r.idle(now) >= d.t.limits.Turn {
			r.yielding = true
			r.stop(errYield)
			others--
		}
	}
}

// begin starts as many fetches as there are slots.
func (d *dispatcher) begin(ctx context.Context, work *sync.WaitGroup) {
	if d.queued() == 0 {
		return
	}
	now := d.t.opts.Now()
	view, release := d.t.opts.State.LocalView()
	defer release()
	moving, waiting := d.slots(now)
	for d.queued() > 0 {
		if waiting >= d.t.limits.Waiting {
			d.yield(now, d.queued())
			return
		}
		if moving >= d.t.limits.Moving {
			return
		}
		e := d.pick()
		root, own, err := wanted(view, e.root, d.t.opts.Self)
		if err != nil || own == nil {
			d.settle(ctx, view, e)
			continue
		}
		job, err := d.job(view, &root)
		if err != nil {
			d.trouble(ctx, e, err)
			continue
		}
		if e.born != root.Born {
			e.renew(root.Born)
		}
		if own.Phase != state.Fetching || own.Reason != "" || e.ticket != 0 {
			d.report(e, &root, state.CopyReport{Phase: state.Fetching})
		}
		d.launch(ctx, work, e, job, now)
		waiting++
	}
}

func (d *dispatcher) launch(ctx context.Context, work *sync.WaitGroup, e *entry, job Job, now time.Time) {
	scope, stop := context.WithCancelCause(ctx)
	r := &run{entry: e, begin: now, floor: e.reached, stop: stop}
	e.stage, e.run = fetching, r
	d.running[r] = struct{}{}
	d.t.mu.Lock()
	d.t.runs[e.root] = r
	d.t.mu.Unlock()
	work.Go(func() {
		defer stop(nil)
		d.t.attempt(scope, r, job)
		select {
		case d.t.outcomes <- r:
		case <-ctx.Done():
		}
	})
}

// attempt fetches and seals. A crash before the seal leaves blocks that the
// next attempt goes on from; a crash after it, content that the next audit
// reports as held.
func (t *Tracker) attempt(ctx context.Context, r *run, job Job) {
	bytes, blocks, err := t.opts.Fetcher.Fetch(ctx, job, func(bytes, blocks uint64) {
		r.bytes.Store(bytes)
		if blocks > max(r.floor, r.blocks.Swap(blocks)) {
			r.moved.Store(max(1, int64(t.opts.Now().Sub(r.begin))))
		}
	})
	if err == nil {
		err = wrap("seal blocks", t.opts.Blocks.Seal(ctx, job.Owner, bytes, blocks))
	}
	r.gotBytes, r.gotBlocks, r.err = bytes, blocks, err
	if err == nil {
		return
	}
	if cause := context.Cause(ctx); errors.Is(cause, errNotWanted) || errors.Is(cause, errYield) {
		r.cause = cause
	}
}

// job says where to fetch a root from: members that hold it, other members that
// were told to, the rest of them, then its origins.
func (d *dispatcher) job(view state.View, root *state.Root) (Job, error) {
	job := Job{Root: root.Key.Cid(), Owner: Owner(root.Key), Origins: root.Origins}
	add := func(n state.NodeID) {
		if n != d.t.opts.Self && len(job.Members) < maxSources && !slices.Contains(job.Members, n) && !d.t.opts.Down(n) {
			job.Members = append(job.Members, n)
		}
	}
	for _, c := range root.Copies {
		if c.Phase == state.Held {
			add(c.Node)
		}
	}
	for _, c := range root.Copies {
		add(c.Node)
	}
	nodes, err := view.Nodes()
	if err != nil {
		return Job{}, wrap("read members", err)
	}
	for _, n := range nodes { // a file may have been imported anywhere
		add(n.ID)
	}
	return job, nil
}

// ended takes the end of a fetch in.
func (d *dispatcher) ended(ctx context.Context, r *run) {
	e, now := r.entry, d.t.opts.Now()
	delete(d.running, r)
	d.t.mu.Lock()
	delete(d.t.runs, e.root)
	d.t.mu.Unlock()
	e.run, e.stage = nil, resting
	view, release := d.t.opts.State.LocalView()
	defer release()
	if r.moved.Load() > 0 {
		e.waited, e.reached = 0, r.blocks.Load()
	}
	switch {
	case r.err == nil:
		d.count(outcomeHeld)
		d.t.metrics.bytes.Add(float64(r.gotBytes))
		if e.repair {
			d.t.metrics.repairs.Inc()
			e.repair = false
		}
		e.renew(0)
		root, own, err := wanted(view, e.root, d.t.opts.Self)
		if err != nil || own == nil {
			d.settle(ctx, view, e)
			return
		}
		d.report(e, &root, state.CopyReport{Phase: state.Held, Size: r.gotBytes, Blocks: r.gotBlocks})
	case errors.Is(r.cause, errNotWanted):
		d.count(outcomeUnasked)
		e.renew(0)
		d.settle(ctx, view, e)
	case errors.Is(r.cause, errYield):
		d.count(outcomeYielded)
		e.waited += r.idle(now)
		if e.waited >= d.t.limits.Patience {
			d.failed(ctx, view, e, fmt.Sprintf("no block of it has come within %s", e.waited.Round(time.Second)), false)
			return
		}
		d.enqueue(e, d.backlog)
	default:
		d.t.opts.Logger.InfoContext(ctx, "fetch failed", "root", e.root, "attempt", e.attempts+1, "err", r.err)
		incurable := false
		if f, ok := d.t.opts.Fetcher.(finalFetcher); ok {
			incurable = f.Final(r.err)
		}
		d.failed(ctx, view, e, d.t.opts.Fetcher.Reason(r.err), incurable)
	}
}

// finalFetcher is a Fetcher that knows which failures another attempt cannot
// cure, such as a format that nothing here can read.
type finalFetcher interface{ Final(err error) bool }

// failed decides what follows a failed attempt: another one after a pause, or
// the end. There is no end while somebody holds the content.
func (d *dispatcher) failed(ctx context.Context, view state.View, e *entry, reason string, incurable bool) {
	e.waited = 0
	e.attempts++
	root, own, err := wanted(view, e.root, d.t.opts.Self)
	if err != nil || own == nil {
		d.settle(ctx, view, e)
		return
	}
	if root.Born != e.born {
		e.renew(root.Born) // that was about another incarnation
	}
	// What is left of a damaged copy may be the last there is: it is never given up.
	if (incurable || e.attempts >= d.t.limits.Attempts) && !d.heldElsewhere(&root) && !d.t.damaged(e.root) {
		d.count(outcomeGaveUp)
		e.stage, e.giveUp = dropping, clip(cmp.Or(reason, "the content could not be fetched"))
		d.t.sweeps.add(sweep{root: e.root, partial: true})
		return
	}
	d.count(outcomeFailed)
	e.holder = d.heldElsewhere(&root)
	d.report(e, &root, state.CopyReport{Phase: state.Assigned, Reason: clip(reason)})
	d.delay(e, d.t.limits.backoff(d.t.opts.Self, e.root, e.attempts))
}

func (d *dispatcher) heldElsewhere(root *state.Root) bool {
	return slices.ContainsFunc(root.Copies, func(c state.Copy) bool {
		return c.Phase == state.Held && c.Node != d.t.opts.Self
	})
}

func (d *dispatcher) count(outcome string) { d.t.metrics.fetches.WithLabelValues(outcome).Inc() }
