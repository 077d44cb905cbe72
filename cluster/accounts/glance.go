package accounts

import (
	"context"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Glance is a summary of an account, from this node's copy of the state. A web page compares two
// summaries to find out whether it must be reloaded.
type Glance struct {
	Quota state.Quota
	Pins  [4]uint64 // number of pins by status, in the order of state.Statuses
	Admin bool      // the account is an administrator
	// Changed is the index of the last log entry with which a caller has changed the account's
	// pins, buckets or objects. It is 0 if there was none since the start of this node.
	Changed uint64
	// Index is the index of the last log entry that this node had applied.
	Index uint64
}

// Differs reports whether the quota, the pins, or the buckets or objects differ between two
// summaries.
func (g Glance) Differs(o Glance) bool {
	return g.Quota != o.Quota || g.Pins != o.Pins || g.Changed != o.Changed
}

// Unfinished reports whether a pin of the account is queued or pinning.
func (g Glance) Unfinished() bool {
	for i, s := range state.Statuses() {
		if g.Pins[i] > 0 && (s == state.Queued || s == state.Pinning) {
			return true
		}
	}
	return false
}

// Glance returns the summary of the account to which a session belongs, from this node's copy of
// the state. before is an earlier summary, or the zero value; if this node has applied no entry
// since, Glance returns before without reading the account. The call does not count as a use of
// the session. Errors: state.ErrUnauthorized if the session has ended according to this node's
// state.
func (a *Accounts) Glance(ctx context.Context, token string, before Glance) (Glance, error) {
	session, ok := a.sessions.read(token)
	if !ok {
		return Glance{}, state.ErrUnauthorized
	}
	view, release := a.state.LocalView()
	defer release()
	who, err := a.judgeSession(view, session)
	if err != nil {
		return Glance{}, err
	}
	var changed uint64
	if a.watch != nil { // which learns of an entry a little later than the view
		changed = a.watch.ChangedAt(who.Account)
	}
	if view.Index() == before.Index && changed == before.Changed {
		return before, nil
	}
	g := Glance{Admin: who.Admin, Index: view.Index(), Changed: changed}
	if g.Quota, err = view.Quota(who.Account); err != nil {
		return Glance{}, fmt.Errorf("account %s: %w", who.Account, err)
	}
	for i, s := range state.Statuses() {
		if g.Pins[i], _, err = view.ListPins(ctx, who.Account, state.PinQuery{Statuses: []state.Status{s}}); err != nil {
			return Glance{}, fmt.Errorf("account %s: %w", who.Account, err)
		}
	}
	return g, nil
}
