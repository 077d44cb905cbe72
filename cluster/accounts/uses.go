package accounts

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits for recording last-use times.
const (
	// useGrain is the finest resolution of a last-use time.
	useGrain = time.Minute
	// useEvery is the interval at which this node writes last-use times to the state.
	useEvery = 30 * time.Second
	// grainsOfIdle is how often the resolution of last-use times fits into the idle time of a
	// session, so that a short idle time gets a finer resolution than useGrain.
	grainsOfIdle = 8
	// useKept is how long a node remembers an unused key or session.
	useKept = 10 * time.Minute
	// maxInUse is the largest number of keys and sessions whose use a node remembers at once, at
	// about 150 bytes each. Uses of further ones are not recorded.
	maxInUse = 1 << 16
)

// useOf identifies the key or session that is used.
type useOf struct {
	key     state.KeyID
	session state.SessionID
}

// used is the times of a key or session. at is the time of its last use. told is the newest such
// time that this node has written to the state.
type used struct{ at, told atomic.Int64 } // milliseconds since 1970

// uses collects when keys and sessions were used, so that a request need not write to the state.
type uses struct {
	grain state.Millis

	// mu guards the map. The values in it change without the lock.
	mu sync.RWMutex
	by map[useOf]*used
}

func newUses(idle time.Duration) *uses {
	return &uses{grain: state.Millis(min(useGrain, idle/grainsOfIdle).Milliseconds()), by: map[useOf]*used{}}
}

// note records a use at the time now. It changes the stored time at most once per grain, and
// allocates no memory for that.
func (u *uses) note(of useOf, now state.Millis) {
	u.mu.RLock()
	found := u.by[of]
	full := len(u.by) >= maxInUse
	u.mu.RUnlock()
	if found == nil {
		if full {
			return
		}
		u.mu.Lock()
		if found = u.by[of]; found == nil {
			found = new(used)
			u.by[of] = found
		}
		u.mu.Unlock()
	}
	if int64(now) >= found.at.Load()+int64(u.grain) {
		found.at.Store(int64(now))
	}
}

// last returns when a key or session was last used through this node, or 0 if this is not
// remembered.
func (u *uses) last(of useOf) state.Millis {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if found := u.by[of]; found != nil {
		return state.Millis(found.at.Load())
	}
	return 0
}

// take returns up to state.MaxUses uses that are not in the state yet, and drops keys and
// sessions that were not used for useKept.
func (u *uses) take(now state.Millis) (items []state.Use) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for of, found := range u.by {
		at := found.at.Load()
		switch {
		case at > found.told.Load():
			if len(items) == state.MaxUses {
				continue
			}
			items = append(items, state.Use{Key: of.key, Session: of.session, At: state.Millis(at)})
		case state.Millis(at)+state.Millis(useKept.Milliseconds()) < now:
			delete(u.by, of)
		}
	}
	return items
}

// told records that the given uses were written to the state.
func (u *uses) told(items []state.Use) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	for _, item := range items {
		if found := u.by[useOf{item.Key, item.Session}]; found != nil {
			found.told.Store(int64(item.At))
		}
	}
}

// Run writes last-use times and the usage of accounts to the state at intervals, until ctx ends.
func (a *Accounts) Run(ctx context.Context) error {
	tick := time.NewTicker(min(useEvery, max(a.sessions.idle/grainsOfIdle, time.Millisecond)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := errors.Join(a.NoteUses(ctx), a.NoteUsage(ctx)); err != nil {
				a.log.LogAttrs(ctx, slog.LevelDebug, "uses not noted yet", slog.Any("err", err))
			}
		}
	}
}

// NoteUses writes last-use times to the state that are not in it yet. Without a majority it
// returns state.ErrUnavailable, and the next call writes them.
func (a *Accounts) NoteUses(ctx context.Context) error {
	for {
		items := a.uses.take(state.MillisOf(a.now()))
		if len(items) == 0 {
			return nil
		}
		if _, err := a.state.Propose(ctx, &state.NoteUses{Items: items}); err != nil {
			return err
		}
		a.uses.told(items)
	}
}
