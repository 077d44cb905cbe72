package consensus

import (
	"sync/atomic"
	"time"
)

// ran measures how long this process has run, in steps of diskCheck. It stops while the process
// or its machine is paused, and ignores jumps of the clock. So a node that was paused during a
// write does not treat its disk as hanging. watchDisk advances ran.
type ran struct{ passed atomic.Int64 } // nanoseconds

// goOn adds one step. A ticker gives one tick, however long the process was paused.
func (r *ran) goOn() { r.passed.Add(int64(diskCheck)) }

func (r *ran) now() time.Duration { return time.Duration(r.passed.Load()) }

// stopwatch returns the time since its start, measured in running time of the process. The zero
// value has not been started.
type stopwatch struct{ started atomic.Int64 } // nanoseconds, and 1 more

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
