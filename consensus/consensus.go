// Package consensus replicates the state: one Raft group of all members, the state
// machine on an ordered store, proposals and linearizable reads on any node, and a Raft
// configuration that follows the members' records.
//
// Imports: consensus/*, hashicorp/raft, hclog, client_golang.
// Never:   libp2p, storage, config, cluster.
package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/transport"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
)

// Store is the ordered store of the replicated state.
type Store interface {
	// Begin opens a transaction. There is only one at a time.
	Begin() Tx
	// View opens a view of everything committed.
	View() Snapshot
	// Sync makes everything committed durable.
	Sync() error
	// Checkpoint copies the committed state into the new folder dir. It must be fast.
	Checkpoint(dir string) error
	// Restore atomically and durably replaces the whole content by the content of a snapshot's
	// stream. Open views do not change.
	Restore(r io.Reader) error
}

// Tx is a transaction of a Store; it ends with Commit or Discard, and Discard
// after Commit does nothing.
type Tx interface {
	state.Tx
	// Commit makes the writes visible, and with sync also durable. After a commit without sync, a
	// crash may lose the newest commits, but never an earlier commit without all later ones.
	Commit(sync bool) error
	Discard()
}

// Snapshot is a view of a Store.
type Snapshot interface {
	state.Reader
	Close()
}

// Log stores the entries of Raft.
type Log = raft.LogStore

// Intervals at which an idle Raft sends messages.
const (
	// beatParts is the largest number of heartbeats to a follower within the time after which a
	// follower without heartbeats stands for election.
	beatParts = 4
	// replicaTick is the minimum interval at which Raft checks whether to send a commit index
	// to a follower. NotifyCommit sends the commit index without waiting for that check.
	replicaTick = 100 * time.Millisecond
)

// Network connects the members.
type Network = transport.Network

// Errors with which Run and Bootstrap end, for errors.Is.
var (
	// ErrRemoved means that this node is not a member of the cluster any more.
	ErrRemoved = errors.New("this node was removed from the cluster")
	// ErrBootstrapped means that Raft state exists already.
	ErrBootstrapped = errors.New("this node belongs to a cluster already")
	// ErrBroken means that the store, the log or an invariant of the state cannot be
	// trusted. The process must stop.
	ErrBroken = errors.New("replicated state is broken on this node")
	// ErrStalled means that the disk of the Raft log does not answer.
	ErrStalled = errors.New("the disk of the Raft log hangs")
)

// Timings are the time-outs and limits of Raft. A zero field means the default, which is at the
// end of its comment.
type Timings struct {
	// Adaptive means that the members measure how long a leader may be silent before an
	// election, from 1.5 s to 5 s (ADR 47). Raft's own time-out, Heartbeat, is then 5 s and
	// only the last resort.
	Adaptive  bool
	Heartbeat time.Duration // silence of a leader before an election, 300 ms
	Election  time.Duration // duration of one candidacy, the same as Heartbeat
	Lease     time.Duration // time that a leader leads without hearing from a majority, five sixths of Heartbeat
	// Commit is the delay after which the leader reports a commit to followers if no further
	// entry does, 10 ms. A follower that waits for a commit, with a proposal or a read, gets
	// the report at once.
	Commit    time.Duration
	Reconcile time.Duration // interval between two runs of reconcile, 2 s
	Check     time.Duration // interval between comparisons of the state on all nodes, 1 h

	SnapshotInterval  time.Duration // shortest interval between two checks whether a snapshot is due, 1 min; the longest is twice that
	SnapshotThreshold uint64        // number of entries since the last snapshot that makes one due, 8,192
	SnapshotBytes     uint64        // bytes of entries that make one due, at random 75 to 100 % of it, 16 MiB
	TrailingLogs      uint64        // entries kept in the log after a snapshot, 4,096
	TrailingBytes     uint64        // bytes of these entries, 16 MiB
	ServingBytes      uint64        // bytes of entries kept for a follower after its snapshot, 512 MiB
}

func (t Timings) withDefaults() Timings {
	if t.Adaptive {
		t.Heartbeat = mostPatience
	}
	t.Heartbeat = cmp.Or(t.Heartbeat, 300*time.Millisecond)
	t.Election = cmp.Or(t.Election, t.Heartbeat)
	t.Lease = cmp.Or(t.Lease, t.Heartbeat*5/6)
	t.Commit = cmp.Or(t.Commit, 10*time.Millisecond)
	t.Reconcile = cmp.Or(t.Reconcile, 2*time.Second)
	t.Check = cmp.Or(t.Check, time.Hour)
	t.SnapshotInterval = cmp.Or(t.SnapshotInterval, time.Minute)
	t.SnapshotThreshold = cmp.Or(t.SnapshotThreshold, 8192)
	t.SnapshotBytes = cmp.Or(t.SnapshotBytes, 16<<20)
	t.TrailingLogs = cmp.Or(t.TrailingLogs, 4096)
	t.TrailingBytes = cmp.Or(t.TrailingBytes, 16<<20)
	t.ServingBytes = cmp.Or(t.ServingBytes, 512<<20)
	return t
}

// heartbeatsApart returns the shortest interval between two Raft heartbeats to one follower.
func (t Timings) heartbeatsApart() time.Duration {
	if t.Adaptive {
		return 0 // the library makes one every 0.5 to 1 s
	}
	return t.Heartbeat / beatParts
}

// Options are the dependencies and settings of a Node. All are required except Registerer and the functions,
// whose comments say what nil means.
type Options struct {
	ID        state.NodeID
	Store     Store
	Log       Log
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore // the sinks of its snapshots have the method Adopt(dir string) error
	// CheckpointDir is the folder for checkpoints of snapshots, on the file system of the
	// snapshots. Open removes the files of an earlier run from it.
	CheckpointDir string
	Network       Network
	Watch         *state.Watch // notified of every change once it is readable
	Timings       Timings
	Logger        *slog.Logger
	Registerer    prometheus.Registerer

	// NoSpace returns whether an error of Log or Stable means that a full disk refused a write
	// and that the write changed nothing. If NoSpace is nil, every error stops the node.
	NoSpace func(error) bool
	// Eligibility returns a reason why this node should not lead now, and the other members
	// that could lead, best first. It is called often and must not block. If the reason is
	// empty, or if there is no other member, this node may lead. If Eligibility is nil, this
	// node may always lead.
	Eligibility func() (unfit string, heirs []state.NodeID)
	// Tight returns whether another member, according to its newest sample, should not lead.
	// Such a member becomes leader only if no other voter answers. Tight must not block. Nil
	// means that every member may lead.
	Tight func(state.NodeID) bool
	// Gone returns whether a member has been down for so long that another member should vote
	// in its place. Gone must not block. Nil means that no member has.
	Gone func(state.NodeID) bool
	// Refused returns whether an error of Network.Dial means that no process listens at any
	// address of a member. Nil means that no error does.
	Refused func(error) bool
}

// Node is one member's part in the consensus. Its methods may be called
// concurrently.
type Node struct {
	opts    Options
	timings Timings
	log     *slog.Logger

	fsm         *fsm
	disk        *disk
	eligibility *eligibility
	raft        *raft.Raft
	transport   *transport.Raft
	beats       *heartbeats
	detector    *detector         // nil if only Raft's own timers are used
	doubted     chan state.NodeID // receives the id of a leader that this node should ask whether it still leads
	consents    quorum
	forwards    *forwards
	clock       clock
	batcher     *batcher
	reads       *readRounds
	quorum      quorum
	leaders     *leaderGate
	observer    *raft.Observer
	observed    chan raft.Observation
	metrics     *metrics
	snapshots   *goodSnapshots
	taken       atomic.Pointer[raft.SnapshotMeta] // newest snapshot of a leader with which Raft continued
	longLog     atomic.Bool                       // the log has more entries than trailing allows, because of a follower or a full disk
	empty       []byte                            // encoded log entry without commands

	// ledTerm has a token when this node, as leader, has committed an entry of its own term.
	ledTerm chan struct{}
	// fatal receives the first error that must end Run.
	fatal chan error
	// waits counts the goroutines that wait for answers of Raft.
	waits sync.WaitGroup
	// hashing is a lock: it has a token while a goroutine hashes the state.
	hashing chan struct{}
	// askedLevels is when members were last asked for their feature level. Only keepMembership
	// uses it.
	askedLevels time.Time

	// caughtUp is closed once this node has everything that was committed when it first heard
	// of a leader.
	caughtUp chan struct{}
	// lag tells whether this node has fallen behind since then.
	lag lag

	// mu guards ended.
	mu       sync.Mutex
	ended    error // reason why Run ends or has ended
	closing  sync.Once
	closeErr error
}

// Open opens the consensus of a node, with the state machine at the index of its store, and
// starts Raft. The caller must call Close, also after an error of Run.
func Open(opts Options) (*Node, error) {
	opts.Timings = opts.Timings.withDefaults()
	n := &Node{
		opts: opts, timings: opts.Timings, log: opts.Logger,
		fatal: make(chan error, 1), ledTerm: make(chan struct{}, 1), observed: make(chan raft.Observation, maxObserved),
		hashing: make(chan struct{}, 1), caughtUp: make(chan struct{}),
		lag: lag{log: opts.Logger}, doubted: make(chan state.NodeID, 1),
	}
	n.lag.ready = n.hasCaughtUp
	var err error
	if n.empty, err = wire.EncodeEntry(nil); err != nil {
		return nil, fmt.Errorf("consensus: open: %w", err)
	}
	if n.clock, err = newClock(); err != nil {
		return nil, fmt.Errorf("consensus: open: %w", err)
	}
	if n.fsm, err = openFSM(opts, n.fail); err != nil {
		return nil, fmt.Errorf("consensus: open: %w", err)
	}
	n.disk = &disk{ran: n.fsm.ran, fail: n.fail, noSpace: opts.NoSpace, log: opts.Logger, closing: make(chan struct{})}
	if err := n.recover(); err != nil {
		return nil, fmt.Errorf("consensus: open: %w", err)
	}
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

// Limits of what Raft holds in memory and sends at once.
const (
	// cachedEntries is the number of newest entries that can be sent to followers without
	// reading the log.
	cachedEntries = 128
	// maxAppend is the largest number of entries in one message to a follower.
	maxAppend = 64
	// maxObserved is how many leader changes may wait to be processed.
	maxObserved = 64
)

func (n *Node) startRaft() error {
	var started atomic.Bool
	watched := watchedLog{LogStore: n.opts.Log, disk: n.disk, leading: func() bool { return n.beats.leading() }} // asked when Raft runs
	log := readableLog{LogStore: watched, fail: n.fail, started: &started}
	cache, err := raft.NewLogCache(cachedEntries, log)
	if err != nil {
		return err
	}
	n.fsm.refused, n.fsm.whole, n.fsm.covers = n.snapshots.refused, n.snapshots.whole, n.snapshots.index
	n.fsm.restored = func(index uint64) error { return n.leadToSent(cache, log, index) }
	logger := raftLogger(n.log)
	hooks := transport.Hooks{
		Leads: func(term uint64) bool { return n.beats.leads(term) }, // asked when there are streams
	}
	if !n.timings.Adaptive {
		hooks.Answered = newDistances(n.timings.Heartbeat, n.log).answered
	}
	n.transport, err = transport.NewRaft(
		n.opts.Network, string(n.opts.ID), n.timings.heartbeatsApart(), hooks, raft.NetworkTransportConfig{Logger: logger})
	if err != nil {
		return err
	}
	n.fsm.committed = func(index uint64) { n.transport.NotifyCommitToAll(index, n.timings.Commit) }
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(n.opts.ID)
	conf.HeartbeatTimeout, conf.ElectionTimeout = n.timings.Heartbeat, n.timings.Election
	conf.LeaderLeaseTimeout, conf.CommitTimeout = n.timings.Lease, max(n.timings.Commit, replicaTick)
	conf.SnapshotThreshold = math.MaxUint64 // keepLogShort knows when one is due
	conf.TrailingLogs = n.timings.TrailingLogs
	conf.MaxAppendEntries = maxAppend
	// An entry is handed over, not queued, so that Raft answers every one, its
	// own end included; and what waits meanwhile goes into the next entry.
	conf.BatchApplyCh = false
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	conf.Logger = logger
	// The state is durable in the store, and recover has seen to it that it has
	// everything that the newest snapshot has.
	conf.NoSnapshotRestoreOnStart = true
	if err := n.newRaft(conf, cache); err != nil {
		return errors.Join(fmt.Errorf("start raft: %w", err), n.transport.Close())
	}
	started.Store(true)
	return nil
}

// newRaft starts Raft. For a log entry that Raft cannot read, Raft panics before it has started
// anything; newRaft returns that panic as an error.
func (n *Node) newRaft(conf *raft.Config, cache raft.LogStore) (err error) {
	n.beats = newHeartbeats(&n.eligibility.raising)
	if n.timings.Adaptive {
		n.detector = newDetector(n.opts.ID, n.raftFollows)
	}
	defer func() {
		if err != nil {
			close(n.beats.done)
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			cause, ok := p.(error)
			if !ok {
				panic(p) // a bug, not a bad disk
			}
			err = fmt.Errorf("read the log: %w", cause)
		}
	}()
	n.raft, err = raft.NewRaft(conf, n.fsm, cache, n.eligibility, n.snapshots, n.ballots())
	if err != nil {
		return err
	}
	n.beats.raft.Store(n.raft)
	again := resent{raft: n.raft, log: n.opts.Log, progress: n.fsm.progress, disk: n.disk, run: n.waits.Go, taken: &n.taken}
	n.waits.Go(func() {
		n.beats.pump(n.transport.Consumer(), n.consent, arrivals{heard: n.raft.LastContact, drop: n.transport.Drop}, &again)
	})
	return nil
}

// Bootstrap makes this node the first member and only voter of a new cluster. It returns
// ErrBootstrapped if Raft state exists.
func (n *Node) Bootstrap() error {
	if n.HasState() {
		return fmt.Errorf("consensus: bootstrap: %w", ErrBootstrapped)
	}
	if err := n.eligibility.grant(0); err != nil {
		return fmt.Errorf("consensus: bootstrap: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
	defer cancel()
	err := n.await(ctx, n.raft.BootstrapCluster(raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter, ID: raft.ServerID(n.opts.ID), Address: raft.ServerAddress(n.opts.ID),
	}}}))
	switch {
	case errors.Is(err, raft.ErrCantBootstrap):
		return fmt.Errorf("consensus: bootstrap: %w", ErrBootstrapped)
	case err != nil:
		return fmt.Errorf("consensus: bootstrap: %w", err)
	}
	return nil
}

// HasState reports whether this node has Raft state from an earlier run, so that it has founded
// or joined a cluster. It returns true if the state cannot be read.
func (n *Node) HasState() bool {
	has, err := raft.HasExistingState(n.opts.Log, n.opts.Stable, n.snapshots)
	return has || err != nil || n.Applied() > 0
}

// fail makes Run end with the error err. Only the first call has an effect.
func (n *Node) fail(err error) {
	select {
	case n.fatal <- err:
	default:
	}
}

// Leader returns the leader that this node knows, if any.
func (n *Node) Leader() (state.NodeID, bool) {
	_, id := n.raft.LeaderWithID()
	return state.NodeID(id), id != ""
}

// IsLeader reports whether this node believes that it leads.
func (n *Node) IsLeader() bool { return n.raft.State() == raft.Leader }

// Applied returns the index of the newest entry in the local state.
func (n *Node) Applied() uint64 { return n.fsm.progress.index() }

// Ready returns nil once this node is in the Raft configuration, knows a leader, and has
// applied everything that was committed when it first heard of one. It returns an error
// again while the node is too far behind to answer linearizable reads.
func (n *Node) Ready() error {
	n.mu.Lock()
	ended := n.ended
	n.mu.Unlock()
	if ended != nil {
		return ended
	}
	if err := n.refused(); err != nil {
		return err
	}
	roles := n.Roles()
	if len(roles) == 0 && n.Applied() > 0 {
		return state.Errorf(state.CodeUnavailable, "this node has its state and not its log: it waits for the leader of the other members")
	}
	if _, in := roles[n.opts.ID]; !in {
		return state.Errorf(state.CodeUnavailable, "this node is not part of the cluster yet")
	}
	if _, known := n.Leader(); !known {
		return state.Errorf(state.CodeUnavailable, "no leader is known")
	}
	if !n.hasCaughtUp() {
		return state.Errorf(state.CodeUnavailable, "this node is catching up with the cluster")
	}
	if n.lag.behind.Load() {
		return state.Errorf(state.CodeUnavailable, "this node is behind the cluster%s", n.whyBehind())
	}
	return nil
}

// CaughtUp returns a channel that is closed once the local state has everything that was
// committed when this node first heard of a leader. Until then the local state is an old
// one.
func (n *Node) CaughtUp() <-chan struct{} { return n.caughtUp }

func (n *Node) hasCaughtUp() bool {
	select {
	case <-n.caughtUp:
		return true
	default:
		return false
	}
}

// Time limits for the end of a node.
const (
	// handOverTimeout is how long a leader tries to hand its leadership over.
	handOverTimeout = 2 * time.Second
	// heirTimeout is the part of handOverTimeout in which the leader waits for voters to report
	// their index. A silent voter then leaves enough time for the others.
	heirTimeout = 500 * time.Millisecond
	// drainTimeout is how long the node waits for an answer of Raft after the caller has given
	// up.
	drainTimeout = 2 * time.Second
	// stopTimeout is how long Close waits for a Raft that does not stop.
	stopTimeout = 5 * time.Second
	// leftoverTimeout is how long Close waits for answers that a stopped Raft may still owe.
	// Raft drops requests that it has not processed.
	leftoverTimeout = 200 * time.Millisecond
)

// HandOver transfers leadership to another voter if this node leads. It returns when that
// voter leads, or with an error after at most two seconds.
func (n *Node) HandOver(ctx context.Context) error {
	if !n.IsLeader() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	if n.otherVoters() == 0 {
		return nil // there is no other voter
	}
	transfer := n.raft.LeadershipTransfer
	if heir, found := n.heir(ctx); found {
		transfer = func() raft.Future {
			return n.raft.LeadershipTransferToServer(raft.ServerID(heir), raft.ServerAddress(heir))
		}
	}
	if err := n.await(ctx, transfer()); err != nil && !errors.Is(err, raft.ErrNotLeader) {
		return fmt.Errorf("consensus: hand over leadership: %w", err)
	}
	return nil
}

// Close hands leadership over, unless Run ended with an error, and stops Raft. The caller
// waits for Run first. Views remain usable until they are released.
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
			// Stopping without is slower for the others, but right: the heir may stop as well.
			n.log.Info("cannot hand leadership over", "err", err)
		}
	}
	close(n.disk.closing)
	n.raft.DeregisterObserver(n.observer)
	n.metrics.unregister()
	failed = errors.Join(failed, n.forwards.close(), n.stopRaft())
	n.fsm.checks.close()
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
	stopped := within(stopTimeout, func() { err = errors.Join(err, future.Error()) })
	close(n.beats.done)
	if !stopped {
		return errors.New("raft does not stop")
	}
	if !within(leftoverTimeout, n.waits.Wait) {
		n.log.Debug("Raft left a request without an answer at the stop")
	}
	return err
}

// within calls fn and returns true if fn returned within limit. Otherwise fn continues in its
// goroutine.
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

// await waits for Raft's answer until ctx ends, and then for drainTimeout longer. While Raft
// runs, it answers every request unless its disk hangs, and a late answer is more useful than a
// time-out. When Raft stops, it drops open requests without an answer, so callers should have
// none open then.
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
