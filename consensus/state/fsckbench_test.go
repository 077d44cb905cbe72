package state

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/internal/hosttest"
)

// BenchmarkFsck is what a check costs of a state in the store that nodes use, for each pin: pins of different
// roots with a name and two pairs of meta, each held by three nodes. processor-µs/pin is
// processor time, and peak-KiB how much more of the heap is in use
// during the check than before, sampled each millisecond.
func BenchmarkFsck(b *testing.B) {
	const pins, batch = 100_000, 500
	d := newOnDisk(b)
	d.apply(b, &RaiseLevel{FeatureLevel: NewestFeatureLevel})
	for from := 0; from < pins; from += batch {
		var cmds []Command
		var items []CopyReport
		for i := from; i < from+batch; i++ {
			c := create(alice, RequestID(fmt.Sprintf("01980000-0000-7000-8000-%012d", i)), cidAt(b, i))
			c.Pin.Created, c.Pin.Name, c.Pin.Meta = Millis(1<<40+i), fmt.Sprint("photo ", i), map[string]string{"app": "bench", "n": fmt.Sprint(i)}
			cmds = append(cmds, c)
			items = append(items, CopyReport{Root: rootOf(b, c.Pin.CID), Born: 100 + d.index + uint64(len(cmds)), Phase: Held, Size: 1 << 20, Blocks: 1})
		}
		for _, n := range []NodeID{"n1", "n2", "n3"} {
			cmds = append(cmds, &ReportCopies{Node: n, Items: items})
		}
		d.apply(b, cmds...)
	}
	view := d.store.View()
	defer view.Close()
	before := hosttest.ProcessorTime(b)
	for b.Loop() {
		peak := make(chan uint64, 1)
		stop := make(chan struct{})
		go func() { peak <- peakHeap(stop) }()
		found, err := NewView(view, 100+d.index).Fsck(10, func(int) error { return nil })
		close(stop)
		if err != nil || len(found.Differences) > 0 {
			b.Fatal(found, err)
		}
		b.ReportMetric(float64(<-peak)/1024, "peak-KiB")
		b.ReportMetric(float64(found.Rows), "rows")
	}
	b.ReportMetric(float64((hosttest.ProcessorTime(b)-before).Microseconds())/float64(b.N)/pins, "processor-µs/pin")
}

// peakHeap returns by how much the live heap grows at most until stop is closed.
func peakHeap(stop chan struct{}) (most uint64) {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before := m.HeapAlloc
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return most
		case <-tick.C:
			runtime.ReadMemStats(&m)
			most = max(most, max(m.HeapAlloc, before)-before)
		}
	}
}
