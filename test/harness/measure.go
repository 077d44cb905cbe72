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

// ticksPerSecond is USER_HZ, which Linux fixes at 100 for what /proc tells.
const ticksPerSecond = 100

// errProcess says that /proc tells something else than proc(5) has.
var errProcess = errors.New("not what /proc tells of a process")

// ProcessorTime returns the user and system time of a process; an error when it is gone.
// Format: proc(5), /proc/PID/stat, fields 14 and 15.
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

// ResidentBytes returns the memory that a process has now; an error when it is gone.
// Format: proc(5), /proc/PID/statm, field 2 in pages.
func ResidentBytes(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0, fmt.Errorf("%w: %q", errProcess, data)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// ProcessorTime is that of the node's process, which runs.
func (n *Node) ProcessorTime() time.Duration {
	n.tb.Helper()
	used, err := ProcessorTime(n.Pid())
	if err != nil {
		n.tb.Fatalf("%s: %v", n.Name, err)
	}
	return used
}

// ResidentBytes returns the memory of the node's process, which runs.
func (n *Node) ResidentBytes() int64 {
	n.tb.Helper()
	bytes, err := ResidentBytes(n.Pid())
	if err != nil {
		n.tb.Fatalf("%s: %v", n.Name, err)
	}
	return bytes
}

// Quantile returns the duration below which the given share of them lies, in any order; 0 of none.
func Quantile(all []time.Duration, share float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}
