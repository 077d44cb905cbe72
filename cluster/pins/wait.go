package pins

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// Bounds of waiting for changes, on each node.
const (
	// MaxWaiters is the largest number of calls of Wait at the same time, and MaxAccountWaiters
	// the largest number of one account.
	MaxWaiters        = 1024
	MaxAccountWaiters = 128
	// waitLook is the interval at which a waiting call checks its pin without a notification.
	// If content has many pins, a change of the content is notified at once, but its pins are
	// changed step by step.
	waitLook = time.Second
)

// Wait returns a pin when its status differs from known, or when the state of its content changes. It returns a
// pinned or failed pin at once, and any pin when the channel enough is closed. The arrival of bytes is no
// change.
//
// Errors: state.ErrNotFound if the pin is gone, state.ErrLimited if more calls wait than MaxWaiters or
// MaxAccountWaiters permit, and the error of ctx when it ends.
func (p *Pins) Wait(ctx context.Context, account state.AccountID, id state.RequestID, known state.Status, enough <-chan struct{}) (Record, error) {
	first, root, err := p.local(account, id)
	if err != nil {
		return Record{}, err
	}
	if first.Status != known || settled(first.Status) {
		p.enliven(ctx, &first, root)
		return first, nil
	}
	c, err := cid.Decode(first.CID)
	if err != nil {
		return Record{}, fmt.Errorf("stored pin %s: %w", id, err)
	}
	w, err := p.waiters.enter(account, state.RootOf(c))
	if err != nil {
		return Record{}, err
	}
	defer p.waiters.leave(w)
	look := time.NewTicker(waitLook)
	defer look.Stop()
	for over := false; ; {
		now, root, err := p.local(account, id)
		if err != nil {
			return Record{}, err
		}
		if over || now.Status != first.Status || !maps.Equal(now.Info, first.Info) {
			p.enliven(ctx, &now, root)
			return now, nil
		}
		select {
		case <-ctx.Done():
			return Record{}, fmt.Errorf("wait for pin: %w", ctx.Err())
		case <-enough:
			over = true
		case <-w.notified:
		case <-look.C:
		}
	}
}

// settled returns whether a status no longer changes by itself.
func settled(s state.Status) bool { return s == state.Pinned || s == state.Failed }

// local reads a pin as this node knows it.
func (p *Pins) local(account state.AccountID, id state.RequestID) (Record, *state.Root, error) {
	view, release := p.state.LocalView()
	defer release()
	return p.read(view, account, id)
}

// Run notifies waiting callers of changes, and adds them to histories, until ctx ends, then
// returns nil. It follows the state only while a caller waits or somebody has read the detail of
// an unsettled pin lately.
func (p *Pins) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.waiters.came:
			if p.watch != nil {
				p.follow(ctx)
			}
		}
	}
}

// follow notifies the waiters and the histories of changes until there are none of either.
func (p *Pins) follow(ctx context.Context) {
	sub := p.watch.Subscribe("")
	defer sub.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sub.C:
			changes := sub.Take()
			waiting, traced := p.waiters.notifyAll(changes), p.trace(changes)
			if !waiting && !traced {
				return
			}
		}
	}
}

// waiter is one call of Wait.
type waiter struct {
	account  state.AccountID
	root     state.RootKey
	notified chan struct{} // has room for one token
}

// waiters has the running calls of Wait.
type waiters struct {
	came chan struct{} // receives a token when a waiter was added; capacity 1

	// mu guards the fields below. It is not held during calls of other code.
	mu       sync.Mutex
	byRoot   map[state.RootKey]map[*waiter]struct{}
	accounts map[state.AccountID]int
	count    int
}

func newWaiters() *waiters {
	return &waiters{
		came: make(chan struct{}, 1), byRoot: map[state.RootKey]map[*waiter]struct{}{}, accounts: map[state.AccountID]int{},
	}
}

func (w *waiters) enter(account state.AccountID, root state.RootKey) (*waiter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= MaxWaiters || w.accounts[account] >= MaxAccountWaiters {
		return nil, state.Errorf(state.CodeLimited, "too many requests wait for changes")
	}
	one := &waiter{account, root, make(chan struct{}, 1)}
	if w.byRoot[root] == nil {
		w.byRoot[root] = map[*waiter]struct{}{}
	}
	w.byRoot[root][one] = struct{}{}
	w.accounts[account]++
	w.count++
	token(w.came)
	return one, nil
}

func (w *waiters) leave(one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byRoot[one.root], one)
	if len(w.byRoot[one.root]) == 0 {
		delete(w.byRoot, one.root)
	}
	if w.accounts[one.account]--; w.accounts[one.account] == 0 {
		delete(w.accounts, one.account)
	}
	w.count--
}

// notifyAll notifies the callers that a change concerns. It returns false if no caller waits.
func (w *waiters) notifyAll(ch state.Changes) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch.All {
		for _, all := range w.byRoot {
			notify(all)
		}
	}
	for _, k := range ch.Roots {
		notify(w.byRoot[k])
	}
	return w.count > 0
}

func notify(all map[*waiter]struct{}) {
	for one := range all {
		token(one.notified)
	}
}

// token puts a token into c unless there is one already.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
