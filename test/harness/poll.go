package harness

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Poll calls cond at once and then every so often until it is true. A false
// answer may come with the reason as an error, which Poll reports when ctx ends
// first.
func Poll(ctx context.Context, every time.Duration, cond func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, last := cond()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			if last == nil {
				return ctx.Err()
			}
			return fmt.Errorf("%w; last: %w", ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// pollEvery is how often Eventually looks.
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
