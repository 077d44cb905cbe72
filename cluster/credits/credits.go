// Package credits manages the ledger of credits: it adds postings, lists them, charges for
// storage and requests, and deletes content that is not paid for. The replicated state accepts or
// rejects each posting and never changes one.
//
// Imports: consensus/state, cluster/duty.
// Never:   raft, libp2p, storage, HTTP.
package credits

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// State has the methods of package consensus that this package needs.
type State interface {
	// View returns a linearizable view of the state. The caller must call release. The error is
	// state.ErrUnavailable without a majority.
	View(ctx context.Context) (view state.View, release func(), err error)
	// Propose commits a command. A later View has the result of the command.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
	// LocalView returns a view of the state that this node has applied. The caller must call
	// release.
	LocalView() (view state.View, release func())
	// IsLeader returns whether this node leads the cluster.
	IsLeader() bool
}

// Options configure a Ledger. State is required.
type Options struct {
	State  State
	Now    func() time.Time // nil means time.Now
	Logger *slog.Logger     // nil means no log lines
	// Rate is the price in credits of a GB-month above the allowance, and Requests that of a
	// million requests; 0 means free. Period is the length of the periods for which accounts are
	// charged.
	Rate, Requests uint64
	Period         time.Duration
	// Grace is how long an account keeps its content after a charge has found too few credits.
	Grace time.Duration
	// Agreed returns early, a time that most members' clocks have reached; periods end by it. ok
	// is false while no such time is known. Nil means Now.
	Agreed func() (early, late state.Millis, ok bool)
}

// Ledger adds postings to the ledgers of accounts and lists them.
type Ledger struct {
	state State
	now   func() time.Time
	log   *slog.Logger

	rate, requests uint64
	period, grace  time.Duration

	agreed func() (early, late state.Millis, ok bool)
}

// New returns a Ledger.
func New(o Options) *Ledger {
	l := &Ledger{state: o.State, now: o.Now, log: o.Logger, rate: o.Rate, requests: o.Requests, period: o.Period, grace: o.Grace, agreed: o.Agreed}
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

// Limits of a page.
const (
	// MaxLimit is the largest number of postings in a page.
	MaxLimit = 1000
	// DefaultLimit is the number of postings in a page if no limit is given.
	DefaultLimit = 50
)

// Request asks for a posting.
type Request struct {
	Kind     state.PostingKind
	Credits  int64  // negative if the account loses the credits
	ID       string // id of the posting; empty means a new random one
	Corrects string // id of the posting that a correction corrects
	Note     string
}

// posting returns the posting of an account that the request asks for.
func (r *Request) posting(account state.AccountID, now time.Time) state.Posting {
	p := state.Posting{
		ID: r.ID, Account: account, Kind: r.Kind, Credits: uint64(r.Credits), Takes: r.Credits < 0, //nolint:gosec // a negative number is negated below
		Corrects: r.Corrects, Note: r.Note, Made: state.MillisOf(now),
	}
	if p.Takes {
		p.Credits = -p.Credits
	}
	if p.ID == "" {
		p.ID = NewID()
	}
	return p
}

// NewID returns a random id for a posting, of 128 bits or more.
func NewID() string { return strings.ToLower(rand.Text()) }

// Post adds a posting to the ledger of the account with an e-mail address or id, and returns it.
// If the ledger has an equal posting with the same id, Post changes nothing and returns that one.
// In a cluster below state.LedgerLevel, Post can only grant credits.
//
// Errors: state.ErrInvalid; state.ErrNotFound without such an account or without the posting to
// correct; state.ErrExists if the id belongs to a different posting; state.ErrCredits if the
// balance would become negative; state.ErrUnavailable.
func (l *Ledger) Post(ctx context.Context, who string, r Request) (state.Posting, error) {
	p, err := l.post(ctx, who, r)
	if err != nil {
		return state.Posting{}, fmt.Errorf("post credits: %w", err)
	}
	return p, nil
}

func (l *Ledger) post(ctx context.Context, who string, r Request) (p state.Posting, err error) {
	account, ordered, err := l.account(ctx, who)
	if err != nil {
		return p, err
	}
	p = r.posting(account.ID, l.now())
	if err := p.Check(); err != nil {
		return p, err
	}
	switch {
	case ordered:
		_, err = l.state.Propose(ctx, &state.PostCredits{Posting: p})
	case p.Kind == state.Grant && p.Note == "":
		granted := p
		granted.Kind = 0
		_, err = l.state.Propose(ctx, &state.GrantCredits{Posting: granted})
	default:
		err = state.Errorf(state.CodeUnavailable, "only grants without a note are possible before the cluster has feature level %d: not all members run a release that knows other postings", state.LedgerLevel)
	}
	if err != nil {
		return p, err
	}
	l.log.InfoContext(ctx, "credits posted", "account", account.ID, "email", account.Email, "kind", p.Kind.String(), "credits", p.Signed(), "posting", p.ID)
	if !ordered {
		return p, nil
	}
	view, release, err := l.state.View(ctx)
	if err != nil {
		return p, err
	}
	defer release()
	return view.Posting(account.ID, p.ID)
}

// account returns the account with an e-mail address, or with an id. ordered is true if the
// cluster has state.LedgerLevel.
func (l *Ledger) account(ctx context.Context, who string) (account state.Account, ordered bool, err error) {
	view, release, err := l.state.View(ctx)
	if err != nil {
		return account, false, err
	}
	defer release()
	if account, err = find(view, who); err != nil {
		return account, false, err
	}
	level, err := view.FeatureLevel()
	return account, level >= state.LedgerLevel, err
}

func find(view state.View, who string) (state.Account, error) {
	account, err := view.AccountByEmail(strings.TrimSpace(who))
	if errors.Is(err, state.ErrNotFound) {
		account, err = view.Account(state.AccountID(who))
	}
	return account, err
}

// Page is one page of a ledger, newest postings first.
type Page struct {
	Rows    []state.Posting
	Balance uint64 // credits of the account now
	Next    uint64 // cursor of the next page; 0 means that this page is the last
}

// List returns a page of the ledger of the account with an e-mail address or id: up to limit
// postings with a sequence below before. A before of 0 means to begin with the newest posting,
// and a limit of 0 means DefaultLimit.
//
// Errors: state.ErrInvalid for a limit out of bounds; state.ErrNotFound; state.ErrUnavailable.
func (l *Ledger) List(ctx context.Context, who string, before uint64, limit int) (Page, error) {
	if limit < 0 || limit > MaxLimit {
		return Page{}, state.Errorf(state.CodeInvalid, "a page has 1 to %d postings", MaxLimit)
	}
	if limit == 0 {
		limit = DefaultLimit
	}
	page, err := l.list(ctx, who, before, limit)
	if err != nil {
		return Page{}, fmt.Errorf("list postings: %w", err)
	}
	return page, nil
}

func (l *Ledger) list(ctx context.Context, who string, before uint64, limit int) (page Page, err error) {
	view, release, err := l.state.View(ctx)
	if err != nil {
		return page, err
	}
	defer release()
	account, err := find(view, who)
	if err != nil {
		return page, err
	}
	quota, err := view.Quota(account.ID)
	if err != nil && !errors.Is(err, state.ErrNotFound) { // there are no quotas below feature level 2
		return page, err
	}
	page.Balance = quota.Credits
	if page.Rows, err = view.Ledger(account.ID, before, limit); err != nil {
		return page, err
	}
	if n := len(page.Rows); n == limit && page.Rows[n-1].Seq > 1 {
		page.Next = page.Rows[n-1].Seq
	}
	return page, nil
}
