// Package hosttest asks the machine that tests run on: for small disks, for the processor time that a
// test took, and for the memory of mapped files.
//
// Imports: std.
// Never:   anything that is not a test.
package hosttest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
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

// MappedBytes returns how many bytes of a file are resident in the mappings of this process. It
// reads /proc/self/smaps, see proc_pid_smaps(5), and skips the test where that does not exist.
func MappedBytes(tb testing.TB, path string) (bytes int) {
	tb.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if errors.Is(err, os.ErrNotExist) {
		tb.Skip("the system does not list the mappings of a process")
	}
	if err != nil {
		tb.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch name, kind := strings.CutSuffix(fields[0], ":"); {
		case !kind:
			inside = strings.HasSuffix(strings.TrimSpace(line), path)
		case inside && name == "Rss":
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				tb.Fatal(err)
			}
			bytes += n << 10
		}
	}
	return bytes
}
