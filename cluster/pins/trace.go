package pins

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/cache"
	"github.com/ipfs/go-cid"
)

// Bounds of the histories that a node remembers, 16 MiB at most.
const (
	// maxTraces is how many pins have a history. The history that nobody has read for the
	// longest time is forgotten first.
	maxTraces = 1024
	// maxSteps is how many statuses a history has. Older ones are forgotten.
	maxSteps = 16
	// traceFor is how long the changes of a pin are followed after its detail was read.
	traceFor = 10 * time.Minute
)

// Step is a status of a pin that this node has seen.
type Step struct {
	At     time.Time // when this node saw it, after it came about
	Status state.Status
	Detail string // how far the copies were, or why the pin failed; empty: all were there
	// Replaced is the pin that this pin has replaced with this step. Earlier steps are those of
	// the replaced pin.
	Replaced state.RequestID
}

// traceKey names a pin.
type traceKey struct {
	account state.AccountID
	id      state.RequestID
}

// trace is the history of one pin.
type trace struct {
	root   state.RootKey
	steps  []Step
	looked time.Time // when it was last read
}

// settled returns whether the pin does not change by itself any more.
func (t *trace) settled() bool {
	last := t.steps[len(t.steps)-1]
	return last.Status == state.Failed || last.Status == state.Pinned && last.Detail == ""
}

// add adds a status unless it is the last one.
func (t *trace) add(s Step) {
	if n := len(t.steps); n > 0 && t.steps[n-1].Status == s.Status && t.steps[n-1].Detail == s.Detail && s.Replaced == "" {
		return
	}
	if t.steps = append(t.steps, s); len(t.steps) > maxSteps {
		t.steps = slices.Delete(t.steps, 0, len(t.steps)-maxSteps)
	}
}

// traces are the histories of the pins whose details were read through this node since it
// started. They are in memory only, so that a change of a pin writes nothing for them, and a
// pin without a reader costs nothing.
type traces struct {
	mu    sync.Mutex // guards what follows
	pins  *cache.Cache[traceKey, *trace]
	roots map[state.RootKey]map[traceKey]bool // the pins of pins
}

func newTraces() *traces {
	t := &traces{roots: map[state.RootKey]map[traceKey]bool{}}
	t.pins = cache.Weighted(maxTraces, func(traceKey, *trace) int { return 1 }, func(k traceKey, gone *trace) {
		delete(t.roots[gone.root], k)
		if len(t.roots[gone.root]) == 0 {
			delete(t.roots, gone.root)
		}
	})
	return t
}

// put adds a history. The caller has the lock.
func (t *traces) put(k traceKey, one *trace) {
	t.pins.Put(k, one)
	if t.roots[one.root] == nil {
		t.roots[one.root] = map[traceKey]bool{}
	}
	t.roots[one.root][k] = true
}

// stepOf returns a step with the status that a pin has in the state.
func stepOf(r *Record, now time.Time) Step {
	return Step{At: now, Status: r.Status, Detail: r.Info[InfoDetails]}
}

// look returns the history of a pin, which begins now if there is none.
func (p *Pins) look(r *Record) []Step {
	now, k, t := p.now(), traceKey{r.Account, r.ID}, p.traces
	t.mu.Lock()
	defer t.mu.Unlock()
	one, ok := t.pins.Get(k)
	if !ok {
		c, err := cid.Decode(r.CID)
		if err != nil {
			return nil
		}
		one = &trace{root: state.RootOf(c)}
		t.put(k, one)
	}
	one.looked = now
	if one.add(stepOf(r, now)); !one.settled() {
		token(p.waiters.came) // Run follows it
	}
	return slices.Clone(one.steps)
}

// replaced passes the history of a replaced pin, if it has one, on to the pin that replaced it.
func (p *Pins) replaced(old state.RequestID, by *Record) {
	c, err := cid.Decode(by.CID)
	if err != nil {
		return
	}
	now, t := p.now(), p.traces
	t.mu.Lock()
	defer t.mu.Unlock()
	was, ok := t.pins.Peek(traceKey{by.Account, old})
	if !ok {
		return
	}
	one := &trace{root: state.RootOf(c), steps: slices.Clone(was.steps), looked: now}
	step := stepOf(by, now)
	step.Replaced = old
	one.add(step)
	t.put(traceKey{by.Account, by.ID}, one)
}

// changed returns the followed pins that changes may concern, and whether any pin is still
// followed.
func (t *traces) changed(ch state.Changes, now time.Time) (pins []traceKey, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	follow := func(k traceKey, concerned bool) {
		one, ok := t.pins.Peek(k)
		if !ok || one.settled() || now.Sub(one.looked) >= traceFor {
			return
		}
		if more = true; concerned {
			pins = append(pins, k)
		}
	}
	for _, k := range ch.Roots {
		for of := range t.roots[k] {
			follow(of, true)
		}
	}
	if !more || ch.All {
		for _, of := range t.roots {
			for k := range of {
				follow(k, ch.All)
			}
		}
	}
	return pins, more
}

// trace adds the new statuses of changed pins to their histories. It returns false if no pin is
// followed any more.
func (p *Pins) trace(ch state.Changes) bool {
	changed, more := p.traces.changed(ch, p.now())
	for _, k := range changed {
		r, _, err := p.local(k.account, k.id)
		if err != nil { // it is gone, or the next reader learns why
			continue
		}
		p.traces.mu.Lock()
		if one, ok := p.traces.pins.Peek(k); ok {
			one.add(stepOf(&r, p.now()))
		}
		p.traces.mu.Unlock()
	}
	return more
}
