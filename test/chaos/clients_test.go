package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

const (
	accountsUsed      = 2
	clientsPerAccount = 4
	// minPatience and maxPatience bound a client's patience with one call.
	minPatience = 300 * time.Millisecond
	maxPatience = 6 * time.Second
	// thinking is the longest pause of a client between two calls.
	thinking = 90 * time.Millisecond
	// pinsWanted is about how many pins an account has.
	pinsWanted = 24
	// maxFile and bigFile bound the bytes of a file; one in bigEvery is of
	// several blocks.
	maxFile  = 2 << 10
	bigFile  = 700 << 10
	bigEvery = 24
	// endEvery is how many of the created pins have an end, one in so many, and maxEnd the most
	// seconds until then.
	endEvery, maxEnd = 6, 9
)

// endsAfter returns how long a created pin lasts; 0: it has no end. The number of the pin decides.
func endsAfter(pin int) time.Duration {
	if pin%endEvery != 0 {
		return 0
	}
	return time.Duration(1+pin/endEvery%maxEnd) * time.Second
}

// known is a pin that somebody was told of.
type known struct {
	pin     int
	id      state.RequestID
	created state.Millis
}

// tenant is one account with its clients.
type tenant struct {
	id      state.AccountID
	history *history
	ring    keyring

	// mu guards pins.
	mu   sync.Mutex
	pins []known // that may be there
}

// library is the content that was imported, by CID.
type library struct {
	// mu guards the fields below.
	mu    sync.Mutex
	cids  []string
	bytes map[string][]byte
}

func (l *library) add(cid string, b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, twice := l.bytes[cid]; !twice {
		l.cids = append(l.cids, cid)
		l.bytes[cid] = b
	}
}

func (l *library) any(rng *rand.Rand) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.cids) == 0 {
		return "", false
	}
	return l.cids[rng.IntN(len(l.cids))], true
}

// tally is what clients asked for and what was answered.
type tally struct {
	asked, answered atomic.Int64
	told, refused   atomic.Int64 // writes, of which a node said that it does not know, or that nothing was written
	longest         atomic.Int64 // call, in nanoseconds of virtual time
}

// client asks one thing after the other, of any node.
type client struct {
	number   int
	rng      *rand.Rand
	cluster  *cluster
	tenant   *tenant
	library  *library
	tally    *tally
	patience time.Duration // with every call; 0: it differs
	// unexpected gets what no client should be told.
	unexpected func(error)
}

// run asks until ctx ends.
func (c *client) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.once(ctx)
		harness.Pause(ctx, time.Duration(c.rng.Int64N(int64(thinking))))
	}
}

// keyEvery is how many of a hundred calls are about keys.
const keyEvery = 12

// once asks one thing. The draws do not depend on the answers, as far as that
// is possible, so that a seed asks much the same again.
func (c *client) once(ctx context.Context) {
	at, what, which := c.rng.IntN(len(c.cluster.members)), c.rng.IntN(100), c.rng.IntN(1<<16)
	l := c.cluster.members[at].call()
	if l == nil {
		return // nobody answers
	}
	defer l.calls.Done()
	patience := minPatience + time.Duration(c.rng.Int64N(int64(maxPatience-minPatience)))
	if c.patience != 0 {
		patience = c.patience
	}
	call, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	t := c.tenant
	if c.rng.IntN(100) < keyEvery {
		c.useKey(call, l, &op{client: c.number, at: at, when: time.Now()}, what, which)
		return
	}
	t.mu.Lock()
	var target known
	have := len(t.pins)
	if have > 0 {
		target = t.pins[which%have]
	}
	t.mu.Unlock()
	o := &op{client: c.number, at: at, when: time.Now()}
	switch {
	case what < 12:
		o.kind = list
	case what < 20 && have > 0:
		o.kind, o.filter = list, filters(target, t.history, which)
	case have == 0 || (what < 40 && have < pinsWanted):
		o.kind = create
	case what < 50:
		o.kind = replace
	case what < 70:
		o.kind = remove
	default:
		o.kind = get
	}
	c.perform(call, l, o, target)
}

// perform makes a call and records what came of it.
func (c *client) perform(ctx context.Context, l *life, o *op, target known) {
	t := c.tenant
	var request pins.Request
	if o.kind == create || o.kind == replace {
		cid, err := c.content(ctx, l)
		if err != nil {
			return // content that is nowhere is not pinned
		}
		o.pin = t.history.number()
		t.history.setContent(o.pin, cid)
		request = pins.Request{CID: cid, Name: strconv.Itoa(o.pin), Meta: map[string]string{metaKey: metaOf(o.pin)}}
	}
	if o.kind == create {
		request.End.For = endsAfter(o.pin)
	}
	if o.kind == remove || o.kind == get {
		o.pin = target.pin
	}
	if o.kind == replace {
		o.old = target.pin
	}
	c.tally.asked.Add(1)
	o.call = t.history.clock.Add(1)
	var record pins.Record
	var err error
	switch o.kind {
	case create:
		record, err = l.Pins().Create(ctx, t.id, request)
	case replace:
		record, err = l.Pins().Replace(ctx, t.id, target.id, request)
	case remove:
		err = l.Pins().Delete(ctx, t.id, target.id)
	case get:
		record, err = l.Pins().Get(ctx, t.id, target.id)
	case list:
		var q state.PinQuery
		if q, err = o.filter.query(target, t.history); err == nil {
			err = o.list(ctx, l, t.id, q)
		}
	}
	switch {
	case l.crashed.Load():
		o.outcome = unknown // the answer was never sent
	case err == nil:
		o.outcome, o.created, o.until = done, record.Created, record.Until
		if o.kind == create && (o.until != 0) != (endsAfter(o.pin) != 0) {
			c.unexpected(fmt.Errorf("%v: created with the end %d", o, o.until))
		}
	case errors.Is(err, state.ErrNotFound) && o.kind != create && o.kind != list:
		o.outcome = missing
	case errors.Is(err, state.ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, state.ErrNoSpace): // which never happened, and unknown is less than that
		c.unanswered(ctx, o, err)
	default:
		c.unexpected(fmt.Errorf("%v: %w", o, err))
		o.outcome = unknown
	}
	if o.outcome == done || o.outcome == missing {
		c.tally.answered.Add(1)
	}
	took := int64(time.Since(o.when))
	for was := c.tally.longest.Load(); took > was && !c.tally.longest.CompareAndSwap(was, took); was = c.tally.longest.Load() {
	}
	t.history.record(o)
	t.learn(o, record.ID, target)
}

// nothingWritten is what a node says of a write that took no effect and will not.
const nothingWritten = "nothing was written"

// unanswered notes what a node said of a call that it could not answer.
func (c *client) unanswered(call context.Context, o *op, err error) {
	o.outcome = unknown
	switch write := o.kind != get && o.kind != list; {
	case write && errors.Is(err, state.ErrUnavailable) && strings.Contains(err.Error(), nothingWritten):
		o.outcome = refused
		c.tally.refused.Add(1)
	case write && errors.Is(call.Err(), context.DeadlineExceeded):
		o.told = true
		c.tally.told.Add(1)
	}
}

// learn keeps the list of pins that clients ask about.
func (t *tenant) learn(o *op, id state.RequestID, target known) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.outcome == done && (o.kind == create || o.kind == replace) {
		t.pins = append(t.pins, known{o.pin, id, o.created})
	}
	// A pin that is gone is asked for a little longer: it has to stay gone.
	if o.outcome == missing && len(t.pins) > pinsWanted/2 {
		for i, p := range t.pins {
			if p == target {
				t.pins = append(t.pins[:i], t.pins[i+1:]...)
				return
			}
		}
	}
}

// Metadata of pins: few values, so that many pins share one.
const metaKey, metaValues = "group", 3

func metaOf(pin int) string { return strconv.Itoa(pin % metaValues) }

// filters draws what a list is filtered by, around a pin that may be there.
func filters(target known, h *history, which int) *filter {
	limit := 1 + which%9
	switch number := strconv.Itoa(target.pin); which / 9 % 7 {
	case 0:
		return &filter{"name " + number, func(_ *history, pin int, _ state.Millis) bool { return pin == target.pin }, limit, false}
	case 1:
		part := number[:1]
		return &filter{"part " + part, func(_ *history, pin int, _ state.Millis) bool { return strings.Contains(strconv.Itoa(pin), part) }, limit, false}
	case 2:
		return &filter{"before", func(_ *history, _ int, at state.Millis) bool { return at < target.created }, limit, false}
	case 3:
		return &filter{"after", func(_ *history, _ int, at state.Millis) bool { return at > target.created }, limit, false}
	case 4:
		cid := h.content(target.pin)
		return &filter{"cid", func(h *history, pin int, _ state.Millis) bool { return h.content(pin) == cid }, limit, false}
	case 5:
		return &filter{"meta", func(_ *history, pin int, _ state.Millis) bool { return metaOf(pin) == metaOf(target.pin) }, limit, false}
	}
	return &filter{"status", nil, limit, true}
}

// query returns a filter as a node takes it.
func (f *filter) query(target known, h *history) (q state.PinQuery, err error) {
	q.Limit = 1000
	if f == nil {
		return q, nil
	}
	q.Limit = f.limit
	number := strconv.Itoa(target.pin)
	switch f.what {
	case "before":
		q.Before = max(target.created, 1)
	case "after":
		q.After = target.created
	case "cid":
		var c cid.Cid
		if c, err = cid.Decode(h.content(target.pin)); err == nil {
			q.CIDs = []cid.Cid{c}
		}
	case "meta":
		q.Meta = map[string]string{metaKey: metaOf(target.pin)}
	case "status":
		q.Statuses = []state.Status{state.Pinned, state.Failed}
	case "name " + number:
		q.Name = number
	default:
		q.Name, q.Match = number[:1], state.Partial
	}
	return q, err
}

// list reads the account's pins, or those of a filter, in one page.
func (o *op) list(ctx context.Context, l *life, account state.AccountID, q state.PinQuery) error {
	total, records, err := l.Pins().List(ctx, account, q)
	if err != nil {
		return err
	}
	if o.filter == nil && total != uint64(len(records)) {
		return fmt.Errorf("a list of %d pins counts %d", len(records), total)
	}
	o.total = int(total)
	for _, r := range records {
		pin, err := strconv.Atoi(r.Name)
		if err != nil {
			return fmt.Errorf("a pin that nobody asked for: %w", err)
		}
		if len(q.Statuses) > 0 && !slices.Contains(q.Statuses, r.Status) {
			return fmt.Errorf("pin %d is %v, which the list was not to have", pin, r.Status)
		}
		o.pins, o.times = append(o.pins, pin), append(o.times, r.Created)
	}
	return nil
}

// content returns the CID of a file that was imported: now, at this node, or
// earlier.
func (c *client) content(ctx context.Context, l *life) (string, error) {
	size := 1 + c.rng.IntN(maxFile)
	if c.rng.IntN(bigEvery) == 0 {
		size = bigFile
	}
	seed := c.rng.Uint64()
	if c.rng.IntN(2) == 0 {
		if cid, ok := c.library.any(c.rng); ok {
			return cid, nil
		}
	}
	file := make([]byte, size)
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	_, _ = rand.NewChaCha8(key).Read(file) // never fails
	root, _, err := l.Content().Add(ctx, bytes.NewReader(file), content.Layout{})
	if err != nil {
		return "", err
	}
	c.library.add(root.String(), file)
	return root.String(), nil
}
