package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/consensus/wire"
	"github.com/holdfast-ipfs/holdfast/internal/cache"
)

// appliedKey returns the key under which the store has the index of the newest applied entry, as
// 8 bytes big endian. The index is written in one transaction with the effects of that entry, so
// both always agree. The byte 0x00 identifies this package's table in the store.
func appliedKey() []byte { return []byte{0x00} }

// checkpointPrefix is the prefix of the names of checkpoint folders.
const checkpointPrefix = "checkpoint-"

// firstPins is the number of new roots of which the pin is cached: the roots that are created in some
// seconds.
const firstPins = 8192

// fsm implements Raft's interface of a state machine on top of a Store. Raft calls it from one
// goroutine.
type fsm struct {
	store    Store
	dir      string
	watch    *state.Watch
	fail     func(error)
	log      *slog.Logger
	progress *progress

	// committed is called with the index of applied entries that followers of this leader must
	// learn about. It is nil if followers need not learn about them.
	committed func(index uint64)
	// members has a token when the records of the members have changed.
	members chan struct{}
	// checks receives a view of the state after each entry that requests a state check.
	checks *checker
	// known caches facts about the cluster and this node that are often read. A new value
	// replaces it whenever the facts change in the state.
	known atomic.Pointer[verdict]
	self  state.NodeID

	// work measures how long the current call of ApplyBatch or Snapshot takes, on the clock ran.
	work stopwatch
	ran  *ran

	// restored is called when Raft may continue after a leader's snapshot with the given index:
	// the state was replaced by the snapshot, or contained it already. It is set before Raft
	// runs.
	restored func(index uint64) error
	// refused is called when the snapshot with the given id could not be restored. whole returns
	// an error if the state that was restored from a snapshot lacks commits of the snapshot;
	// index is that of the state. Both are set before Raft runs.
	refused func(id string, why error)
	whole   func(id string, index uint64) error
	// covers returns the log index at which the snapshot with the given id was taken; known is
	// false if there is no such snapshot. It is set before Raft runs.
	covers func(id string) (index uint64, known bool, err error)

	// grown counts how much was added to the log since the newest snapshot.
	grown *growth

	// Only Raft's goroutine uses the fields below.
	broken      error // if not nil, no further entry is applied
	applier     *state.Applier
	handed      uint64 // index of the newest entry that Raft has passed to the state machine
	checkpoints uint64 // number of checkpoints so far; used in their folder names
}

var _ raft.BatchingFSM = (*fsm)(nil)

// applied is the result of one entry for its proposer.
type applied struct {
	outcomes []wire.Outcome
}

func openFSM(opts Options, fail func(error)) (*fsm, error) {
	view := opts.Store.View()
	defer view.Close()
	index, err := readApplied(view)
	if err != nil {
		return nil, err
	}
	f := &fsm{
		store: opts.Store, dir: opts.CheckpointDir, watch: opts.Watch, fail: fail, log: opts.Logger,
		progress: newProgress(index), members: make(chan struct{}, 1), checks: newChecker(opts.Store), self: opts.ID,
		ran: new(ran), applier: state.NewApplier(cache.NewLocked[state.RootKey, state.FirstPin](firstPins)), grown: newGrowth(opts.Timings.SnapshotBytes),
	}
	if err := f.learn(); err != nil {
		return nil, err
	}
	return f, f.removeLeftovers()
}

// verdict has the facts that fsm caches about the cluster and this node.
type verdict struct {
	// since is the index of the entry after which the state has had these facts. They remain
	// valid until an entry sets Effects.Members or Effects.FeatureLevel.
	since      uint64
	members    *state.Members
	level      state.FeatureLevel
	quarantine *state.Quarantine // the quarantine of this node, or nil
}

// verdict returns the cached facts. Before the first call of learn, it returns the facts of an
// empty state.
func (f *fsm) verdict() verdict {
	if s := f.known.Load(); s != nil {
		return *s
	}
	return verdict{}
}

// level returns the feature level of the cluster.
func (f *fsm) level() state.FeatureLevel { return f.verdict().level }

// learn reads the facts from the state into the cache. It returns state.ErrTooOld if the state
// has a feature level that this release does not support, because this node would apply entries
// differently from the other members.
func (f *fsm) learn() error {
	snapshot := f.store.View()
	defer snapshot.Close()
	view := state.NewView(snapshot, 0)
	var s verdict
	var err error
	if s.level, err = view.FeatureLevel(); err != nil {
		return fmt.Errorf("read level: %w", err)
	}
	if s.level > state.NewestFeatureLevel {
		return fmt.Errorf("the state is of level %d, and %d is known here: %w", s.level, state.NewestFeatureLevel, state.ErrTooOld)
	}
	if s.quarantine, err = view.Quarantine(f.self); err != nil {
		return fmt.Errorf("read quarantine: %w", err)
	}
	if s.members, err = view.Members(); err != nil {
		return fmt.Errorf("read members: %w", err)
	}
	if s.since, err = readApplied(snapshot); err != nil {
		return err
	}
	f.known.Store(&s)
	return nil
}

// readApplied reads the index of the newest entry in the state.
func readApplied(r state.Reader) (uint64, error) {
	return decodeApplied(r.Get(appliedKey()))
}

func decodeApplied(b []byte, ok bool, err error) (uint64, error) {
	switch {
	case err != nil:
		return 0, fmt.Errorf("read applied index: %w", err)
	case !ok:
		return 0, nil
	case len(b) != 8:
		return 0, fmt.Errorf("%w: applied index of %d bytes", ErrBroken, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// view wraps a snapshot of the store, taken after the entry at index, in a state.View. If the
// cached member records are valid at that index, the view uses them instead of reading them.
func (f *fsm) view(snapshot state.Reader, index uint64) state.View {
	view := f.applier.View(snapshot, index)
	if f.progress.index() < index {
		return view // an entry that was committed a moment ago is about to be learned
	}
	if s := f.known.Load(); s != nil && s.since <= index {
		view = view.With(s.members)
	}
	return view
}

// removeLeftovers removes checkpoints that an earlier crash has left.
func (f *fsm) removeLeftovers() error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("checkpoint folder: %w", err)
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("checkpoint folder: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), checkpointPrefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(f.dir, e.Name())); err != nil {
			return fmt.Errorf("remove leftover checkpoint: %w", err)
		}
	}
	return nil
}

// Apply implements raft.FSM.
func (f *fsm) Apply(entry *raft.Log) any { return f.ApplyBatch([]*raft.Log{entry})[0] }

// ApplyBatch implements raft.BatchingFSM: it applies all entries in one transaction. The answer
// to an entry is an *applied, or an error if this node is broken.
//
// It does not flush the store: the log is already on disk, and the next start applies again any
// entry that a crash removed from the store. Changes of the member records are flushed
// nevertheless, because a node that does not know the other members can neither reach nor admit
// them, and so would never receive the entries to apply.
func (f *fsm) ApplyBatch(entries []*raft.Log) []any {
	answers := make([]any, len(entries))
	f.handed = entries[len(entries)-1].Index
	f.grown.add(entries)
	if f.broken == nil {
		f.work.start(f.ran)
		err := f.apply(entries, answers)
		f.work.stop()
		if err != nil {
			f.broken = fmt.Errorf("%w: %w", ErrBroken, err)
			f.log.Error("state machine stops", "err", err)
			f.fail(f.broken)
		}
	}
	if f.broken != nil {
		for i := range answers {
			answers[i] = f.broken
		}
		return answers
	}
	if f.committed != nil {
		f.committed(f.handed)
	}
	if !f.replaying() {
		f.grown.notify()
	}
	return answers
}

// apply applies entries in one transaction, or in several if a state check must see the state
// after one of the entries.
func (f *fsm) apply(entries []*raft.Log, answers []any) error {
	for len(entries) > 0 {
		done, err := f.applySome(entries, answers)
		if err != nil {
			return err
		}
		entries, answers = entries[done:], answers[done:]
	}
	return nil
}

// applySome applies entries in one transaction, up to and including the first one that requests a
// state check. done is the number of entries that it has processed.
func (f *fsm) applySome(entries []*raft.Log, answers []any) (done int, err error) {
	index := f.progress.index()
	last := entries[len(entries)-1]
	if last.Index <= index {
		return len(entries), nil // the next start reads what the state has
	}
	tx := f.store.Begin()
	defer tx.Discard()
	var fx state.Effects
	for i, entry := range entries {
		if entry.Index <= index || entry.Type != raft.LogCommand {
			continue
		}
		outcomes, err := f.applyEntry(tx, entry, &fx)
		if err != nil {
			return 0, err
		}
		answers[i] = &applied{outcomes: outcomes}
		if fx.Check {
			last, entries = entry, entries[:i+1]
			break
		}
	}
	if err := tx.Set(appliedKey(), binary.BigEndian.AppendUint64(nil, last.Index)); err != nil {
		return 0, err
	}
	if err := tx.Commit(fx.Members); err != nil {
		return 0, err
	}
	if fx.Check {
		f.checks.take(last.Index) // there is no other writer, so this is the state after that entry
	}
	if fx.Members || fx.FeatureLevel {
		if err := f.learn(); err != nil {
			return 0, err
		}
	}
	f.progress.set(last.Index, last.Term)
	f.watch.Publish(last.Index, &fx)
	if fx.Members || fx.FeatureLevel || fx.Checked {
		f.notifyMembers()
	}
	return len(entries), nil
}

// applying returns how long the state machine has been busy with the current entries or with a
// checkpoint that delays them, or 0 if it is idle.
func (f *fsm) applying() time.Duration {
	took, _ := f.work.shows(f.ran)
	return took
}

func (f *fsm) notifyMembers() {
	select {
	case f.members <- struct{}{}:
	default:
	}
}

func (f *fsm) applyEntry(tx state.Tx, entry *raft.Log, fx *state.Effects) ([]wire.Outcome, error) {
	commands, err := wire.DecodeEntry(entry.Data)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", entry.Index, err)
	}
	outcomes := make([]wire.Outcome, len(commands))
	for i, cmd := range commands {
		result, err := f.applier.Apply(tx, entry.Index, cmd.Op, cmd.Body, fx)
		outcomes[i] = wire.Outcome{Index: entry.Index, Result: result}
		if err != nil && !errors.As(err, &outcomes[i].Err) {
			return nil, fmt.Errorf("entry %d: %w", entry.Index, err)
		}
	}
	return outcomes, nil
}

// errReplaying means that Raft, after a start, has not yet replayed all entries that the state
// already contains.
var errReplaying = errors.New("the state is ahead of what Raft has told again since the start")

func (f *fsm) replaying() bool { return f.handed < f.progress.index() }

// Snapshot implements raft.FSM. Its cost does not depend on the size of the state. The checkpoint
// is durable, so Raft may remove earlier entries from the log. Snapshot returns an error while
// the state contains entries that Raft has not yet replayed after a start.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.broken != nil {
		return nil, f.broken
	}
	if f.replaying() {
		return nil, errReplaying
	}
	f.work.start(f.ran) // nothing is applied meanwhile
	defer f.work.stop()
	if err := f.store.Sync(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	f.checkpoints++
	dir := filepath.Join(f.dir, fmt.Sprintf("%s%d-%d", checkpointPrefix, f.progress.index(), f.checkpoints))
	if err := f.store.Checkpoint(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("snapshot: %w", err), os.RemoveAll(dir))
	}
	return &checkpoint{dir: dir, log: f.log, kept: f.grown.mark()}, nil
}

// Restore implements raft.FSM. It replaces the state by that of a leader's snapshot. If the
// snapshot cannot be read, nothing changes, and Raft asks for it again.
func (f *fsm) Restore(snapshot io.ReadCloser) error {
	defer func() { _ = snapshot.Close() }()
	id := snapshotID(snapshot)
	if index, has := f.has(id); has {
		return f.keep(index)
	}
	if err := f.store.Restore(snapshot); err != nil {
		if f.refused != nil {
			f.refused(id, err)
		}
		return fmt.Errorf("restore snapshot: %w", err)
	}
	f.applier.Reset()
	view := f.store.View()
	defer view.Close()
	index, err := readApplied(view)
	if err == nil && f.whole != nil {
		err = f.whole(id, index)
	}
	if err == nil {
		err = f.learn()
	}
	if err != nil {
		if f.refused != nil && !errors.Is(err, state.ErrTooOld) { // a newer release goes on from it
			f.refused(id, err)
		}
		f.broken = fmt.Errorf("restore snapshot: %w", err)
		f.fail(f.broken)
		return f.broken
	}
	f.progress.set(index, 0)
	f.watch.Replace(index)
	f.notifyMembers()
	return f.goOn(index)
}

// has returns whether the state already includes all entries up to the snapshot with the given
// id, and the index of the snapshot. In that case the node does not load the snapshot, because
// readers would not see newer data until the log after the snapshot was applied again.
func (f *fsm) has(id string) (index uint64, has bool) {
	if f.covers == nil || f.broken != nil {
		return 0, false
	}
	index, known, err := f.covers(id)
	return index, err == nil && known && index <= f.progress.index()
}

// keep makes Raft continue from the snapshot at index without replacing the state, which contains
// the snapshot already. It flushes the store first, because Raft then removes the log before the
// snapshot. Raft passes the entries after the snapshot again, and they are skipped.
func (f *fsm) keep(index uint64) error {
	if err := f.store.Sync(); err != nil { // the log before the snapshot goes
		return fmt.Errorf("restore snapshot: %w", err)
	}
	return f.goOn(index)
}

// goOn records that Raft continues from the snapshot at index, which the state contains.
func (f *fsm) goOn(index uint64) error {
	f.handed = index
	f.grown.mark()()
	if f.restored != nil {
		if err := f.restored(index); err != nil {
			return fmt.Errorf("restore snapshot: %w", err)
		}
	}
	return nil
}

// adopter is a snapshot sink that can take over the folder of a checkpoint.
type adopter interface {
	Adopt(dir string) error
}

// checkpoint is a copy of the state in a separate folder.
type checkpoint struct {
	dir  string
	log  *slog.Logger
	kept func() // called when the checkpoint has become a snapshot
}

// Persist implements raft.FSMSnapshot.
func (c *checkpoint) Persist(sink raft.SnapshotSink) error {
	err := errors.New("the snapshot store takes no checkpoints")
	if to, ok := sink.(adopter); ok {
		err = to.Adopt(c.dir)
	}
	if err == nil {
		err = sink.Close()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keep snapshot: %w", err), sink.Cancel())
	}
	c.kept()
	return nil
}

// Release implements raft.FSMSnapshot.
func (c *checkpoint) Release() {
	if err := os.RemoveAll(c.dir); err != nil {
		c.log.Warn("cannot remove a checkpoint", "folder", c.dir, "err", err)
	}
}
