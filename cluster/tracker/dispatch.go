package tracker

import (
	"container/heap"
	"container/list"
	"context"
	"hash/fnv"
	"io"
	"math"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

const (
	// slotCheck is the interval at which the dispatcher checks the running fetches while roots
	// wait for a slot.
	slotCheck = time.Second
	// lostReason is the reason in the report about content that was complete on this node and has
	// disappeared.
	lostReason = "the node lost its copy and fetches it again"
	// hurtReason is the reason in the report about content of which blocks are damaged or
	// missing.
	hurtReason = "blocks on the node's disk were damaged, it fetches them again"
)

// stage is the state of the work on a root. At any time only one of three works on it: the
// dispatcher, a fetch, or a drop by the sweeper.
type stage uint8

const (
	resting  stage = iota // no work on the root is in progress
	queued                // the root waits for a slot
	fetching              // the root is being fetched
	delayed               // the root waits for its next attempt
	dropping              // the sweeper is dropping the root
)

// entry is a root on which this node has to work. Roots that are complete on this node as wanted,
// and unwanted roots that are not on this node, have no entry.
type entry struct {
	root  state.RootKey
	stage stage

	account state.AccountID // account whose share of the slots the root uses
	share   *share          // set while the root is queued
	line    line
	place   *list.Element
	due     time.Time // time of the next attempt, set while delayed
	heap    int       // index in the heap, set while delayed
	run     *run      // set while fetching

	ticket  uint64 // number of the report that has not been acknowledged yet; 0 means none
	verify  bool   // check the block store even if the state records the root as held
	missed  bool   // a check was requested while the root was being dropped
	repair  bool   // the root was complete on this node before
	resumed bool   // the stored attempts of the root were read

	// The following fields are about the attempts for one incarnation of the root. A root that is
	// deleted and created again is another incarnation, with another born, the index of the log
	// entry that created it.
	born     uint64
	attempts int           // number of attempts that have failed in a row
	seen     uint64        // log index at the start of the last attempt, or that of a newer pin that repinned has returned
	again    int           // number of restarts in a row because of new pins, without a block in between
	waited   time.Duration // time without a block in fetches that had to yield their slot
	reached  uint64        // number of blocks that an earlier fetch has reached; a fetch that reaches fewer has made no progress
	holder   bool          // a node with the complete content answered during the last failed attempt
	giveUp   string        // why the node gives up; set while it drops the incomplete content
}

// dispatcher decides what is done for each root on which this node has to work. One goroutine
// uses all of its fields. That goroutine never waits for another one; the others wait for it. A
// running fetch uses a slot. Roots without a slot wait in a queue, in which the accounts take
// turns.
type dispatcher struct {
	t           *Tracker
	known       map[state.RootKey]*entry
	queue       *queue
	later       dueHeap
	running     map[*run]struct{}
	pinned      map[*run]time.Time // running fetches whose root got a new pin or holder at that time, and no new block since
	holdersDown map[*run]struct{}  // running fetches whose root is held by other nodes, none of which answered at the start
	sought      time.Time          // time at which seek last checked these
	missed      bool               // there was no memory for a root, so an audit must find it again
}

// dispatch runs the dispatcher until ctx ends and its fetches have ended.
func (t *Tracker) dispatch(ctx context.Context) error {
	d := &dispatcher{
		t:           t,
		known:       map[state.RootKey]*entry{},
		queue:       newQueue(),
		running:     map[*run]struct{}{},
		pinned:      map[*run]time.Time{},
		holdersDown: map[*run]struct{}{},
	}
	sub := t.opts.Watch.Subscribe(t.opts.Self)
	defer sub.Close()
	var work sync.WaitGroup
	defer work.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		d.seek()
		d.cutStuck()
		d.begin(ctx, &work)
		t.queue.Store(int64(d.queue.length + len(d.running) + len(d.later)))
		d.arm(timer)
		d.catchUp()
		offers := t.offers
		if !d.hasCapacity() {
			offers = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-sub.C:
			d.changed(ctx, sub.Take())
		case o := <-offers:
			d.offered(ctx, o)
		case r := <-t.outcomes:
			d.ended(ctx, r)
		case acks := <-t.acks:
			d.answered(ctx, acks)
		case s := <-t.swept:
			d.dropped(ctx, s)
		case q := <-t.questions:
			d.answer(q)
		case <-timer.C:
			d.retryDue(ctx)
		}
	}
}

// arm sets the timer to the time at which the next work is due, and stops it if there is none.
func (d *dispatcher) arm(timer *time.Timer) {
	const never = time.Duration(math.MaxInt64)
	next := never
	if len(d.later) > 0 {
		next = max(0, time.Until(d.later[0].due))
	}
	if d.queue.length > 0 {
		next = min(next, slotCheck)
	}
	if len(d.pinned) > 0 {
		next = min(next, stuckAfter)
	}
	if len(d.holdersDown) > 0 {
		next = min(next, seekEvery)
	}
	if next == never {
		timer.Stop()
		return
	}
	timer.Reset(next)
}

// hasCapacity returns whether the dispatcher can accept roots from an audit. An audit may fill
// 3/4 of the memory for roots; the rest is for changes of the state.
func (d *dispatcher) hasCapacity() bool { return len(d.known) < d.t.limits.Known-d.t.limits.Known/4 }

// shareOf returns how many roots of one account may wait in each of its lines. Further roots need
// no memory, because the auditor finds them again in the state.
func (d *dispatcher) shareOf() int { return max(1, d.t.limits.Known/4) }

// fills returns whether an account has its maximum number of roots in a line.
func (d *dispatcher) fills(account state.AccountID, l line) bool {
	s := d.queue.shares[account]
	return s != nil && s.lines[l].Len() >= d.shareOf()
}

// catchUp requests an audit for the roots for which there was no memory, once there is enough
// memory again.
func (d *dispatcher) catchUp() {
	if d.missed && len(d.known) <= d.t.limits.Known/2 && len(d.later) <= d.t.limits.Known/8 {
		d.missed = false
		token(d.t.audits)
	}
}

// refill asks the auditor for more roots of an account, once half of the account's roots in
// memory are done and if the auditor has more.
func (d *dispatcher) refill(s *share) {
	if (s.behind || s.again) && s.lines[backlog].Len() <= d.shareOf()/2 {
		d.t.refills.add(s.account, s.again)
		s.behind, s.again = false, false
		d.queue.release(s)
	}
}

// changed processes the roots whose records in the state have changed.
func (d *dispatcher) changed(ctx context.Context, ch state.Changes) {
	if ch.All {
		token(d.t.audits)
		view, release := d.t.opts.State.LocalView()
		defer release()
		for _, e := range d.known { // the whole state may be another one
			d.check(ctx, view, e)
		}
		return
	}
	if len(ch.Roots) == 0 {
		return
	}
	view, release := d.t.opts.State.LocalView()
	defer release()
	var hides []state.RootKey
	defer func() { d.t.hides.add(hides...) }()
	for _, k := range ch.Roots {
		if len(hides) == pageRoots {
			d.t.hides.add(hides...)
			hides = hides[:0]
		}
		e, now := d.known[k], d.read(view, k)
		if e == nil && now.held() {
			if !d.t.leases.agrees(k, now.root.Private()) { // it does in the normal course of a put
				hides = append(hides, k)
			}
			continue
		}
		if now.own != nil || now.err != nil { // the rest stays as it is until it is dropped
			hides = append(hides, k)
		}
		if e == nil {
			if len(d.known) >= d.t.limits.Known && !d.makeRoom(view, k) {
				d.missed = true // it is found again when there is room
				continue
			}
			e = &entry{root: k}
			d.known[k] = e
		}
		d.checkAt(ctx, view, e, now)
	}
}

// record is what a view of the state has about a root.
type record struct {
	root state.Root
	own  *state.Copy // copy of this node; nil if the state does not want the root on this node
	err  error
}

func (d *dispatcher) read(view state.View, k state.RootKey) record {
	root, own, err := wanted(view, k, d.t.opts.Self)
	return record{root, own, err}
}

// held returns whether the state wants the root on this node and records it as held there.
func (r *record) held() bool { return r.own != nil && r.own.Phase == state.Held }

// makeRoom removes a waiting root from memory to make room for root k. It removes the newest root
// of the account with the most waiting roots; the auditor offers that root again later. It
// returns false, and removes nothing, if the account of k has nearly as many waiting roots.
func (d *dispatcher) makeRoom(view state.View, k state.RootKey) bool {
	longest := d.queue.heaps[byLength].top()
	if longest == nil {
		return false
	}
	account := d.account(view, k)
	if s := d.queue.shares[account]; s != nil && s.waiting()+1 >= longest.waiting() {
		return false
	}
	longest.again = true
	delete(d.known, d.queue.last().root)
	return true
}

// account returns the account whose share of the slots a root uses. Of the accounts that want the
// root, it is the one with the fewest waiting and running roots.
func (d *dispatcher) account(view state.View, k state.RootKey) state.AccountID {
	accounts, err := view.AttachedAccounts(k, maxAccounts)
	if err != nil {
		d.t.opts.Logger.Error("cannot read the accounts of a root", "root", k, "err", err)
	}
	return d.queue.lightest(accounts)
}

// offered processes a root that the auditor offers. It refuses the root if the account has its
// maximum number of roots in memory, unless the offer is a must.
func (d *dispatcher) offered(ctx context.Context, o offer) {
	view, release := d.t.opts.State.LocalView()
	defer release()
	e := d.known[o.root]
	if e == nil {
		if longest := d.queue.heaps[byLength].top(); !o.must && longest != nil && longest.waiting() >= d.shareOf() {
			if account := d.account(view, o.root); d.fills(account, backlog) {
				d.queue.of(account).behind = true
				o.answer <- verdict{refused: true, account: account}
				return
			}
		}
		e = &entry{root: o.root}
		d.known[o.root] = e
	}
	e.verify = true
	d.check(ctx, view, e)
	if !o.must {
		o.answer <- verdict{}
	}
}

// answered processes the roots whose reports were committed or rejected.
func (d *dispatcher) answered(ctx context.Context, acks []ack) {
	view, release := d.t.opts.State.LocalView()
	defer release()
	for _, a := range acks {
		e := d.known[a.root]
		if e == nil || e.ticket != a.ticket {
			continue // there is newer news on its way
		}
		e.ticket = 0
		if a.err != nil && e.stage == resting {
			d.delay(e, d.t.limits.MaxBackoff)
			continue
		}
		d.check(ctx, view, e)
	}
}

// dropped processes the result of a drop by the sweeper.
func (d *dispatcher) dropped(ctx context.Context, s sweep) {
	e := d.known[s.root]
	if e == nil || e.stage != dropping {
		return
	}
	e.stage = resting
	reason, born, missed := e.giveUp, e.born, e.missed
	e.giveUp, e.missed = "", false
	if s.dropped {
		d.t.metrics.drops.Inc()
		e.renew(0)
	}
	view, release := d.t.opts.State.LocalView()
	defer release()
	if s.err != nil {
		d.t.opts.Logger.ErrorContext(ctx, "cannot drop the blocks of a root", "root", e.root, "err", s.err)
	}
	if s.whole {
		e.verify = true
		d.check(ctx, view, e)
		return
	}
	if s.leased {
		if _, own, err := wanted(view, e.root, d.t.opts.Self); err == nil && own == nil {
			if missed { // by an audit or by the check after a lease
				d.check(ctx, view, e)
				return
			}
			d.forget(e) // the end of the lease causes a check
		} else {
			d.delay(e, d.t.limits.Backoff) // a put may just complete what could not be fetched
		}
		return
	}
	if reason != "" {
		e.attempts = 0 // told to fetch it again, so count from the start
		if root, own, err := wanted(view, e.root, d.t.opts.Self); err == nil && own != nil && root.Born == born && !e.repinned(&root) {
			d.report(e, &root, state.CopyReport{Phase: state.GaveUp, Reason: reason})
			return
		}
	}
	switch _, own, err := wanted(view, e.root, d.t.opts.Self); {
	case s.err != nil:
		d.delay(e, d.t.limits.MaxBackoff)
	case err == nil && own == nil && !s.dropped && !missed:
		d.forget(e) // wanted by entries that this node has not applied yet; they will cause a check
	default:
		d.check(ctx, view, e)
	}
}

// retryDue processes the delayed roots whose next attempt is due.
func (d *dispatcher) retryDue(ctx context.Context) {
	now := time.Now()
	if len(d.later) == 0 || d.later[0].due.After(now) {
		return
	}
	view, release := d.t.opts.State.LocalView()
	defer release()
	for len(d.later) > 0 && !d.later[0].due.After(now) {
		e := heap.Pop(&d.later).(*entry)
		e.stage = resting
		d.settle(ctx, view, e)
	}
}

// check adapts the work on a root to the state in view.
func (d *dispatcher) check(ctx context.Context, view state.View, e *entry) {
	d.checkAt(ctx, view, e, d.read(view, e.root))
}

// checkAt is check for a caller that has read the record of the root.
func (d *dispatcher) checkAt(ctx context.Context, view state.View, e *entry, now record) {
	switch e.stage {
	case dropping: // checked when the drop has ended
		e.missed = true
		return
	case resting: // a report may be on its way, and it may be that nothing more is tried
		if e.ticket == 0 || now.own != nil && e.repinned(&now.root) {
			d.settleAs(ctx, view, e, now)
		}
		return
	}
	root, own := now.root, now.own
	if now.err != nil {
		d.t.opts.Logger.ErrorContext(ctx, "cannot read a root", "root", e.root, "err", now.err)
		return
	}
	switch {
	case own == nil && e.stage == fetching:
		e.run.stop(errNotWanted)
	case e.stage == fetching && (e.run.private != root.Private() || e.born != root.Born):
		e.run.cut() // others are asked, or charged, from now on
	case own == nil:
		d.withdraw(e)
		d.settle(ctx, view, e)
	case e.stage == delayed && !e.holder && len(d.holders(&root)) > 0:
		d.withdraw(e) // now there is a source: no need to wait
		e.attempts, e.holder = 0, true
		d.settle(ctx, view, e)
	case e.stage == queued:
		d.pass(view, e)
	case e.stage == fetching && d.found(e.run, &root): // it learns of the holders when it restarts, as for a pin
		d.pinned[e.run] = time.Now()
	case e.repinned(&root):
		d.again(ctx, view, e)
	}
}

// repinned returns whether the root got a new pin since its last attempt began. It returns true
// only once for each pin. It reads the record of the root, because a burst of changes does not
// report each pin.
func (e *entry) repinned(root *state.Root) bool {
	at := root.PinnedAt()
	since := at > e.seen
	e.seen = max(e.seen, at)
	return since
}

// A fetch whose root got a new pin counts as stuck if no block has arrived for stuckAfter. This
// time doubles with each consecutive restart without a block, up to maxAgain times: finding a
// provider takes longer than a second, and content with many pins needs that time.
const (
	stuckAfter = time.Second
	maxAgain   = 6
)

// again retries a root because of a new pin. The account of the pin may just have brought the
// content to this node, or know another source. If the root waits for its next attempt, that
// begins at once. If it is being fetched, the fetch is restarted as soon as it is stuck.
func (d *dispatcher) again(ctx context.Context, view state.View, e *entry) {
	switch e.stage {
	case delayed:
		e.attempts = max(0, e.attempts-1) // this one is beside them: a few pins do not use them up
		d.withdraw(e)
		d.settle(ctx, view, e)
	case fetching:
		d.pinned[e.run] = time.Now()
	}
}

// cutStuck restarts the stuck fetches whose roots got new pins or holders. A fetch that makes
// progress continues.
func (d *dispatcher) cutStuck() {
	now := time.Now()
	for r, at := range d.pinned {
		switch idle := r.idle(now); {
		case r.yielding: // it restarts as soon as it has ended
		case idle > backoff.After(stuckAfter, stuckAfter<<maxAgain, 1+r.entry.again):
			r.entry.again++
			r.cut()
		case r.unmoved(now) < now.Sub(at):
			delete(d.pinned, r)
		}
	}
}

// pass moves a queued root to another account that wants the root too, if that account has fewer
// waiting and running roots.
func (d *dispatcher) pass(view state.View, e *entry) {
	account := d.account(view, e.root)
	from := e.share
	if s := d.queue.shares[account]; account == from.account || s != nil && s.load()+1 >= from.load() {
		return
	}
	line := e.line
	d.withdraw(e)
	d.enqueue(e, account, line)
}

// settle decides by the state and the block store what must be done for a resting root, and
// starts that. It deletes the entry if nothing must be done.
func (d *dispatcher) settle(ctx context.Context, view state.View, e *entry) {
	d.settleAs(ctx, view, e, d.read(view, e.root))
}

// settleAs is settle for a caller that has read the record of the root.
func (d *dispatcher) settleAs(ctx context.Context, view state.View, e *entry, now record) {
	root, own := now.root, now.own
	if now.err != nil {
		d.trouble(ctx, e, now.err)
		return
	}
	if now.held() && !e.verify {
		d.forget(e)
		return
	}
	sealed, bytes, blocks, here, err := d.t.opts.Blocks.Reference(ctx, Reference(e.root))
	if err != nil {
		d.trouble(ctx, e, wrap("read reference", err))
		return
	}
	audited := e.verify
	e.verify = false
	switch {
	case own == nil && here:
		if !sealed {
			bytes = 0
		}
		e.stage = dropping
		d.t.sweeps.add(sweep{root: e.root, bytes: bytes})
	case own == nil, sealed && own.Phase == state.Held:
		d.forget(e)
	case sealed:
		d.forgetAttempts(e) // attempts before the one that sealed it and whose result was not reported
		d.report(e, &root, state.CopyReport{Phase: state.Held, Size: bytes, Blocks: blocks})
	case own.Phase == state.GaveUp && here:
		e.stage = dropping
		d.t.sweeps.add(sweep{root: e.root, partial: true})
	case own.Phase == state.GaveUp:
		d.forget(e)
	default:
		if d.resumed(e, &root) {
			return
		}
		line := fresh
		if audited || own.Phase != state.Assigned || e.attempts > 0 || root.Status == state.Pinned {
			line = backlog
		}
		account := d.account(view, e.root)
		if e.attempts == 0 && e.ticket == 0 && own.Phase != state.Held && d.fills(account, line) {
			d.queue.of(account).again = true // the state knows of it
			d.forget(e)
			return
		}
		hurt := here && d.t.damaged(e.root)
		e.repair = e.repair || hurt || own.Phase == state.Held
		if own.Phase == state.Held {
			reason := lostReason
			if hurt {
				reason = hurtReason
			}
			d.t.opts.Logger.WarnContext(ctx, "content is no longer complete on this node", "root", e.root, "damaged", hurt)
			d.report(e, &root, state.CopyReport{Phase: state.Assigned, Reason: reason})
		}
		d.enqueue(e, account, line)
	}
}

// trouble delays a root after an error of this node, which it logs.
func (d *dispatcher) trouble(ctx context.Context, e *entry, err error) {
	if ctx.Err() != nil {
		return
	}
	d.t.opts.Logger.ErrorContext(ctx, "cannot process a root now", "root", e.root, "err", err)
	e.verify = true
	d.delay(e, d.t.limits.MaxBackoff)
}

// report queues a report about the copy of a root. It replaces an older report about the root
// that has not been sent.
func (d *dispatcher) report(e *entry, root *state.Root, r state.CopyReport) {
	r.Root, r.Born = root.Key, root.Born
	if r.Phase == state.GaveUp {
		r.Seen = root.PinnedAt()
	}
	e.ticket = d.t.reports.put(r)
}

// renew resets the fields about attempts for another incarnation of the root. 0 means none.
func (e *entry) renew(born uint64) {
	e.born, e.attempts, e.again, e.waited, e.reached, e.holder = born, 0, 0, 0, 0, false
}

// resumed restores the stored attempts of a root, if there are any and if it was not done before.
// They may come from an earlier process. It returns true if it has delayed the root because the
// next attempt is not due yet.
func (d *dispatcher) resumed(e *entry, root *state.Root) bool {
	if e.resumed {
		return false
	}
	e.resumed = true
	n, ok := d.t.attemptsOf(e.root)
	if !ok || n.born != root.Born || e.attempts > 0 {
		return false
	}
	e.born, e.attempts, e.waited, e.reached, e.holder, e.seen = n.born, n.attempts, n.waited, n.reached, n.holder, n.seen
	if !e.holder && len(d.holders(root)) > 0 {
		e.attempts, e.holder = 0, true // now there is a source
		return false
	}
	if e.repinned(root) {
		e.attempts = max(0, e.attempts-1) // as in again
		return false
	}
	pause := min(n.due.Sub(d.t.opts.Now()), d.t.limits.MaxBackoff) // clocks jump
	if pause <= 0 {
		return false
	}
	d.delay(e, pause)
	return true
}

// forget deletes an entry, unless its report has not been acknowledged yet.
func (d *dispatcher) forget(e *entry) {
	e.stage = resting
	if e.ticket == 0 {
		delete(d.known, e.root)
	}
}

func (d *dispatcher) enqueue(e *entry, account state.AccountID, l line) {
	e.stage = queued
	d.queue.add(e, account, l)
}

// delay makes a root wait for its next attempt. If too many roots wait already, it deletes the
// entry, and an audit finds the root again.
func (d *dispatcher) delay(e *entry, pause time.Duration) {
	if len(d.later) >= max(1, d.t.limits.Known/4) {
		d.missed = true
		e.stage = resting
		delete(d.known, e.root)
		return
	}
	e.stage, e.due = delayed, time.Now().Add(pause)
	heap.Push(&d.later, e)
}

// withdraw removes a queued or delayed root from the queue or the heap.
func (d *dispatcher) withdraw(e *entry) {
	switch e.stage {
	case queued:
		s := e.share
		d.queue.remove(e)
		d.refill(s)
	case delayed:
		heap.Remove(&d.later, e.heap)
	}
	e.stage = resting
}

// backoff returns the pause after a number of failed attempts. It doubles with each attempt, up
// to MaxBackoff. It is shortened by up to half, depending on node and root, so that not all nodes
// ask the same provider at once.
func (l Limits) backoff(self state.NodeID, k state.RootKey, attempts int) time.Duration {
	pause := backoff.After(l.Backoff, l.MaxBackoff, attempts)
	h := fnv.New64a()
	_, _ = io.WriteString(h, string(self)+string(k))
	_, _ = h.Write([]byte{byte(attempts)})
	half := uint64(pause/2) + 1
	return pause - time.Duration(h.Sum64()%half)
}

// dueHeap orders delayed roots by the time of their next attempt.
type dueHeap []*entry

// Len implements heap.Interface.
func (h dueHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

// Swap implements heap.Interface.
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heap, h[j].heap = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	e := x.(*entry)
	e.heap = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
