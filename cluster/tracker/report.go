package tracker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Pauses before reports that could not be committed are proposed again.
const (
	minReportPause = 50 * time.Millisecond
	maxReportPause = 2 * time.Second
)

// outbox holds the reports that are not on their way yet, the newest of each
// root. The dispatcher bounds it: every root in it is one that it knows.
type outbox struct {
	some chan struct{} // has a token while there may be reports
	full chan struct{} // has a token while there may be as many as one command takes

	// mu guards the rest. It is never held while calling out.
	mu    sync.Mutex
	last  uint64 // ticket of the newest report
	items map[state.RootKey]ticketed
	order []state.RootKey // of the items, oldest first
}

type ticketed struct {
	ticket uint64
	report state.CopyReport
}

// ack tells that a report has been answered.
type ack struct {
	root   state.RootKey
	ticket uint64
	err    error // it was refused for good
}

func newOutbox() *outbox {
	return &outbox{
		some:  make(chan struct{}, 1),
		full:  make(chan struct{}, 1),
		items: map[state.RootKey]ticketed{},
	}
}

// put adds a report in the place of an earlier one of the same root, and
// returns the ticket by which it will be acknowledged.
func (o *outbox) put(r state.CopyReport) (ticket uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	if _, waits := o.items[r.Root]; !waits {
		o.order = append(o.order, r.Root)
	}
	o.items[r.Root] = ticketed{ticket: o.last, report: r}
	o.wake()
	return o.last
}

func (o *outbox) wake() {
	if len(o.items) > 0 {
		token(o.some)
	}
	if len(o.items) >= state.MaxReports {
		token(o.full)
	}
}

// token leaves a token in a channel that holds one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take removes the oldest reports, as many as one command takes.
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
	o.wake()
	return batch
}

// giveBack returns reports that were not committed, unless there is newer news.
func (o *outbox) giveBack(batch []ticketed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	older := make([]state.RootKey, 0, len(batch)+len(o.order))
	for _, t := range batch {
		if _, newer := o.items[t.report.Root]; !newer {
			o.items[t.report.Root] = t
			older = append(older, t.report.Root)
		}
	}
	o.order = append(older, o.order...)
	o.wake()
}

// report commits what is in the outbox, one command at a time so that an older
// phase cannot overtake a newer one, until ctx ends.
func (t *Tracker) report(ctx context.Context) error {
	pause := time.Duration(0)
	quiet := false // that reports cannot be committed was said
	for {
		select {
		case <-ctx.Done():
			return nil
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
			pause, quiet = 0, false
		case final(err):
			t.opts.Logger.ErrorContext(ctx, "reports refused", "reports", len(batch), "err", err)
		default:
			if !quiet {
				t.opts.Logger.WarnContext(ctx, "reports wait", "reports", len(batch), "err", err)
			}
			quiet = true
			pause = min(max(2*pause, minReportPause), maxReportPause)
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

// gather lets reports wait for company: for Flush, or until a command is full;
// after a failure for pause. It returns false when ctx ends.
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

// final tells whether an error is the state's answer to the command, which
// proposing it again would not change.
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

// clip bounds a reason to what the state takes.
func clip(reason string) string {
	if len(reason) > state.MaxReasonLen {
		reason = reason[:state.MaxReasonLen]
	}
	return strings.ToValidUTF8(reason, "")
}
