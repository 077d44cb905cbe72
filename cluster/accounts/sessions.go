package accounts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// SessionInfo is a session of an account, without its token.
type SessionInfo struct {
	ID      state.SessionID
	Created time.Time
	Used    time.Time // time of last use with one-minute resolution; zero if no node has reported a use
	Expires time.Time // latest end
	// Addr is the client's address at the sign-in, and Agent the client's program, as in
	// state.Session. Both may be empty.
	Addr, Agent string
}

// Sessions returns the sessions of an account that have not ended, the newest first.
// Errors: state.ErrUnavailable without a majority.
func (a *Accounts) Sessions(ctx context.Context, account state.AccountID) ([]SessionInfo, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	defer release()
	found, err := view.Sessions(account)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	now := state.MillisOf(a.now())
	var all []SessionInfo
	for _, s := range found {
		_, used, err := view.Session(s.ID)
		if err != nil {
			return nil, fmt.Errorf("list sessions: %w", err)
		}
		if used = max(used, a.uses.last(useOf{session: s.ID})); s.Ended(used, now) {
			continue
		}
		info := SessionInfo{ID: s.ID, Created: s.Created.Time(), Expires: s.Expires.Time(), Addr: s.Addr, Agent: s.Agent}
		if used > 0 {
			info.Used = used.Time()
		}
		all = append(all, info)
	}
	slices.SortFunc(all, func(x, y SessionInfo) int { return y.Created.Compare(x.Created) })
	return all, nil
}

// EndSessions ends all sessions of an account except the session keep; if keep is "", it ends
// all. After it has returned, no node accepts their tokens. Errors: state.ErrUnavailable
// without a majority; some sessions may then continue.
func (a *Accounts) EndSessions(ctx context.Context, account state.AccountID, keep state.SessionID) error {
	all, err := a.Sessions(ctx, account)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.ID == keep {
			continue
		}
		if err := a.endSession(ctx, account, s.ID); err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
	}
	return nil
}

// EndSession ends a session of an account. After it has returned, no node accepts its token.
//
// Errors: state.ErrNotFound if the account has no such session; state.ErrUnavailable.
func (a *Accounts) EndSession(ctx context.Context, account state.AccountID, id state.SessionID) error {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	s, _, err := view.Session(id)
	release()
	if err != nil || s.Account != account {
		return state.ErrNotFound
	}
	return a.endSession(ctx, account, id)
}

// endSession ends a session that is known to belong to an account.
func (a *Accounts) endSession(ctx context.Context, account state.AccountID, id state.SessionID) error {
	if _, err := a.state.Propose(ctx, &state.EndSession{ID: id}); err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	a.log.InfoContext(ctx, "session ended", "account", account)
	return nil
}
