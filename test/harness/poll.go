package harness

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Poll calls cond repeatedly, with a pause between two calls, until cond returns true or ctx ends.
// With false, cond may return an error as the reason. If ctx ends, Poll returns an error that wraps
// ctx's error and the last reason.
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

// Pause waits for the duration d. It returns false if ctx ends before that.
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

// pollEvery is the pause between two calls of a condition in Eventually.
const pollEvery = 50 * time.Millisecond

// Eventually fails the test if cond does not return true within the given time. what describes the
// condition in the error message.
func Eventually(tb testing.TB, within time.Duration, what string, cond func() (bool, error)) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), within)
	defer cancel()
	if err := Poll(ctx, pollEvery, cond); err != nil {
		tb.Fatalf("%s: not within %s: %v", what, within, err)
	}
}
