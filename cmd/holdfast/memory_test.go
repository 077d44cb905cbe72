package main

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/synctest"
)

// The soft memory limit is memoryLimit or 1.5 times the live heap, whichever is larger. The limit goes when its
// context ends. If the environment sets a limit, limitMemory leaves it.
func TestMemoryHasASoftLimitThatLeavesRoom(t *testing.T) {
	for live, want := range map[uint64]int64{0: memoryLimit, 200 << 20: memoryLimit, 1 << 30: 3 << 29} {
		if got := limitFor(live); got != want {
			t.Errorf("with %d bytes alive the limit is %d, want %d", live, got, want)
		}
	}
	known := false
	for _, d := range metrics.All() {
		known = known || d.Name == liveHeap && d.Kind == metrics.KindUint64
	}
	if !known {
		t.Errorf("the runtime does not tell %s", liveHeap)
	}
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	ended, end := context.WithCancel(t.Context())
	end()
	nothing := func() uint64 { return 0 }
	limitMemory(ended, nil, nothing)
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("afterwards there is a limit of %d", got)
	}
	debug.SetMemoryLimit(1 << 40)
	limitMemory(ended, []string{"GOMEMLIMIT=1TiB"}, func() uint64 {
		if got := debug.SetMemoryLimit(-1); got != 1<<40 {
			t.Errorf("the limit of the environment became %d", got)
		}
		return 0
	})
}

// GOGC lets the heap grow by the live bytes that the ordered store does not hold, and by leastGrowth at least.
func TestTheHeapGrowsByWhatIsLiveBesideTheStore(t *testing.T) {
	for _, tc := range []struct {
		live, stored uint64 // MiB
		want         int
	}{
		{0, 0, 100},
		{20, 60, 100},
		{48, 0, 100},
		{100, 0, 100},
		{107, 86, 45},
		{200, 80, 60},
		{200, 20, 90},
		{60, 60, 80},
		{50, 90, 100},
		{1000, 900, 10},
		{4000, 4000, 5},
	} {
		if got := percentFor(tc.live<<20, tc.stored<<20); got != tc.want {
			t.Errorf("with %d MiB alive, %d of the store, GOGC is %d, want %d", tc.live, tc.stored, got, tc.want)
		}
	}
}

// gogc returns the percentage that the runtime uses.
func gogc() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// The node lowers GOGC for what the ordered store holds and restores it at its end, and leaves it where the environment sets it.
func TestGOGCFollowsTheStoreAndTheEnvironmentWins(t *testing.T) {
	held := make([]byte, 128<<20)
	runtime.GC() // held is live after a collection
	defer runtime.KeepAlive(held)
	defer debug.SetGCPercent(debug.SetGCPercent(90))
	for _, tc := range []struct {
		environ []string
		least   uint64 // the least and the most that GOGC may be while the node runs
		most    uint64
	}{
		{nil, 5, 50},
		{[]string{"GOGC=90"}, 90, 90},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			calls := 0
			limitMemory(ctx, tc.environ, func() uint64 {
				if calls++; calls == 2 {
					if got := gogc(); got < tc.least || got > tc.most {
						t.Errorf("environment %v: GOGC is %d, want %d to %d", tc.environ, got, tc.least, tc.most)
					}
					end()
				}
				return uint64(len(held))
			})
			if got := gogc(); got != 90 {
				t.Errorf("environment %v: GOGC is %d afterwards, want 90 as before", tc.environ, got)
			}
		})
	}
}
