package web

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// busyShare is the share of time above which the processors count as busy: the time in which
// some thread waits for a processor.
const busyShare = 0.5

// Busy returns a function that returns whether the processors were busy: between two calls
// within the last window, some thread of this program's control group waited for a
// processor for more than 50 % of the time. It reads the kernel's pressure stall
// information (https://docs.kernel.org/accounting/psi.html) of the control group (version
// 2) if there is one, else of the machine. Without that information the processors are
// never busy. The function must not be called concurrently.
func Busy(window time.Duration) func() bool {
	stalled := stallReader("/proc", "/sys/fs/cgroup")
	if stalled == nil {
		return func() bool { return false }
	}
	return busyBy(stalled, time.Now, window)
}

// busyBy does the work of Busy; stalled returns the total stall time.
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

// stallReader returns a function that reads the total time for which some thread has waited
// for a processor, and whether it could be read. It returns nil if the kernel does not
// provide it.
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

// parseStalls returns the total of the line "some" of a pressure stall file, which is in
// microseconds.
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
