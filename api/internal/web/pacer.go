package web

import (
	"context"
	"fmt"
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
)

// Pacer is the admission control that keeps a noisy neighbour from raising the latency of
// other accounts. While the processors are busy and several accounts send requests, an account
// that has at least four times as many requests at a time as the most modest one is noisy: the
// node serves as many of its requests at once as it has processors, and starts more only at a
// steady rate. An account alone, accounts that are alike, and requests to a node with
// processor time to spare are never held back, and no request is for longer than a second.
type Pacer struct {
	held   atomic.Int64 // requests that were held back
	rate   int          // requests a second that are started of all noisy accounts together
	atOnce int          // requests of an account that are always served
	busy   func() bool

	// mu guards what follows.
	mu      sync.Mutex
	flows   map[state.AccountID]*flow
	sampled time.Time // when sample was last called
	window  time.Time // when the peaks of this window began
	modest  int       // the smallest peak of an account
	noisy   int       // accounts that are paced; 0: the node is not busy, or nobody is noisy
}

// flow is the requests of one account.
type flow struct {
	serving int
	waiting []*waiter // in the order in which they came
	// peak is the most requests at a time, waiting ones included, of this window, and before
	// that of the one before.
	peak, before int
	next         time.Time   // when the next paced request may start
	timer        *time.Timer // calls start when the first waiter may; nil: nobody waits
}

// waiter is a request that is held back.
type waiter struct {
	started chan struct{} // closed when it is served
	latest  time.Time     // when it starts in any case
}

// NewPacer returns a Pacer of a node with so many processors. Noisy accounts together start
// rate requests a second on each processor; 0 holds nobody back. busy reports whether the
// processors are busy; it is called with a lock held, at most every 50 ms.
func NewPacer(rate, processors int, busy func() bool) *Pacer {
	processors = max(1, processors)
	return &Pacer{rate: rate * processors, atOnce: processors, busy: busy, flows: map[state.AccountID]*flow{}}
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
	return most > p.atOnce && most >= noisyBy*p.modest
}

// most is how many requests at a time an account had of late.
func (f *flow) most() int { return max(f.peak, f.before) }

// sample decides, every paceSample, who is noisy and whether the node is busy. mu is held.
func (p *Pacer) sample(now time.Time) {
	if now.Sub(p.sampled) < paceSample {
		return
	}
	p.sampled = now
	if now.Sub(p.window) >= paceWindow {
		p.window = now
		for id, f := range p.flows {
			f.before, f.peak = f.peak, f.serving+len(f.waiting)
			if f.most() == 0 {
				delete(p.flows, id)
			}
		}
	}
	p.modest, p.noisy = 0, 0
	for _, f := range p.flows {
		if n := f.most(); p.modest == 0 || n < p.modest {
			p.modest = n
		}
	}
	for _, f := range p.flows {
		if p.isNoisy(f) {
			p.noisy++
		}
	}
	// Noisy accounts are held back only while the processors are busy.
	if p.noisy > 0 && !p.busy() {
		p.noisy = 0
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
