package state

import (
	"slices"
	"sync"
)

// maxChangedAccounts is the largest number of accounts whose last change a Watch stores, at about
// 100 bytes each.
const maxChangedAccounts = 1 << 16

// maxPendingRoots is the largest number of changed roots that a subscription stores. Beyond it,
// the subscription sets Changes.All instead.
const maxPendingRoots = 1 << 16

// Changes has what has changed since a subscriber last called Take.
type Changes struct {
	Index    uint64 // the state includes all entries up to this one
	All      bool   // too many changes, or the state was replaced: read everything again
	Members  bool
	Keys     bool
	Settling bool
	Roots    []RootKey // changed roots that concern the subscriber's node
}

// Watch notifies subscribers of changes of the state once the changes can be read. It never
// blocks the state machine: it merges the changes for a slow subscriber.
type Watch struct {
	// mu guards changed, subs and the fields of each subscription. It is not held during calls of
	// other code.
	mu      sync.Mutex
	subs    []*Subscription
	changed map[AccountID]uint64 // index of the last AccountChange

	recent recentChanges
}

// ChangedAt returns the log index of the newest AccountChange of an account. It returns 0 if
// there was none since this node started or replaced its state, and may also return 0 after
// changes of more than maxChangedAccounts other accounts.
func (w *Watch) ChangedAt(a AccountID) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed[a]
}

// Subscription collects the changes for one subscriber of a Watch.
type Subscription struct {
	// C contains a token while there are changes for Take.
	C <-chan struct{}

	c       chan struct{}
	watch   *Watch
	node    NodeID // only roots that concern this node are reported; empty means all
	changes Changes
	seen    map[RootKey]bool // the roots in changes
}

// Subscribe starts a subscription. Its first Changes have All set, so that the subscriber reads
// everything. If node is not empty, only changed roots that concern that node are reported. The
// caller must call Close.
func (w *Watch) Subscribe(node NodeID) *Subscription {
	c := make(chan struct{}, 1)
	s := &Subscription{C: c, c: c, watch: w, node: node, changes: Changes{All: true}, seen: map[RootKey]bool{}}
	c <- struct{}{}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subs = append(w.subs, s)
	return s
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	s.watch.subs = slices.DeleteFunc(s.watch.subs, func(o *Subscription) bool { return o == s })
}

// Take returns what has changed since the last call.
func (s *Subscription) Take() Changes {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	taken := s.changes
	s.changes = Changes{Index: taken.Index}
	clear(s.seen)
	return taken
}

// Publish adds the effects of the entries up to index to all subscriptions.
func (w *Watch) Publish(index uint64, fx *Effects) {
	roots := compactRoots(fx.Roots)
	w.recent.add(fx.Objects)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range fx.Accounts {
		if len(w.changed) >= maxChangedAccounts {
			clear(w.changed)
		}
		if w.changed == nil {
			w.changed = map[AccountID]uint64{}
		}
		w.changed[c.Account] = c.Index
	}
	for _, s := range w.subs {
		s.changes.Index = index
		s.changes.Members = s.changes.Members || fx.Members
		s.changes.Keys = s.changes.Keys || fx.Keys
		s.changes.Settling = s.changes.Settling || fx.Settling
		for _, r := range roots {
			s.add(r)
		}
		s.notify()
	}
}

// Replace informs all subscribers that the whole state was replaced.
func (w *Watch) Replace(index uint64) {
	w.recent.clear()
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.changed)
	for _, s := range w.subs {
		s.changes = Changes{Index: index, All: true, Members: true, Keys: true, Settling: true}
		clear(s.seen)
		s.notify()
	}
}

func (s *Subscription) add(r RootChange) {
	if s.changes.All || s.seen[r.Root] || s.node != "" && !slices.Contains(r.Nodes, s.node) {
		return
	}
	if len(s.changes.Roots) == maxPendingRoots {
		s.changes.All, s.changes.Roots = true, nil
		clear(s.seen)
		return
	}
	s.changes.Roots = append(s.changes.Roots, r.Root)
	s.seen[r.Root] = true
}

func (s *Subscription) notify() {
	select {
	case s.c <- struct{}{}:
	default:
	}
}
