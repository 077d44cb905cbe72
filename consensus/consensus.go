// Package consensus replicates the state: one Raft group of all members, the
// state machine on an ordered store, proposals from any node, linearizable
// reads on any node, and a Raft membership that follows the members' records.
//
// Imports: consensus/*, hashicorp/raft, hclog, client_golang.
// Never:   libp2p, storage, config, cluster.
package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/transport"
)

// Store is the ordered store that the state lies in.
type Store interface {
	// Begin opens the one transaction that there is at a time.
	Begin() Tx
	// View opens a view of everything committed.
	View() Snapshot
	// Sync makes everything committed durable.
	Sync() error
	// Checkpoint copies what is committed into the new folder dir, fast.
	Checkpoint(dir string) error
	// Restore replaces everything, all at once and durably, by what a
	// snapshot's stream holds. Open views stay as they are.
	Restore(r io.Reader) error
}

// Tx is a transaction of a Store; it ends with Commit or Discard, and Discard
// after Commit does nothing.
type Tx interface {
	state.Tx
	// Commit makes the writes visible, with sync durable too. Without, a crash
	// may undo the newest commits, but none that an earlier one depends on.
	Commit(sync bool) error
	Discard()
}

// Snapshot is a view of a Store.
type Snapshot interface {
	state.Reader
	Close()
}

// Network is where members are reached.
type Network = transport.Network

// Errors that Run and Bootstrap end in, for errors.Is.
var (
	// ErrRemoved: this node is no member of the cluster any more.
	ErrRemoved = errors.New("this node was removed from the cluster")
	// ErrBootstrapped: there is Raft state already.
	ErrBootstrapped = errors.New("this node belongs to a cluster already")
	// ErrBroken: the store, the log or an invariant of the state cannot be
	// trusted any more. The process has to end.
	ErrBroken = errors.New("replicated state is broken on this node")
	// ErrStalled: the disk of the Raft log does not answer.
	ErrStalled = errors.New("the disk of the Raft log hangs")
)

// Timings of Raft. Zero values take the defaults.
type Timings struct {
	Heartbeat time.Duration // without a leader's word before an election, 300 ms
	Election  time.Duration // of one candidacy, 300 ms
	Lease     time.Duration // of a leader without a majority's word, 250 ms
	// Commit is after what time, or twice that, followers are told what was
	// committed if no further entry tells them, 2 ms. Proposals through them
	// and reads on them wait for it; three idle nodes pay with some 5 % of one
	// processor.
	Commit    time.Duration
	Reconcile time.Duration // between looks at who should be a member, 2 s

	SnapshotInterval  time.Duration // between looks at whether a snapshot is due, 1 min
	SnapshotThreshold uint64        // entries since the last snapshot that make it due, 8,192
	TrailingLogs      uint64        // entries kept behind a snapshot, 4,096
}

func (t Timings) withDefaults() Timings {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Heartbeat, 300 * time.Millisecond},
		{&t.Election, 300 * time.Millisecond},
		{&t.Lease, 250 * time.Millisecond},
		{&t.Commit, 2 * time.Millisecond},
		{&t.Reconcile, 2 * time.Second},
		{&t.SnapshotInterval, time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if t.SnapshotThreshold == 0 {
		t.SnapshotThreshold = 8192
	}
	if t.TrailingLogs == 0 {
		t.TrailingLogs = 4096
	}
	return t
}

// Options are what a Node is made of. All are required but Registerer.
type Options struct {
	ID        state.NodeID
	Store     Store
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore // its sinks have Adopt(dir string) error
	// CheckpointDir is where checkpoints for snapshots are made, on the file
	// system of the snapshots. What an earlier run left in it is removed.
	CheckpointDir string
	Network       Network
	Watch         *state.Watch // told every change once it is readable
	Timings       Timings
	Logger        *slog.Logger
	Registerer    prometheus.Registerer
}

// Node is one member's part in the consensus. Its methods may be called
// concurrently.
type Node struct {
	opts    Options
	timings Timings
	log     *slog.Logger

	fsm       *fsm
	disk      *watchedLog
	raft      *raft.Raft
	transport *transport.Raft
	forwards  *forwards
	batcher   *batcher
	reads     *readRounds
	leaders   *leaderGate
	observer  *raft.Observer
	observed  chan raft.Observation
	metrics   *metrics

	// ledTerm has a token when this node has committed in a term of its own.
	ledTerm chan struct{}
	// fatal gets the first reason to end.
	fatal chan error
	// waits are the goroutines that wait for answers of Raft.
	waits sync.WaitGroup

	// mu guards caughtUp and ended.
	mu       sync.Mutex
	caughtUp bool
	ended    error // what Run ended in
	closing  sync.Once
	closeErr error
}

// Open opens a node's part in the consensus: the state machine at the index
// that its store holds, and Raft, which begins to run. Close ends it, also
// after an error of Run.
func Open(opts Options) (*Node, error) {
	timings := opts.Timings.withDefaults()
	n := &Node{
		opts: opts, timings: timings, log: opts.Logger,
		fatal: make(chan error, 1), ledTerm: make(chan struct{}, 1), observed: make(chan raft.Observation, maxObserved),
	}
	var err error
	if n.fsm, err = openFSM(opts, n.fail); err != nil {
		return nil, fmt.Errorf("consensus: open: %w", err)
	}
	n.disk = &watchedLog{LogStore: opts.Log, now: time.Now, fail: n.fail}
	if err := n.startRaft(); err != nil {
		return nil, fmt.Errorf("consensus: open: %w", err)
	}
	n.leaders = newLeaderGate(n.Leader)
	n.reads = newReadRounds()
	n.batcher = newBatcher(n)
	if n.forwards, err = openForwards(opts.Network); err != nil {
		return nil, errors.Join(fmt.Errorf("consensus: open: %w", err), n.stopRaft())
	}
	if n.metrics, err = registerMetrics(n, opts.Registerer); err != nil {
		return nil, errors.Join(fmt.Errorf("consensus: open: %w", err), n.forwards.close(), n.stopRaft())
	}
	n.observer = raft.NewObserver(n.observed, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	n.raft.RegisterObserver(n.observer)
	n.leaders.refresh()
	return n, nil
}

// Bounds of what Raft holds in memory and sends at once.
const (
	// cachedEntries is how many of the newest entries followers are sent
	// without reading the log.
	cachedEntries = 128
	// maxAppend is the most entries of one message to a follower.
	maxAppend = 64
	// maxObserved is how many leader changes wait to be looked at.
	maxObserved = 64
)

func (n *Node) startRaft() error {
	cache, err := raft.NewLogCache(cachedEntries, n.disk)
	if err != nil {
		return err
	}
	whole, err := n.fsm.holdsSnapshot(n.opts.Snapshots)
	if err != nil {
		return err
	}
	logger := raftLogger(n.log)
	n.transport, err = transport.NewRaft(n.opts.Network, string(n.opts.ID), raft.NetworkTransportConfig{Logger: logger})
	if err != nil {
		return err
	}
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(n.opts.ID)
	conf.HeartbeatTimeout, conf.ElectionTimeout = n.timings.Heartbeat, n.timings.Election
	conf.LeaderLeaseTimeout, conf.CommitTimeout = n.timings.Lease, n.timings.Commit
	conf.SnapshotInterval, conf.SnapshotThreshold = n.timings.SnapshotInterval, n.timings.SnapshotThreshold
	conf.TrailingLogs = n.timings.TrailingLogs
	conf.MaxAppendEntries = maxAppend
	// An entry is handed over, not queued, so that Raft answers every one, its
	// own end included; and what waits meanwhile goes into the next entry.
	conf.BatchApplyCh = false
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	conf.Logger = logger
	// The state is durable in the store; only one that a crash kept from
	// taking over the newest snapshot has to go back to it.
	conf.NoSnapshotRestoreOnStart = whole
	n.raft, err = raft.NewRaft(conf, n.fsm, cache, n.opts.Stable, n.opts.Snapshots, n.transport)
	if err != nil {
		return errors.Join(fmt.Errorf("start raft: %w", err), n.transport.Close())
	}
	return nil
}

// Bootstrap makes this node the first of a new cluster, its only voter.
// ErrBootstrapped says that there is Raft state already.
func (n *Node) Bootstrap() error {
	err := n.raft.BootstrapCluster(raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter, ID: raft.ServerID(n.opts.ID), Address: raft.ServerAddress(n.opts.ID),
	}}}).Error()
	switch {
	case errors.Is(err, raft.ErrCantBootstrap):
		return fmt.Errorf("consensus: bootstrap: %w", ErrBootstrapped)
	case err != nil:
		return fmt.Errorf("consensus: bootstrap: %w", err)
	}
	return nil
}

// HasState tells whether this node has Raft state of a cluster, its own or one
// that it joined. When that cannot be read, it says that there is some.
func (n *Node) HasState() bool {
	has, err := raft.HasExistingState(n.disk, n.opts.Stable, n.opts.Snapshots)
	return has || err != nil
}

// fail ends Run with a reason; the first one counts.
func (n *Node) fail(err error) {
	select {
	case n.fatal <- err:
	default:
	}
}

// Leader returns the node that leads as far as this one knows.
func (n *Node) Leader() (state.NodeID, bool) {
	_, id := n.raft.LeaderWithID()
	return state.NodeID(id), id != ""
}

// IsLeader tells whether this node believes that it leads.
func (n *Node) IsLeader() bool { return n.raft.State() == raft.Leader }

// Applied is the index of the newest entry in the local state.
func (n *Node) Applied() uint64 { return n.fsm.progress.index() }

// Ready is nil once this node is in the Raft configuration, knows a leader, and
// has applied what was committed when it first heard of one.
func (n *Node) Ready() error {
	n.mu.Lock()
	caughtUp, ended := n.caughtUp, n.ended
	n.mu.Unlock()
	if ended != nil {
		return ended
	}
	if _, in := n.Roles()[n.opts.ID]; !in {
		return state.Errorf(state.CodeUnavailable, "this node is not part of the cluster yet")
	}
	if _, known := n.Leader(); !known {
		return state.Errorf(state.CodeUnavailable, "no leader is known")
	}
	if !caughtUp {
		return state.Errorf(state.CodeUnavailable, "this node is catching up with the cluster")
	}
	return nil
}

// Bounds of ending.
const (
	// handOverTimeout is how long a leader tries to hand over.
	handOverTimeout = 2 * time.Second
	// drainTimeout is how long an answer of Raft is waited for when nobody
	// wants to wait any more.
	drainTimeout = 2 * time.Second
	// stopTimeout is how long Close waits for a Raft that does not stop.
	stopTimeout = 5 * time.Second
	// leftoverTimeout is how long it waits for answers that a stopped Raft may
	// owe: it forgets what it had not looked at yet.
	leftoverTimeout = 200 * time.Millisecond
)

// HandOver makes another voter lead, if this node leads. It returns when the
// other does, or with an error after two seconds at the most.
func (n *Node) HandOver(ctx context.Context) error {
	if !n.IsLeader() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	if n.otherVoters() == 0 {
		return nil // nobody to hand over to
	}
	if err := n.await(ctx, n.raft.LeadershipTransfer()); err != nil && !errors.Is(err, raft.ErrNotLeader) {
		return fmt.Errorf("consensus: hand over leadership: %w", err)
	}
	return nil
}

// Close hands leadership over, if Run has not ended in an error, and stops
// Raft. Run must have returned. Views stay good until they are released.
func (n *Node) Close() error {
	n.closing.Do(func() { n.closeErr = n.close() })
	return n.closeErr
}

func (n *Node) close() error {
	n.mu.Lock()
	broken := n.ended != nil
	n.mu.Unlock()
	var failed error
	if !broken {
		if err := n.HandOver(context.Background()); err != nil {
			// Stopping without is slower for the others, but right.
			n.log.Warn("cannot hand leadership over", "err", err)
		}
	}
	n.raft.DeregisterObserver(n.observer)
	n.metrics.unregister()
	failed = errors.Join(failed, n.forwards.close(), n.stopRaft())
	if failed != nil {
		return fmt.Errorf("consensus: close: %w", failed)
	}
	return nil
}

// stopRaft waits until Raft has stopped.
func (n *Node) stopRaft() error {
	future := n.raft.Shutdown()
	// Raft waits for its streams to other members, and they may hang.
	err := n.transport.Close()
	if !within(stopTimeout, func() { err = errors.Join(err, future.Error()) }) {
		return errors.New("raft does not stop")
	}
	if !within(leftoverTimeout, n.waits.Wait) {
		n.log.Debug("raft left a question without an answer")
	}
	return err
}

// within calls fn and tells whether it returned in time.
func within(limit time.Duration, fn func()) bool {
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// await waits for an answer of Raft until ctx ends, and a little longer: while
// Raft runs it answers everything, unless its disk hangs, and what it answers
// counts more than that time is up. When it stops it forgets questions, so none
// should be open then.
func (n *Node) await(ctx context.Context, f raft.Future) error {
	answer := make(chan error, 1)
	n.waits.Go(func() { answer <- f.Error() })
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case err := <-answer:
		return err
	case <-timer.C:
		return ctx.Err()
	}
}
