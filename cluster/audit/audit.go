// Package audit is the use case of the audit log: it lists and verifies the log, records what a
// node refused, and removes rows that are too old. The rows of changes are written by the
// replicated state together with the change.
//
// Imports: consensus/state.
// Never:   raft, libp2p, storage, HTTP.
package audit

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// State is what this package needs of consensus.
type State interface {
	// View returns the state as it is now, anywhere in the cluster; release it.
	// It fails with state.ErrUnavailable without a majority.
	View(ctx context.Context) (view state.View, release func(), err error)
	// LocalView returns what this node has applied; release it.
	LocalView() (view state.View, release func())
	// Propose commits a command; a read that follows sees it.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
}

// Options are what a Log is made of. State is required.
type Options struct {
	State  State
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: none
	// Agreed returns a time that the clocks of most members have reached, by which old rows are
	// removed; ok is false while it is unknown. nil: Now.
	Agreed func() (early, late state.Millis, ok bool)
}

// Log is the audit log as a node sees it.
type Log struct {
	state    State
	now      func() time.Time
	agreed   func() (early, late state.Millis, ok bool)
	log      *slog.Logger
	refusals refusals
}

// New returns the use cases of the audit log.
func New(o Options) *Log {
	l := &Log{state: o.State, now: o.Now, agreed: o.Agreed, log: o.Logger}
	if l.now == nil {
		l.now = time.Now
	}
	if l.agreed == nil {
		l.agreed = state.OneClock(l.now)
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	return l
}

// Bounds of lists and of verification.
const (
	// MaxLimit is how many rows a page has at the most.
	MaxLimit = 1000
	// maxScan is how many rows one page reads at the most, whether or not they match.
	maxScan = 20_000
	// verifyStep is how many rows are hashed between two looks at the context.
	verifyStep = 1000
	// clockSlack is how far the clocks of members may be apart: rows are in the order of the log,
	// so one with an earlier time may follow.
	clockSlack = 24 * time.Hour
)

// Query says which rows a list has. The zero value of a field filters nothing.
type Query struct {
	Actor  string // part of an e-mail address, or an account, key, session or address, or a kind such as "operator"
	Action string // an action such as "key.create", or a family such as "key"
	Target string // part of the target or of the detail
	Since  time.Time
	Until  time.Time // rows at this time are not in the list
	Before uint64    // rows below this sequence: the cursor; 0: from the newest on
	Limit  int       // rows, up to MaxLimit; 0: 50
}

// Page is a part of a list, the newest rows first.
type Page struct {
	Rows []state.AuditEntry
	// Next is the cursor of the next page; 0: there is none. A page may have fewer rows than its
	// limit, or none, and a next page, because a page reads a bounded number of rows.
	Next uint64
}

// check returns state.ErrInvalid for a query that can have no row.
func (q *Query) check() error {
	known := q.Action == "" || slices.ContainsFunc(state.Actions(), func(a state.Action) bool { return string(a) == q.Action || a.Family() == q.Action })
	switch {
	case !known:
		return state.Errorf(state.CodeInvalid, "there is no action or family of actions %q", q.Action)
	case q.Limit < 0 || q.Limit > MaxLimit:
		return state.Errorf(state.CodeInvalid, "a page has 1 to %d rows", MaxLimit)
	case !q.Since.IsZero() && !q.Until.IsZero() && !q.Since.Before(q.Until):
		return state.Errorf(state.CodeInvalid, "the end of the time is not after its beginning")
	}
	return nil
}

// matches returns whether a row is in the list.
func (q *Query) matches(row *state.AuditRow) bool {
	at := row.At.Time()
	switch {
	case q.Action != "" && string(row.Action) != q.Action && row.Action.Family() != q.Action,
		!q.Since.IsZero() && at.Before(q.Since),
		!q.Until.IsZero() && !at.Before(q.Until):
		return false
	case q.Target != "" && !contains(row.Target, q.Target) && !contains(row.Detail, q.Target):
		return false
	}
	by := &row.Actor
	return q.Actor == "" || contains(by.Email, q.Actor) ||
		slices.Contains([]string{by.Kind.String(), string(by.Account), string(by.Key), string(by.Session), by.Addr}, q.Actor)
}

func contains(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}

// List returns a page of the rows that a query asks for.
//
// Errors: state.ErrInvalid, state.ErrUnavailable without a majority.
func (l *Log) List(ctx context.Context, q Query) (Page, error) {
	if err := q.check(); err != nil {
		return Page{}, err
	}
	if q.Limit == 0 {
		q.Limit = 50
	}
	view, release, err := l.state.View(ctx)
	if err != nil {
		return Page{}, fmt.Errorf("list the audit log: %w", err)
	}
	defer release()
	head, err := view.AuditHead()
	if err != nil {
		return Page{}, fmt.Errorf("list the audit log: %w", err)
	}
	if q.Before == 0 || q.Before > head.Next {
		q.Before = head.Next
	}
	var page Page
	scanned := 0
	err = view.AuditBefore(q.Before, func(e state.AuditEntry) (bool, error) {
		if !q.Since.IsZero() && e.At.Time().Add(clockSlack).Before(q.Since) {
			return false, nil
		}
		if q.matches(&e.AuditRow) {
			page.Rows = append(page.Rows, e)
		}
		if scanned++; len(page.Rows) < q.Limit && scanned < maxScan {
			return true, ctx.Err()
		}
		if e.Seq > head.First {
			page.Next = e.Seq
		}
		return false, nil
	})
	if err != nil {
		return Page{}, fmt.Errorf("list the audit log: %w", err)
	}
	return page, nil
}

// Verification is the result of a walk through the whole log.
type Verification struct {
	First, Last uint64 // sequences of the oldest and the newest row; Last is below First where there is none
	Count       uint64 // of rows that were found good
	Head        state.AuditHash
	Broken      uint64 // sequence of the first row that is not as it was written; 0: none
	Reason      string // what is wrong with it
}

// Verify walks through the whole log and checks that each row follows from the one before. A
// broken row is no error.
//
// Errors: state.ErrUnavailable without a majority.
func (l *Log) Verify(ctx context.Context) (Verification, error) {
	view, release, err := l.state.View(ctx)
	if err != nil {
		return Verification{}, fmt.Errorf("verify the audit log: %w", err)
	}
	defer release()
	head, err := view.AuditHead()
	if err != nil {
		return Verification{}, fmt.Errorf("verify the audit log: %w", err)
	}
	v := Verification{First: head.First, Last: head.Next - 1, Head: head.Head}
	chain := state.AuditChain{Next: head.First, Hash: head.Anchor}
	for {
		longer, err := view.VerifyAudit(chain, verifyStep)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return Verification{}, fmt.Errorf("verify the audit log: %w", err)
		}
		v.Count = longer.Next - head.First
		if longer.Broken != "" {
			v.Broken, v.Reason = longer.Next, longer.Broken
			l.log.ErrorContext(ctx, "audit log is broken", "row", v.Broken, "why", v.Reason)
			return v, nil
		}
		if longer == chain {
			return v, nil
		}
		chain = longer
	}
}
