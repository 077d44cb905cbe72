// Package hosttest asks the machine that tests run on: for small disks, and for the processor
// time that a test took.
//
// Imports: std.
// Never:   anything that is not a test.
package hosttest

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// SmallDisk mounts an empty file system with room for so many bytes at a folder, until the test
// ends. The test is skipped where nothing can be mounted.
func SmallDisk(tb testing.TB, folder string, bytes int) {
	tb.Helper()
	if err := syscall.Mount("holdfast-test", folder, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		tb.Skipf("no small file system can be mounted here: %v", err)
	}
	tb.Cleanup(func() {
		if err := syscall.Unmount(folder, syscall.MNT_DETACH); err != nil {
			tb.Error(err)
		}
	})
}

// ProcessorTime returns the user and system time that this process has taken.
func ProcessorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
