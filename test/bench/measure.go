package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// row is one row of the printed table.
type row struct {
	work   string
	result string // the figure that is compared with target
	target string
	lat    latencies // empty if no latencies were measured
	used   usage
	note   string
}

func printHead() {
	fmt.Println("| work | measured | target | p50 | p99 | worst | processor s: nodes, source, client | MiB resident of each node (not of files) |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
}

func (r row) print() {
	p50, p99, worst := "", "", ""
	if len(r.lat) > 0 {
		p50, p99, worst = ms(r.lat.at(0.50)), ms(r.lat.at(0.99)), ms(r.lat.at(1))
	}
	work := r.work
	if r.note != "" {
		work += " (" + r.note + ")"
	}
	fmt.Printf("| %s | %s | %s | %s | %s | %s | %s | %s |\n", work, r.result, r.target, p50, p99, worst, r.used, r.used.memory())
}

func ms(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + " ms"
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + " s" }

// latencies are the durations of requests, in any order.
type latencies []time.Duration

// at returns the duration below which the given share of the requests lies, for example 0.99 for
// p99.
func (l latencies) at(share float64) time.Duration { return harness.Quantile(l, share) }

// maxLatencies is the largest number of durations that are kept of a long load. When it is reached,
// every second one is removed.
const maxLatencies = 1 << 17

// keep returns l with d added. If l has maxLatencies durations, keep first removes every second
// one.
func (l latencies) keep(d time.Duration) latencies {
	if len(l) >= maxLatencies {
		half := l[:0]
		for i := 0; i < len(l); i += 2 {
			half = append(half, l[i])
		}
		l = half
	}
	return append(l, d)
}

// sorted returns a sorted copy.
func (l latencies) sorted() latencies { return slices.Sorted(slices.Values(l)) }

// usage is the processor time and the memory that processes have used.
type usage struct {
	nodes, source, client time.Duration // processor time of the nodes, of the foreign peer and of bench
	resident, anonymous   []int64       // memory of each node at the end, in bytes
}

// String returns the processor time in seconds of the nodes, of the foreign peer and of bench
// itself.
func (u usage) String() string {
	if u.nodes == 0 && u.resident == nil {
		return ""
	}
	s := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) }
	return s(u.nodes) + ", " + s(u.source) + ", " + s(u.client)
}

// memory returns the resident memory of each node in MiB, and in brackets the part that is not
// mapped from files.
func (u usage) memory() string {
	var out []string
	for i, r := range u.resident {
		out = append(out, fmt.Sprintf("%d (%d)", r>>20, u.anonymous[i]>>20))
	}
	return strings.Join(out, ", ")
}

// meter measures the usage from a moment on. Nodes that end meanwhile are not counted.
type meter struct {
	nodes  []*harness.Node
	source *harness.Boxo
	before usage
}

// rates returns environment variables that set rate limits which no measurement reaches. The limits
// are on, so that each request costs as much as with default settings. They are high, because one
// account of a measurement sends as many requests as thousands of accounts would.
func rates() []string {
	const none = "1000000"
	return []string{
		"HOLDFAST_API_ACCOUNT_RATE=" + none, "HOLDFAST_API_ACCOUNT_BURST=" + none,
		"HOLDFAST_API_ADDRESS_RATE=" + none, "HOLDFAST_API_ADDRESS_BURST=" + none,
	}
}

func newMeter(nodes []*harness.Node, source *harness.Boxo) *meter {
	m := &meter{nodes: nodes, source: source}
	m.before = m.now()
	return m
}

func (m *meter) now() usage {
	u := usage{client: processorTime(os.Getpid())}
	if m.source != nil {
		u.source = processorTime(m.source.Pid())
	}
	for _, n := range m.nodes {
		u.nodes += processorTime(n.Pid())
		u.resident = append(u.resident, resident(n.Pid()))
		u.anonymous = append(u.anonymous, anonymous(n.Pid()))
	}
	return u
}

func (m *meter) used() usage {
	u := m.now()
	u.nodes -= m.before.nodes
	u.source -= m.before.source
	u.client -= m.before.client
	return u
}

// machine returns a line that describes the machine and what else was running on it.
func machine(ctx context.Context) string {
	model := "unknown processor"
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	commit := "unknown"
	if out, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output(); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	busy := "unknown"
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		busy = strings.Join(strings.Fields(string(data))[:2], ", ")
	}
	return fmt.Sprintf("%s, %d processors, %s, source at %s, load average before %s", model, runtime.NumCPU(), runtime.Version(), commit, busy)
}

// processorTime returns the processor time of a process; 0 if the process has ended.
func processorTime(pid int) time.Duration {
	used, _ := harness.ProcessorTime(pid)
	return used
}

// resident returns the resident memory of a process in bytes; 0 if the process has ended.
func resident(pid int) int64 {
	bytes, _ := harness.ResidentBytes(pid)
	return bytes
}

// anonymous returns the part of the resident memory of a process that is not mapped from files, in
// bytes; 0 if the process has ended.
func anonymous(pid int) int64 {
	bytes, _ := harness.AnonymousBytes(pid)
	return bytes
}
