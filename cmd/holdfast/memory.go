package main

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The garbage collector lets the heap double before it collects. A node at work has up
// to 200 MiB that outlive a collection, mostly content on its way, so it would have
// 400: near memoryLimit the runtime collects earlier. What outlives may be more, then
// the limit leaves half of it beside it, or nothing but collecting would be done.
const (
	memoryLimit = 336 << 20
	memoryEvery = time.Second
	// liveHeap is what outlived the last collection, in bytes.
	liveHeap = "/gc/heap/live:bytes"
)

// limitMemory sets the soft limit of the runtime's memory until ctx ends. One that the
// environment sets stays.
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

// limitFor is the soft limit with so many bytes that outlive a collection.
func limitFor(live uint64) int64 { return max(memoryLimit, int64(live+live/2)) }
