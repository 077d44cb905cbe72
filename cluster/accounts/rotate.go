package accounts

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// RotateSigningKey adds a new signing key, which signs API keys from now on, and returns its
// generation. Existing API keys remain valid; to end those that an old signing key has signed,
// revoke them. If the state has no room for another signing key, RotateSigningKey first removes
// one whose API keys and shares have all expired, together with these.
//
// Errors: state.ErrTooLarge if there is no room and each signing key from an earlier rotation has
// signed an API key or share that is still valid; state.ErrUnavailable without a majority.
func (a *Accounts) RotateSigningKey(ctx context.Context) (generation uint64, err error) {
	if err := a.Fits(); err != nil { // else no other node could open the new one
		return 0, fmt.Errorf("rotate: %w", err)
	}
	sealed, err := NewSigningKey(a.keys().secret)
	if err != nil {
		return 0, err
	}
	rotate := &state.RotateSigningKey{Sealed: sealed}
	if _, err = a.state.Propose(ctx, rotate); errors.Is(err, state.ErrTooLarge) {
		if err := a.clearExpired(ctx); err != nil {
			return 0, fmt.Errorf("rotate signing key: %w", err)
		}
		_, err = a.state.Propose(ctx, rotate)
	}
	if err != nil {
		return 0, fmt.Errorf("rotate signing key: %w", err)
	}
	view, release, err := a.state.View(ctx)
	if err != nil {
		return 0, fmt.Errorf("rotate signing key: %w", err)
	}
	defer release()
	known, err := a.open(view)
	if err != nil {
		return 0, fmt.Errorf("rotate signing key: %w", err)
	}
	a.log.InfoContext(ctx, "signing key rotated", "generation", known.newest)
	return known.newest, nil
}

// clearExpired makes room for a new signing key: it revokes all API keys and shares that one old
// signing key has signed, if all of them have expired by the clocks of most members. Among such
// signing keys it chooses the one with the fewest. If there is none, it changes nothing.
func (a *Accounts) clearExpired(ctx context.Context) error {
	expired, err := a.expiredOf(ctx)
	if err != nil {
		return err
	}
	for _, id := range expired {
		if _, err := a.state.Propose(ctx, &state.RevokeKey{ID: id}); err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
		a.log.InfoContext(ctx, "expired API key removed for a new signing key", "key", id)
	}
	return nil
}

// expiredOf returns the ids of the API keys and of the keys of shares that clearExpired revokes.
func (a *Accounts) expiredOf(ctx context.Context) ([]state.KeyID, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	keys, err := view.Keys("")
	if err != nil {
		return nil, err
	}
	shares, err := view.AllShares()
	if err != nil {
		return nil, err
	}
	by, _, _ := a.agreed() // 0 while nobody knows
	expired, live := map[uint64][]state.KeyID{}, map[uint64]bool{}
	sort := func(id state.KeyID, over bool) error {
		g, err := view.SignedBy(id)
		if over {
			expired[g] = append(expired[g], id)
		} else {
			live[g] = true
		}
		return err
	}
	for i := range keys {
		if err := sort(keys[i].ID, keys[i].Expired(by)); err != nil {
			return nil, err
		}
	}
	for i := range shares {
		if err := sort(shares[i].Key, shares[i].Expired(by)); err != nil {
			return nil, err
		}
	}
	var fewest []state.KeyID
	for g, ids := range expired {
		if g != 0 && !live[g] && (fewest == nil || len(ids) < len(fewest)) { // that of generation 0 stays anyway
			fewest = ids
		}
	}
	return fewest, nil
}
