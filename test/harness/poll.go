package harness

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Poll calls cond at once, and then again and again with a pause between, until it is
// true. A false answer may come with the reason as an error, which Poll reports when ctx
// ends first.
func Poll(ctx context.Context, pause time.Duration, cond func() (bool, error)) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		ok, last := cond()
		if ok {
			return nil
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			if last == nil {
				return ctx.Err()
			}
			return fmt.Errorf("%w; last: %w", ctx.Err(), last)
		case <-timer.C:
		}
	}
}

// Pause lets time pass, as long as ctx allows, and tells whether all of it passed.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// pollEvery is the pause between two looks of Eventually.
const pollEvery = 50 * time.Millisecond

// Eventually fails the test when cond does not become true within the time.
func Eventually(tb testing.TB, within time.Duration, what string, cond func() (bool, error)) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), within)
	defer cancel()
	if err := Poll(ctx, pollEvery, cond); err != nil {
		tb.Fatalf("%s: not within %s: %v", what, within, err)
	}
}
