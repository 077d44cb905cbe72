package accounts

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Holdings is an account with the numbers of things that are deleted when the account is removed.
type Holdings struct {
	User
	Pins     map[state.Status]uint64
	Buckets  uint64
	Objects  uint64 // objects in all buckets, without old versions
	Versions uint64 // old versions of objects, and delete markers
	Uploads  uint64 // open uploads
	Keys     uint64 // keys, including expired ones
	Sessions uint64
	Admin    bool // the account is an administrator
}

// AllPins is the number of pins of any status.
func (h Holdings) AllPins() (n uint64) {
	for _, of := range h.Pins {
		n += of
	}
	return n
}

// Holdings returns the Holdings of the account with an e-mail address or id, or
// state.ErrNotFound. It reads counters, and the account's buckets, keys and sessions.
func (a *Accounts) Holdings(ctx context.Context, who string) (Holdings, error) {
	h, err := a.holdings(ctx, who)
	if err != nil {
		return Holdings{}, fmt.Errorf("show account: %w", err)
	}
	return h, nil
}

func (a *Accounts) holdings(ctx context.Context, who string) (h Holdings, err error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return h, err
	}
	defer release()
	if h.Account, err = byEmailOrID(view, who); err != nil {
		return h, err
	}
	h.PasswordHash = ""
	if h.Admin, err = view.Admin(h.Account.ID); err != nil {
		return h, err
	}
	if h.Quota, err = view.Quota(h.Account.ID); err != nil && !errors.Is(err, state.ErrNotFound) {
		return h, err
	}
	if h.Disabled, err = view.Disabled(h.Account.ID); err != nil {
		return h, err
	}
	h.Pins = make(map[state.Status]uint64)
	for _, s := range state.Statuses() {
		if h.Pins[s], _, err = view.ListPins(ctx, h.Account.ID, state.PinQuery{Statuses: []state.Status{s}}); err != nil {
			return h, err
		}
	}
	buckets, err := view.Buckets(h.Account.ID)
	if err != nil {
		return h, err
	}
	h.Buckets = uint64(len(buckets))
	for i := range buckets {
		objects, _, uploads, err := view.BucketUsage(&buckets[i])
		if err != nil {
			return h, err
		}
		versions, err := view.OldVersions(&buckets[i])
		if err != nil {
			return h, err
		}
		h.Objects, h.Versions, h.Uploads = h.Objects+objects, h.Versions+versions, h.Uploads+uploads
	}
	keys, err := view.Keys(h.Account.ID)
	if err != nil {
		return h, err
	}
	h.Keys = uint64(len(keys))
	sessions, err := view.Sessions(h.Account.ID)
	h.Sessions = uint64(len(sessions))
	return h, err
}

// byEmailOrID returns the account with an e-mail address, or with an id, because log lines may
// contain the id.
func byEmailOrID(v state.View, who string) (state.Account, error) {
	account, err := byEmail(v, who)
	if !errors.Is(err, state.ErrNotFound) || who == "" || len(who) > state.MaxIDLen {
		return account, err
	}
	if account, err = v.Account(state.AccountID(who)); errors.Is(err, state.ErrNotFound) {
		err = state.Errorf(state.CodeNotFound, "there is no account with this e-mail address or id: see holdfast user ls")
	}
	return account, err
}
