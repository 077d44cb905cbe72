package accounts

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// RotateSigningKey makes a new key that signs API keys from now on, and returns
// its number. Keys that live stay as they are: to be rid of what an old signing
// key has signed, revoke those keys. Where there is no place for a new one, the keys
// of an old one go that have expired all.
//
// Errors: state.ErrTooLarge when keys of state.MaxSigningKeys-1 signing keys
// live, state.ErrUnavailable without a majority.
func (a *Accounts) RotateSigningKey(ctx context.Context) (generation uint64, err error) {
	if err := a.Fits(); err != nil { // else no other node could open the new one
		return 0, fmt.Errorf("rotate: %w", err)
	}
	sealed, err := NewSigningKey(a.secret)
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

// clearExpired removes the keys of a signing key that have expired all, by what most
// clocks say: of the one that has signed the fewest. Without such a one it changes
// nothing.
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

// expiredOf returns the keys that clearExpired removes.
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
	by, _, _ := a.agreed() // 0 while nobody knows
	expired, live := map[uint64][]state.KeyID{}, map[uint64]bool{}
	for i := range keys {
		g, err := view.SignedBy(keys[i].ID)
		if err != nil {
			return nil, err
		}
		if keys[i].Expired(by) {
			expired[g] = append(expired[g], keys[i].ID)
		} else {
			live[g] = true
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
