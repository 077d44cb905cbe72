package state

import (
	"container/list"
	"slices"
	"sync"
)

// Bounds of the recent changes of objects in memory: 25 MiB if all keys have MaxKeyBytes.
const (
	// maxRecentChanges is the number of changes that a Watch keeps of one account.
	maxRecentChanges = 5
	// maxRecentAccounts is the number of accounts whose changes a Watch keeps. If there are more, it
	// forgets those of the account that has not changed for the longest time.
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

// recentChanges has the newest changes of objects by account.
type recentChanges struct {
	mu    sync.Mutex // guards the fields below
	of    map[AccountID]*list.Element
	order list.List // of *accountChanges, that with the newest change first
}

type accountChanges struct {
	account AccountID
	changes []ObjectChange // the oldest first, at most one of a key
}

func (r *recentChanges) add(all []ObjectChange) {
	if len(all) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range all {
		c := &all[i]
		if r.of == nil {
			r.of = map[AccountID]*list.Element{}
		}
		at := r.of[c.Account]
		if at == nil {
			at = r.order.PushFront(&accountChanges{account: c.Account})
			r.of[c.Account] = at
		}
		r.order.MoveToFront(at)
		one := at.Value.(*accountChanges)
		one.changes = slices.DeleteFunc(one.changes, func(o ObjectChange) bool { return o.Key == c.Key && o.Bucket == c.Bucket })
		if len(one.changes) == maxRecentChanges {
			one.changes = slices.Delete(one.changes, 0, 1)
		}
		one.changes = append(one.changes, *c)
		if r.order.Len() > maxRecentAccounts {
			delete(r.of, r.order.Remove(r.order.Back()).(*accountChanges).account)
		}
	}
}

func (r *recentChanges) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.of)
	r.order.Init()
}

// ObjectChanges returns the newest changes of objects of an account, at most one of each key, the
// newest first. Changes from before this node started, or before it replaced its state, are not
// among them.
func (w *Watch) ObjectChanges(a AccountID) []ObjectChange {
	r := &w.recent
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.of[a]
	if at == nil {
		return nil
	}
	all := slices.Clone(at.Value.(*accountChanges).changes)
	slices.Reverse(all)
	return all
}
