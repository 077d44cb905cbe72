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

// Causes with which this node stops a fetch.
var (
	errNotWanted = errors.New("not wanted any more")
	errYield     = errors.New("yields to those that wait")
)

// run is one running fetch of a root.
type run struct {
	entry *entry
	share *share // only for the dispatcher
	begin time.Time
	floor uint64 // number of blocks that an earlier fetch has reached
	meter meter
	stop  context.CancelCauseFunc
	// private is true if the fetch asks only members.
	private bool
	held    []state.NodeID // other nodes with the complete content that answered; only for the dispatcher

	bytes  atomic.Uint64
	blocks atomic.Uint64
	moved  atomic.Int64 // ns from the start to the arrival of the last new block; 0 if none has arrived
	walked atomic.Int64 // the same for any block, including blocks that this node has already

	yielding bool // the fetch was stopped with errYield; only for the dispatcher

	// The following fields are set at the end of the fetch.
	gotBytes  uint64
	gotBlocks uint64
	err       error
	cause     error // errNotWanted or errYield if this node has stopped the fetch
}

// cut stops the fetch with errYield, so that it yields its slot and its root waits again.
func (r *run) cut() {
	r.yielding = true
	r.stop(errYield)
}

// idle returns for how long the fetch has reached no further block, including the blocks that
// this node has already. Reading these can take longer than the wait for one new block.
func (r *run) idle(now time.Time) time.Duration {
	return now.Sub(r.begin) - time.Duration(r.walked.Load())
}

// unmoved returns for how long no new block has arrived.
func (r *run) unmoved(now time.Time) time.Duration {
	return now.Sub(r.begin) - time.Duration(r.moved.Load())
}

// slots returns the number of running fetches that receive blocks, and of those that wait for a
// block. A fetch begins as waiting. From its first new block on it counts as receiving. After
// RotateAfter without a new block it counts as waiting again.
func (d *dispatcher) slots(now time.Time) (moving, waiting int) {
	for r := range d.running {
		if r.moved.Load() > 0 && r.unmoved(now) < d.t.limits.RotateAfter {
			moving++
		} else {
			waiting++
		}
	}
	return moving, waiting
}

// quarter returns a quarter of n slots, at least one. These slots are reserved for new pins.
func quarter(n int) int { return max(1, n/4) }

// room returns which fetches may begin while moving fetches receive blocks and waiting ones wait.
// The backlog may use three quarters of the slots and of an account's share, so that new pins
// need not wait for repairs. An account without a running fetch may begin one even if all slots
// are in use, so that it does not wait for large DAGs of other accounts. The number of all
// fetches is at most twice the number of slots.
func (d *dispatcher) room(moving, waiting int) room {
	l := &d.t.limits
	return room{
		line: [lines]bool{
			fresh:   moving < l.Moving && waiting < l.Waiting,
			backlog: moving < max(1, l.Moving-quarter(l.Moving)) && waiting < max(1, l.Waiting-quarter(l.Waiting)),
		},
		first: len(d.running) < 2*(l.Moving+l.Waiting),
		caps:  [lines]int{fresh: l.Account, backlog: max(1, l.Account-quarter(l.Account))},
	}
}

// yield stops idle fetches, at most as many as roots wait for a slot. If all slots are in use and
// none is idle, it stops one fetch of the account with the most, if another account has fewer. So
// content without a provider cannot block available content, and the large DAGs of one account
// cannot block those of another.
func (d *dispatcher) yield(now time.Time, r room) {
	others := d.queue.length
	for run := range d.running {
		if run.yielding {
			others--
		}
	}
	full := false
	for l, free := range r.line {
		full = full || !free && d.queue.heaps[l].Len() > 0
	}
	for run := range d.running {
		if others <= 0 {
			return
		}
		// Where there are slots, it is the accounts with all of theirs that wait.
		most := run.share.active >= r.caps[backlog] && run.share.waiting() > 0
		if (full || most) && !run.yielding && run.idle(now) >= d.t.limits.RotateAfter {
			run.cut()
			others--
		}
	}
	if next := d.queue.turn(); next != nil && full && others == d.queue.length {
		if run := d.heaviest(now, next.active+2); run != nil {
			run.cut()
		}
	}
}

// heaviest returns the oldest fetch of the account with the most running fetches. It considers
// only accounts that have the number least of running fetches or more, and fetches that have run for
// RotateAfter.
// It returns nil if there is none.
func (d *dispatcher) heaviest(now time.Time, least int) (oldest *run) {
	for r := range d.running {
		switch {
		case r.share.active < least || now.Sub(r.begin) < d.t.limits.RotateAfter:
		case oldest == nil, r.share.active > oldest.share.active,
			r.share.active == oldest.share.active && r.begin.Before(oldest.begin):
			oldest = r
		}
	}
	return oldest
}

// begin starts fetches of queued roots until no slot is free. If roots still wait, it calls
// yield. work counts the goroutines.
func (d *dispatcher) begin(ctx context.Context, work *sync.WaitGroup) {
	if d.queue.length == 0 {
		return
	}
	now := time.Now()
	moving, waiting := d.slots(now)
	var view state.View
	var nodes []state.Node
	for d.queue.length > 0 {
		r := d.room(moving, waiting)
		e := d.queue.next(r)
		if e == nil {
			d.yield(now, r)
			return
		}
		e.stage = resting
		if s := d.queue.shares[e.account]; s != nil {
			d.refill(s)
		}
		if nodes == nil { // read once for all fetches that start now
			var release func()
			view, release = d.t.opts.State.LocalView()
			defer release()
			var err error
			if nodes, err = view.Nodes(); err != nil {
				d.trouble(ctx, e, wrap("read members", err))
				return
			}
		}
		root, own, err := wanted(view, e.root, d.t.opts.Self)
		if err != nil || own == nil {
			d.settle(ctx, view, e)
			continue
		}
		job, err := d.job(view, nodes, &root, e.attempts)
		if err != nil {
			d.trouble(ctx, e, wrap("read origins", err))
			return
		}
		job.Account = e.account
		if e.born != root.Born {
			e.renew(root.Born)
		}
		e.seen = view.Index()
		if own.Phase != state.Fetching || own.Reason != "" || e.ticket != 0 {
			d.report(e, &root, state.CopyReport{Phase: state.Fetching})
		}
		d.launch(ctx, work, e, job, now, meterOf(view, &root))
		if e.run.held = d.holders(&root); len(e.run.held) == 0 && d.heldElsewhere(&root) {
			d.holdersDown[e.run] = struct{}{}
		}
		waiting++
	}
}

func (d *dispatcher) launch(ctx context.Context, work *sync.WaitGroup, e *entry, job Job, now time.Time, m meter) {
	scope, stop := context.WithCancelCause(ctx)
	r := &run{
		entry: e, share: d.queue.begun(e.account), begin: now, floor: e.reached, meter: m, stop: stop, private: job.Private,
	}
	e.stage, e.run = fetching, r
	d.running[r] = struct{}{}
	d.t.mu.Lock()
	d.t.runs[e.root] = r
	d.t.mu.Unlock()
	d.t.leases.sealChanging(e.root) // the seal follows the current state
	work.Go(func() {
		defer stop(nil)
		d.t.attempt(scope, r, job)
		d.t.leases.sealChanged(e.root)
		select {
		case d.t.outcomes <- r:
		case <-ctx.Done():
		}
	})
}

// attempt fetches a root, seals it and stores the result in r. After a crash before the seal, the
// next attempt continues with the blocks that are stored. After a crash after the seal, the next
// audit reports the content as held.
func (t *Tracker) attempt(ctx context.Context, r *run, job Job) {
	bytes, blocks, err := t.opts.Fetcher.Fetch(ctx, job, func(bytes, blocks uint64) {
		r.bytes.Store(bytes)
		if last := r.blocks.Swap(blocks); blocks > last {
			at := max(1, int64(time.Since(r.begin)))
			r.walked.Store(at)
			if blocks > r.floor {
				r.moved.Store(at)
			}
		}
		t.charge(ctx, &r.meter, bytes)
	})
	if err == nil {
		err = wrap("seal blocks", t.opts.Blocks.Seal(ctx, job.Reference, bytes, blocks))
	}
	r.gotBytes, r.gotBlocks, r.err = bytes, blocks, err
	if err == nil {
		return
	}
	if cause := context.Cause(ctx); errors.Is(cause, errNotWanted) || errors.Is(cause, errYield) {
		r.cause = cause
	}
}

// job returns the job of fetching a root. Its sources are first the members with the complete
// content, then the other members to which the root is allocated, then further members, then the
// origins. One attempt asks at most maxSources members; the next attempt asks other further
// members.
func (d *dispatcher) job(view state.View, nodes []state.Node, root *state.Root, attempts int) (job Job, err error) {
	job = Job{Root: root.Key.Cid(), Reference: Reference(root.Key), Held: d.heldElsewhere(root), Private: root.Private(), Linked: root.Links > 0}
	if !job.Private {
		if job.Origins, err = view.Origins(root.Key); err != nil {
			return job, err
		}
	}
	add := func(n state.NodeID) {
		if n != d.t.opts.Self && len(job.Members) < maxSources && !slices.Contains(job.Members, n) && !d.t.opts.Down(n) {
			job.Members = append(job.Members, n)
		}
	}
	for _, n := range root.Holders() {
		add(n)
	}
	// The next node among the copies starts with the blocks that this node needs next, so
	// it is asked first.
	job.Index = slices.IndexFunc(root.Copies, func(c state.Copy) bool { return c.Node == d.t.opts.Self })
	job.Of = len(root.Copies)
	for i := range root.Copies {
		add(root.Copies[(job.Index+1+i)%job.Of].Node)
	}
	job.Sharing = len(job.Members)
	from := attempts * (maxSources - len(job.Members))
	for i := range nodes { // a file may have been imported anywhere
		add(nodes[(from+i)%len(nodes)].ID)
	}
	return job, nil
}

// ended processes the result of a fetch.
func (d *dispatcher) ended(ctx context.Context, r *run) {
	e, now := r.entry, time.Now()
	delete(d.running, r)
	_, pinned := d.pinned[r]
	delete(d.pinned, r)
	delete(d.holdersDown, r)
	d.queue.ended(r.share)
	d.t.mu.Lock()
	delete(d.t.runs, e.root)
	d.t.mu.Unlock()
	e.run, e.stage = nil, resting
	view, release := d.t.opts.State.LocalView()
	defer release()
	if r.moved.Load() > 0 {
		e.waited, e.reached, e.again = 0, r.blocks.Load(), 0
	}
	switch {
	case r.err == nil:
		d.t.hides.add(e.root) // it was sealed according to an older state
		d.count(outcomeHeld)
		d.t.metrics.bytes.Add(float64(r.gotBytes))
		if e.repair {
			d.t.metrics.repairs.Inc()
			e.repair = false
		}
		d.forgetAttempts(e)
		e.renew(0)
		root, own, err := wanted(view, e.root, d.t.opts.Self)
		if err != nil || own == nil {
			d.settle(ctx, view, e)
			return
		}
		d.report(e, &root, state.CopyReport{Phase: state.Held, Size: r.gotBytes, Blocks: r.gotBlocks})
	case errors.Is(r.cause, errNotWanted):
		d.count(outcomeUnasked)
		d.forgetAttempts(e)
		e.renew(0)
		d.settle(ctx, view, e)
	case errors.Is(r.cause, errYield):
		d.count(outcomeYielded)
		e.waited += r.idle(now)
		if e.waited >= d.t.limits.Patience {
			if d.t.opts.Fetcher.Vain(r.err) { // the reason of that error is more precise
				d.failed(ctx, view, e, d.t.opts.Fetcher.Reason(r.err), r.err, pinned)
				return
			}
			d.failed(ctx, view, e, fmt.Sprintf("no block of it has come within %s", e.waited.Round(time.Second)), nil, pinned)
			return
		}
		d.saveAttempts(e, d.t.opts.Now())
		d.enqueue(e, d.account(view, e.root), backlog)
	default:
		d.t.opts.Logger.InfoContext(ctx, "fetch failed", "root", e.root, "attempt", e.attempts+1, "err", r.err)
		d.failed(ctx, view, e, d.t.opts.Fetcher.Reason(r.err), r.err, pinned)
	}
}

// failed decides what follows a failed attempt: another attempt after a pause, or giving up.
// reason is the text for the report, and cause the error of the fetch, or nil if the fetch only
// got no blocks. pinned is true if the root got a new pin during the attempt.
//
// The node does not give up while another node has the complete content, or while repair moves
// the root to other nodes because of a problem of this node. It also does not give up if there is
// a new pin, unless no attempt can succeed.
func (d *dispatcher) failed(ctx context.Context, view state.View, e *entry, reason string, cause error, pinned bool) {
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
	pinned = e.repinned(&root) || pinned
	once, err := heldOnce(view, &root)
	if err != nil {
		d.trouble(ctx, e, err)
		return
	}
	// The rest of a damaged copy may be the last copy, so it is never given up. Neither is
	// content that was held once.
	last := once || d.t.damaged(e.root)
	incurable := cause != nil && d.t.opts.Fetcher.Final(cause)
	blameless := cause != nil && d.t.opts.Fetcher.Blameless(cause)
	// Another pin of the root may have no refused origins, so its content can still be
	// found.
	vain := root.Refs <= 1 && cause != nil && d.t.opts.Fetcher.Vain(cause)
	used := (e.attempts >= d.t.limits.Attempts || vain) && !pinned && !blameless && (cause == nil || !d.t.opts.Moves(&root, cause))
	if (incurable || used) && !d.heldElsewhere(&root) && !last {
		d.count(outcomeGaveUp)
		d.forgetAttempts(e)
		e.stage, e.giveUp = dropping, clip(cmp.Or(reason, "the content could not be fetched"))
		d.t.sweeps.add(sweep{root: e.root, partial: true})
		return
	}
	d.count(outcomeFailed)
	e.holder = len(d.holders(&root)) > 0
	d.report(e, &root, state.CopyReport{Phase: state.Assigned, Reason: clip(reason)})
	if pinned {
		e.attempts = max(0, e.attempts-1) // as in again
		d.saveAttempts(e, d.t.opts.Now())
		d.settle(ctx, view, e)
		return
	}
	pause := d.t.limits.backoff(d.t.opts.Self, e.root, e.attempts)
	if blameless {
		e.attempts-- // it was none
	}
	d.saveAttempts(e, d.t.opts.Now().Add(pause))
	d.delay(e, pause)
}

// heldOnce returns whether the content was complete on some node, so that it may come back with a
// disk: content of objects, and content that was pinned before a restore or a recovery has removed
// members. A pin of it remains pinned, with too few copies.
func heldOnce(view state.View, root *state.Root) (bool, error) {
	if root.Links > 0 {
		return true, nil
	}
	if root.Status != state.Pinned {
		return false, nil
	}
	replaced, err := view.MembersReplaced()
	return root.Born < replaced, wrap("read when the members were replaced", err)
}

func (d *dispatcher) heldElsewhere(root *state.Root) bool {
	return slices.ContainsFunc(root.Copies, func(c state.Copy) bool {
		return c.Phase == state.Held && c.Node != d.t.opts.Self
	})
}

// holders returns the other nodes that have the complete content of a root by its record and that
// are not down.
func (d *dispatcher) holders(root *state.Root) []state.NodeID {
	return slices.DeleteFunc(root.Holders(), func(n state.NodeID) bool { return n == d.t.opts.Self || d.t.opts.Down(n) })
}

// found returns whether nodes with the complete content answer now, while none of those that the
// fetch knows does. It returns true only once for these nodes.
func (d *dispatcher) found(r *run, root *state.Root) bool {
	if slices.ContainsFunc(r.held, func(n state.NodeID) bool { return !d.t.opts.Down(n) }) {
		return false
	}
	r.held = d.holders(root)
	return len(r.held) > 0
}

// seekEvery is the interval of the checks of seek.
const seekEvery = 5 * time.Second

// seek finds fetches that began while no node with the complete content answered, and for which
// such a node answers now. cutStuck restarts them if they are stuck. No change of the state
// reports that a node answers again, and the other sources may send nothing until the fetch times
// out.
func (d *dispatcher) seek() {
	now := time.Now()
	if len(d.holdersDown) == 0 || now.Sub(d.sought) < seekEvery {
		return
	}
	d.sought = now
	view, release := d.t.opts.State.LocalView()
	defer release()
	for r := range d.holdersDown {
		if root, own, err := wanted(view, r.entry.root, d.t.opts.Self); err == nil && own != nil && d.found(r, &root) {
			delete(d.holdersDown, r)
			d.pinned[r] = now
		}
	}
}

func (d *dispatcher) count(outcome string) { d.t.metrics.fetches.WithLabelValues(outcome).Inc() }
