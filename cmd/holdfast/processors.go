package main

import "runtime"

// overlap is the largest number of threads that moreProcessors adds to the number of processors.
const overlap = 4

// moreProcessors lets the Go runtime run more threads than there are processors: twice as many,
// but at most overlap more. It returns the number of processors and a function that restores the
// default. The reason is the run queue of Go. If all threads of the runtime are busy, a goroutine
// that returns from a disk wait is queued behind all runnable goroutines. The few goroutines that
// write blocks and the log would spend most of their time in that queue, while all requests wait
// for them. With the additional threads such a goroutine continues at once, and the kernel
// divides the processors between the threads. If the environment sets GOMAXPROCS, moreProcessors
// changes nothing.
func moreProcessors(environ []string) (processors int, restore func()) {
	processors = runtime.GOMAXPROCS(0)
	if isSet(environ, "GOMAXPROCS") {
		return processors, func() {}
	}
	runtime.GOMAXPROCS(processors + min(processors, overlap))
	return processors, runtime.SetDefaultGOMAXPROCS
}
