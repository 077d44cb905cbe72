package main

import "runtime"

// overlap bounds by how many more the runtime may think the processors to be.
const overlap = 4

// moreProcessors lets up to twice as many threads run Go code as there are processors,
// and returns how many there are for it, and what takes it back. A goroutine that has
// waited for the disk is put behind all others that can run where no processor of the
// runtime is idle, and the few that everybody waits for, since they write the blocks and
// the log, spend their time so. With some to spare it goes on at once, and the kernel
// divides the time. GOMAXPROCS of the environment stays.
func moreProcessors(environ []string) (processors int, restore func()) {
	processors = runtime.GOMAXPROCS(0)
	if isSet(environ, "GOMAXPROCS") {
		return processors, func() {}
	}
	runtime.GOMAXPROCS(processors + min(processors, overlap))
	return processors, runtime.SetDefaultGOMAXPROCS
}
