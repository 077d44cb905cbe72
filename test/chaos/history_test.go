package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// kind is what a client asked for.
type kind uint8

const (
	create kind = iota
	remove
	replace
	get
	list
)

func (k kind) String() string { return [...]string{"create", "delete", "replace", "get", "list"}[k] }

// outcome is what it was told.
type outcome uint8

const (
	done    outcome = iota
	missing         // there is no such pin
	unknown         // no answer: it may have happened, now or later
	refused         // the node said that nothing was written
)

func (o outcome) String() string { return [...]string{"ok", "not found", "unknown", "refused"}[o] }

// op is one call of a client. Pins are numbered within their account by who
// asks for them, and carry their number in their name.
type op struct {
	client    int
	kind      kind
	pin       int // created, deleted, read, or put in the place of old
	old       int
	call, ret int64 // positions in the one order of all calls and returns
	// answered is where a node said that the outcome is unknown, 0 if none did: it takes
	// no effect behind a write that was asked for after that.
	answered int64
	outcome  outcome
	told     bool           // by a node that waited until the client's time was up
	created  state.Millis   // of the pin, when the answer tells
	until    state.Millis   // end of the pin, when the answer tells; 0: it has none
	pins     []int          // of a list
	times    []state.Millis // of a list, when they were created
	filter   *filter        // of a list; nil: all, in one page
	total    int            // that a filtered list counts
	at       int            // the node that was asked
	when     time.Time      // virtual, of the call
	back     time.Time      // virtual, of the answer
}

func (o *op) String() string {
	what := fmt.Sprint(o.pin)
	switch o.kind {
	case replace:
		what = fmt.Sprintf("%d by %d", o.old, o.pin)
	case list:
		what = fmt.Sprintf("%d pins", len(o.pins))
		if o.filter != nil {
			what = fmt.Sprintf("%d of %d pins by %s", len(o.pins), o.total, o.filter.what)
		}
	}
	return fmt.Sprintf("%s [%d, %d] client %d at node %d: %s %s: %s",
		o.when.Format("04:05.000"), o.call, o.ret, o.client, o.at+1, o.kind, what, o.outcome)
}

// filter is what a list was filtered by.
type filter struct {
	what  string
	match func(h *history, pin int, created state.Millis) bool
	limit int
	// some says that pins come and go by themselves, as those of a status do:
	// what is listed has to be there, and that is all.
	some bool
}

// history is all that was asked of one account.
type history struct {
	clock *atomic.Int64 // of calls and returns, one for all histories
	ends  bool          // endsAfter says which of the created pins end
	skews bool          // clocks are wrong at times, so an end may come at any time

	// mu guards the fields below.
	mu    sync.Mutex
	ops   []*op
	count int            // pins that were asked for
	cids  map[int]string // of pins that were asked for
}

// content tells what a pin is of.
func (h *history) content(pin int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cids[pin]
}

// setContent says what a pin is to be of.
func (h *history) setContent(pin int, cid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cids == nil {
		h.cids = map[int]string{}
	}
	h.cids[pin] = cid
}

// number returns a number for a new pin.
func (h *history) number() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count++
	return h.count - 1
}

// record keeps an op that has an outcome.
func (h *history) record(o *op) {
	o.ret, o.back = h.clock.Add(1), time.Now()
	if o.outcome == unknown && o.told {
		o.answered = o.ret
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// shows tells whether an answer shows that a pin is there, and whether it shows
// that it is not.
func (o *op) shows(pin int) (there, gone bool) {
	switch o.kind {
	case get:
		return o.pin == pin && o.outcome == done, o.pin == pin && o.outcome == missing
	case remove:
		return o.pin == pin && o.outcome == done, o.pin == pin && o.outcome == missing
	case replace:
		return (o.old == pin || o.pin == pin) && o.outcome == done, o.old == pin && o.outcome == missing
	case list:
		there = slices.Contains(o.pins, pin)
		return there, !there && o.filter == nil
	}
	return false, false
}

// settled returns the ops with those of unknown outcome bounded, which keeps the
// search for an order short. It loses nothing: a pin that nobody ever saw may
// as well never have been, and one that was seen was there by then. The last
// ops are lists of everything, so what took effect is known.
func (h *history) settled() []*op {
	var settled []*op
	for _, o := range h.ops {
		if o.outcome == refused {
			continue // a pin of it that is there fits no order
		}
		if o.outcome != unknown {
			settled = append(settled, o)
			continue
		}
		if o.kind == get || o.kind == list {
			continue // says nothing
		}
		bounded := *o
		bounded.ret = math.MaxInt64
		if o.kind == remove {
			if !h.bound(&bounded, false) {
				continue
			}
		} else if !h.bound(&bounded, true) {
			continue // nobody saw the pin
		}
		settled = append(settled, &bounded)
	}
	return append(settled, h.ended()...)
}

// ended returns the ends of pins, as removals that nobody asked for and nobody was answered: each takes
// effect when it was first seen, and not before the end that was told.
func (h *history) ended() (ends []*op) {
	if !h.ends {
		return nil
	}
	for _, o := range h.ops {
		if o.kind != create || o.outcome == refused || endsAfter(o.pin) == 0 {
			continue
		}
		end := &op{client: -1, kind: remove, pin: o.pin, call: o.call, ret: math.MaxInt64, outcome: unknown, at: -1, when: o.when}
		if !h.skews && o.until != 0 {
			end.call = max(o.call, h.before(o.until)+1)
		}
		if h.bound(end, false) {
			ends = append(ends, end)
		}
	}
	return ends
}

// before returns the last position in the history that was before a time for certain.
func (h *history) before(at state.Millis) (position int64) {
	for _, o := range h.ops {
		if state.MillisOf(o.back) < at {
			position = max(position, o.ret)
		} else if state.MillisOf(o.when) < at {
			position = max(position, o.call)
		}
	}
	return position
}

// bound ends an unknown op where its effect was first seen, and tells whether
// there is one.
func (h *history) bound(o *op, appears bool) bool {
	born := int64(0) // when the pin was there for certain
	for _, other := range h.ops {
		if there, _ := other.shows(o.pin); there || (other.kind == create && other.pin == o.pin && other.outcome == done) {
			if other.outcome == done && (born == 0 || other.ret < born) {
				born = other.ret
			}
		}
	}
	for _, other := range h.ops {
		if other.outcome == unknown || other.outcome == refused {
			continue
		}
		there, gone := other.shows(o.pin)
		if appears && there {
			o.ret = min(o.ret, other.ret)
		}
		if !appears && gone && born != 0 && other.call > born && other.ret > o.call {
			o.ret = min(o.ret, other.ret)
		}
		if !appears && other.outcome == done && ((other.kind == remove && other.pin == o.pin) || (other.kind == replace && other.old == o.pin)) {
			return false // another op removed it, so this one did nothing
		}
	}
	return o.ret != math.MaxInt64
}

// pinSet is the state of the model: a set of numbers, as the bytes of a bitmap, and where the
// last of the writes was asked for that took effect with an answer.
type pinSet struct {
	pins string
	last int64
}

// model returns an account's set of pins.
func (h *history) model() porcupine.Model {
	empty := strings.Repeat("\x00", h.count/8+1)
	has := func(s string, pin int) bool { return s[pin/8]&(1<<(pin%8)) != 0 }
	flip := func(s string, pins ...int) string {
		b := []byte(s)
		for _, p := range pins {
			b[p/8] ^= 1 << (p % 8)
		}
		return string(b)
	}
	listed, created := map[*op]string{}, h.created()
	masks, order := map[*op]string{}, slices.SortedFunc(maps.Keys(created), func(a, b int) int { return cmp.Compare(created[b], created[a]) })
	for _, o := range h.ops {
		if o.kind != list || o.outcome != done {
			continue
		}
		listed[o] = flip(empty, o.pins...)
		if o.filter == nil || o.filter.some {
			continue
		}
		var matching []int
		for pin, at := range created {
			if o.filter.match(h, pin, at) {
				matching = append(matching, pin)
			}
		}
		masks[o] = flip(empty, matching...)
	}
	fits := func(s string, o *op) bool {
		switch {
		case o.filter == nil:
			return s == listed[o]
		case o.filter.some:
			return !slices.ContainsFunc(o.pins, func(pin int) bool { return !has(s, pin) })
		}
		total, page := 0, 0
		for _, pin := range order {
			if !has(s, pin) || !has(masks[o], pin) {
				continue
			}
			if total++; total > o.filter.limit {
				continue
			}
			if page == len(o.pins) || o.pins[page] != pin {
				return false
			}
			page++
		}
		return total == o.total && page == len(o.pins)
	}
	step := func(s string, o *op) (bool, string) {
		switch o.kind {
		case create:
			return !has(s, o.pin), flip(s, o.pin)
		case remove:
			if has(s, o.pin) {
				return o.outcome != missing, flip(s, o.pin)
			}
			return o.outcome != done, s
		case replace:
			if has(s, o.old) {
				return o.outcome != missing && !has(s, o.pin), flip(s, o.old, o.pin)
			}
			return o.outcome != done, s
		case get:
			return has(s, o.pin) == (o.outcome == done), s
		}
		return fits(s, o), s
	}
	return porcupine.Model{
		Init: func() any { return pinSet{pins: empty} },
		Step: func(before, input, _ any) (bool, any) {
			was, o := before.(pinSet), input.(*op)
			if o.outcome == unknown && o.answered != 0 && o.answered < was.last {
				return true, was // too late for any effect
			}
			fits, pins := step(was.pins, o)
			if o.outcome == done && o.kind != get && o.kind != list {
				was.last = max(was.last, o.call)
			}
			return fits, pinSet{pins, was.last}
		},
	}
}

// checkTimeout bounds the search for an order, in real time. It takes a second or so, and on a busy machine longer.
const checkTimeout = 10 * time.Minute

// check says what is wrong with the answers. There has to be an order of all ops
// in which each answer is right.
func (h *history) check() error {
	if err := h.checkLists(); err != nil {
		return err
	}
	return errors.Join(h.checkCreated(), h.checkOrder())
}

func (h *history) checkOrder() error {
	ops := h.settled()
	operations := make([]porcupine.Operation, len(ops))
	for i, o := range ops {
		operations[i] = porcupine.Operation{ClientId: o.client, Input: o, Call: o.call, Return: o.ret}
	}
	result, info := porcupine.CheckOperationsVerbose(h.model(), operations, checkTimeout)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("no order of %d ops was found in %v, nor that there is none", len(ops), checkTimeout)
	}
	return fmt.Errorf("the answers to %d ops fit no order; %s", len(ops), stuck(ops, info))
}

// stuck names the ops around the place where every order ends.
func stuck(ops []*op, info porcupine.LinearizationInfo) string {
	longest := 0
	placed := map[int]bool{}
	for _, partition := range info.PartialLinearizations() {
		for _, order := range partition {
			if len(order) > longest {
				longest = len(order)
				clear(placed)
				for _, i := range order {
					placed[i] = true
				}
			}
		}
	}
	var left []*op
	for i, o := range ops {
		if !placed[i] {
			left = append(left, o)
		}
	}
	slices.SortFunc(left, func(a, b *op) int { return cmp.Compare(a.call, b.call) })
	var text strings.Builder
	fmt.Fprintf(&text, "the longest order places %d; the first of the others:", longest)
	for _, o := range left[:min(len(left), 8)] {
		fmt.Fprintf(&text, "\n  %v", o)
	}
	return text.String()
}

// checkLists: no list has a pin twice, and all are newest first.
func (h *history) checkLists() error {
	for _, o := range h.ops {
		if o.kind != list || o.outcome != done {
			continue
		}
		seen := map[int]bool{}
		for i, p := range o.pins {
			if seen[p] {
				return fmt.Errorf("pin %d is doubled: %v", p, o)
			}
			seen[p] = true
			if i > 0 && o.times[i] >= o.times[i-1] {
				return fmt.Errorf("pins %d and %d are created at %d and %d, which does not fall: %v", o.pins[i-1], p, o.times[i-1], o.times[i], o)
			}
		}
	}
	return nil
}

// created returns when each pin was, as answers tell.
func (h *history) created() map[int]state.Millis {
	created := map[int]state.Millis{}
	for _, o := range h.ops {
		if o.outcome != done {
			continue
		}
		switch o.kind {
		case create, replace, get:
			created[o.pin] = o.created
		case list:
			for i, p := range o.pins {
				created[p] = o.times[i]
			}
		}
	}
	return created
}

// checkCreated: a pin's time never changes, and of two pins of which one was
// there before the other was asked for, the later one has the later time.
func (h *history) checkCreated() error {
	created := map[int]state.Millis{}
	tell := func(pin int, at state.Millis, o *op) error {
		if was, known := created[pin]; known && was != at {
			return fmt.Errorf("pin %d was created at %d and at %d: %v", pin, was, at, o)
		}
		created[pin] = at
		return nil
	}
	var acked []*op
	for _, o := range h.ops {
		if o.outcome != done {
			continue
		}
		switch o.kind {
		case create, replace:
			acked = append(acked, o)
			fallthrough
		case get:
			if err := tell(o.pin, o.created, o); err != nil {
				return err
			}
		case list:
			for i, p := range o.pins {
				if err := tell(p, o.times[i], o); err != nil {
					return err
				}
			}
		}
	}
	byReturn := slices.SortedFunc(slices.Values(acked), func(a, b *op) int { return cmp.Compare(a.ret, b.ret) })
	byCall := slices.SortedFunc(slices.Values(acked), func(a, b *op) int { return cmp.Compare(a.call, b.call) })
	var newest *op // of those that returned before the call
	for _, o := range byCall {
		for len(byReturn) > 0 && byReturn[0].ret < o.call {
			if newest == nil || byReturn[0].created > newest.created {
				newest = byReturn[0]
			}
			byReturn = byReturn[1:]
		}
		if newest != nil && o.created <= newest.created {
			return fmt.Errorf("%v was created at %d, not after %d of %v", o, o.created, newest.created, newest)
		}
	}
	return nil
}
