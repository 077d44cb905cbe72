// Package tracker brings the content of one node in line with the replicated state: it
// compares both, fetches missing content, drops unwanted content, and reports the
// results. Changes of the state start it, and it scans all roots now and then. It
// stores only the attempts of its node. On the leader, Reconciler and Repairer handle the
// roots of all nodes.
//
// Imports: consensus/state, go-cid, prometheus.
// Never:   raft, libp2p, boxo, storage; it is never called from Apply.
package tracker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// State is the part of consensus that this package uses.
type State interface {
	// View returns a linearizable view of the state; the caller releases it.
	View(ctx context.Context) (view state.View, release func(), err error)
	// LocalView returns a view of the entries that this node has applied; the caller releases
	// it.
	LocalView() (view state.View, release func())
	// Propose commits a command. A local view that is opened afterwards includes its effects.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
	// IsLeader returns whether this node leads.
	IsLeader() bool
}

// Blocks is the block store. A reference is a named set of blocks, and the store keeps a block
// while a reference includes it.
type Blocks interface {
	// Reference returns the record of a reference. ok is false if there is none. The sizes are those
	// of Seal.
	Reference(ctx context.Context, reference string) (sealed bool, bytes, blocks uint64, ok bool, err error)
	// References calls fn for the references whose names begin with prefix.
	References(ctx context.Context, prefix string, fn func(reference string, sealed bool) (more bool, err error)) error
	// Seal marks a reference as complete. The change is durable on return.
	Seal(ctx context.Context, reference string, bytes, blocks uint64) error
	// Hide makes a sealed reference hidden from unknown peers or visible. It does nothing if
	// the reference is already hidden or visible as requested, is not sealed or does not exist.
	Hide(ctx context.Context, reference string, hidden bool) error
	// Drop removes a reference, and the blocks that no other reference includes. A reference that
	// does not exist is no error.
	Drop(ctx context.Context, reference string) error
}

// Job is one attempt to make a whole DAG durable on this node.
type Job struct {
	Root      cid.Cid
	Reference string          // reference of the blocks
	Account   state.AccountID // account whose turns the attempt uses
	Members   []state.NodeID  // members in the order in which to ask them: holders, other allocated nodes, others
	Origins   []string        // multiaddrs that users gave
	Held      bool            // some of Members are recorded as holders
	Private   bool            // only members may be asked for it
	Linked    bool            // an object or a part refers to the root
	// Of nodes are to keep the root and may all be fetching it now. Index is the position of
	// this node among them, from 0. The first Sharing of Members are others of these nodes.
	Index, Of, Sharing int
}

// Fetcher makes DAGs durable in the block store. It does not fetch blocks again that an earlier
// attempt stored under the reference.
type Fetcher interface {
	// Fetch returns when the complete DAG is durable, with its size and number of blocks.
	// It calls progress from one goroutine at a time, after blocks have arrived.
	Fetch(ctx context.Context, job Job, progress func(bytes, blocks uint64)) (bytes, blocks uint64, err error)
	// Reason returns why a fetch failed, as text for people.
	Reason(err error) string
	// Final returns whether another attempt cannot succeed, for example because the format
	// is unknown.
	Final(err error) bool
	// Vain returns whether another attempt would ask the same sources without result: all
	// origins are refused, and no block arrived.
	Vain(err error) bool
	// Blameless returns whether a failure says nothing about the content or its sources.
	// Such failures are not counted.
	Blameless(err error) bool
}

// rootPrefix is the prefix of the references of roots.
const rootPrefix = "root/"

const (
	// maxSources bounds the members that are asked for one root.
	maxSources = 16
	// maxAccounts bounds the accounts that are compared to find the one whose turn a root
	// uses.
	maxAccounts = 4
)

// Reference returns the name of the reference of a root in the block store.
func Reference(k state.RootKey) string { return rootPrefix + k.String() }

// RootOf returns the root of a reference; ok is false for a reference of something else.
func RootOf(reference string) (c cid.Cid, ok bool) {
	text, ok := strings.CutPrefix(reference, rootPrefix)
	if !ok {
		return cid.Undef, false
	}
	c, err := cid.Decode(text)
	return c, err == nil
}

// Limits are the bounds and times of a Tracker. A zero field takes the default.
type Limits struct {
	Moving      int           // fetches that have received data lately
	Waiting     int           // fetches that wait for their first or next block
	Account     int           // fetches of one account at the same time
	Known       int           // roots in memory: to check, fetch, drop or report
	Attempts    int           // fetches of a root without a holder before this node gives up
	Backoff     time.Duration // pause after the first failed attempt; it doubles each time
	MaxBackoff  time.Duration // longest pause
	RotateAfter time.Duration // time without data after which a fetch yields to fetches that wait for a slot
	Patience    time.Duration // time without data, in all turns together, after which an attempt fails
	Audit       time.Duration // interval between two audits
	Flush       time.Duration // time that a report waits for other reports
	Linger      time.Duration // time that the report of a fetch's begin waits for the end of the fetch
}

// Defaults of Limits.
const (
	DefaultMoving      = 64
	DefaultWaiting     = 512
	DefaultAccount     = 256
	DefaultKnown       = 16 << 10
	DefaultAttempts    = 3
	DefaultBackoff     = 5 * time.Second
	DefaultMaxBackoff  = time.Minute
	DefaultRotateAfter = 15 * time.Second
	DefaultPatience    = 5 * time.Minute
	DefaultAudit       = 10 * time.Minute
	DefaultFlush       = 20 * time.Millisecond
	DefaultLinger      = 750 * time.Millisecond
)

func orDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.Moving, DefaultMoving)
	orDefault(&l.Waiting, DefaultWaiting)
	orDefault(&l.Account, DefaultAccount)
	orDefault(&l.Known, DefaultKnown)
	orDefault(&l.Attempts, DefaultAttempts)
	orDefault(&l.Backoff, DefaultBackoff)
	orDefault(&l.MaxBackoff, DefaultMaxBackoff)
	orDefault(&l.RotateAfter, DefaultRotateAfter)
	orDefault(&l.Patience, DefaultPatience)
	orDefault(&l.Audit, DefaultAudit)
	orDefault(&l.Flush, DefaultFlush)
	orDefault(&l.Linger, DefaultLinger)
	return l
}

// Options are the dependencies of a Tracker. Fields that say so may be zero; the others are
// required.
type Options struct {
	Self     state.NodeID
	State    State
	Watch    *state.Watch
	Blocks   Blocks
	Fetcher  Fetcher
	NodeMeta NodeMeta
	Limits   Limits
	// LeasePrefix is the prefix of the references of imports, which the node drops when it
	// starts. Empty: there are none.
	LeasePrefix string
	// Down returns whether a member is known not to answer, so that it is not asked for blocks.
	// Nil means that no member is.
	Down func(state.NodeID) bool
	// Moves returns whether the Repairer moves a root to other nodes after this node failed
	// to fetch it with err. This node then does not give up meanwhile. Nil: it moves none.
	Moves func(root *state.Root, err error) bool
	// Leases has the roots that must not be dropped. Nil means that there are no leases.
	Leases *Leases
	// Now is the clock for the stored time of the next attempt, which the next process reads.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Tracker is the reconciler of one node.
type Tracker struct {
	opts    Options
	limits  Limits
	metrics *metrics
	reports *outbox
	sweeps  *sweeps
	hides   *hides
	leases  *Leases

	offers   chan offer    // roots that the dispatcher must check
	audits   chan struct{} // receives requests for an audit; at most one waits
	refills  *refills      // accounts of which more roots can be taken
	outcomes chan *run     // fetches that have ended
	acks     chan []ack    // reports that have been answered
	swept    chan sweep    // drops that have ended

	questions chan question // calls of Look

	queue atomic.Int64

	// mu guards runs and cleared. It is not held during calls of other code.
	mu      sync.Mutex
	runs    map[state.RootKey]*run // the running fetches
	cleared bool                   // the leases of earlier processes are dropped
}

// New returns a Tracker, which does nothing before Run.
func New(opts Options) (*Tracker, error) {
	limits := opts.Limits.withDefaults()
	if opts.Down == nil {
		opts.Down = func(state.NodeID) bool { return false }
	}
	if opts.Moves == nil {
		opts.Moves = func(*state.Root, error) bool { return false }
	}
	leases := opts.Leases
	if leases == nil {
		leases = NewLeases()
		leases.Fenced()
	}
	t := &Tracker{
		leases:   leases,
		opts:     opts,
		limits:   limits,
		reports:  newOutbox(limits.Linger),
		sweeps:   newSweeps(),
		hides:    newHides(),
		refills:  newRefills(),
		offers:   make(chan offer),
		audits:   make(chan struct{}, 1),
		outcomes: make(chan *run),
		acks:     make(chan []ack),
		swept:    make(chan sweep),

		questions: make(chan question),
		runs:      map[state.RootKey]*run{},
	}
	var err error
	t.metrics, err = newMetrics(opts.Registerer, t.Queue)
	return t, err
}

// Queue returns the number of roots that this node has yet to fetch.
func (t *Tracker) Queue() int { return int(t.queue.Load()) }

// Progress returns the progress of the running fetch of a root; ok is false if there is
// none.
func (t *Tracker) Progress(root state.RootKey) (bytes, blocks uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.runs[root]
	if r == nil {
		return 0, 0, false
	}
	return r.bytes.Load(), r.blocks.Load(), true
}

// DropLeases drops the blocks of imports of an earlier process, because no command can
// refer to them any more. It must return before this process imports anything. Run calls it
// if the caller did not.
func (t *Tracker) DropLeases(ctx context.Context) error {
	t.mu.Lock()
	done := t.cleared
	t.cleared = true
	t.mu.Unlock()
	if done || t.opts.LeasePrefix == "" {
		return nil
	}
	var references []string
	for more := true; more; {
		references, more = references[:0], false
		err := t.opts.Blocks.References(ctx, t.opts.LeasePrefix, func(reference string, _ bool) (bool, error) {
			more = len(references) == pageRoots
			if !more {
				references = append(references, reference)
			}
			return !more, nil
		})
		if err != nil {
			return wrap("list leases", err)
		}
		for _, reference := range references {
			if err := t.opts.Blocks.Drop(ctx, reference); err != nil {
				return wrap("drop lease", err)
			}
		}
	}
	return nil
}

// Run works until ctx ends and everything that it has started has ended, then returns nil. It
// returns an error only if it cannot begin.
func (t *Tracker) Run(ctx context.Context) error {
	if err := t.DropLeases(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return t.dispatch(ctx) })
	work.Go(func() error { return t.audit(ctx) })
	work.Go(func() error { return t.report(ctx) })
	work.Go(func() error { return t.sweep(ctx) })
	work.Go(func() error { return t.scanEnded(ctx) })
	work.Go(func() error { return t.hide(ctx) })
	if err := work.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
