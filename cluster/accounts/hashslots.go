package accounts

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Bounds of hashing passwords.
const (
	// maxHashing is the number of passwords that are hashed at the same time. Further callers
	// wait, so that a crowd cannot take all memory and processors. Each line has one of the
	// slots.
	maxHashing = int(lines)
	// maxSigningIn is the number of callers that may wait in a line to sign in. Further callers
	// are refused.
	maxSigningIn = 32
)

// line is a queue for a slot in which to hash a password.
type line int

const (
	unknown  line = iota // callers that this node has not authenticated before
	regulars             // callers that signed in before, see known
	lines
)

func (l line) other() line { return lines - 1 - l }

// hashSlots are the slots in which the node hashes passwords, and the queue for them. Each slot
// prefers one of the two lines and serves the other while the first is empty, so neither line
// can starve the other and no slot is idle while a caller waits. A line is first in, first out.
type hashSlots struct {
	mu      sync.Mutex // guards the fields below
	taken   [maxHashing]bool
	waiting [lines][]*slotWaiter
}

// slotWaiter is a caller that waits for a slot.
type slotWaiter struct {
	place chan int // receives the number of a slot; sending to it never blocks
	bound bool     // the caller wants to sign in, so it counts towards maxSigningIn
}

// signIn waits for a slot in which to check a password. If the line of regulars is full, a
// regular waits as an unknown caller. If the line of unknown callers is full, the error is
// state.ErrUnavailable.
func (t *hashSlots) signIn(ctx context.Context, in line) (leave func(), err error) {
	t.mu.Lock()
	for t.full(in) {
		if in == unknown {
			t.mu.Unlock()
			return nil, tooManyAtOnce()
		}
		in = unknown
	}
	return t.enter(ctx, in, &slotWaiter{place: make(chan int, 1), bound: true})
}

func tooManyAtOnce() error {
	return state.Errorf(state.CodeUnavailable, "too many sign in at the moment")
}

// full returns whether the largest permitted number of callers waits in a line. The caller
// holds mu.
func (t *hashSlots) full(in line) bool {
	n := 0
	for _, w := range t.waiting[in] {
		if w.bound {
			n++
		}
	}
	return n >= maxSigningIn
}

// hash waits for a slot in which to hash a new password. It is never refused, because an
// operator or a signed-in person has requested it.
func (t *hashSlots) hash(ctx context.Context) (leave func(), err error) {
	t.mu.Lock()
	return t.enter(ctx, unknown, &slotWaiter{place: make(chan int, 1)})
}

// enter waits for a slot. The caller holds mu, and enter unlocks it.
func (t *hashSlots) enter(ctx context.Context, in line, w *slotWaiter) (leave func(), err error) {
	for _, place := range []int{int(in), int(in.other())} {
		if !t.taken[place] {
			t.taken[place] = true
			t.mu.Unlock()
			return func() { t.leave(place) }, nil
		}
	}
	t.waiting[in] = append(t.waiting[in], w)
	t.mu.Unlock()
	select {
	case place := <-w.place:
		return func() { t.leave(place) }, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	at := slices.Index(t.waiting[in], w)
	if at >= 0 {
		t.waiting[in] = slices.Delete(t.waiting[in], at, at+1)
	}
	t.mu.Unlock()
	if at < 0 { // its turn came at the same moment
		t.leave(<-w.place)
	}
	return nil, fmt.Errorf("hash password: %w", ctx.Err())
}

// leave passes a slot to the next waiting caller.
func (t *hashSlots) leave(place int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, in := range []line{line(place), line(place).other()} {
		if len(t.waiting[in]) > 0 {
			next := t.waiting[in][0]
			t.waiting[in] = slices.Delete(t.waiting[in], 0, 1)
			next.place <- place
			return
		}
	}
	t.taken[place] = false
}
