package main

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// The soft memory limit is memoryLimit or 1.5 times the live heap, whichever is larger. The limit goes when its
// context ends. If another limit is set, limitMemory returns at once.
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
	limitMemory(ended)
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("afterwards there is a limit of %d", got)
	}
	debug.SetMemoryLimit(1 << 40)
	limitMemory(t.Context()) // returns: that is not ours
}
