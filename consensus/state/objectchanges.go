package state

import (
	"slices"
	"sync"
)

// Limits of the recent object changes that a Watch keeps in memory; they take at most about 25
// MiB.
const (
	// maxRecentChanges is the number of changes that a Watch keeps of one account.
	maxRecentChanges = 5
	// maxRecentAccounts is the largest number of accounts whose changes a Watch keeps. At least
	// the half of them that changed last is kept.
	maxRecentAccounts = 4096
)

// ObjectChange records that a key has another current object than before, or none any more.
type ObjectChange struct {
	Account AccountID
	Bucket  string
	Key     string
	At      Millis // 0 if it is not known
	Deleted bool   // the key has no object any more
}

// noteObject adds an ObjectChange to the effects of the entry. It adds none for an account that
// is being cleared, whose buckets have no names any more.
func (e *entry) noteObject(b *Bucket, k string, at Millis, deleted bool) {
	if b.Name == "" {
		return
	}
	e.fx.Objects = append(e.fx.Objects, ObjectChange{b.Account, b.Name, k, at, deleted})
}

// recentChanges stores the newest object changes of accounts, per account oldest first and at
// most one per key. It has two generations of accounts: when the younger one is full, it becomes
// the old one, and the former old one is dropped.
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

// ObjectChanges returns the newest object changes of an account, newest first, at most one per
// key. It does not include changes from before the start of this node or the last restored
// snapshot.
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
