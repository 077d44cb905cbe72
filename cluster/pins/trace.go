package pins

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/cache"
	"github.com/ipfs/go-cid"
)

// Limits for the histories in memory. All histories of a node use at most 16 MiB.
const (
	// maxTraces is the largest number of pins with a history. If there are more, the node deletes
	// the history that was not read for the longest time.
	maxTraces = 1024
	// maxSteps is the largest number of statuses in a history. The node deletes older statuses.
	maxSteps = 16
	// traceFor is how long the node records the changes of a pin after a client has read its
	// detail.
	traceFor = 10 * time.Minute
)

// Step is one status of a pin that this node has seen.
type Step struct {
	At     time.Time // time at which this node saw the status, a little after the change
	Status state.Status
	Detail string // progress of the copies, or why the pin failed; empty if all copies were complete
	// Replaced is the id of the pin that this pin has replaced at this step, or "". The earlier
	// steps are those of the replaced pin.
	Replaced state.RequestID
}

// traceKey identifies a pin by account and request id.
type traceKey struct {
	account state.AccountID
	id      state.RequestID
}

// trace is the history of one pin.
type trace struct {
	root   state.RootKey
	steps  []Step
	looked time.Time // time at which a client last read the history
}

// settled returns whether the last status of the history does not change by itself any more.
func (t *trace) settled() bool {
	last := t.steps[len(t.steps)-1]
	return last.Status == state.Failed || last.Status == state.Pinned && last.Detail == ""
}

// add appends a step, unless the last step has the same status and detail.
func (t *trace) add(s Step) {
	if n := len(t.steps); n > 0 && t.steps[n-1].Status == s.Status && t.steps[n-1].Detail == s.Detail && s.Replaced == "" {
		return
	}
	if t.steps = append(t.steps, s); len(t.steps) > maxSteps {
		t.steps = slices.Delete(t.steps, 0, len(t.steps)-maxSteps)
	}
}

// traces stores the histories of the pins whose details clients have read on this node since the
// process started. Histories exist only in memory and only for such pins, so they cost no writes,
// and nothing for other pins.
type traces struct {
	mu    sync.Mutex // guards the fields below
	pins  *cache.Cache[traceKey, *trace]
	roots map[state.RootKey]map[traceKey]bool // keys of the field pins, by root
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

// put adds a history. The caller must hold mu.
func (t *traces) put(k traceKey, one *trace) {
	t.pins.Put(k, one)
	if t.roots[one.root] == nil {
		t.roots[one.root] = map[traceKey]bool{}
	}
	t.roots[one.root][k] = true
}

// stepOf returns a step with the status in a record. now is its time.
func stepOf(r *Record, now time.Time) Step {
	return Step{At: now, Status: r.Status, Detail: r.Info[InfoDetails]}
}

// look adds the status in r to the history of the pin and returns the history. If there is no
// history yet, look begins one.
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
		token(p.waiters.came) // wake Run, which follows the pin
	}
	return slices.Clone(one.steps)
}

// replaced copies the history of the replaced pin old, if it has one, to the pin by that has
// replaced it.
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

// changed returns the pins whose histories the changes ch may concern. more is true if the
// histories of any pins still have to be continued.
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

// trace adds the new statuses of changed pins to their histories. It returns false if no history
// has to be continued any more.
func (p *Pins) trace(ch state.Changes) bool {
	changed, more := p.traces.changed(ch, p.now())
	for _, k := range changed {
		r, _, err := p.local(k.account, k.id)
		if err != nil { // the pin was removed; for another error, the next reader gets the error
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
