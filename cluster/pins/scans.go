package pins

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"golang.org/x/sync/semaphore"
)

// MaxScansWaiting is how many long lists of one account may wait for their turn on a node. A long
// list must read many pins. One long list of an account runs at a time. All accounts together run
// at most as many as half the number of processors, and at least one. Short lists do not wait.
const MaxScansWaiting = 32

// scans limits the number of long lists that run at a time. They run in the order of their
// arrival.
type scans struct {
	all *semaphore.Weighted

	// mu guards the fields below. It is never held while waiting.
	mu       sync.Mutex
	accounts map[state.AccountID]*accountScans
}

// accountScans is the long lists of one account that run or wait.
type accountScans struct {
	turn  *semaphore.Weighted
	count int // number of lists that run or wait
}

// newScans returns a scans that lets most long lists run at a time.
func newScans(most int) *scans {
	return &scans{all: semaphore.NewWeighted(int64(most)), accounts: map[state.AccountID]*accountScans{}}
}

// maxScans returns how many long lists may run at a time with the given number of processors. 0
// means the number of processors that Go code uses.
func maxScans(processors int) int {
	if processors == 0 {
		processors = runtime.GOMAXPROCS(0)
	}
	return max(processors/2, 1)
}

// enter waits until a long list of the account may run. The caller must call leave when the list
// has ended.
//
// Errors: state.ErrLimited if too many lists of the account wait, or if the deadline of ctx
// passes first; otherwise the error of ctx.
func (s *scans) enter(ctx context.Context, account state.AccountID) (leave func(), err error) {
	s.mu.Lock()
	a := s.accounts[account]
	if a == nil {
		a = &accountScans{turn: semaphore.NewWeighted(1)}
		s.accounts[account] = a
	}
	if a.count > MaxScansWaiting {
		s.mu.Unlock()
		return nil, tooManyScans()
	}
	a.count++
	s.mu.Unlock()
	left := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if a.count--; a.count == 0 {
			delete(s.accounts, account)
		}
	}
	// The turn of the account first, so that a waiting list does not hold a place.
	if err := a.turn.Acquire(ctx, 1); err != nil {
		left()
		return nil, noTurn(err)
	}
	if err := s.all.Acquire(ctx, 1); err != nil {
		a.turn.Release(1)
		left()
		return nil, noTurn(err)
	}
	return func() {
		s.all.Release(1)
		a.turn.Release(1)
		left()
	}, nil
}

// noTurn returns the error for a list that waited until ctx ended: state.ErrLimited after a
// deadline, otherwise err.
func noTurn(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return tooManyScans()
	}
	return fmt.Errorf("wait to list pins: %w", err)
}

func tooManyScans() error {
	return state.Errorf(state.CodeLimited, "too many long lists at the same time")
}
