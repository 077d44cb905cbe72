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

// How uses are noted.
const (
	// useGrain is how exact the time of a last use is, at the least.
	useGrain = time.Minute
	// useEvery is the time between two notes of this node in the state.
	useEvery = 30 * time.Second
	// grainsOfIdle is how many grains an idle session lasts at the least.
	grainsOfIdle = 8
	// useKept is how long a node remembers what is not used any more.
	useKept = 10 * time.Minute
	// maxInUse bounds the keys and sessions whose use a node remembers at once,
	// about 150 bytes each; more are not noted.
	maxInUse = 1 << 16
)

// useOf names what is used: a key or a session.
type useOf struct {
	key     state.KeyID
	session state.SessionID
}

// used is when something was used, and the newest of it that the state knows
// from this node.
type used struct{ at, told atomic.Int64 } // milliseconds since 1970

// uses gathers when keys and sessions were used, so that no request writes.
type uses struct {
	grain state.Millis

	// mu guards the map; what is in it is changed without.
	mu sync.RWMutex
	by map[useOf]*used
}

func newUses(idle time.Duration) *uses {
	return &uses{grain: state.Millis(min(useGrain, idle/grainsOfIdle).Milliseconds()), by: map[useOf]*used{}}
}

// note remembers a use. It writes once a grain, and does not allocate then.
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

// last returns when something was last used through this node, zero if that is not
// remembered.
func (u *uses) last(of useOf) state.Millis {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if found := u.by[of]; found != nil {
		return state.Millis(found.at.Load())
	}
	return 0
}

// take returns up to state.MaxUses uses that the state does not know yet, and
// forgets what has not been used for long.
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

// told notes that the state knows uses.
func (u *uses) told(items []state.Use) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	for _, item := range items {
		if found := u.by[useOf{item.Key, item.Session}]; found != nil {
			found.told.Store(int64(item.At))
		}
	}
}

// Run writes down now and then when keys and sessions were last used, and the usage of accounts,
// until ctx ends.
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

// NoteUses writes down the uses that the state does not know yet. It returns
// state.ErrUnavailable without a majority; they are noted the next time then.
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
