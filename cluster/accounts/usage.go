package accounts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// maxCounted is the largest number of accounts whose requests a node counts at once, at about 100
// bytes each. Requests of further accounts are not counted.
const maxCounted = 1 << 16

// requests counts the requests of accounts since the counts were last written to the state, so
// that a request causes no write.
type requests struct {
	mu sync.RWMutex // guards the map; counts in it change without the lock
	by map[state.AccountID]*atomic.Uint64

	noting sync.Mutex       // guards the following fields; held while they are proposed
	left   *state.NoteUsage // numbered command whose outcome is not known yet, to be repeated; nil if there is none
	number uint64           // Number of this process's newest command
}

// count counts a request. It allocates memory only for the first request of an account.
func (r *requests) count(id state.AccountID) { r.add(id, 1) }

func (r *requests) add(id state.AccountID, n uint64) {
	r.mu.RLock()
	if found := r.by[id]; found != nil {
		found.Add(n) // with the lock: take does not forget it meanwhile
		r.mu.RUnlock()
		return
	}
	r.mu.RUnlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.by[id]
	if found == nil {
		if len(r.by) >= maxCounted {
			return
		}
		if r.by == nil {
			r.by = map[state.AccountID]*atomic.Uint64{}
		}
		found = new(atomic.Uint64)
		r.by[id] = found
	}
	found.Add(n)
}

// take returns up to state.MaxUsage counts and resets them to zero. It drops accounts without
// requests.
func (r *requests) take() (items []state.AccountRequests) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, n := range r.by {
		if len(items) == state.MaxUsage {
			break
		}
		if count := n.Swap(0); count > 0 {
			items = append(items, state.AccountRequests{Account: id, Count: count})
		} else {
			delete(r.by, id)
		}
	}
	return items
}

// NoteUsage writes to the state how many requests accounts have sent to this node, and how much
// they store. Without a majority it returns state.ErrUnavailable, and the next call writes the
// counts. While no time is known on which most members agree, it does nothing.
//
// From state.GraceLevel on, the node numbers its commands and repeats one whose outcome it does
// not know, so that each request is charged once. Counts in memory are lost when the node stops.
func (a *Accounts) NoteUsage(ctx context.Context) error {
	now, _, ok := a.agreed()
	if !ok {
		return nil
	}
	r := &a.requests
	r.noting.Lock()
	defer r.noting.Unlock()
	for {
		if r.left != nil {
			if _, err := a.state.Propose(ctx, r.left); err != nil && !errors.Is(err, state.ErrInvalid) {
				return fmt.Errorf("note usage: %w", err)
			}
			r.left = nil
		}
		items := r.take()
		if len(items) == 0 {
			return nil
		}
		cmd := &state.NoteUsage{Day: state.DayOf(now), Items: items}
		err := a.numbered(cmd)
		if err == nil && cmd.Node != "" {
			r.left = cmd
			continue
		}
		if err == nil {
			_, err = a.state.Propose(ctx, cmd)
		}
		if err != nil {
			for _, i := range items {
				r.add(i.Account, i.Count)
			}
			return fmt.Errorf("note usage: %w", err)
		}
	}
}

// numbered sets the Node and the next Number of a command if the cluster supports them.
func (a *Accounts) numbered(cmd *state.NoteUsage) error {
	view, release := a.state.LocalView()
	defer release()
	level, err := view.FeatureLevel()
	if err != nil || level < state.GraceLevel || a.node == "" {
		return err
	}
	last, err := view.Counted(a.node)
	if err != nil {
		return err
	}
	a.requests.number = max(a.requests.number, last) + 1
	cmd.Node, cmd.Number = a.node, a.requests.number
	return nil
}

// Usage returns one row for each of the last days up to today, oldest first, but not from before
// the first recorded day. Stored is the number of bytes when usage was last recorded on or before
// that day, and for today the present number. Requests of the last half minute may be missing.
// Errors: state.ErrNotFound, state.ErrUnavailable.
func (a *Accounts) Usage(ctx context.Context, id state.AccountID, days int) ([]state.Usage, error) {
	view, release, err := a.state.View(ctx)
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	defer release()
	if _, err := view.Account(id); err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	quota, err := view.Quota(id)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return nil, fmt.Errorf("usage: %w", err)
	}
	known, err := view.Usage(id, 0)
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	today := state.DayOf(state.MillisOf(a.now()))
	first := today
	if len(known) > 0 {
		first = min(first, known[0].Day)
	}
	if since := today + 1 - min(today+1, state.Day(max(days, 1))); first < since {
		first = since
	}
	var all []state.Usage
	row := state.Usage{}
	for d := first; d <= today; d++ {
		row.Day, row.Requests = d, 0
		for len(known) > 0 && known[0].Day <= d {
			row.Stored = known[0].Stored
			if known[0].Day == d {
				row.Requests = known[0].Requests
			}
			known = known[1:]
		}
		all = append(all, row)
	}
	all[len(all)-1].Stored = quota.Used()
	return all, nil
}
