//go:build !linux

package main

// beJob has the test binary be a process at a terminal, in tests of Linux.
const beJob = "TEST_BINARY_IS_A_JOB"

func asJob() int { return exitUsage }
