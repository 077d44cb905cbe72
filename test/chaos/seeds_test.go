package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	oldrand "math/rand"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

// runWithin bounds the process of one run, in real time: nine nodes under cuts take more than six minutes
// beside other work. After it the process is told to print its goroutines, for which it has dumpWithin.
const (
	runWithin  = 20 * time.Minute
	dumpWithin = 20 * time.Second
)

// verdict is what came of a run, as its process writes it down.
type verdict struct {
	Report  report
	Wrong   string // empty: nothing
	Invalid bool   // the run does not count
}

// simulate runs a scenario with a seed in a process of its own. What it returns
// is what is wrong.
func simulate(t *testing.T, seed uint64, name string) (report, error) {
	t.Helper()
	into := filepath.Join(t.TempDir(), "verdict.json")
	ctx, cancel := context.WithTimeout(t.Context(), runWithin)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return report{}, err
	}
	cmd := exec.CommandContext(ctx, self, "-test.run", "^TestOneRun$", "-test.timeout", "0",
		"-seed", strconv.FormatUint(seed, 10), "-scenario", name, "-into", into, "-talk="+strconv.FormatBool(*talkFlag), "-nodes", strconv.Itoa(*nodesFlag))
	// One processor and no preemption, so that few goroutines race; math/rand
	// takes its seed; and the memory of a run is not worth much collection.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=randseednop=0,asyncpreemptoff=1", "GOGC=400")
	// The child goes when this process does; the signal comes when the thread
	// that started it ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// SIGQUIT prints the goroutines even where one of them never gives the processor back.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = dumpWithin
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if *talkFlag {
		cmd.Stderr = os.Stderr
	}
	failed := cmd.Run()
	data, err := os.ReadFile(into)
	if err != nil {
		return report{}, fmt.Errorf("seed %d: the run ended without a verdict: %w: %s", seed, errors.Join(failed, err), lastWords(said.String()))
	}
	var v verdict
	switch err := json.Unmarshal(data, &v); {
	case err != nil:
		return report{}, fmt.Errorf("seed %d: verdict: %w", seed, err)
	case v.Invalid:
		return v.Report, invalid(v.Wrong)
	case v.Wrong != "":
		return v.Report, errors.New(v.Wrong)
	}
	return v.Report, nil
}

// saidKept is how many bytes of what a broken run said are shown.
const saidKept = 16 << 10

// lastWords returns the end of what a broken run said. Of goroutines that it printed, it returns the
// first ones: they are those that ran.
func lastWords(text string) string {
	if at := strings.LastIndex(text, "SIGQUIT: quit"); at >= 0 {
		return text[at:min(len(text), at+saidKept)]
	}
	return "..." + text[max(0, len(text)-saidKept):]
}

// TestOneRun promises that a run in a process of its own writes its verdict into a file for the process that started
// it.
func TestOneRun(t *testing.T) {
	if *intoFlag == "" {
		t.Skip("only in the process of a run")
	}
	s, known := scenarios()[*scenarioFlag]
	if !known {
		t.Fatalf("no scenario %q", *scenarioFlag)
	}
	got, err := inThisProcess(t, *seedFlag, s)
	v := verdict{Report: got}
	if err != nil {
		var i invalid
		v.Wrong, v.Invalid = err.Error(), errors.As(err, &i)
	}
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*intoFlag, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// inThisProcess runs a scenario, whose randomness all comes from the seed.
func inThisProcess(t *testing.T, seed uint64, s scenario) (report, error) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	//lint:ignore SA1019 Raft draws its time-outs from the global source
	oldrand.Seed(int64(seed)) //nolint:staticcheck // the same for golangci-lint
	base := folder(t)
	var r *run
	var got report
	var failed error
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		rng := rand.New(rand.NewPCG(seed, 0))
		r = newRun(rng, base, s)
		failed = r.work(t.Context(), rng)
		got.Virtual = time.Since(began)
	})
	got.Ops, got.Answered, got.Packets = r.tally.asked.Load(), r.tally.answered.Load(), r.cluster.network.packets()
	got.Told, got.Refused = r.tally.told.Load(), r.tally.refused.Load()
	got.Longest, got.Fired = time.Duration(r.tally.longest.Load()), r.cluster.fired
	got.Snapshots = r.cluster.taken.Load()
	if r.prober != nil {
		got.Outages = slices.Sorted(slices.Values(r.prober.gaps))
	}
	began := time.Now()
	failed = errors.Join(failed, errors.Join(r.strange...))
	if failed == nil {
		for _, tenant := range r.tenants {
			failed = errors.Join(failed, tenant.history.check())
			if err := tenant.ring.history.checkOrder(); err != nil {
				failed = errors.Join(failed, fmt.Errorf("keys: %w", err))
			}
		}
		if s.damage != nil {
			failed = errors.Join(failed, s.damage(r))
		}
		failed = errors.Join(failed, r.compareNodes(t.Context(), &got))
		terms, err := r.terms()
		got.Terms = terms
		failed = errors.Join(failed, err)
	}
	got.Checked = time.Since(began)
	if failed == nil {
		failed = r.void
	}
	if failed != nil {
		var plan strings.Builder
		for _, s := range r.steps {
			fmt.Fprintf(&plan, "\n  %v", s)
		}
		failed = fmt.Errorf("seed %d, %d nodes: %w\nfaults:%s", seed, len(r.cluster.members), failed, plan.String())
	}
	return got, failed
}

// roomForRun is what a run may need of a disk, in bytes: each crash copies a
// folder.
const roomForRun = 4 << 30

// folder returns one in memory, where there is such a place with enough room: an fsync
// costs nothing there, and no crash of this test loses what is in the page cache.
func folder(t *testing.T) string {
	t.Helper()
	const memory = "/dev/shm"
	var room syscall.Statfs_t
	if err := syscall.Statfs(memory, &room); err != nil || room.Bavail*uint64(room.Bsize) < roomForRun {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "holdfast-chaos-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Clean(dir)
}

const (
	// maxInvalid is how many of the runs may not count, in percent. Which calls meet
	// a fault is not in the seed's hands, so a few need not.
	maxInvalid = 10
	// validTries is how often a seed is run that does not count: of the few seeds of CI each has to.
	validTries = 3
)

// TestClustersSurviveFaultsInVirtualTime promises that no seed finds a broken promise in a cluster under faults, and
// that few seeds do not count. It runs as many seeds at a time as there are processors. It says little of those that
// pass, so that what CI keeps of its log shows the ones that fail.
func TestClustersSurviveFaultsInVirtualTime(t *testing.T) {
	began := time.Now()
	var mu sync.Mutex // guards what follows
	var all report
	passed, failed := 0, 0
	var unused []string
	one := func(seed uint64) {
		var invalid invalid
		got, err := simulate(t, seed, *scenarioFlag)
		for try := 1; try < validTries && errors.As(err, &invalid); try++ {
			got, err = simulate(t, seed, *scenarioFlag)
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.As(err, &invalid):
			unused = append(unused, invalid.Error())
		case err != nil:
			failed++
			t.Error(err)
		default:
			passed++
			all.add(got)
		}
	}
	if *seedFlag != 0 {
		one(*seedFlag)
	} else {
		seeds := make(chan uint64)
		var workers sync.WaitGroup
		for range runtime.NumCPU() {
			workers.Go(func() {
				for seed := range seeds {
					one(seed)
				}
			})
		}
		for n := 0; (*forFlag == 0 && n < *seedsFlag) || time.Since(began) < *forFlag; n++ {
			seeds <- *fromFlag + uint64(n)
		}
		close(seeds)
		workers.Wait()
	}
	t.Logf("%d runs passed, %d failed, %d do not count: %d calls, %d answered, %d writes of unknown outcome and %d that were refused, %d pinned pins checked, %v payments by state, %d postings, of them %d charges, %v virtual in %v; longest call %v; %d snapshots taken over; faults: %v",
		passed, failed, len(unused), all.Ops, all.Answered, all.Told, all.Refused, all.Pinned, all.Payments, all.Postings, all.Charges, all.Virtual.Round(time.Second), time.Since(began).Round(time.Second),
		all.Longest.Round(time.Millisecond), all.Snapshots, all.faults())
	if runs := passed + failed + len(unused); len(unused)*100 > runs*maxInvalid {
		t.Errorf("%d of %d runs do not count:\n%s", len(unused), runs, strings.Join(unused, "\n"))
	}
}

// TestASeedReplays promises that a seed makes the same faults at each run, and finds its mistake each time, with a
// number of calls within 10 %. Which goroutine was first at a moment may differ.
func TestASeedReplays(t *testing.T) {
	times := 2
	if *longFlag {
		times = 10
	}
	var first report
	for i := range times {
		got, err := simulate(t, 1, mistakes[0])
		if err == nil {
			t.Errorf("run %d of %d found nothing", i+1, times)
		}
		if i == 0 {
			first = got
		}
		if got.Fired != first.Fired || got.Ops*10 < first.Ops*9 || first.Ops*10 < got.Ops*9 {
			t.Errorf("run %d made %d calls under %v, the first one %d under %v", i+1, got.Ops, got.faults(), first.Ops, first.faults())
		}
	}
}
