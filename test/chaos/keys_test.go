package chaos

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/accounts"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// keysWanted is about how many API keys an account has.
const keysWanted = 6

// keyring is the API keys of an account. A key is made, revoked and believed or
// not, which for the history is what a pin is created, deleted and read.
type keyring struct {
	email   string
	history *history

	// mu guards keys.
	mu   sync.Mutex
	keys []knownKey
}

// knownKey is a key that somebody was given, by its number in the history.
type knownKey struct {
	number int
	key    accounts.Key
}

// useKey makes, revokes or shows a key.
func (c *client) useKey(ctx context.Context, l *life, o *op, what, which int) {
	ring := &c.tenant.ring
	ring.mu.Lock()
	var target knownKey
	have := len(ring.keys)
	if have > 0 {
		target = ring.keys[which%have]
	}
	ring.mu.Unlock()
	switch {
	case have == 0 || what < 20 && have < keysWanted:
		o.kind = create
	case what < 40:
		o.kind = remove
	default:
		o.kind = get
	}
	c.tryKey(ctx, l, o, target)
}

// tryKey makes a call about a key and records what came of it.
func (c *client) tryKey(ctx context.Context, l *life, o *op, target knownKey) {
	ring := &c.tenant.ring
	o.pin = target.number
	if o.kind == create {
		o.pin = ring.history.number()
	}
	c.tally.asked.Add(1)
	o.call = ring.history.clock.Add(1)
	var made accounts.Key
	var err error
	switch o.kind {
	case create:
		made, err = l.Accounts().CreateKey(ctx, ring.email, strconv.Itoa(o.pin), nil, 0)
	case remove:
		err = l.Accounts().Revoke(ctx, target.key.ID)
	default:
		var p accounts.Principal
		if p, err = l.Accounts().Authenticate(ctx, target.key.Token); err == nil && p.Account != c.tenant.id {
			err = fmt.Errorf("a key of %s speaks for %s", c.tenant.id, p.Account)
		}
	}
	switch {
	case l.crashed.Load():
		o.outcome = unknown
	case err == nil:
		o.outcome = done
	case o.kind == remove && errors.Is(err, state.ErrNotFound), o.kind == get && errors.Is(err, state.ErrUnauthorized):
		o.outcome = missing
	case errors.Is(err, state.ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		c.unanswered(ctx, o, err)
	default:
		c.unexpected(fmt.Errorf("key: %v: %w", o, err))
		o.outcome = unknown
	}
	if o.outcome == done || o.outcome == missing {
		c.tally.answered.Add(1)
	}
	ring.history.record(o)
	ring.mu.Lock()
	defer ring.mu.Unlock()
	if o.kind == create && o.outcome == done {
		ring.keys = append(ring.keys, knownKey{o.pin, made})
	}
	// A key that is gone is shown a little longer: it has to stay gone.
	if o.outcome == missing && len(ring.keys) > keysWanted/2 {
		for i, k := range ring.keys {
			if k.number == o.pin {
				ring.keys = append(ring.keys[:i], ring.keys[i+1:]...)
				break
			}
		}
	}
}

// showKeys shows every key to a node, so that what became of it is known.
func (c *client) showKeys(ctx context.Context, l *life, at int) bool {
	c.tenant.ring.mu.Lock()
	keys := append([]knownKey(nil), c.tenant.ring.keys...)
	c.tenant.ring.mu.Unlock()
	for _, k := range keys {
		o := &op{client: c.number, kind: get, at: at, when: time.Now()}
		c.tryKey(ctx, l, o, k)
		if o.outcome != done && o.outcome != missing {
			return false
		}
	}
	return true
}
