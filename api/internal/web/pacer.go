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
	// noisyBy is the ratio of concurrent requests, to those of the account with the fewest,
	// at which an account is a noisy neighbour.
	noisyBy = 4
	// processorsEach is the number of processors for each request of a noisy account that is
	// served whatever the rate is. On two processors two such requests leave too little time
	// for others.
	processorsEach = 2
	// restBy is the time from the start of such a request to the start of the next one, as a
	// multiple of the time that the first one took.
	restBy = 2
	// paceWindow is how long the largest number of concurrent requests of an account is
	// remembered: at least once, at most twice as long.
	paceWindow = time.Second
	// paceSample is the interval at which a Pacer decides which accounts are noisy and
	// whether the node is busy. growSample is the same while the room of noisy accounts grows.
	paceSample = 50 * time.Millisecond
	growSample = 10 * time.Millisecond
	// firstRoom is the number of requests, for each processor, that an account which becomes
	// noisy has at once on a node that is not busy. largestRoom bounds how far it grows.
	firstRoom   = 2
	largestRoom = 1 << 20
	// slowest bounds how much the interval between requests grows with the number of
	// running requests. Without a bound, requests that take long but use no processor, such
	// as those that wait for a pin, would delay all others.
	slowest = 8
	// maxPaced is the longest delay of a request.
	maxPaced = time.Second
	// busyWindow is how long the processors count as busy after threads waited for them.
	// reportWindow is the same for reports to other nodes; it is longer than the interval
	// of reports.
	busyWindow   = time.Second
	reportWindow = 3 * time.Second
)

// Neighbours represents the other nodes of the cluster.
type Neighbours interface {
	// SetReport sets the function that reports the load of this node every few seconds: the
	// concurrent requests of each active account, and whether the processors were busy since
	// the last call. report is not called concurrently.
	SetReport(report func() (requests map[state.AccountID]int, busy bool))
	// Hurry makes the next report early. It does not block.
	Hurry()
	// Elsewhere returns the concurrent requests of each account on all other live nodes,
	// and whether one of them is the leader and busy. It does not wait for the network.
	Elsewhere() (requests map[state.AccountID]int, busy bool)
}

// noNeighbours is for a node without a cluster.
type noNeighbours struct{}

func (noNeighbours) SetReport(func() (map[state.AccountID]int, bool)) {}
func (noNeighbours) Hurry()                                           {}
func (noNeighbours) Elsewhere() (map[state.AccountID]int, bool)       { return nil, false }

// Pacer is the admission control that protects accounts from a noisy neighbour. It acts while the
// processors of this node or of the leader are busy and several accounts send requests. An account
// is noisy if it has at least noisyBy times as many concurrent requests as the account with the
// fewest.
//
// For every two processors, the node serves one request of a noisy account at a time, and pauses
// after it for as long as it took. It starts further requests of the account only at a steady rate.
// If the account also sends requests to other nodes, both bounds shrink to the part of the
// account's requests that this node has. While nothing is busy, the number of requests that are
// served at a time doubles every few milliseconds, so that a burst is held back before it makes the
// processors busy.
//
// A Pacer never delays the only account, or accounts with similar load. While there is processor
// time to spare, it delays requests only in the first moment of a burst. It delays no request for
// longer than maxPaced.
type Pacer struct {
	neighbours Neighbours
	held       atomic.Int64 // number of delayed requests
	rate       int          // requests per second of all noisy accounts together
	atOnce     int          // requests of an account that are served whatever the rate is
	first      int          // room of an account that becomes noisy
	busy       func() bool

	// mu guards the fields below.
	mu         sync.Mutex
	flows      map[state.AccountID]*flow
	window     time.Time               // start of the current window of peaks
	due        time.Time               // when the next sample is due
	modest     int                     // fewest concurrent requests of an account, on all nodes
	noisy      int                     // noisy accounts
	room       int                     // requests of a noisy account that are served at once
	elsewhere  map[state.AccountID]int // concurrent requests on other nodes, of the last sample
	unreported bool                    // an account has started to send requests since the last report
}

// flow is the requests of one account.
type flow struct {
	serving int
	waiting []*waiter // in order of arrival
	// peak is the largest number of concurrent requests, waiting ones included, in this
	// window; before is that of the window before.
	peak, before int
	elsewhere    int         // concurrent requests on other nodes
	next         time.Time   // when the next paced request may start
	rest         time.Time   // when the next request that the rate does not admit may start
	timer        *time.Timer // calls start when the first waiter may start; nil: none waits
}

// waiter is a delayed request.
type waiter struct {
	started chan struct{} // closed when it starts
	latest  time.Time     // it starts at this time at the latest
}

// NewPacer returns a Pacer for a node with this many processors. Noisy accounts together
// start rate requests per second on each processor; 0 disables the delays. busy returns a
// function that returns whether the processors were busy within a window. That function and
// Elsewhere are called with a lock held, at most every paceSample. Nil neighbours: there
// are no other nodes.
func NewPacer(rate, processors int, busy func(window time.Duration) func() bool, neighbours Neighbours) *Pacer {
	if neighbours == nil {
		neighbours = noNeighbours{}
	}
	processors = max(1, processors)
	p := &Pacer{
		neighbours: neighbours, rate: rate * processors, busy: busy(busyWindow), flows: map[state.AccountID]*flow{},
		atOnce: max(1, processors/processorsEach), first: firstRoom * processors, room: firstRoom * processors,
	}
	reported := busy(reportWindow)
	neighbours.SetReport(func() (map[state.AccountID]int, bool) { return p.active(), reported() })
	return p
}

// active returns the recent number of concurrent requests of each account on this node.
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

// Register registers the metric of a Pacer at to if to is not nil. The error is an error of to.
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

// Enter returns when a request of an account may start, with a function to call at its end.
// If ctx ends first, Enter returns its error and no function.
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

// enter counts a request. It returns a waiter if the request must wait.
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

// leave counts a request as served.
func (p *Pacer) leave(f *flow, started, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.serving--
	if p.room == p.atOnce {
		f.rest = now.Add(time.Duration(float64(now.Sub(started)) * (restBy/min(1, f.share(p.atOnce)) - 1)))
	}
	p.sample(now)
	p.start(f, now)
}

// withdraw removes a request whose caller has gone. It returns false if the request was
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

// start starts the waiting requests of a flow that may start, and sets the timer for the
// next one. The caller holds mu.
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

// again runs start when the timer of a flow fires.
func (p *Pacer) again(f *flow) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sample(now)
	p.start(f, now)
}

// mayStart returns whether the next request of a flow may start; it may at latest. It
// counts a request that the rate admits. The caller holds mu.
func (p *Pacer) mayStart(f *flow, now, latest time.Time) bool {
	switch {
	case p.noisy == 0, !p.isNoisy(f), !now.Before(latest):
		return true
	case f.serving < max(1, int(f.share(p.room))) && !now.Before(f.rest):
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

// isNoisy returns whether a flow belongs to a noisy account. The caller holds mu.
func (p *Pacer) isNoisy(f *flow) bool {
	most := f.most()
	return most > p.atOnce && most+f.elsewhere >= noisyBy*p.modest
}

// share returns how many of a number of requests are this node's part of those that the account
// has on all nodes.
func (f *flow) share(all int) float64 {
	most := max(1, f.most())
	return float64(all*most) / float64(most+f.elsewhere)
}

// most returns the recent maximum of concurrent requests.
func (f *flow) most() int { return max(f.peak, f.before) }

// sample decides, when it is due, which accounts are noisy and how many of their requests are
// served at once. Where processors are busy these are atOnce. Where there is time to spare they
// double from sample to sample, so that many requests that come at once do not delay others
// before it shows that the processors are busy. The caller holds mu.
func (p *Pacer) sample(now time.Time) {
	if now.Before(p.due) {
		return
	}
	p.due = now.Add(paceSample)
	p.rotate(now)
	p.noisy = 0
	if !p.unreported && !p.many() {
		p.room = p.first
		return
	}
	leaderBusy := false
	p.elsewhere, leaderBusy = p.neighbours.Elsewhere()
	p.compare()
	if p.noisy == 0 && !p.unreported {
		p.room = p.first
		return
	}
	switch {
	case p.busy() || leaderBusy:
		p.room = p.atOnce
		if p.unreported {
			// Another node may have to pace in favour of the account.
			p.neighbours.Hurry()
		}
	case p.noisy > 0 && p.room < largestRoom:
		p.room *= 2
		p.due = now.Add(growSample)
	}
}

// many returns whether an account has enough requests to be noisy. The caller holds mu.
func (p *Pacer) many() bool {
	for _, f := range p.flows {
		if f.most() > p.atOnce {
			return true
		}
	}
	return false
}

// rotate starts a new window when it is time and forgets accounts without requests. The
// caller holds mu.
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

// compare counts the noisy accounts of this node from the requests of all accounts on all
// nodes. The caller holds mu.
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

// minTime returns the earliest of some times.
func minTime(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.Before(first) {
			first = t
		}
	}
	return first
}
