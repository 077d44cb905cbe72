package accounts

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Limits for hashing passwords.
const (
	// maxHashing is the number of passwords that are hashed at the same time, one per queue.
	// Further callers wait, so that many callers cannot use up all memory and processors.
	maxHashing = int(lines)
	// maxSigningIn is the largest number of callers that wait in one queue to sign in. Further
	// callers are rejected.
	maxSigningIn = 32
)

// line identifies one of the two queues of callers that wait to hash a password.
type line int

const (
	unknown  line = iota // callers that have not signed in through this node recently
	regulars             // callers that have, see known
	lines
)

func (l line) other() line { return lines - 1 - l }

// hashSlots limits how many passwords are hashed at once. There is one slot per queue. A slot
// serves its own queue first, and the other one while its own is empty. So neither queue can
// starve the other, and no slot is idle while a caller waits. Each queue is first in, first out.
type hashSlots struct {
	mu      sync.Mutex // guards the fields below
	taken   [maxHashing]bool
	waiting [lines][]*slotWaiter
}

// slotWaiter is a caller that waits for a slot.
type slotWaiter struct {
	place chan int // receives the index of the slot that the caller gets; buffered, so that sending never blocks
	bound bool     // the caller signs in, so it counts towards maxSigningIn
}

// signIn waits for a slot to check a password. The caller must call leave afterwards. If the
// queue of regulars is full, a regular waits with the unknown callers. If that queue is full too,
// the error is state.ErrUnavailable.
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

// full returns whether maxSigningIn callers wait in a queue. The caller must hold mu.
func (t *hashSlots) full(in line) bool {
	n := 0
	for _, w := range t.waiting[in] {
		if w.bound {
			n++
		}
	}
	return n >= maxSigningIn
}

// hash waits for a slot to hash a new password. The caller must call leave afterwards. It is
// never rejected because of a full queue, because an operator or a signed-in person has requested
// it.
func (t *hashSlots) hash(ctx context.Context) (leave func(), err error) {
	t.mu.Lock()
	return t.enter(ctx, unknown, &slotWaiter{place: make(chan int, 1)})
}

// enter waits for a slot in a queue, until ctx ends. The caller must hold mu, and enter unlocks it.
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

// leave passes a slot to the next waiting caller, or marks it as free.
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
