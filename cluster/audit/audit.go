// Package audit lists and verifies the audit log, records refused sign-ins and joins, and removes
// old rows. It does not write the rows of changes: the replicated state writes the row of a
// change together with the change.
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

// State has the methods of package consensus that this package needs.
type State interface {
	// View returns a linearizable view of the state. The caller must call release. The error is
	// state.ErrUnavailable without a majority.
	View(ctx context.Context) (view state.View, release func(), err error)
	// LocalView returns a view of the state that this node has applied. The caller must call
	// release.
	LocalView() (view state.View, release func())
	// Propose commits a command. A later View has the result of the command.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
}

// Options configure a Log. State is required.
type Options struct {
	State  State
	Now    func() time.Time // nil means time.Now
	Logger *slog.Logger     // nil means no log lines
	// Agreed returns early, a time that most members' clocks have reached; rows are removed by
	// this time. ok is false while no such time is known. Nil means Now.
	Agreed func() (early, late state.Millis, ok bool)
}

// Log lists, verifies and prunes the audit log, and collects the refusals of this node.
type Log struct {
	state    State
	now      func() time.Time
	agreed   func() (early, late state.Millis, ok bool)
	log      *slog.Logger
	refusals refusals
}

// New returns a Log.
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

// Limits of lists and of verification.
const (
	// MaxLimit is the largest number of rows in a page.
	MaxLimit = 1000
	// maxScan is the largest number of rows that List reads for one page, matching or not.
	maxScan = 20_000
	// verifyStep is the number of rows that Verify hashes between two checks of the context.
	verifyStep = 1000
	// clockSlack is the assumed largest difference between the clocks of members. The order of
	// rows is that of the log, so a row with an earlier time may follow a row with a later time
	// by up to clockSlack.
	clockSlack = 24 * time.Hour
)

// Query selects the rows of a list. A field with its zero value does not restrict the list.
type Query struct {
	Actor  string // part of an e-mail address; or the id of an account, key or session; or a client's address; or a kind such as "operator"
	Action string // an action such as "key.create", or a family such as "key"
	Target string // part of the target or of the detail
	Since  time.Time
	Until  time.Time // the list has only rows before this time
	Before uint64    // cursor: the list has only rows below this sequence; 0 begins at the newest row
	Limit  int       // number of rows, at most MaxLimit; 0 means 50
}

// Page is one page of a list, newest rows first.
type Page struct {
	Rows []state.AuditEntry
	// Next is the cursor of the next page; 0 means that this page is the last. A page may have
	// fewer rows than its limit, or none, although more pages follow, because List reads a bounded
	// number of rows for a page.
	Next uint64
}

// check returns state.ErrInvalid for a query that no row can match.
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

// matches reports whether a row matches the query.
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

// List returns a page of the rows that match a query.
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

// Verification is the result of verifying the whole log.
type Verification struct {
	First, Last uint64 // sequences of the oldest and the newest row; in an empty log Last is below First
	Count       uint64 // number of rows that were found unchanged
	Head        state.AuditHash
	Broken      uint64 // sequence of the first row that does not fit; 0 means none
	Reason      string // error in the row Broken
}

// Verify reads the whole log and checks the chain of hashes. An error in the chain is described
// in the result; it is not returned as an error.
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
