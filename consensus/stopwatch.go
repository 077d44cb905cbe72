package consensus

import (
	"sync/atomic"
	"time"
)

// ran measures how long this process has run, in steps of diskCheck. It does not advance while
// the process or its machine is paused, and it ignores changes of the system time. Therefore a
// pause during a write does not look like a hanging disk. watchDisk advances it.
type ran struct{ passed atomic.Int64 } // nanoseconds

// goOn adds one step. It is called for each tick of a ticker, and a ticker gives only one tick
// for a pause of any length.
func (r *ran) goOn() { r.passed.Add(int64(diskCheck)) }

func (r *ran) now() time.Duration { return time.Duration(r.passed.Load()) }

// stopwatch measures the time since its start on the clock ran. The zero value is stopped.
type stopwatch struct{ started atomic.Int64 } // start time in nanoseconds plus 1; 0 means stopped

func (s *stopwatch) start(r *ran) { s.started.Store(int64(r.now()) + 1) }

func (s *stopwatch) stop() { s.started.Store(0) }

// shows returns the time since the start. The second result is false if the stopwatch does not
// run.
func (s *stopwatch) shows(r *ran) (time.Duration, bool) {
	at := s.started.Load()
	if at == 0 {
		return 0, false
	}
	return max(0, r.now()-time.Duration(at-1)), true
}
