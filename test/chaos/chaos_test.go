// Package chaos runs whole clusters in virtual time and breaks them: three nodes
// on their own folders and a simulated network, whose links are cut, one way
// or both, and slowed, whose power goes, and which are restarted, while clients
// create, replace, delete, read and list pins through all of them. Afterwards
// there has to be an order of all calls in which every answer was right, one
// state on all nodes, and every block of what is pinned.
//
// A seed decides the faults, and what each client asks: `go test ./test/chaos
// -seed N` lets both happen again. Which goroutine runs first, and how long a
// file takes, is not in its hands, so calls meet faults at other moments.
//
// Imports: cluster/node, its use cases, config, storage, libp2p, simnet, porcupine.
// Never:   cmd, api, real networks.
package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this seed alone; 0: seeds from -from on")
	fromFlag  = flag.Uint64("from", 1, "the first seed")
	seedsFlag = flag.Int("seeds", 1, "how many seeds to run")
	forFlag   = flag.Duration("for", 0, "run seeds for as long, instead of -seeds")
	longFlag  = flag.Bool("long", false, "also what takes minutes")
	talkFlag  = flag.Bool("talk", false, "show what the nodes log")
)

// A run that does not reach these does not count, whatever it showed.
const (
	minRate     = 50 // answered calls per second of calm
	minAnswered = 30 // percent of all calls
)

// invalid is an error that says that a run does not count.
type invalid string

func (e invalid) Error() string { return "the run does not count: " + string(e) }

func errInvalid(format string, args ...any) error { return invalid(fmt.Sprintf(format, args...)) }

// report is what a run did.
type report struct {
	ops, answered    int64
	packets          uint64
	pins, pinned     int
	virtual, checked time.Duration
	longest          time.Duration   // call, virtual
	outages          []time.Duration // of writes, virtual, sorted
	fired            [faults]int
}

// add counts another run in.
func (r *report) add(o report) {
	r.ops, r.answered, r.packets = r.ops+o.ops, r.answered+o.answered, r.packets+o.packets
	r.pins, r.pinned, r.virtual = r.pins+o.pins, r.pinned+o.pinned, r.virtual+o.virtual
	r.longest = max(r.longest, o.longest)
	for i, n := range o.fired {
		r.fired[i] += n
	}
}

// faults names the faults that happened.
func (r *report) faults() string {
	var names []string
	for i, n := range r.fired {
		if n > 0 {
			names = append(names, fmt.Sprintf("%v %d", fault(i), n))
		}
	}
	return strings.Join(names, ", ")
}

// run is one seed's cluster, clients and faults.
type run struct {
	cluster *cluster
	tenants [accountsUsed]*tenant
	library *library
	tally   tally
	steps   []step
	// patience is that of all clients with every call; 0: it differs.
	patience time.Duration
	prober   *prober // nil: nobody measures outages

	// mu guards strange.
	mu      sync.Mutex
	strange []error // what clients should never be told
}

// scenario is what a run is made of, beside its seed.
type scenario struct {
	bug      func(pins.State) pins.State // nil: none that is known
	steps    []step                      // nil: the seed draws them
	patience time.Duration
	probe    bool
	damage   func(*run) error // done to the folders when all nodes have ended
}

func newRun(seed uint64, base string, s scenario) (*run, *rand.Rand) {
	rng := rand.New(rand.NewPCG(seed, 0))
	log := slog.New(slog.DiscardHandler)
	if *talkFlag {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	r := &run{
		cluster: &cluster{base: base, log: log, network: newNetwork(), bug: s.bug, ids: map[state.NodeID]int{}},
		library: &library{bytes: map[string][]byte{}},
		steps:   plan(rng), patience: s.patience,
	}
	if s.steps != nil {
		r.steps = s.steps
	}
	if s.probe {
		r.prober = &prober{cluster: r.cluster}
	}
	return r, rng
}

// work founds the cluster, lets clients and faults have their time, and waits
// until everything is settled. After it nothing runs any more.
func (r *run) work(ctx context.Context, rng *rand.Rand) (err error) {
	defer func() { err = errors.Join(err, r.cluster.close()) }()
	if err := r.cluster.found(ctx); err != nil {
		return err
	}
	if err := r.enrol(ctx); err != nil {
		return err
	}
	asking, enough := context.WithCancel(ctx)
	var clients sync.WaitGroup
	for i := range accountsUsed * clientsPerAccount {
		c := &client{
			number: i, rng: rand.New(rand.NewPCG(rng.Uint64(), 1)), cluster: r.cluster,
			tenant: r.tenants[i%accountsUsed], library: r.library, tally: &r.tally, unexpected: r.unexpected,
			patience: r.patience,
		}
		clients.Go(func() { c.run(asking) })
	}
	if r.prober != nil {
		clients.Go(func() { r.unexpected(r.prober.run(asking)) })
	}
	err = r.breakThings(ctx)
	enough()
	clients.Wait()
	if err != nil {
		return err
	}
	return r.settle(ctx)
}

func (r *run) unexpected(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		return
	}
	r.strange = append(r.strange, err)
}

// enrol makes the accounts.
func (r *run) enrol(ctx context.Context) error {
	clock := new(atomic.Int64)
	for i := range r.tenants {
		a, err := r.cluster.members[0].life.Accounts().CreateAccount(ctx, fmt.Sprintf("tenant%d@example.org", i), "")
		if err != nil {
			return err
		}
		r.tenants[i] = &tenant{id: a.ID, history: &history{clock: clock}}
	}
	if r.prober != nil {
		a, err := r.cluster.members[0].life.Accounts().CreateAccount(ctx, "prober@example.org", "")
		r.prober.account = a.ID
		return err
	}
	return nil
}

// breakThings lets the faults happen, one after the other.
func (r *run) breakThings(ctx context.Context) error {
	pause(ctx, calm)
	if rate := r.tally.answered.Load() / int64(calm/time.Second); rate < minRate {
		return errInvalid("%d calls a second before the first fault, at least %d are asked for", rate, minRate)
	}
	for i, s := range r.steps {
		pause(ctx, s.gap)
		if err := r.cluster.cause(ctx, s); err != nil {
			return fmt.Errorf("fault %d, %v: %w", i+1, s, err)
		}
	}
	pause(ctx, calm)
	if asked, answered := r.tally.asked.Load(), r.tally.answered.Load(); answered*100 < asked*minAnswered {
		return errInvalid("%d of %d calls were answered", answered, asked)
	}
	return nil
}

// settle waits until all nodes have the same, and lists it through each.
func (r *run) settle(ctx context.Context) error {
	last := make([]*client, nodes)
	for i := range last {
		last[i] = &client{number: accountsUsed*clientsPerAccount + i, cluster: r.cluster, tally: &r.tally, unexpected: r.unexpected}
	}
	for i, m := range r.cluster.members {
		if err := await(ctx, fmt.Sprintf("node %d is ready again", i+1), func() bool { return m.life.Ready() == nil }); err != nil {
			return err
		}
		for _, t := range r.tenants {
			last[i].tenant = t
			o := &op{client: last[i].number, kind: list, at: i, when: time.Now()}
			err := await(ctx, fmt.Sprintf("node %d lists the pins", i+1), func() bool {
				call, cancel := context.WithTimeout(m.life.ctx, maxPatience)
				defer cancel()
				last[i].perform(call, m.life, o, known{})
				return o.outcome == done
			})
			if err != nil {
				return err
			}
		}
	}
	return await(ctx, "all nodes have applied the same entries", func() bool { return r.still(ctx) })
}

// inFlight is how long packets that were sent before a cut may arrive: less than
// what Raft takes for silence.
const inFlight = 50 * time.Millisecond

// still cuts all nodes off and tells whether they have applied the same; if not,
// it mends the links. What arrives after the cut was on its way before.
func (r *run) still(ctx context.Context) bool {
	for i := range nodes {
		r.cluster.isolate(i, true)
	}
	pause(ctx, inFlight)
	synctest.Wait()
	var index [nodes]uint64
	for i, m := range r.cluster.members {
		if s, err := m.life.Members().Status(ctx); err == nil {
			index[i] = s.Index
		}
	}
	if index[0] != 0 && index[0] == index[1] && index[1] == index[2] {
		return true
	}
	for i := range nodes {
		r.cluster.isolate(i, false)
	}
	return false
}

// simulate runs one seed. What it returns is what is wrong.
func simulate(t *testing.T, seed uint64, s scenario) (report, error) {
	t.Helper()
	base := folder(t)
	var r *run
	var got report
	var failed error
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var rng *rand.Rand
		r, rng = newRun(seed, base, s)
		failed = r.work(t.Context(), rng)
		got.virtual = time.Since(began)
	})
	got.ops, got.answered, got.packets = r.tally.asked.Load(), r.tally.answered.Load(), r.cluster.network.packets()
	got.longest, got.fired = time.Duration(r.tally.longest.Load()), r.cluster.fired
	if r.prober != nil {
		got.outages = slices.Sorted(slices.Values(r.prober.gaps))
	}
	began := time.Now()
	failed = errors.Join(failed, errors.Join(r.strange...))
	if failed == nil {
		for _, tenant := range r.tenants {
			failed = errors.Join(failed, tenant.history.check())
		}
		if s.damage != nil {
			failed = errors.Join(failed, s.damage(r))
		}
		failed = errors.Join(failed, r.compareNodes(t.Context(), &got))
	}
	got.checked = time.Since(began)
	if failed != nil {
		var plan strings.Builder
		for _, s := range r.steps {
			fmt.Fprintf(&plan, "\n  %v", s)
		}
		failed = fmt.Errorf("seed %d: %w\nfaults:%s", seed, failed, plan.String())
	}
	return got, failed
}

// folder is one in memory, where there is such a place: an fsync costs nothing
// there, and no crash of this test loses what is in the page cache.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "holdfast-chaos-")
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

func TestClustersSurviveFaultsInVirtualTime(t *testing.T) {
	began := time.Now()
	var all report
	runs := 0
	one := func(seed uint64) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			start := time.Now()
			got, err := simulate(t, seed, scenario{})
			if err != nil {
				t.Fatal(err)
			}
			runs++
			all.add(got)
			t.Logf("%d calls, %d answered, %d pins of which %d pinned, %d packets, %v virtual in %v, checked in %v",
				got.ops, got.answered, got.pins, got.pinned, got.packets, got.virtual.Round(time.Millisecond),
				time.Since(start).Round(time.Millisecond), got.checked.Round(time.Millisecond))
		})
	}
	if *seedFlag != 0 {
		one(*seedFlag)
		return
	}
	for n := 0; (*forFlag == 0 && n < *seedsFlag) || time.Since(began) < *forFlag; n++ {
		one(*fromFlag + uint64(n))
	}
	t.Logf("%d runs passed and count: %d calls, %d answered, %d pinned pins checked, %v virtual; longest call %v; faults: %v",
		runs, all.ops, all.answered, all.pinned, all.virtual.Round(time.Second), all.longest.Round(time.Millisecond), all.faults())
}
