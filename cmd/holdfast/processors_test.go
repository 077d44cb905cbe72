package main

import (
	"runtime"
	"testing"
)

// Go code runs on up to twice as many processors as GOMAXPROCS was, and on at most four more. If the environment sets
// GOMAXPROCS, it stays. The number that moreProcessors returns is the one before the change.
func TestTheRuntimeHasProcessorsToSpare(t *testing.T) {
	defer runtime.SetDefaultGOMAXPROCS()
	for is, want := range map[int]int{1: 2, 2: 4, 4: 8, 16: 20} {
		runtime.GOMAXPROCS(is)
		processors, restore := moreProcessors(nil)
		if got := runtime.GOMAXPROCS(0); processors != is || got != want {
			t.Errorf("of %d processors %d are told of, and Go code runs on %d, want %d", is, processors, got, want)
		}
		restore()
	}
	whole := runtime.GOMAXPROCS(0)
	_, restore := moreProcessors(nil)
	restore()
	if got := runtime.GOMAXPROCS(0); got != whole {
		t.Errorf("afterwards Go code runs on %d processors, and not %d", got, whole)
	}
	runtime.GOMAXPROCS(3)
	if processors, _ := moreProcessors([]string{"HOME=/", "GOMAXPROCS=3"}); processors != 3 || runtime.GOMAXPROCS(0) != 3 {
		t.Errorf("what the environment sets became %d", runtime.GOMAXPROCS(0))
	}
}
