package main

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The Go garbage collector lets the heap double before it collects. In a busy node up to 200
// MiB of the heap are live after a collection, mostly content in transfer, so the heap would
// grow to 400 MiB. Near memoryLimit the runtime collects earlier. If more memory is live, the
// limit is 150 % of the live memory, because otherwise the runtime would collect all the time.
const (
	memoryLimit = 336 << 20
	memoryEvery = time.Second
	// liveHeap is the name of the runtime metric of the memory that was live after the last
	// collection, in bytes.
	liveHeap = "/gc/heap/live:bytes"
)

// limitMemory keeps the soft memory limit of the Go runtime adapted to the live memory until
// ctx ends. If the environment sets GOMEMLIMIT, limitMemory changes nothing.
func limitMemory(ctx context.Context) {
	before := debug.SetMemoryLimit(-1)
	if before != math.MaxInt64 {
		return // GOMEMLIMIT
	}
	defer debug.SetMemoryLimit(before)
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	live := []metrics.Sample{{Name: liveHeap}}
	for last := int64(0); ; {
		metrics.Read(live)
		if limit := limitFor(live[0].Value.Uint64()); limit != last {
			debug.SetMemoryLimit(limit)
			last = limit
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// limitFor returns the soft memory limit for live bytes that are in use after a collection.
func limitFor(live uint64) int64 { return max(memoryLimit, int64(live+live/2)) }
