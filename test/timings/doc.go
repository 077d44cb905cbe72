// Command timings measures how long the checks of CI take. `make timings` runs steps of the
// Makefile, reads the time of every test from `go test -json`, and prints two tables in Markdown.
// The first table has the wall time and the processor time of each step. The second table has the
// slowest tests, each with its wall time in the step, where other tests run at the same time, and
// with the wall and processor time of a run in which it is alone.
//
// Processor time is the user and system time of the step's process and of all its descendants that
// were waited for, as the kernel counts it (getrusage(2), RUSAGE_CHILDREN).
//
// Imports: std.
// Never:   imports of packages of Holdfast.
package main
