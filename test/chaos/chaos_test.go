// Package chaos runs clusters of three to nine nodes in virtual time on a simulated
// network, and injects faults: cut and slow links, power failures, full disks, lost
// blocks, restarts. Meanwhile clients create, replace, delete, read and list pins
// through all nodes, some pins end, payers buy objects and pins, and bookkeepers post credits while the
// leaders charge an account. Afterwards each run checks five properties: the history of calls is linearizable,
// all nodes have one state, every block of a pinned root exists, payments and what they pay for agree, and the
// sums of the postings are the balances, with each period charged once.
//
// A seed decides the faults, the clients' calls, the nodes' keys and Raft's random
// time-outs. Each run is a process of its own with one processor. `go test ./test/chaos
// -seed N` repeats it, except for the order of goroutines that are ready at the same
// virtual moment.
//
// Imports: cluster/node, its use cases, config, storage, libp2p, simnet, porcupine.
// Never:   cmd, api, real networks.
package chaos

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/pins"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/test/harness"
)

var (
	seedFlag     = flag.Uint64("seed", 0, "run this seed alone; 0: seeds from -from on")
	fromFlag     = flag.Uint64("from", 1, "the first seed")
	seedsFlag    = flag.Int("seeds", 1, "how many seeds to run")
	forFlag      = flag.Duration("for", 0, "run seeds for as long, instead of -seeds")
	longFlag     = flag.Bool("long", false, "also what takes minutes")
	proofFlag    = flag.Bool("proof", false, "build all mistakes in, one after the other, and find them")
	talkFlag     = flag.Bool("talk", false, "show what the nodes log")
	scenarioFlag = flag.String("scenario", "", "what -seed runs; empty: faults that the seed draws")
	nodesFlag    = flag.Int("nodes", 0, "how many nodes, up to 5; 0: as many as the seed draws")
	intoFlag     = flag.String("into", "", "run -seed in this process and write what came of it to this file")
)

// A run that does not reach these does not count, whatever it showed.
const (
	minRate     = 50 // answered calls per second of calm
	minAnswered = 30 // percent of all calls
)

// invalid is an error that says that a run does not count.
type invalid string

func (e invalid) Error() string { return string(e) }

func errInvalid(format string, args ...any) error {
	return invalid("the run does not count: " + fmt.Sprintf(format, args...))
}

// report is what a run did, as its process tells it.
type report struct {
	Ops, Answered    int64
	Told, Refused    int64 // a node did not know when the client's time was up, or that nothing was written
	Packets          uint64
	Pins, Pinned     int
	Virtual, Checked time.Duration
	Longest          time.Duration   // call, virtual
	Outages          []time.Duration // of writes, virtual, sorted
	Fired            [faults]int
	Snapshots        int64  // that a node took over from a leader
	Terms            uint64 // of Raft, after the first leader's
	Payments         [5]int // by their state; 0: nobody has recorded them
	Postings         int    // of all ledgers, with the charges
	Charges          int
}

// add counts another run in.
func (r *report) add(o report) {
	r.Ops, r.Answered, r.Packets = r.Ops+o.Ops, r.Answered+o.Answered, r.Packets+o.Packets
	r.Told, r.Refused = r.Told+o.Told, r.Refused+o.Refused
	r.Pins, r.Pinned, r.Virtual = r.Pins+o.Pins, r.Pinned+o.Pinned, r.Virtual+o.Virtual
	r.Longest = max(r.Longest, o.Longest)
	r.Snapshots += o.Snapshots
	r.Postings, r.Charges = r.Postings+o.Postings, r.Charges+o.Charges
	for i, n := range o.Payments {
		r.Payments[i] += n
	}
	for i, n := range o.Fired {
		r.Fired[i] += n
	}
}

// faults names the faults that happened.
func (r *report) faults() string {
	var names []string
	for i, n := range r.Fired {
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
	market  *market
	books   books
	tally   tally
	steps   []step
	// patience is that of all clients with every call; 0: it differs.
	patience time.Duration
	prober   *prober // nil: nobody measures outages
	void     error   // why the run does not count; nil: it does

	// mu guards strange.
	mu      sync.Mutex
	strange []error // what clients should never be told
}

// scenario is what a run is made of, beside its seed.
type scenario struct {
	nodes    int                          // 0: as many as usual
	sizes    bool                         // the seed draws how many nodes there are
	bug      func(pins.State) pins.State  // nil: none that is known
	often    bool                         // many snapshots, whatever the seed says
	lies     bool                         // Raft's log says that it stored what it did not
	steps    []step                       // nil: plan draws them
	plan     func(*rand.Rand, int) []step // for so many nodes; nil: of all faults
	patience time.Duration
	probe    bool
	blind    bool             // nodes take a settlement without an answer for one
	damage   func(*run) error // done to the folders when all nodes have ended
}

func newRun(rng *rand.Rand, base string, s scenario) *run {
	handler := slog.DiscardHandler
	if *talkFlag {
		handler = slog.NewTextHandler(os.Stderr, nil)
	}
	size := cmp.Or(*nodesFlag, s.nodes, usual)
	if s.sizes && *nodesFlag == 0 {
		size += max(0, rng.IntN(maxNodes)-(maxNodes-usual)) // three of five times as many as usual
	}
	r := &run{
		cluster: &cluster{
			members: make([]*member, size),
			base:    base, network: newNetwork(), bug: s.bug, lies: s.lies, ids: map[state.NodeID]int{},
			lives: make(chan struct{}, 1), often: rng.IntN(2) == 0 || s.often,
		},
		library: &library{bytes: map[string][]byte{}},
		steps:   plan(rng, size), patience: s.patience,
	}
	r.market = newMarket(rng.Uint64(), s.blind)
	r.cluster.market = r.market
	r.cluster.log = slog.New(&installs{handler, &r.cluster.taken})
	switch {
	case s.steps != nil:
		r.steps = s.steps
	case s.plan != nil:
		r.steps = s.plan(rng, size)
	}
	if s.probe {
		r.prober = &prober{cluster: r.cluster}
	}
	return r
}

// installs counts what nodes log when they have taken over a leader's snapshot.
type installs struct {
	slog.Handler
	count *atomic.Int64
}

// Enabled implements slog.Handler.
func (i *installs) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (i *installs) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(strings.ToLower(r.Message), "installed remote snapshot") {
		i.count.Add(1)
	}
	if !i.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return i.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (i *installs) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &installs{i.Handler.WithAttrs(attrs), i.count}
}

// WithGroup implements slog.Handler.
func (i *installs) WithGroup(name string) slog.Handler {
	return &installs{i.Handler.WithGroup(name), i.count}
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
	for i := range payersUsed {
		p := &payer{
			number: i, rng: rand.New(rand.NewPCG(rng.Uint64(), 3)), market: r.market, cluster: r.cluster, library: r.library, unexpected: r.unexpected,
		}
		clients.Go(func() { p.run(asking) })
	}
	for i := range bookkeepers {
		k := &bookkeeper{
			number: i, rng: rand.New(rand.NewPCG(rng.Uint64(), 4)), books: &r.books, cluster: r.cluster, unexpected: r.unexpected,
		}
		clients.Go(func() { k.run(asking) })
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
		email := fmt.Sprintf("tenant%d@example.org", i)
		a, err := r.cluster.members[0].life.Accounts().CreateAccount(ctx, email, "")
		if err != nil {
			return err
		}
		r.tenants[i] = &tenant{id: a.ID, history: &history{clock: clock, ends: true, skews: r.skews()}, ring: keyring{email: email, history: &history{clock: clock}}}
	}
	if err := r.books.open(ctx, r.cluster.members[0].life, r.library); err != nil {
		return fmt.Errorf("open the ledgers: %w", err)
	}
	if r.prober != nil {
		a, err := r.cluster.members[0].life.Accounts().CreateAccount(ctx, "prober@example.org", "")
		r.prober.account = a.ID
		return err
	}
	return nil
}

// skews returns whether a clock is wrong at some time.
func (r *run) skews() bool {
	return slices.ContainsFunc(r.steps, func(s step) bool { return s.fault == skew || s.with != nil && s.with.fault == skew })
}

// breakThings lets the faults happen, one after the other. A run that does not
// count goes on: what it shows that is wrong does.
func (r *run) breakThings(ctx context.Context) error {
	harness.Pause(ctx, calm)
	if rate := r.tally.answered.Load() / int64(calm/time.Second); rate < minRate {
		r.void = errInvalid("%d calls a second before the first fault, at least %d are asked for", rate, minRate)
	}
	for i, s := range r.steps {
		harness.Pause(ctx, s.gap)
		err := r.cluster.cause(ctx, s)
		if err != nil {
			err = fmt.Errorf("fault %d, %v: %w", i+1, s, err)
		}
		var invalid invalid
		switch {
		case errors.As(err, &invalid):
			r.void = err
		case err != nil:
			return err
		}
	}
	harness.Pause(ctx, calm)
	if asked, answered := r.tally.asked.Load(), r.tally.answered.Load(); answered*100 < asked*minAnswered {
		r.void = errInvalid("%d of %d calls were answered", answered, asked)
	}
	return nil
}

// settle waits until all nodes have the same, and lists it through each.
func (r *run) settle(ctx context.Context) error {
	last := make([]*client, len(r.cluster.members))
	for i := range last {
		last[i] = &client{number: accountsUsed*clientsPerAccount + i, cluster: r.cluster, tally: &r.tally, unexpected: r.unexpected}
	}
	for i, m := range r.cluster.members {
		var failed error
		err := await(ctx, fmt.Sprintf("node %d is ready again", i+1), func() bool {
			// One may just be giving up because of a disk that works again.
			failed = r.cluster.revive(ctx, i, m.now(), false)
			return failed != nil || m.now().Ready() == nil
		})
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		for _, t := range r.tenants {
			last[i].tenant = t
			err = await(ctx, fmt.Sprintf("node %d lists the pins", i+1), func() bool {
				o := &op{client: last[i].number, kind: list, at: i, when: time.Now()}
				call, cancel := context.WithTimeout(m.life.ctx, maxPatience)
				defer cancel()
				last[i].perform(call, m.life, o, known{})
				return o.outcome == done && last[i].showKeys(call, m.life, i)
			})
			if err != nil {
				return err
			}
		}
	}
	err := await(ctx, "the outcome of all executed payments is known", func() bool { return r.market.decided(ctx, r.cluster.members[0].life) })
	if err != nil {
		return err
	}
	err = await(ctx, "all periods that are over are charged", func() bool { return r.books.charged(ctx, r.cluster.members[0].life) })
	if err != nil {
		return err
	}
	err = await(ctx, "all pins have ended whose time is over", func() bool { return r.endedInTime(ctx) })
	if err != nil {
		return err
	}
	err = await(ctx, "all that is pinned has its copies", func() bool {
		for _, m := range r.cluster.members {
			if s, err := m.life.Members().Status(ctx); err != nil || s.UnderReplicated > 0 {
				return false
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	return await(ctx, "all nodes have applied the same entries", func() bool { return r.still(ctx) })
}

// endedWithin is how long a pin may stay after its end when nothing is wrong any more.
const endedWithin = 5 * time.Second

// endedInTime returns whether no pin is there whose end has passed.
func (r *run) endedInTime(ctx context.Context) bool {
	over := state.MillisOf(time.Now().Add(-endedWithin))
	for _, t := range r.tenants {
		call, cancel := context.WithTimeout(ctx, maxPatience)
		_, all, err := r.cluster.members[0].life.Pins().List(call, t.id, state.PinQuery{Limit: 1000})
		cancel()
		if err != nil || slices.ContainsFunc(all, func(p pins.Record) bool { return p.Until != 0 && p.Until < over }) {
			return false
		}
	}
	return true
}

// inFlight is how long packets that were sent before a cut may arrive: less than
// what Raft takes for silence.
const inFlight = 50 * time.Millisecond

// still cuts all nodes off and tells whether they have applied the same; if not,
// it mends the links. What arrives after the cut was on its way before.
func (r *run) still(ctx context.Context) bool {
	for i := range r.cluster.members {
		r.cluster.isolate(i, true)
	}
	harness.Pause(ctx, inFlight)
	synctest.Wait()
	index := make([]uint64, len(r.cluster.members))
	for i, m := range r.cluster.members {
		if s, err := m.life.Members().Status(ctx); err == nil {
			index[i] = s.Index
		}
	}
	if slices.Min(index) != 0 && slices.Min(index) == slices.Max(index) {
		return true
	}
	for i := range r.cluster.members {
		r.cluster.isolate(i, false)
	}
	return false
}
