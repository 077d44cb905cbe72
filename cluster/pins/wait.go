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

// Limits for waiting for changes, on each node.
const (
	// MaxWaiters is the largest number of calls of Wait that wait at the same time, and
	// MaxAccountWaiters the largest number for one account.
	MaxWaiters        = 1024
	MaxAccountWaiters = 128
	// waitLook is the interval at which a waiting call reads its pin without a notification. This
	// is necessary if content has many pins: the change of the content causes a notification at
	// once, but the status of its pins changes only some time later.
	waitLook = time.Second
)

// Wait waits until the status of a pin differs from known or until its Info changes, and then
// returns its record. It returns at once if the pin is pinned or failed. When the channel enough
// is closed, it returns without a change. More bytes that a node has fetched are no change.
//
// Errors: state.ErrNotFound if the pin was deleted, state.ErrLimited if more than MaxWaiters or
// MaxAccountWaiters calls would wait, and the error of ctx when it ends.
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

// settled returns whether a pin's status no longer changes by itself.
func settled(s state.Status) bool { return s == state.Pinned || s == state.Failed }

// local returns the record of a pin and of its root in this node's copy of the state.
func (p *Pins) local(account state.AccountID, id state.RequestID) (Record, *state.Root, error) {
	view, release := p.state.LocalView()
	defer release()
	return p.read(view, account, id)
}

// Run notifies calls of Wait of changes, and adds changes to histories, until ctx ends. Then it
// returns nil. It subscribes to changes only while calls wait or histories have to be continued.
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

// follow passes changes to the waiting calls and to the histories. It returns when no call waits
// and no history has to be continued any more.
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
	notified chan struct{} // receives a token after a change; capacity 1
}

// waiters is the set of the running calls of Wait.
type waiters struct {
	came chan struct{} // receives a token when a call begins to wait or a history to be continued; capacity 1

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

// notifyAll notifies the calls that the changes ch concern. It returns false if no call waits.
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

// token sends a token to c, unless c contains one already.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
