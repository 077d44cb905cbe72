package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// goTest sets the Makefile's variable TEST so that a step prints its tests as JSON.
const goTest = "TEST=go test -vet=off -ldflags=-w -json"

// usage is the wall time and the processor time of a process and its descendants.
type usage struct{ wall, processor time.Duration }

// test is one top-level test of a step.
type test struct {
	step, pkg, name string
	wall            time.Duration // in the step, where other tests run at the same time
	failed          bool
	output          string // output of a failed test and of its subtests
	alone           usage  // in a run without other tests; zero if not measured
}

func main() {
	steps := flag.String("steps", "clients,build,test,smoke,conformance,console,faults-ci,lint-ci,chaos-ci,race-ci", "`targets` of the Makefile, in this order")
	slowest := flag.Int("slowest", 50, "how many of the slowest `tests` are listed")
	alone := flag.Bool("alone", true, "run each of those alone too, for its processor time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, strings.Split(*steps, ","), *slowest, *alone); err != nil {
		fmt.Fprintln(os.Stderr, "timings:", err)
		os.Exit(1)
	}
}

// run measures the steps, which are targets of the Makefile, and prints the tables to w. The second
// table has the given number of slowest tests; if alone is true, run measures each of them alone
// too. The error names the steps that failed.
func run(ctx context.Context, w io.Writer, steps []string, slowest int, alone bool) error {
	var tests []test
	var failed []string
	var all usage
	fmt.Fprintf(w, "| step | wall s | processor s | tests |\n|---|---|---|---|\n")
	for _, step := range steps {
		took, found, err := measure(ctx, step, goTest)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		name := step
		if err != nil {
			failed = append(failed, step)
			name += " (failed)"
		}
		fmt.Fprintf(w, "| %s | %.1f | %.1f | %d |\n", name, took.wall.Seconds(), took.processor.Seconds(), len(found))
		all.wall, all.processor = all.wall+took.wall, all.processor+took.processor
		tests = append(tests, found...)
		for _, t := range found {
			if t.failed {
				fmt.Fprintf(os.Stderr, "timings: %s failed in %s: %s\n", t.name, step, t.output)
			}
		}
	}
	fmt.Fprintf(w, "| all | %.1f | %.1f | %d |\n\n", all.wall.Seconds(), all.processor.Seconds(), len(tests))
	slices.SortStableFunc(tests, func(a, b test) int { return cmp.Compare(b.wall, a.wall) })
	tests = tests[:min(slowest, len(tests))]
	fmt.Fprintf(w, "| step | package | test | wall s beside others | wall s alone | processor s alone |\n|---|---|---|---|---|---|\n")
	for _, t := range tests {
		if alone {
			only := "^" + regexp.QuoteMeta(t.name) + "$$" // for make
			took, _, err := measure(ctx, t.step, goTest, "ONLY="+only, "PKGS=./"+t.pkg)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			t.alone = took
			t.failed = t.failed || err != nil
		}
		name := t.name
		if t.failed {
			name += " (failed)"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %.1f | %.1f | %.1f |\n", t.step, t.pkg, name, t.wall.Seconds(), t.alone.wall.Seconds(), t.alone.processor.Seconds())
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// measure runs one target of the Makefile with additional variables. It returns the time of the
// target, and the top-level tests that ended in it.
func measure(ctx context.Context, step string, variables ...string) (usage, []test, error) {
	cmd := exec.CommandContext(ctx, "make", append([]string{step}, variables...)...)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Minute
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return usage{}, nil, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return usage{}, nil, err
	}
	tests, readErr := read(out, step)
	err = cmp.Or(cmd.Wait(), readErr)
	return usage{time.Since(began), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, tests, err
}

// event is one line of the output of `go test -json` (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// read returns the top-level tests in the output of a step. It skips lines that are not JSON lines
// of test2json.
func read(r io.Reader, step string) (tests []test, err error) {
	lines := bufio.NewReader(r)
	outputs := map[string]string{} // by package and top-level test
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if len(line) > 0 && line[0] == '{' && json.Unmarshal(line, &e) == nil {
			name, _, sub := strings.Cut(e.Test, "/")
			key := e.Package + " " + name
			switch {
			case e.Test == "":
			case e.Action == "output":
				outputs[key] += e.Output
			case sub:
			case e.Action == "pass" || e.Action == "fail":
				t := test{step: step, name: name, failed: e.Action == "fail", wall: time.Duration(e.Elapsed * float64(time.Second))}
				_, t.pkg, _ = strings.Cut(e.Package, "/holdfast/")
				if t.failed {
					t.output = outputs[key]
				}
				delete(outputs, key)
				tests = append(tests, t)
			}
		}
		if err != nil {
			if err == io.EOF {
				return tests, nil
			}
			return tests, err
		}
	}
}
