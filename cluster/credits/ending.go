package credits

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits for the deletion of content that is not paid for.
const (
	// dryRead is the number of dry accounts that are read at once.
	dryRead = 1000
	// newestRead is the number of pins, versions and uploads of an account that are sorted by age
	// at once, at up to 1.5 KB each.
	newestRead = 16 * state.MaxEnded
)

// charges returns whether storage or requests have a price.
func (l *Ledger) charges() bool { return l.rate > 0 || l.requests > 0 }

func (l *Ledger) graceMillis() state.Millis { return state.Millis(l.grace.Milliseconds()) }

// ContentEnds returns the time from which the newest content of an account is deleted, because
// the account has no credits and stores more than its allowance. The second result is false if
// that does not apply to the account, or if nothing has a price. It reads the local state.
func (l *Ledger) ContentEnds(account state.AccountID) (time.Time, bool, error) {
	if !l.charges() {
		return time.Time{}, false, nil
	}
	view, release := l.state.LocalView()
	defer release()
	end, ends, err := view.ContentEnds(account, l.graceMillis())
	if errors.Is(err, state.ErrNotFound) {
		return time.Time{}, false, nil
	}
	return end.Time(), ends, err
}

// EndContent deletes the newest content of accounts that have been without credits for longer
// than the grace period, until they store no more than their allowances, if this node leads. It
// does nothing while nothing has a price, while no time is known on which most members agree, and
// below state.GraceLevel.
//
// Errors: state.ErrUnavailable without a majority.
func (l *Ledger) EndContent(ctx context.Context) error {
	var after state.AccountID
	for l.charges() && ctx.Err() == nil {
		now, _, ok := l.agreed()
		if !ok {
			return nil
		}
		due, last, err := l.dry(after, now)
		if err != nil {
			return err
		}
		for _, a := range due {
			if err := l.endContentOf(ctx, a, now); err != nil {
				return err
			}
		}
		if last == "" {
			return nil
		}
		after = last
	}
	return nil
}

// dry returns accounts whose grace period is over at the time now, in a page that begins with the first
// id above the id after. last is the id after for the next page; empty means that there are no more
// accounts.
func (l *Ledger) dry(after state.AccountID, now state.Millis) (due []state.AccountID, last state.AccountID, err error) {
	view, release := l.state.LocalView()
	defer release()
	if level, err := view.FeatureLevel(); err != nil || level < state.GraceLevel {
		return nil, "", err
	}
	all, err := view.Dry(after, dryRead)
	if err != nil {
		return nil, "", err
	}
	for _, a := range all {
		end, ends, err := view.ContentEnds(a, l.graceMillis())
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return nil, "", err
		}
		if err == nil && ends && end <= now {
			due = append(due, a)
		}
	}
	if len(all) == dryRead {
		last = all[len(all)-1]
	}
	return due, last, nil
}

// endContentOf deletes content of an account until it stores no more than its allowance, or
// nothing more can be deleted now.
func (l *Ledger) endContentOf(ctx context.Context, a state.AccountID, now state.Millis) error {
	for {
		items, err := l.newest(a)
		if err != nil || len(items) == 0 {
			return err
		}
		for len(items) > 0 {
			if !l.state.IsLeader() {
				return nil
			}
			n := min(len(items), state.MaxEnded)
			if _, err := l.state.Propose(ctx, &state.EndContent{Account: a, Now: now, Grace: l.graceMillis(), Items: items[:n]}); err != nil {
				return err
			}
			more, err := l.ended(ctx, a, items[:n])
			if err != nil || !more {
				return err
			}
			items = items[n:]
		}
	}
}

// newest returns the newest content of an account, or nothing if none must be deleted now.
func (l *Ledger) newest(a state.AccountID) ([]state.Ending, error) {
	view, release := l.state.LocalView()
	defer release()
	if more, err := view.EndsMore(a); err != nil || !more {
		return nil, err
	}
	return view.Newest(a, newestRead)
}

// ended logs how many of the items were deleted. more is true if further content of the account
// must be deleted and can be now.
func (l *Ledger) ended(ctx context.Context, a state.AccountID, items []state.Ending) (more bool, err error) {
	view, release := l.state.LocalView()
	defer release()
	var pins, versions, uploads int
	for i := range items {
		there, err := view.Has(a, &items[i])
		switch {
		case err != nil:
			return false, err
		case there:
		case items[i].Pin != "":
			pins++
		case items[i].Upload != "":
			uploads++
		default:
			versions++
		}
	}
	if pins+versions+uploads == 0 {
		return false, nil
	}
	account, err := view.Account(a)
	if errors.Is(err, state.ErrNotFound) {
		return false, nil // it was closed meanwhile
	}
	if err != nil {
		return false, err
	}
	quota, err := view.Quota(a)
	if err != nil {
		return false, err
	}
	l.log.InfoContext(ctx, "content ended because the account has no credits", "account", a, "email", account.Email,
		"pins", pins, "versions", versions, "uploads", uploads, "used", quota.Used(), "allowance", quota.Allowance)
	return view.EndsMore(a)
}
