package tracker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// Pauses before reports that could not be committed are proposed again.
const (
	minReportPause = 50 * time.Millisecond
	maxReportPause = 2 * time.Second
)

// outbox contains the reports that are not sent yet, only the newest of each root. Its size is
// limited, because the dispatcher has an entry for each root in it.
//
// The report that a fetch has begun waits a moment: such a report is patient. A small DAG is
// complete before anybody could read the report, and two reports cost every node twice as much as
// one.
type outbox struct {
	some   chan struct{} // contains a token while items may not be empty
	full   chan struct{} // contains a token while there may be as many reports as fit into one command
	begun  chan struct{} // contains a token when the first patient report has arrived
	linger time.Duration // how long a patient report waits

	// mu guards the fields below. It is not held during calls of other code.
	mu      sync.Mutex
	last    uint64 // ticket of the newest report
	items   map[state.RootKey]ticketed
	order   []state.RootKey // roots in items, oldest report first
	patient map[state.RootKey]ticketed
}

type ticketed struct {
	ticket uint64
	report state.CopyReport
	due    time.Time // time until which a patient report waits
}

// ack is the acknowledgement that a report was committed or rejected.
type ack struct {
	root   state.RootKey
	ticket uint64
	err    error // not nil if the state has rejected the report
}

func newOutbox(linger time.Duration) *outbox {
	return &outbox{
		some:    make(chan struct{}, 1),
		full:    make(chan struct{}, 1),
		begun:   make(chan struct{}, 1),
		linger:  linger,
		items:   map[state.RootKey]ticketed{},
		patient: map[state.RootKey]ticketed{},
	}
}

// put adds a report and replaces an earlier report about the same root. It returns the ticket
// that identifies the acknowledgement.
func (o *outbox) put(r state.CopyReport) (ticket uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	t := ticketed{ticket: o.last, report: r}
	_, waits := o.items[r.Root]
	if r.Phase == state.Fetching && !waits { // otherwise it replaces a report that cannot wait
		t.due = time.Now().Add(o.linger)
		o.patient[r.Root] = t
		if len(o.patient) == 1 {
			token(o.begun)
		}
		return o.last
	}
	delete(o.patient, r.Root)
	if !waits {
		o.order = append(o.order, r.Root)
	}
	o.items[r.Root] = t
	o.notify()
	return o.last
}

// ripen moves the patient reports that are due to items. next is the time until the next one is
// due; ok is false if there is none.
func (o *outbox) ripen(now time.Time) (next time.Duration, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ripe []ticketed
	for k, t := range o.patient {
		switch wait := t.due.Sub(now); {
		case wait <= 0:
			ripe = append(ripe, t)
			delete(o.patient, k)
		case !ok || wait < next:
			next, ok = wait, true
		}
	}
	slices.SortFunc(ripe, func(a, b ticketed) int { return cmp.Compare(a.ticket, b.ticket) })
	for _, t := range ripe {
		o.items[t.report.Root] = t // there is no other: it would have replaced this one
		o.order = append(o.order, t.report.Root)
	}
	o.notify()
	return next, ok
}

func (o *outbox) notify() {
	if len(o.items) > 0 {
		token(o.some)
	}
	if len(o.items) >= state.MaxReports {
		token(o.full)
	}
}

// token sends a token to a channel of capacity 1, unless the channel contains one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take removes the oldest reports, as many as fit into one command, and returns them.
func (o *outbox) take() []ticketed {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(len(o.order), state.MaxReports)
	batch := make([]ticketed, 0, n)
	for _, k := range o.order[:n] {
		batch = append(batch, o.items[k])
		delete(o.items, k)
	}
	o.order = append(o.order[:0], o.order[n:]...)
	o.notify()
	return batch
}

// giveBack adds reports again that were not committed, unless there are newer reports about their
// roots.
func (o *outbox) giveBack(batch []ticketed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	older := make([]state.RootKey, 0, len(batch)+len(o.order))
	for _, t := range batch {
		k := t.report.Root
		if _, newer := o.items[k]; newer {
			continue
		}
		if newer, waits := o.patient[k]; waits { // it replaces both
			delete(o.patient, k)
			t = newer
		}
		o.items[k] = t
		older = append(older, k)
	}
	o.order = append(older, o.order...)
	o.notify()
}

// report commits the reports in the outbox until ctx ends. It commits one command at a time, so
// that an older report cannot overtake a newer one.
func (t *Tracker) report(ctx context.Context) error {
	again, pause := backoff.New(minReportPause, maxReportPause), time.Duration(0)
	quiet := false // the log already says that reports cannot be committed
	ripe := time.NewTimer(t.limits.Linger)
	defer ripe.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.reports.begun:
			ripe.Reset(t.limits.Linger)
			continue
		case <-ripe.C:
			if next, ok := t.reports.ripen(time.Now()); ok {
				ripe.Reset(next)
			}
			continue
		case <-t.reports.some:
		}
		if !t.gather(ctx, pause) {
			return nil
		}
		batch := t.reports.take()
		if len(batch) == 0 {
			continue
		}
		err := t.propose(ctx, batch)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			again.Reset()
			pause, quiet = 0, false
		case final(err):
			t.opts.Logger.ErrorContext(ctx, "the cluster rejected reports of this node", "reports", len(batch), "err", err)
		default:
			if !quiet {
				t.opts.Logger.WarnContext(ctx, "reports of this node wait", "reports", len(batch), "err", err)
			}
			quiet = true
			pause = again.NextBackOff()
			t.reports.giveBack(batch)
			continue
		}
		acks := make([]ack, len(batch))
		for i, b := range batch {
			acks[i] = ack{root: b.report.Root, ticket: b.ticket, err: err}
		}
		select {
		case t.acks <- acks:
		case <-ctx.Done():
			return nil
		}
	}
}

// gather waits for more reports before a command: for Limits.Flush, or until a command is full.
// After a failure it waits for pause. It returns false if ctx ends.
func (t *Tracker) gather(ctx context.Context, pause time.Duration) bool {
	full := t.reports.full
	if pause > 0 {
		full = nil
	}
	timer := time.NewTimer(max(pause, t.limits.Flush))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-full:
	}
	return true
}

func (t *Tracker) propose(ctx context.Context, batch []ticketed) error {
	cmd := &state.ReportCopies{Node: t.opts.Self, Items: make([]state.CopyReport, len(batch))}
	for i, b := range batch {
		cmd.Items[i] = b.report
	}
	if _, err := t.opts.State.Propose(ctx, cmd); err != nil {
		return wrap("report copies", err)
	}
	t.metrics.reports.Add(float64(len(batch)))
	return nil
}

// final returns whether the state has rejected a command for good, so that another proposal would
// not help.
func final(err error) bool {
	var outcome *state.Error
	if !errors.As(err, &outcome) {
		return false
	}
	switch outcome.Code {
	case state.CodeUnavailable, state.CodeConflict, state.CodeLimited:
		return false
	}
	return true
}

// clip shortens a reason to the length that the state accepts, and removes invalid UTF-8.
func clip(reason string) string {
	if len(reason) > state.MaxReasonLen {
		reason = reason[:state.MaxReasonLen]
	}
	return strings.ToValidUTF8(reason, "")
}
