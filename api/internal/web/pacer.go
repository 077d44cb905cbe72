package web

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Times and bounds of a Pacer.
const (
	// noisyBy defines a noisy account: it has at least this many times as many concurrent
	// requests as the account with the fewest.
	noisyBy = 4
	// processorsEach is the number of processors per concurrent request that a noisy account may
	// always have, independent of the rate. On two processors, two such requests would leave too
	// little time for other accounts.
	processorsEach = 2
	// restBy is the pause after a request that the rate did not admit: the next such request of
	// the account may start restBy times the duration of this request after its start.
	restBy = 2
	// paceWindow is how long a Pacer remembers the largest number of concurrent requests of an
	// account: for one to two times this duration.
	paceWindow = time.Second
	// paceSample is the interval at which a Pacer decides which accounts are noisy and whether
	// the node is busy. growSample is the interval while Pacer.limit grows.
	paceSample = 50 * time.Millisecond
	growSample = 10 * time.Millisecond
	// firstLimit is the initial number of concurrent requests, per processor, of an account that
	// becomes noisy while the node is not busy. largestLimit is the largest value of Pacer.limit.
	firstLimit   = 2
	largestLimit = 1 << 20
	// slowest is the largest factor by which the interval between paced requests grows with the
	// number of running requests. Without this bound, long requests that use no processor time,
	// such as those that wait for a pin, would delay all others.
	slowest = 8
	// maxPaced is the longest delay of a request.
	maxPaced = time.Second
	// busyWindow is how long the processors count as busy after threads had to wait for them.
	// reportWindow is the same for reports to other nodes; it is longer than the interval between
	// two reports.
	busyWindow   = time.Second
	reportWindow = 3 * time.Second
)

// Neighbours exchanges the request load of accounts with the other nodes of the cluster.
type Neighbours interface {
	// SetReport sets the function that the node calls every few seconds to report its load.
	// requests is the number of concurrent requests of each active account. busy is true if the
	// processors were busy since the last call. report is not called concurrently.
	SetReport(report func() (requests map[state.AccountID]int, busy bool))
	// Hurry makes the node send its next report early. It does not block.
	Hurry()
	// Elsewhere returns the sum of the concurrent requests of each account on all other live
	// nodes. busy is true if one of these nodes is the leader and its processors are busy. It
	// does not wait for the network.
	Elsewhere() (requests map[state.AccountID]int, busy bool)
}

// noNeighbours is the Neighbours of a Pacer without other nodes.
type noNeighbours struct{}

func (noNeighbours) SetReport(func() (map[state.AccountID]int, bool)) {}
func (noNeighbours) Hurry()                                           {}
func (noNeighbours) Elsewhere() (map[state.AccountID]int, bool)       { return nil, false }

// Pacer is the admission control that protects accounts from a noisy neighbour. It acts while the
// processors of this node or of the leader are busy and several accounts send requests. An
// account is noisy if it has at least noisyBy times as many concurrent requests as the account
// with the fewest.
//
// While the processors are busy, each noisy account may have one running request per two
// processors. After such a request the node pauses for as long as it took. It starts further
// requests of the account only at a fixed rate. If the account also sends requests to other
// nodes, both bounds shrink in proportion to the part of its requests that this node has. While
// the processors are not busy, the number of running requests of a noisy account doubles every 10
// ms, so that a sudden burst is slowed down before it makes them busy.
//
// A Pacer never delays the only account, or accounts with similar load. While there is processor
// time to spare, it delays requests only in the first moment of a burst. It delays no request for
// longer than maxPaced.
type Pacer struct {
	neighbours Neighbours
	held       atomic.Int64 // number of requests that were delayed since the start
	rate       int          // requests per second of all noisy accounts together
	atOnce     int          // concurrent requests that a noisy account may always have
	first      int          // initial value of limit
	busy       func() bool

	// mu guards the fields below.
	mu         sync.Mutex
	flows      map[state.AccountID]*flow
	window     time.Time               // start of the current window of peaks
	due        time.Time               // when the next sample is due
	modest     int                     // concurrent requests, on all nodes, of the account with the fewest
	noisy      int                     // number of noisy accounts on this node
	limit      int                     // requests of a noisy account that are served at once
	elsewhere  map[state.AccountID]int // concurrent requests on other nodes, of the last sample
	unreported bool                    // an account has started to send requests since the last report
}

// flow is the state of the requests of one account on this node.
type flow struct {
	serving int       // number of running requests
	waiting []*waiter // in order of arrival
	// peak is the largest number of concurrent requests in the current window, waiting ones
	// included. before is the peak of the previous window.
	peak, before int
	elsewhere    int         // concurrent requests on other nodes
	next         time.Time   // earliest start of the next request that the rate admits
	rest         time.Time   // earliest start of the next request beyond the rate
	timer        *time.Timer // calls again when the first waiter may start; nil: none waits
}

// waiter is a delayed request.
type waiter struct {
	started chan struct{} // closed when the request may start
	latest  time.Time     // the request starts at this time at the latest
}

// NewPacer returns a Pacer for a node with this many processors. rate is the number of requests
// per second and processor that all noisy accounts together may start; 0 disables all delays.
// busy(window) returns a function that reports whether the processors were busy within the
// window. That function and neighbours.Elsewhere run under a lock, at most once per growSample.
// If neighbours is nil, there are no other nodes.
func NewPacer(rate, processors int, busy func(window time.Duration) func() bool, neighbours Neighbours) *Pacer {
	if neighbours == nil {
		neighbours = noNeighbours{}
	}
	processors = max(1, processors)
	p := &Pacer{
		neighbours: neighbours, rate: rate * processors, busy: busy(busyWindow), flows: map[state.AccountID]*flow{},
		atOnce: max(1, processors/processorsEach), first: firstLimit * processors, limit: firstLimit * processors,
	}
	reported := busy(reportWindow)
	neighbours.SetReport(func() (map[state.AccountID]int, bool) { return p.active(), reported() })
	return p
}

// active returns the largest recent number of concurrent requests of each account on this node,
// for the report to other nodes.
func (p *Pacer) active() map[state.AccountID]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rotate(time.Now())
	p.unreported = false
	requests := make(map[state.AccountID]int, len(p.flows))
	for id, f := range p.flows {
		requests[id] = f.most()
	}
	return requests
}

// Register registers the metric of the Pacer. It does nothing if to is nil. Its errors are those
// of to.
func (p *Pacer) Register(to prometheus.Registerer) error {
	if to == nil {
		return nil
	}
	err := to.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "holdfast", Subsystem: "http", Name: "requests_paced_total",
		Help: "Requests of noisy accounts that were held back, for a second at most, while the processors were busy.",
	}, func() float64 { return float64(p.held.Load()) }))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// Enter waits until a request of the account may start. The caller calls leave when the request
// ends. If ctx ends first, Enter returns the error of ctx and a nil leave. A nil Pacer delays
// nothing.
func (p *Pacer) Enter(ctx context.Context, id state.AccountID) (leave func(), err error) {
	if p == nil || p.rate <= 0 {
		return func() {}, nil
	}
	f, w := p.enter(id, time.Now())
	if w != nil {
		p.held.Add(1)
		select {
		case <-w.started:
		case <-ctx.Done():
			if p.withdraw(f, w) {
				return nil, ctx.Err()
			}
		}
	}
	started := time.Now()
	return func() { p.leave(f, started, time.Now()) }, nil
}

// enter registers a request that arrived at now. The waiter is nil if the request may start at
// once.
func (p *Pacer) enter(id state.AccountID, now time.Time) (*flow, *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.flows[id]
	if f == nil {
		f = &flow{}
		p.flows[id] = f
		p.unreported = true
	}
	n := f.serving + len(f.waiting) + 1
	grown := n > max(f.peak, p.first) && n&(n-1) == 0
	f.peak = max(f.peak, n)
	p.sample(now)
	if grown { // many requests have come since the last sample
		if p.compare(); p.noisy > 0 {
			p.due = minTime(p.due, now.Add(growSample))
		}
	}
	if len(f.waiting) == 0 && p.mayStart(f, now, now.Add(maxPaced)) {
		f.serving++
		return f, nil
	}
	w := &waiter{started: make(chan struct{}), latest: now.Add(maxPaced)}
	f.waiting = append(f.waiting, w)
	p.start(f, now)
	return f, w
}

// leave registers the end of a request that ran from started to now, and starts waiting requests.
func (p *Pacer) leave(f *flow, started, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.serving--
	if p.limit == p.atOnce {
		f.rest = now.Add(time.Duration(float64(now.Sub(started)) * (restBy/min(1, f.share(p.atOnce)) - 1)))
	}
	p.sample(now)
	p.start(f, now)
}

// withdraw removes a waiting request whose context has ended. It returns false if the request was
// started meanwhile.
func (p *Pacer) withdraw(f *flow, w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(f.waiting, w)
	if at < 0 {
		return false
	}
	f.waiting = slices.Delete(f.waiting, at, at+1)
	p.start(f, time.Now())
	return true
}

// start lets those waiting requests of the account start that may, in order of arrival, and sets
// the timer for the next one. The caller holds mu.
func (p *Pacer) start(f *flow, now time.Time) {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	for len(f.waiting) > 0 {
		first := f.waiting[0]
		if !p.mayStart(f, now, first.latest) {
			next := minTime(f.next, first.latest, p.due)
			if f.rest.After(now) {
				next = minTime(next, f.rest)
			}
			f.timer = time.AfterFunc(next.Sub(now), func() { p.again(f) })
			return
		}
		f.waiting = f.waiting[1:]
		f.serving++
		close(first.started)
	}
}

// again takes a sample if one is due and calls start. The timer of f calls it.
func (p *Pacer) again(f *flow) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sample(now)
	p.start(f, now)
}

// mayStart reports whether the next request of the account may start at now. From the time latest
// on it always may. If only the rate admits the request, mayStart counts it against the rate. The
// caller holds mu.
func (p *Pacer) mayStart(f *flow, now, latest time.Time) bool {
	switch {
	case p.noisy == 0, !p.isNoisy(f), !now.Before(latest):
		return true
	case f.serving < max(1, int(f.share(p.limit))) && !now.Before(f.rest):
		return true
	case now.Before(f.next):
		return false
	}
	// The interval grows with the number of running requests on all nodes, so that they do not
	// pile up while nodes are slow for a moment.
	share := f.share(1)
	running := min(max(1, float64(f.serving)/share), float64(slowest*p.atOnce))
	step := time.Duration(float64(time.Second) * float64(p.noisy) * running / (share * float64(p.rate*p.atOnce)))
	// A timer that fires late by less than one interval does not lower the rate.
	if f.next = f.next.Add(step); f.next.Before(now) {
		f.next = now.Add(step)
	}
	return true
}

// isNoisy reports whether the account is noisy by its recent requests on all nodes, see noisyBy.
// The caller holds mu.
func (p *Pacer) isNoisy(f *flow) bool {
	most := f.most()
	return most > p.atOnce && most+f.elsewhere >= noisyBy*p.modest
}

// share returns this node's part of the number all: all times the account's recent requests on
// this node, divided by those on all nodes.
func (f *flow) share(all int) float64 {
	most := max(1, f.most())
	return float64(all*most) / float64(most+f.elsewhere)
}

// most returns the largest number of concurrent requests in this window and the previous one.
func (f *flow) most() int { return max(f.peak, f.before) }

// sample updates the set of noisy accounts and the limit on their running requests, if a sample
// is due. If the processors are busy, the limit becomes atOnce. Otherwise it doubles with each
// sample up to largestLimit, so that a sudden burst does not delay other accounts before the
// pressure is measured. The caller holds mu.
func (p *Pacer) sample(now time.Time) {
	if now.Before(p.due) {
		return
	}
	p.due = now.Add(paceSample)
	p.rotate(now)
	p.noisy = 0
	if !p.unreported && !p.many() {
		p.limit = p.first
		return
	}
	leaderBusy := false
	p.elsewhere, leaderBusy = p.neighbours.Elsewhere()
	p.compare()
	if p.noisy == 0 && !p.unreported {
		p.limit = p.first
		return
	}
	switch {
	case p.busy() || leaderBusy:
		p.limit = p.atOnce
		if p.unreported {
			// Another node may have to pace in favour of the account.
			p.neighbours.Hurry()
		}
	case p.noisy > 0 && p.limit < largestLimit:
		p.limit *= 2
		p.due = now.Add(growSample)
	}
}

// many reports whether any account has more recent requests than atOnce; without one, no account
// is noisy. The caller holds mu.
func (p *Pacer) many() bool {
	for _, f := range p.flows {
		if f.most() > p.atOnce {
			return true
		}
	}
	return false
}

// rotate starts a new window if the current one is paceWindow old, and removes accounts without
// recent requests. The caller holds mu.
func (p *Pacer) rotate(now time.Time) {
	if now.Sub(p.window) < paceWindow {
		return
	}
	p.window = now
	for id, f := range p.flows {
		f.before, f.peak = f.peak, f.serving+len(f.waiting)
		if f.most() == 0 {
			delete(p.flows, id)
		}
	}
}

// compare updates modest and noisy from the requests of all accounts on all nodes. The caller
// holds mu.
func (p *Pacer) compare() {
	p.modest, p.noisy = math.MaxInt/noisyBy, 0
	for id, n := range p.elsewhere {
		if p.flows[id] == nil {
			p.modest = min(p.modest, n)
		}
	}
	for id, f := range p.flows {
		f.elsewhere = p.elsewhere[id]
		p.modest = min(p.modest, f.most()+f.elsewhere)
	}
	for _, f := range p.flows {
		if p.isNoisy(f) {
			p.noisy++
		}
	}
}

// minTime returns the earliest of the given times.
func minTime(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.Before(first) {
			first = t
		}
	}
	return first
}
