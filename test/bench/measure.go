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

// row is one line of the table.
type row struct {
	work   string
	result string // what is compared with the target
	target string
	lat    latencies // empty: none were measured
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

// latencies are of requests, in any order.
type latencies []time.Duration

// at returns the latency below which the given share lies.
func (l latencies) at(share float64) time.Duration { return harness.Quantile(l, share) }

// maxLatencies bounds what is kept of a long load: every second one goes when
// there are more.
const maxLatencies = 1 << 17

// keep adds one more.
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

// usage is what processes took.
type usage struct {
	nodes, source, client time.Duration // processor time
	resident, anonymous   []int64       // bytes, of each node at the end
}

// String returns the processor time of each kind of process.
func (u usage) String() string {
	if u.nodes == 0 && u.resident == nil {
		return ""
	}
	s := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) }
	return s(u.nodes) + ", " + s(u.source) + ", " + s(u.client)
}

// memory returns the MiB of each node, and in brackets those that are not mapped from files.
func (u usage) memory() string {
	var out []string
	for i, r := range u.resident {
		out = append(out, fmt.Sprintf("%d (%d)", r>>20, u.anonymous[i]>>20))
	}
	return strings.Join(out, ", ")
}

// meter measures usage from a moment on. Nodes that end meanwhile are not in it.
type meter struct {
	nodes  []*harness.Node
	source *harness.Boxo
	before usage
}

// rates are on, so that requests cost what they cost, and never reached: one
// account sends here what thousands would.
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

// machine says where the figures come from, and what else ran there.
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

// processorTime is that of a process; 0 when it is gone.
func processorTime(pid int) time.Duration {
	used, _ := harness.ProcessorTime(pid)
	return used
}

// resident returns the memory of a process in bytes; 0 when it is gone.
func resident(pid int) int64 {
	bytes, _ := harness.ResidentBytes(pid)
	return bytes
}

// anonymous returns the memory of a process in bytes that is not mapped from files; 0 when it is gone.
func anonymous(pid int) int64 {
	bytes, _ := harness.AnonymousBytes(pid)
	return bytes
}
