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
	// maxHashing is how many passwords are hashed at once; more wait, so that a crowd
	// cannot take all memory and processors. Each line has one of the places.
	maxHashing = int(lines)
	// maxSigningIn is how many wait in a line to sign in; more are refused.
	maxSigningIn = 32
)

// line is where one waits for a place to hash a password in.
type line int

const (
	unknown  line = iota // callers that this node has not authenticated before
	regulars             // who signed in before, see known
	lines
)

func (l line) other() line { return lines - 1 - l }

// turns are the places in which passwords are hashed, and who waits for one. Of each place
// one line is served first, and the other when that is empty: neither can keep the other
// out, and no place is empty while anybody waits. In a line who comes first is first.
type turns struct {
	mu      sync.Mutex // guards what follows
	taken   [maxHashing]bool
	waiting [lines][]*turn
}

// turn is one that waits.
type turn struct {
	place chan int // takes one without waiting
	bound bool     // it signs in
}

// signIn waits for a place to check a password in. Where as many wait as may, a regular is
// an unknown caller, and an unknown caller gets state.ErrUnavailable.
func (t *turns) signIn(ctx context.Context, in line) (leave func(), err error) {
	t.mu.Lock()
	for t.full(in) {
		if in == unknown {
			t.mu.Unlock()
			return nil, tooManyAtOnce()
		}
		in = unknown
	}
	return t.enter(ctx, in, &turn{place: make(chan int, 1), bound: true})
}

func tooManyAtOnce() error {
	return state.Errorf(state.CodeUnavailable, "too many sign in at the moment")
}

// full tells whether a line has all that may wait in it. It needs mu.
func (t *turns) full(in line) bool {
	n := 0
	for _, w := range t.waiting[in] {
		if w.bound {
			n++
		}
	}
	return n >= maxSigningIn
}

// hash waits for a place to hash a new password in: an operator's, so that it is not
// refused.
func (t *turns) hash(ctx context.Context) (leave func(), err error) {
	t.mu.Lock()
	return t.enter(ctx, unknown, &turn{place: make(chan int, 1)})
}

// enter needs mu, and gives it back.
func (t *turns) enter(ctx context.Context, in line, w *turn) (leave func(), err error) {
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

// leave gives a place to the next.
func (t *turns) leave(place int) {
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
