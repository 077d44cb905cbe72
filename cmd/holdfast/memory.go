package main

import (
	"context"
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
	// leastGrowth is the number of bytes by which the heap may always grow between two
	// collections, unless fewer bytes are live.
	leastGrowth = 48 << 20
	// percentStep is the step of GOGC, because each change stops all goroutines for a moment.
	percentStep = 5
	// liveHeap is the name of the runtime metric of the memory that was live after the last
	// collection, in bytes.
	liveHeap = "/gc/heap/live:bytes"
)

// limitMemory keeps the soft memory limit of the Go runtime and GOGC adapted to the live memory
// until ctx ends. stored returns the bytes of the heap that the ordered store holds. If the
// environment sets GOMEMLIMIT or GOGC, limitMemory does not change that one.
func limitMemory(ctx context.Context, environ []string, stored func() uint64) {
	limits, grows := !isSet(environ, "GOMEMLIMIT"), !isSet(environ, "GOGC")
	if limits {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	}
	lastLimit, lastPercent := int64(0), 100
	if grows {
		defer debug.SetGCPercent(debug.SetGCPercent(lastPercent))
	}
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	sample := []metrics.Sample{{Name: liveHeap}}
	for {
		metrics.Read(sample)
		live := sample[0].Value.Uint64()
		if limit := limitFor(live); limits && limit != lastLimit {
			debug.SetMemoryLimit(limit)
			lastLimit = limit
		}
		if percent := percentFor(live, stored()); grows && percent != lastPercent {
			debug.SetGCPercent(percent)
			lastPercent = percent
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

// percentFor returns the GOGC for live bytes of which the ordered store holds stored bytes. The
// heap then grows by the other live bytes, or by leastGrowth, before the next collection (ADR 72).
func percentFor(live, stored uint64) int {
	if live <= leastGrowth {
		return 100
	}
	growth := max(live-min(stored, live), leastGrowth)
	return int((growth*100/live + percentStep - 1) / percentStep * percentStep)
}
