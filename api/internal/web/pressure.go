package web

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// busyShare is the fraction of time above which the processors count as busy. It is the time
// during which at least one thread waits for a processor.
const busyShare = 0.5

// Busy returns a function that reports whether the processors are busy. They are, for the
// duration window, after threads had to wait for a processor for more than half of the time
// between two calls that are at most window apart. The source is the kernel's pressure stall
// information (https://docs.kernel.org/accounting/psi.html) of the program's control group
// (version 2), or else of the machine. Without that information the function always returns
// false. It must not be called concurrently.
func Busy(window time.Duration) func() bool {
	stalled := stallReader("/proc", "/sys/fs/cgroup")
	if stalled == nil {
		return func() bool { return false }
	}
	return busyBy(stalled, time.Now, window)
}

// busyBy implements Busy with a given source and clock. stalled returns the total time since the
// start of the machine in which threads waited for a processor, and false if it cannot be read.
func busyBy(stalled func() (time.Duration, bool), now func() time.Time, window time.Duration) func() bool {
	last, _ := stalled()
	at := now()
	var until time.Time
	return func() bool {
		total, ok := stalled()
		t := now()
		// After a long time without a call, nothing is known about the last window.
		if ok && t.Sub(at) <= window && float64(total-last) > busyShare*float64(t.Sub(at)) {
			until = t.Add(window)
		}
		last, at = total, t
		return t.Before(until)
	}
}

// stallReader returns a function that reads the total time for which threads have waited for a
// processor; its second result is false if the time cannot be read. proc and cgroups are the
// paths of /proc and /sys/fs/cgroup. stallReader returns nil if the kernel does not provide the
// time.
func stallReader(proc, cgroups string) func() (time.Duration, bool) {
	files := []string{filepath.Join(proc, "pressure", "cpu")}
	if group, err := os.ReadFile(filepath.Join(proc, "self", "cgroup")); err == nil {
		for line := range bytes.Lines(group) {
			if path, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("0::")); ok {
				files = append([]string{filepath.Join(cgroups, string(path), "cpu.pressure")}, files...)
			}
		}
	}
	for _, name := range files {
		read := func() (time.Duration, bool) {
			text, err := os.ReadFile(name)
			if err != nil {
				return 0, false
			}
			return parseStalls(text)
		}
		if _, ok := read(); ok {
			return read
		}
	}
	return nil
}

// parseStalls parses the total stall time in a pressure file of the kernel: the value total, in
// microseconds, of the line "some". It returns false if there is no such value.
func parseStalls(text []byte) (time.Duration, bool) {
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte("some "))
		if !ok {
			continue
		}
		_, total, ok := bytes.Cut(rest, []byte("total="))
		if !ok {
			return 0, false
		}
		us, err := strconv.ParseInt(string(bytes.TrimSpace(total)), 10, 64)
		return time.Duration(us) * time.Microsecond, err == nil
	}
	return 0, false
}
