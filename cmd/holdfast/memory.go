package main

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The Go garbage collector by default lets the heap grow to twice the live memory. In a busy node
// up to 200 MiB are live after a collection, mostly content in transfer, so the heap would grow
// to 400 MiB. With memoryLimit, in bytes, the runtime collects earlier. If more memory is live,
// limitMemory sets the limit to 150 % of the live memory, because otherwise the runtime would
// collect permanently.
const (
	memoryLimit = 336 << 20
	memoryEvery = time.Second // interval at which limitMemory adapts the limit
	// liveHeap is the name of the runtime metric of the memory that was live after the last
	// collection, in bytes.
	liveHeap = "/gc/heap/live:bytes"
)

// limitMemory sets the soft memory limit of the Go runtime to limitFor of the live memory, again
// every memoryEvery, until ctx ends. If the environment sets GOMEMLIMIT, it does nothing.
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

// limitFor returns the soft memory limit in bytes if live bytes are in use after a garbage
// collection.
func limitFor(live uint64) int64 { return max(memoryLimit, int64(live+live/2)) }
