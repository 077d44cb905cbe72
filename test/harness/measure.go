package harness

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of processor times in /proc: USER_HZ, which is always 100 on Linux.
const ticksPerSecond = 100

// errProcess means that a file in /proc does not have the form that proc(5) describes.
var errProcess = errors.New("not what /proc tells of a process")

// ProcessorTime returns the user and system time of the process pid, and an error if there is no
// such process. The format is described in proc(5), /proc/PID/stat, fields 14 and 15.
func ProcessorTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is a name in parentheses and may hold spaces.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("%w: %q", errProcess, data)
	}
	user, uerr := strconv.ParseInt(fields[11], 10, 64)
	system, serr := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticksPerSecond, errors.Join(uerr, serr)
}

// ResidentBytes returns the resident memory of the process pid in bytes, and an error if there is
// no such process. The format is described in proc(5), /proc/PID/statm, field 2 in pages.
func ResidentBytes(pid int) (int64, error) {
	resident, _, err := pagesOf(pid)
	return resident * int64(os.Getpagesize()), err
}

// AnonymousBytes returns the part of the resident memory of the process pid that is not mapped from
// a file, in bytes, and an error if there is no such process. The kernel can free clean pages of
// files at any time, but without swap it cannot free anonymous memory, so a memory limit must have
// room for it. The format is described in proc(5), /proc/PID/statm, fields 2 and 3 in pages.
func AnonymousBytes(pid int) (int64, error) {
	resident, mapped, err := pagesOf(pid)
	return (resident - mapped) * int64(os.Getpagesize()), err
}

// WrittenBytes returns how many bytes the process pid has caused to be written to disks, and an error
// if there is no such process. The format is described in proc(5), /proc/PID/io, write_bytes.
func WrittenBytes(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "write_bytes:"); ok {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("%w: %q", errProcess, data)
}

// pagesOf returns the number of resident pages of a process, and how many of them are mapped from
// files or shared.
func pagesOf(pid int) (resident, mapped int64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(data))
	if len(fields) < 3 {
		return 0, 0, fmt.Errorf("%w: %q", errProcess, data)
	}
	resident, rerr := strconv.ParseInt(fields[1], 10, 64)
	mapped, merr := strconv.ParseInt(fields[2], 10, 64)
	return resident, mapped, errors.Join(rerr, merr)
}

// ProcessorTime returns the processor time of the node's process. It fails the test if the process
// is not running.
func (n *Node) ProcessorTime() time.Duration {
	n.tb.Helper()
	used, err := ProcessorTime(n.Pid())
	if err != nil {
		n.tb.Fatalf("%s: %v", n.Name, err)
	}
	return used
}

// ResidentBytes returns the resident memory of the node's process in bytes. It fails the test if
// the process is not running.
func (n *Node) ResidentBytes() int64 {
	n.tb.Helper()
	bytes, err := ResidentBytes(n.Pid())
	if err != nil {
		n.tb.Fatalf("%s: %v", n.Name, err)
	}
	return bytes
}

// Quantile returns the duration below which the given share of all durations lies, for example 0.99
// for p99. all need not be sorted. The result is 0 if all is empty.
func Quantile(all []time.Duration, share float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}
