// Command timings measures how long the check takes: `make timings` runs steps of the Makefile
// with every test's time read from `go test -json`, and prints two tables in Markdown. The
// first has the wall and the processor time of each step. The second has the slowest tests: the
// wall time that each had in its step, beside others, and the wall and processor time that it
// has alone.
//
// Processor time is that of the step's process and of all its descendants that were waited for,
// user and system, as the kernel counts it (getrusage(2), RUSAGE_CHILDREN).
//
// Imports: std.
// Never:   a package of the program.
package main
