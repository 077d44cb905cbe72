package state

import (
	"slices"
	"sync"
)

// Bounds of the recent changes of objects in memory: 25 MiB if all keys have MaxKeyBytes.
const (
	// maxRecentChanges is the number of changes that a Watch keeps of one account.
	maxRecentChanges = 5
	// maxRecentAccounts is the largest number of accounts whose changes a Watch keeps. It keeps at least
	// those of the half of them that have changed last.
	maxRecentAccounts = 4096
)

// ObjectChange says that a key got another current object, or has none any more.
type ObjectChange struct {
	Account AccountID
	Bucket  string
	Key     string
	At      Millis // 0 if it is not known
	Deleted bool   // the key has no object any more
}

// noteObject adds a change of a key to the effects of the entry. An account that is being cleared has
// no buckets with names any more, and nobody who asks for its changes.
func (e *entry) noteObject(b *Bucket, k string, at Millis, deleted bool) {
	if b.Name == "" {
		return
	}
	e.fx.Objects = append(e.fx.Objects, ObjectChange{b.Account, b.Name, k, at, deleted})
}

// recentChanges has the newest changes of objects by account, the oldest first and at most one of a key.
// Accounts are in two generations: when the younger one is full, it replaces the older one.
type recentChanges struct {
	mu           sync.Mutex // guards the fields below
	younger, old map[AccountID][]ObjectChange
}

func (r *recentChanges) add(all []ObjectChange) {
	if len(all) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range all {
		c := &all[i]
		changes, ok := r.younger[c.Account]
		if !ok {
			if changes = r.old[c.Account]; r.younger == nil || len(r.younger) == maxRecentAccounts/2 {
				r.younger, r.old = map[AccountID][]ObjectChange{}, r.younger
			}
			delete(r.old, c.Account)
		}
		changes = slices.DeleteFunc(changes, func(o ObjectChange) bool { return o.Key == c.Key && o.Bucket == c.Bucket })
		if len(changes) == maxRecentChanges {
			changes = slices.Delete(changes, 0, 1)
		}
		r.younger[c.Account] = append(changes, *c)
	}
}

func (r *recentChanges) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.younger, r.old = nil, nil
}

// ObjectChanges returns the newest changes of objects of an account, at most one of each key, the
// newest first. Changes from before this node started, or before it replaced its state, are not
// among them.
func (w *Watch) ObjectChanges(a AccountID) []ObjectChange {
	r := &w.recent
	r.mu.Lock()
	defer r.mu.Unlock()
	changes, ok := r.younger[a]
	if !ok {
		changes = r.old[a]
	}
	changes = slices.Clone(changes)
	slices.Reverse(changes)
	return changes
}
