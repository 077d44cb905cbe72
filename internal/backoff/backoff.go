// Package backoff paces what is tried again: pauses that double up to a bound, and waiting
// that a context ends.
//
// Imports: github.com/cenkalti/backoff.
// Never:   anything of ours.
package backoff

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Backoff is a sequence of pauses that double. NextBackOff returns the next one, and Reset
// begins the sequence again. It is for one goroutine at a time.
type Backoff struct{ backoff.ExponentialBackOff }

// New returns pauses that double from first, which is above 0, up to most. They have no
// jitter.
func New(first, most time.Duration) *Backoff {
	return &Backoff{backoff.ExponentialBackOff{InitialInterval: min(first, most), Multiplier: 2, MaxInterval: most}}
}

// Wait waits for the next pause. It returns false if ctx ends first.
func (b *Backoff) Wait(ctx context.Context) bool { return Wait(ctx, b.NextBackOff()) }

// After returns the pause after a number of failures, which doubles from first after one
// failure up to most.
func After(first, most time.Duration, failures int) time.Duration {
	b := New(first, most)
	pause := b.NextBackOff()
	for i := 1; i < failures && pause < most; i++ {
		pause = b.NextBackOff()
	}
	return pause
}

// Wait waits for d. It returns false if ctx ends first.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
