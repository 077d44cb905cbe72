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
	// noisyBy is how many times as many requests at a time as the most modest account a noisy
	// one has.
	noisyBy = 4
	// paceWindow is how long the number of requests at a time of an account is remembered at
	// the least, and twice that at the most.
	paceWindow = time.Second
	// paceSample is how often a Pacer decides who is noisy and whether the node is busy.
	paceSample = 50 * time.Millisecond
	// slowest is how many times as long the step between two requests becomes at the most, however
	// many are being served: those that wait for a change of a pin, or for a client, take long
	// and no processor time.
	slowest = 8
	// maxPaced is how long a request is held back at the most.
	maxPaced = time.Second
	// busyWindow is how long processors count as busy after threads waited for them, and
	// reportWindow is that of what other nodes are told: longer than two reports are apart.
	busyWindow   = time.Second
	reportWindow = 3 * time.Second
)

// Neighbours are the other nodes of the cluster.
type Neighbours interface {
	// Tell sets the function that reports the load of this node every few seconds: the
	// concurrent requests of each active account, and whether the processors were busy since
	// the last call. report is not called concurrently.
	Tell(report func() (requests map[state.AccountID]int, busy bool))
	// Hurry has the report made early. It does not block.
	Hurry()
	// Elsewhere returns the sum of the concurrent requests of accounts on all other live
	// nodes, and whether one of those is the leader and busy. It does not wait for the network.
	Elsewhere() (requests map[state.AccountID]int, busy bool)
}

// noNeighbours are those of a node alone.
type noNeighbours struct{}

func (noNeighbours) Tell(func() (map[state.AccountID]int, bool)) {}
func (noNeighbours) Hurry()                                      {}
func (noNeighbours) Elsewhere() (map[state.AccountID]int, bool)  { return nil, false }

// Pacer is the admission control that keeps a noisy neighbour from raising the latency of
// other accounts. While the processors of the node or of the leader are busy and several
// accounts send requests to the cluster, an account that has at least four times as many
// requests at a time as the most modest one is noisy: the node serves as many of its requests
// at once as it has processors, and starts more only at a steady rate. An account alone in the
// cluster, accounts that are alike, and requests to nodes with processor time to spare are
// never held back, and no request is for longer than a second.
type Pacer struct {
	neighbours Neighbours
	held       atomic.Int64 // requests that were held back
	rate       int          // requests a second that are started of all noisy accounts together
	atOnce     int          // requests of an account that are always served
	busy       func() bool

	// mu guards what follows.
	mu      sync.Mutex
	flows   map[state.AccountID]*flow
	sampled time.Time // when sample was last called
	window  time.Time // when the peaks of this window began
	modest  int       // the fewest requests at a time of an account, on all nodes together
	noisy   int       // accounts that are paced; 0: no processors are busy, or nobody is noisy
	untold  bool      // since the last report an account has begun to send requests
}

// flow is the requests of one account.
type flow struct {
	serving int
	waiting []*waiter // in the order in which they came
	// peak is the most requests at a time, waiting ones included, of this window, and before
	// that of the one before.
	peak, before int
	elsewhere    int         // requests at a time on other nodes
	next         time.Time   // when the next paced request may start
	timer        *time.Timer // calls start when the first waiter may; nil: nobody waits
}

// waiter is a request that is held back.
type waiter struct {
	started chan struct{} // closed when it is served
	latest  time.Time     // when it starts in any case
}

// NewPacer returns a Pacer of a node with so many processors. Noisy accounts together start
// rate requests a second on each processor; 0 holds nobody back. busy returns a function that
// reports whether the processors are busy, or were within a time before its call; the function
// and Elsewhere are called with a lock held, at most every 50 ms. Nil neighbours: the node is
// alone.
func NewPacer(rate, processors int, busy func(window time.Duration) func() bool, neighbours Neighbours) *Pacer {
	if neighbours == nil {
		neighbours = noNeighbours{}
	}
	processors = max(1, processors)
	p := &Pacer{neighbours: neighbours, rate: rate * processors, atOnce: processors, busy: busy(busyWindow), flows: map[state.AccountID]*flow{}}
	reported := busy(reportWindow)
	neighbours.Tell(func() (map[state.AccountID]int, bool) { return p.active(), reported() })
	return p
}

// active returns how many requests at a time each account had on this node of late.
func (p *Pacer) active() map[state.AccountID]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rotate(time.Now())
	p.untold = false
	requests := make(map[state.AccountID]int, len(p.flows))
	for id, f := range p.flows {
		requests[id] = f.most()
	}
	return requests
}

// Register adds the metric of a Pacer, if to is not nil; the error is that of to.
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

// Enter returns once a request of an account may be served, and what has to be called when it
// has been. The error is that of ctx, if ctx ends before; then nothing has to be called.
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
	return func() { p.leave(f, time.Now()) }, nil
}

// enter counts a request, and returns what it has to wait for, if it has to.
func (p *Pacer) enter(id state.AccountID, now time.Time) (*flow, *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.flows[id]
	if f == nil {
		f = &flow{}
		p.flows[id] = f
		p.untold = true
	}
	f.peak = max(f.peak, f.serving+len(f.waiting)+1)
	p.sample(now)
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
func (p *Pacer) leave(f *flow, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.serving--
	p.sample(now)
	p.start(f, now)
}

// withdraw removes a request that nobody waits for any more. It is false if the request has
// been started meanwhile.
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

// start starts the requests of a flow that may, and sets the timer for the first of the
// others. mu is held.
func (p *Pacer) start(f *flow, now time.Time) {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	for len(f.waiting) > 0 {
		first := f.waiting[0]
		if !p.mayStart(f, now, first.latest) {
			f.timer = time.AfterFunc(minTime(f.next, first.latest, now.Add(paceSample)).Sub(now), func() { p.again(f) })
			return
		}
		f.waiting = f.waiting[1:]
		f.serving++
		close(first.started)
	}
}

// again is start by the timer of a flow.
func (p *Pacer) again(f *flow) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sample(now)
	p.start(f, now)
}

// mayStart reports whether the next request of a flow may start, which it has to at latest. One
// that is started by the rate is counted. mu is held.
func (p *Pacer) mayStart(f *flow, now, latest time.Time) bool {
	switch {
	case f.serving < p.atOnce, !p.paced(f), !now.Before(latest):
		return true
	case now.Before(f.next):
		return false
	}
	// The more of them are being served, the longer the step: else they would pile up on a
	// node that is slow for a moment.
	step := time.Second * time.Duration(p.noisy*min(f.serving, slowest*p.atOnce)) / time.Duration(p.rate*p.atOnce)
	// A timer that is late by less than a step does not slow the rate.
	if f.next = f.next.Add(step); f.next.Before(now) {
		f.next = now.Add(step)
	}
	return true
}

// paced reports whether a flow is of a noisy account on a busy node. mu is held.
func (p *Pacer) paced(f *flow) bool { return p.noisy > 0 && p.isNoisy(f) }

func (p *Pacer) isNoisy(f *flow) bool {
	most := f.most()
	return most > p.atOnce && most+f.elsewhere >= noisyBy*p.modest
}

// most is how many requests at a time an account had of late.
func (f *flow) most() int { return max(f.peak, f.before) }

// sample decides, every paceSample, who is noisy and whether that has to be paced. mu is held.
func (p *Pacer) sample(now time.Time) {
	if now.Sub(p.sampled) < paceSample {
		return
	}
	p.sampled = now
	p.rotate(now)
	p.noisy = 0
	if !p.untold && !p.many() {
		return
	}
	elsewhere, leaderBusy := p.neighbours.Elsewhere()
	p.compare(elsewhere)
	switch {
	case p.noisy == 0 && !p.untold:
	case !p.busy() && !leaderBusy:
		p.noisy = 0 // there is processor time to spare
	case p.untold:
		// The account may be the modest one for which another node has to pace.
		p.neighbours.Hurry()
	}
}

// many reports whether an account has so many requests that it may be noisy. mu is held.
func (p *Pacer) many() bool {
	for _, f := range p.flows {
		if f.most() > p.atOnce {
			return true
		}
	}
	return false
}

// rotate begins a new window when it is time, and forgets accounts without requests. mu is held.
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

// compare counts the noisy accounts of this node, by the requests of all accounts on all nodes.
// mu is held.
func (p *Pacer) compare(elsewhere map[state.AccountID]int) {
	p.modest = math.MaxInt / noisyBy
	for id, n := range elsewhere {
		if p.flows[id] == nil {
			p.modest = min(p.modest, n)
		}
	}
	for id, f := range p.flows {
		f.elsewhere = elsewhere[id]
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
