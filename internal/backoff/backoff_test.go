package backoff

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The pauses double from the first to the most, without jitter, and begin again after Reset.
func TestPausesDoubleUpToTheMost(t *testing.T) {
	b := New(2*time.Millisecond, 9*time.Millisecond)
	for range 2 {
		var got []time.Duration
		for range 5 {
			got = append(got, b.NextBackOff())
		}
		want := []time.Duration{2e6, 4e6, 8e6, 9e6, 9e6}
		if !slices.Equal(got, want) {
			t.Errorf("pauses %v, want %v", got, want)
		}
		for i, pause := range want {
			if after := After(2*time.Millisecond, 9*time.Millisecond, i+1); after != pause {
				t.Errorf("after %d failures %v, want %v", i+1, after, pause)
			}
		}
		b.Reset()
	}
	if first := New(time.Minute, time.Second).NextBackOff(); first != time.Second {
		t.Errorf("a first pause above the most is %v, want the most", first)
	}
	if after := After(time.Second, time.Minute, 1<<40); after != time.Minute {
		t.Errorf("after many failures %v, want the most", after)
	}
}

// Wait takes exactly the pause, or ends at once with the context.
func TestWaitTakesThePauseOrEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, began := New(time.Second, time.Minute), time.Now()
		for range 3 {
			if !b.Wait(t.Context()) {
				t.Fatal("the context of the test ended")
			}
		}
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("pauses of 1, 2 and 4 s took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if b.Wait(ctx) {
			t.Error("Wait outlived its context")
		}
		if took := time.Since(began); took != 8*time.Second {
			t.Errorf("Wait ended %v after the start, its context after 8s", took)
		}
	})
}
