package main

import "runtime"

// overlap is the largest number that moreProcessors adds to the number of processors.
const overlap = 4

// moreProcessors lets the Go runtime use up to twice as many threads as there are processors,
// but at most overlap more. It returns the real number of processors and a function that undoes
// the change. If no processor of the runtime is idle, a goroutine that returns from a disk wait
// is queued behind all runnable goroutines. The few goroutines that write blocks and the log
// would spend most of their time in that queue, and all requests wait for them. With additional
// threads such a goroutine continues at once, and the kernel shares the processors between the
// threads. If the environment sets GOMAXPROCS, moreProcessors changes nothing.
func moreProcessors(environ []string) (processors int, restore func()) {
	processors = runtime.GOMAXPROCS(0)
	if isSet(environ, "GOMAXPROCS") {
		return processors, func() {}
	}
	runtime.GOMAXPROCS(processors + min(processors, overlap))
	return processors, runtime.SetDefaultGOMAXPROCS
}
