package main

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

const (
	// soakJudged is the shortest duration of the steady work that can fail. In a shorter time,
	// caches and logs are still growing to their limits.
	soakJudged = 10 * time.Minute
	// soakShown is the shortest duration of the steady work whose samples are printed.
	soakShown = time.Minute
	// growthPart is the part of its mean by which a quantity may grow during the second half.
	// Growth below the slack of the quantity is never a failure.
	growthPart = 0.05
	// printedSamples is the number of samples of each quantity that are printed.
	printedSamples = 11
)

// quantity is something that a node uses, such as memory, and that must stop growing during steady
// work.
type quantity struct {
	name  string
	unit  float64 // divisor for printed values
	slack float64 // growth during the second half that counts as noise, in units
}

// quantities has the measured quantities, in the order of sample.values.
var quantities = [...]quantity{
	{"MiB resident", 1 << 20, 8},
	{"MiB of mapped files in it", 1 << 20, 8},
	{"MiB of heap", 1 << 20, 8},
	{"goroutines", 1, 20},
	{"open files", 1, 10},
	{"MiB on disk", 1 << 20, 64},
}

// sample has the values of all quantities of one node at one moment.
type sample struct {
	at     time.Duration
	values [len(quantities)]float64
}

// series has the samples of all nodes.
type series struct {
	nodes []*harness.Node
	began time.Time
	seen  [][]sample // the samples of each node
}

func newSeries(nodes []*harness.Node) *series {
	return &series{nodes: nodes, began: time.Now(), seen: make([][]sample, len(nodes))}
}

// run takes samples at the given interval until ctx ends.
func (s *series) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(max(every, time.Second/4))
	defer tick.Stop()
	for {
		s.sample()
		select {
		case <-ctx.Done():
			s.sample()
			return
		case <-tick.C:
		}
	}
}

func (s *series) sample() {
	for i, n := range s.nodes {
		m := n.Metrics()
		s.seen[i] = append(s.seen[i], sample{time.Since(s.began), [...]float64{
			m["process_resident_memory_bytes"], mapped(n.Pid()), m["go_memstats_heap_inuse_bytes"], m["go_goroutines"],
			m["process_open_fds"], diskBytes(n.Dir),
		}})
	}
}

// diskBytes returns the size of the files below dir in bytes. Files that are removed meanwhile
// count as 0.
func diskBytes(dir string) float64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return float64(sum)
}

// mapped returns the part of the resident memory of a process that is mapped from files, such as
// the program and the Raft log, in bytes; 0 if the process has ended. The format is described in
// proc(5), /proc/PID/status, the line RssFile in kB.
func mapped(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "RssFile:"); ok {
			kilobytes, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 64)
			return kilobytes * 1024
		}
	}
	return 0
}

// growth returns how much a quantity of a node has grown during the second half, according to the
// line that fits the samples best, and the mean of the quantity in this half. Both are in the unit
// of the quantity.
func (s *series) growth(node, q int) (grown, mean float64) {
	all := s.seen[node]
	all = all[len(all)/2:]
	var x, y, xx, xy float64
	for _, one := range all {
		at, v := one.at.Seconds(), one.values[q]/quantities[q].unit
		x, y, xx, xy = x+at, y+v, xx+at*at, xy+at*v
	}
	n := float64(len(all))
	if n < 2 {
		return 0, y
	}
	slope := (n*xy - x*y) / (n*xx - x*x)
	return slope * (all[len(all)-1].at - all[0].at).Seconds(), y / n
}

// grown returns a line for each quantity of each node that has not stopped growing.
func (s *series) grown() (out []string) {
	for q, what := range quantities {
		for i, n := range s.nodes {
			if g, mean := s.growth(i, q); g > max(what.slack, growthPart*mean) {
				out = append(out, fmt.Sprintf("%s of %s grow: %+.1f to %.1f in the second half", what.name, n.Name, g, mean))
			}
		}
	}
	return out
}

// verdict returns a text with the largest growth of each quantity during the second half.
func (s *series) verdict() string {
	var out []string
	for q, what := range quantities {
		most, of := math.Inf(-1), 0.0
		for i := range s.nodes {
			if g, mean := s.growth(i, q); g > most {
				most, of = g, mean
			}
		}
		out = append(out, fmt.Sprintf("%s %.0f (%+.1f)", what.name, of, most))
	}
	return "second half: " + strings.Join(out, ", ")
}

// print prints some of the samples of each quantity and node.
func (s *series) print() {
	fmt.Println()
	for q, what := range quantities {
		for i, n := range s.nodes {
			var line []string
			all := s.seen[i]
			shown := min(printedSamples, len(all))
			for k := range shown {
				line = append(line, fmt.Sprintf("%.0f", all[k*(len(all)-1)/max(1, shown-1)].values[q]/what.unit))
			}
			fmt.Printf("- %s of %s, at equal distances: %s\n", what.name, n.Name, strings.Join(line, ", "))
		}
	}
	fmt.Println()
}

// save writes all samples to a CSV file.
func (s *series) save(path string) error {
	var b strings.Builder
	b.WriteString("node,seconds")
	for _, what := range quantities {
		b.WriteString("," + what.name)
	}
	b.WriteString("\n")
	for i, n := range s.nodes {
		for _, one := range s.seen[i] {
			fmt.Fprintf(&b, "%s,%.1f", n.Name, one.at.Seconds())
			for q, v := range one.values {
				fmt.Fprintf(&b, ",%.1f", v/quantities[q].unit)
			}
			b.WriteString("\n")
		}
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}
