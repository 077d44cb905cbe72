// Package tracker makes the content on one node match the replicated state. It compares both,
// fetches missing content, drops unwanted content, and reports the results to the state. It acts
// on changes of the state, and it scans all roots at intervals. It stores only the attempts of
// its node to fetch roots. On the leader, Reconciler and Repairer do work for all nodes.
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
	// View returns a linearizable view of the state. The caller must call release.
	View(ctx context.Context) (view state.View, release func(), err error)
	// LocalView returns a view of the state after the entries that this node has applied. The
	// caller must call release.
	LocalView() (view state.View, release func())
	// Propose commits a command. A local view that is opened afterwards includes its effects.
	Propose(ctx context.Context, cmd state.Command) (state.Result, error)
	// IsLeader returns whether this node leads the cluster.
	IsLeader() bool
}

// Blocks is the block store. A reference is a named set of blocks. The store keeps a block as
// long as a reference includes it. A reference is sealed when its set is complete.
type Blocks interface {
	// Reference returns the record of a reference. ok is false if there is none. bytes and blocks
	// are those of Seal.
	Reference(ctx context.Context, reference string) (sealed bool, bytes, blocks uint64, ok bool, err error)
	// References calls fn with the references whose names begin with prefix, until fn returns
	// false or an error.
	References(ctx context.Context, prefix string, fn func(reference string, sealed bool) (more bool, err error)) error
	// Seal marks a reference as complete. bytes and blocks are its size. The change is durable
	// when Seal returns.
	Seal(ctx context.Context, reference string, bytes, blocks uint64) error
	// Hide hides the blocks of a sealed reference from peers that are not members, or shows them.
	// It does nothing if that has been done already, or if the reference is not sealed or does
	// not exist.
	Hide(ctx context.Context, reference string, hidden bool) error
	// Drop deletes a reference, and the blocks that no other reference includes. It returns nil
	// if the reference does not exist.
	Drop(ctx context.Context, reference string) error
}

// Job describes one attempt to fetch a whole DAG and store it durably on this node.
type Job struct {
	Root      cid.Cid
	Reference string          // reference of the blocks
	Account   state.AccountID // account whose share of the slots the attempt uses
	Members   []state.NodeID  // members in the order in which to ask them: those with the complete content, other allocated nodes, others
	Origins   []string        // multiaddrs of hosts with the content, from the pins
	Held      bool            // another node is recorded as having the complete content
	Private   bool            // only members may be asked for the content
	Linked    bool            // an object or a part of an upload references the root
	// Of is the number of nodes to which the root is allocated, which may all be fetching it now.
	// Index is the position of this node among them, from 0. The first Sharing elements of Members
	// are others of these nodes.
	Index, Of, Sharing int
}

// Fetcher fetches DAGs and stores them durably in the block store. It does not fetch blocks again
// that an earlier attempt has stored under the same reference.
type Fetcher interface {
	// Fetch fetches a DAG. It returns when the complete DAG is durable, with its size in bytes
	// and its number of blocks. It calls progress after blocks have arrived, never concurrently.
	Fetch(ctx context.Context, job Job, progress func(bytes, blocks uint64)) (bytes, blocks uint64, err error)
	// Reason returns a text for people about why a fetch failed.
	Reason(err error) string
	// Final returns whether no further attempt can succeed, for example because the format of the
	// content is unknown.
	Final(err error) bool
	// Vain returns whether another attempt would be useless, because no block arrived and this
	// node never dials any of the origins.
	Vain(err error) bool
	// Blameless returns whether neither the content nor its sources are the reason of a failure.
	// Such attempts are not counted.
	Blameless(err error) bool
}

// RootPrefix is the prefix of the references of roots.
const RootPrefix = "root/"

const (
	// maxSources is the largest number of members that one attempt asks for a root.
	maxSources = 16
	// maxAccounts is the largest number of accounts of a root that are compared to find the one
	// whose share of the slots the root uses.
	maxAccounts = 4
)

// Reference returns the name of the reference of a root in the block store.
func Reference(k state.RootKey) string { return RootPrefix + k.String() }

// RootOf returns the root of a reference. ok is false if the reference is not that of a root.
func RootOf(reference string) (c cid.Cid, ok bool) {
	text, ok := strings.CutPrefix(reference, RootPrefix)
	if !ok {
		return cid.Undef, false
	}
	c, err := cid.Decode(text)
	return c, err == nil
}

// Limits are the limits and durations of a Tracker. A zero field means the default.
type Limits struct {
	Moving      int           // largest number of running fetches that have received data recently
	Waiting     int           // largest number of running fetches that wait for their first or next block
	Account     int           // largest number of running fetches of one account
	Known       int           // largest number of roots in memory: to check, fetch, drop or report
	Attempts    int           // number of attempts to fetch a root that no other node has, before this node gives up
	Backoff     time.Duration // pause after the first failed attempt; it doubles each time
	MaxBackoff  time.Duration // longest pause
	RotateAfter time.Duration // time without data after which a fetch yields to fetches that wait for a slot
	Patience    time.Duration // time without data, in all fetches since the last block, after which an attempt fails
	Audit       time.Duration // interval between two audits
	Flush       time.Duration // time that a report waits for other reports
	Linger      time.Duration // time for which the report that a fetch has begun waits for the end of the fetch
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

// Options are the dependencies of a Tracker. All fields are required, unless their comment
// describes the zero value. Limits may be zero.
type Options struct {
	Self     state.NodeID
	State    State
	Watch    *state.Watch
	Blocks   Blocks
	Fetcher  Fetcher
	NodeMeta NodeMeta
	Limits   Limits
	// LeasePrefix is the prefix of the references of imports. The node drops these references
	// when it starts. Empty means that there are none.
	LeasePrefix string
	// Down returns whether a member is down. Such a member is not asked for blocks. Nil means
	// that no member is down.
	Down func(state.NodeID) bool
	// Moves returns whether the Repairer will move a root to another node after this node has
	// failed to fetch it with err. Then this node does not give up meanwhile. Nil means that it
	// never does.
	Moves func(root *state.Root, err error) bool
	// Leases are the leases of roots that must not be dropped. Nil means that there are none.
	Leases *Leases
	// Now is the clock for the time of the next attempt, which is stored for the next process.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil means no metrics
}

// Tracker makes the content on this node match the replicated state. See the package comment.
type Tracker struct {
	opts    Options
	limits  Limits
	metrics *metrics
	reports *outbox
	sweeps  *sweeps
	hides   *hides
	leases  *Leases

	offers   chan offer        // roots that the dispatcher must check
	audits   chan struct{}     // requests for an audit; at most one waits
	asked    chan chan<- error // audits that callers wait for
	refills  *refills          // accounts of which the dispatcher can accept more roots
	outcomes chan *run         // fetches that have ended
	acks     chan []ack        // reports that were committed or rejected
	swept    chan sweep        // drops that have ended

	questions chan question // calls of Look

	queue atomic.Int64

	// mu guards runs and cleared. It is not held during calls of other code.
	mu      sync.Mutex
	runs    map[state.RootKey]*run // the running fetches
	cleared bool                   // DropLeases was called
}

// New returns a Tracker. It does nothing before Run.
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
		asked:    make(chan chan<- error),
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

// Progress returns the bytes and blocks of a root that its running fetch has reached. ok is false
// if the root is not being fetched.
func (t *Tracker) Progress(root state.RootKey) (bytes, blocks uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.runs[root]
	if r == nil {
		return 0, 0, false
	}
	return r.bytes.Load(), r.blocks.Load(), true
}

// DropLeases drops the blocks of imports of an earlier process, because no command can reference
// them any more. It must return before this process imports anything. Run calls it if the caller
// has not.
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

// Run runs the tracker until ctx ends, waits until all its work has ended, and returns nil. It
// returns an error only if DropLeases fails.
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
