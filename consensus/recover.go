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

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// ErrIncomplete means that log entries after the local state are missing and no snapshot includes
// them, so this node cannot continue with its data.
var ErrIncomplete = errors.New("the state, the snapshots and the log do not reach each other")

// goodSnapshots is Raft's snapshot store without unreadable snapshots. It verifies a snapshot
// before the snapshot is sent, because a follower would reject a damaged one and request it again
// forever.
type goodSnapshots struct {
	raft.SnapshotStore
	log   *slog.Logger
	sends func() bool   // returns whether this node leads; if so, Raft opens a snapshot only to send it
	again chan struct{} // has a token when a snapshot that a follower needs was found damaged, so that a new one must be taken

	// reading is a lock: it has a token while a snapshot is being verified. Raft may open the
	// same snapshot for several followers at once.
	reading chan struct{}

	// mu guards the fields below.
	mu    sync.Mutex
	bad   map[string]bool      // ids of unreadable snapshots
	read  map[string]time.Time // by id, when a snapshot was verified; removed when it is sent
	given map[*given]struct{}  // snapshots that are being sent to followers, or were sent recently
}

// given is a snapshot that was opened to be sent to a follower.
type given struct {
	index uint64
	until time.Time // end of the time for which the log keeps the entries after index; zero while the snapshot is being sent
}

// Limits for the remembered verifications of snapshots.
const (
	maxRead = 16 // largest number of remembered verifications
	// readFor is how long a verification remains valid. It is limited because a disk may lose
	// data while the follower that needs the snapshot is down.
	readFor = time.Hour
)

// verifier is a snapshot store that can verify a snapshot.
type verifier interface {
	// Verify reads a snapshot and returns an error if it differs from what was written (rotten is
	// true), or if that cannot be determined now (rotten is false). If the snapshot may lack the
	// newest commits, Verify calls check with a function that reads its keys; check returns an
	// error if commits are missing.
	Verify(id string, check func(get func(key []byte) ([]byte, bool, error)) error) (rotten bool, err error)
	// SetAside removes a damaged snapshot from the list of snapshots.
	SetAside(id string) error
}

func newGoodSnapshots(store raft.SnapshotStore, log *slog.Logger, sends func() bool) *goodSnapshots {
	return &goodSnapshots{
		SnapshotStore: store, log: log, sends: sends, again: make(chan struct{}, 1), reading: make(chan struct{}, 1),
		bad: map[string]bool{}, read: map[string]time.Time{}, given: map[*given]struct{}{},
	}
}

// Open implements raft.SnapshotStore.
func (s *goodSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if !s.sends() {
		meta, stream, err := s.SnapshotStore.Open(id)
		if err != nil {
			return nil, nil, err
		}
		return meta, &namedSnapshot{ReadCloser: stream, id: id}, nil
	}
	g, err := s.give(id)
	if err == nil {
		err = s.readThrough(id, g)
	}
	var meta *raft.SnapshotMeta
	var stream io.ReadCloser
	if err == nil {
		meta, stream, err = s.SnapshotStore.Open(id)
	}
	if err != nil {
		s.took(g, false)
		return nil, nil, err
	}
	return meta, &sentSnapshot{ReadCloser: stream, store: s, id: id, given: g}, nil
}

// namedSnapshot is the stream of a snapshot that this node restores; it also has the id of the
// snapshot. It is also used if Raft opened a snapshot to send it and this node has just lost
// leadership.
type namedSnapshot struct {
	io.ReadCloser
	id string
}

// snapshotID returns the id of the snapshot that a stream reads, also if Raft has wrapped the
// stream to count bytes. It returns "" if the stream is not from goodSnapshots.
func snapshotID(stream io.ReadCloser) string {
	for {
		switch s := stream.(type) {
		case *namedSnapshot:
			return s.id
		case *sentSnapshot:
			return s.id
		case raft.ReadCloserWrapper:
			stream = s.WrappedReadCloser()
		default:
			return ""
		}
	}
}

// sentSnapshot is the stream of a snapshot for a follower. Raft opens the stream before it has
// reached the follower, and the follower may be down for days.
type sentSnapshot struct {
	io.ReadCloser
	store *goodSnapshots
	id    string
	given *given
	begun bool
}

// Read implements io.Reader.
func (s *sentSnapshot) Read(b []byte) (int, error) {
	if !s.begun {
		s.begun = true
		s.store.sending(s.id)
	}
	return s.ReadCloser.Read(b)
}

// Close implements io.Closer.
func (s *sentSnapshot) Close() error {
	s.store.took(s.given, s.begun)
	return s.ReadCloser.Close()
}

// give records that a snapshot will be sent to a follower, so that the log keeps the entries
// after it. It returns nil if the snapshot no longer exists.
func (s *goodSnapshots) give(id string) (*given, error) {
	index, known, err := s.index(id)
	if err != nil {
		return nil, err
	}
	if !known { // it was removed; Open returns the error
		return nil, nil
	}
	g := &given{index: index}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given[g] = struct{}{}
	return g, nil
}

// took records the end of sending a snapshot. If sent is true, the log keeps the entries after
// the snapshot for the time serving; otherwise the record is removed. g may be nil.
func (s *goodSnapshots) took(g *given, sent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case g == nil:
	case sent:
		g.until = time.Now().Add(serving)
	default:
		delete(s.given, g)
	}
}

// sending forgets the verification of a snapshot that is being sent. If the follower rejects the
// snapshot, Raft sends it again, and it is verified again first.
func (s *goodSnapshots) sending(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.read, id)
}

// served returns whether a follower may still need the log entries after a snapshot that it was
// sent, and the lowest index of such a snapshot.
func (s *goodSnapshots) served() (index uint64, serves bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range s.given {
		if !g.until.IsZero() && time.Until(g.until) <= 0 {
			delete(s.given, g)
		} else if !serves || g.index < index {
			index, serves = g.index, true
		}
	}
	return index, serves
}

// readThrough verifies a snapshot before it is sent, unless it was verified since it was last
// sent. If the snapshot is damaged, readThrough sets it aside, requests a new one and returns an
// error.
func (s *goodSnapshots) readThrough(id string, g *given) error {
	v, ok := s.SnapshotStore.(verifier)
	if !ok || g == nil {
		return nil
	}
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	s.mu.Lock()
	at, done := s.read[id]
	s.mu.Unlock()
	if done && time.Since(at) < readFor {
		return nil
	}
	rotten, err := v.Verify(id, func(get func(key []byte) ([]byte, bool, error)) error {
		index, err := decodeApplied(get(appliedKey()))
		if err == nil && index != g.index {
			err = fmt.Errorf("it holds the state at %d, not at %d", index, g.index)
		}
		return err
	})
	if rotten {
		s.leaveOut(id, err)
		s.setAside(id)
		select {
		case s.again <- struct{}{}:
		default:
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.read) >= maxRead {
		clear(s.read) // of snapshots that are gone
	}
	s.read[id] = time.Now()
	return nil
}

// index returns the log index at which a snapshot was taken. known is false if there is no such
// snapshot.
func (s *goodSnapshots) index(id string) (index uint64, known bool, err error) {
	metas, err := s.SnapshotStore.List()
	if err != nil {
		return 0, false, fmt.Errorf("list snapshots: %w", err)
	}
	for _, m := range metas {
		if m.ID == id {
			return m.Index, true, nil
		}
	}
	return 0, false, nil
}

// whole returns an error if the index state of the restored state differs from the index of the
// snapshot id. This happens if the newest commits of the snapshot are lost. Raft continues after
// the snapshot's index, so this node would lack these commits forever.
func (s *goodSnapshots) whole(id string, state uint64) error {
	want, known, err := s.index(id)
	if err == nil && known && want != state {
		err = fmt.Errorf("%w: the snapshot at %d holds the state at %d", ErrBroken, want, state)
	}
	return err
}

// refused sets aside a snapshot from a leader that could not be restored, because Raft would
// otherwise use it as the newest one. why is the error.
func (s *goodSnapshots) refused(id string, why error) {
	s.leaveOut(id, why)
	s.setAside(id)
}

func (s *goodSnapshots) leaveOut(id string, why error) {
	s.log.Error("snapshot cannot be used", "snapshot", id, "err", why)
	s.mu.Lock()
	s.bad[id] = true
	s.mu.Unlock()
}

func (s *goodSnapshots) setAside(id string) {
	if v, ok := s.SnapshotStore.(verifier); ok {
		if err := v.SetAside(id); err != nil {
			s.log.Error("cannot move an unusable snapshot aside", "snapshot", id, "err", err)
		}
	}
}

// List implements raft.SnapshotStore.
func (s *goodSnapshots) List() ([]*raft.SnapshotMeta, error) {
	metas, err := s.SnapshotStore.List()
	var good []*raft.SnapshotMeta
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range metas {
		if !s.bad[m.ID] {
			good = append(good, m)
		}
	}
	return good, err
}

// recover makes the state, the snapshots and the log consistent before Raft starts, because Raft
// trusts all three. If the state is older than the newest readable snapshot, it restores that
// snapshot; this is needed after a crash between the arrival of a snapshot and its restoration,
// and after the loss of the state. If the log ends before the state, entries are lost, so the
// store counts as new and may not vote. recover returns ErrIncomplete if entries between the
// snapshot and the log are missing.
func (n *Node) recover() error {
	n.snapshots = newGoodSnapshots(n.opts.Snapshots, n.log, func() bool { return n.beats != nil && n.beats.leading() })
	newest, err := n.restoreNewest()
	if err != nil {
		return err
	}
	if err := n.leadTo(n.opts.Log, n.opts.Log, newest); err != nil {
		return err
	}
	base := newest.Index
	first, err := n.opts.Log.FirstIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	last, err := n.opts.Log.LastIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	applied := n.fsm.progress.index()
	if last > 0 && first > base+1 {
		return fmt.Errorf("%w: the state is at %d, the newest good snapshot at %d, and the log begins at %d",
			ErrIncomplete, applied, base, first)
	}
	lost := applied > max(last, base)
	if lost {
		n.log.Warn("the Raft log ends before the applied state, so entries are missing: this node does not vote until the leader allows it",
			"state", applied, "log", last, "snapshot", base)
	}
	if n.eligibility, err = openEligibility(n.opts.Stable, lost); err != nil {
		return err
	}
	n.eligibility.StableStore = watchedValues{StableStore: n.opts.Stable, disk: n.disk}
	return nil
}

// leadToSent calls leadTo for the snapshot at index, which a leader has just sent. cached is log
// with a cache of entries.
func (n *Node) leadToSent(cached, log raft.LogStore, index uint64) error {
	metas, err := n.snapshots.List()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, m := range metas {
		if m.Index == index {
			err := n.leadTo(cached, log, *m)
			if err == nil {
				n.taken.Store(m)
			}
			return err
		}
	}
	return fmt.Errorf("the snapshot at %d is not listed", index)
}

// leadTo makes the log continue from a snapshot. If the disk is too full for one more entry,
// leadTo only logs that and returns nil.
func (n *Node) leadTo(cached, log raft.LogStore, snapshot raft.SnapshotMeta) error {
	if err := forgetCovered(cached, snapshot); err != nil {
		return err
	}
	n.disk.cut.Store(false) // Raft goes by the snapshot's end and not by that of the log
	err := standIn(log, snapshot)
	if err != nil && n.disk.full(err) {
		n.log.Warn("no room to record the first index of the Raft log", "snapshot", snapshot.ID, "err", err)
		return nil
	}
	return err
}

// forgetCovered removes the log entries that a leader's snapshot covers, if the log has a gap
// before the snapshot. They may include uncommitted entries, and Raft leaves them in the log
// below the gap. If this node leads later, it would send them to followers that have the
// preceding entry, and would not notice the error.
//
// Entries after the snapshot remain. They exist if a snapshot arrives late or twice, and this
// node has acknowledged them to the leader.
func forgetCovered(log raft.LogStore, snapshot raft.SnapshotMeta) error {
	first, err := log.FirstIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	last, err := log.LastIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if last == 0 || first > snapshot.Index {
		return nil
	}
	var entry raft.Log
	err = log.GetLog(snapshot.Index, &entry)
	if err == nil && entry.Term == snapshot.Term {
		return nil
	}
	if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		return fmt.Errorf("read the log: %w", err)
	}
	if err := log.DeleteRange(first, min(last, snapshot.Index)); err != nil {
		return fmt.Errorf("forget what a snapshot covers: %w", err)
	}
	return nil
}

// standIn writes an empty entry at the index of the snapshot, if the log begins after that index.
// A leader that does not know of the later entries, for example because this node's answer was
// lost, sends entries that follow the snapshot. Raft knows the term of a snapshot only if no log
// entry follows it. It would therefore reject these entries and receive the same snapshot again
// and again.
//
// The empty entry is never sent to another node: the log lacks the entry before it, so a follower
// that needs it gets a snapshot instead.
func standIn(log raft.LogStore, snapshot raft.SnapshotMeta) error {
	if snapshot.Index < 2 { // there is none, or nothing has to precede it
		return nil
	}
	first, err := log.FirstIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if first > 0 && first != snapshot.Index+1 { // other checks find what is missing in between
		return nil
	}
	entry := raft.Log{Index: snapshot.Index, Term: snapshot.Term, Type: raft.LogNoop}
	if err := log.StoreLog(&entry); err != nil {
		return fmt.Errorf("note where the log begins: %w", err)
	}
	return nil
}

// restoreNewest makes the state at least as new as the newest readable snapshot, and returns that
// snapshot. Its Index is 0 if there is none.
func (n *Node) restoreNewest() (raft.SnapshotMeta, error) {
	metas, err := n.snapshots.List()
	if err != nil {
		return raft.SnapshotMeta{}, fmt.Errorf("list snapshots: %w", err)
	}
	for _, m := range metas {
		if n.fsm.progress.index() >= m.Index {
			return *m, nil
		}
		stream, err := n.openSnapshot(m.ID)
		if err == nil {
			err = n.fsm.Restore(stream)
		}
		if err == nil && n.fsm.progress.index() != m.Index {
			err = fmt.Errorf("it holds the state at %d, not at %d", n.fsm.progress.index(), m.Index)
		}
		if err == nil {
			n.log.Info("state restored from a snapshot", "snapshot", m.ID)
			return *m, nil
		}
		if errors.Is(err, state.ErrTooOld) {
			return raft.SnapshotMeta{}, err
		}
		n.snapshots.leaveOut(m.ID, err)
	}
	return raft.SnapshotMeta{}, nil
}

func (n *Node) openSnapshot(id string) (io.ReadCloser, error) {
	_, stream, err := n.snapshots.Open(id)
	return stream, err
}

// remakeSnapshots takes a new snapshot whenever one that a follower needs was found damaged. It
// runs until ctx ends.
func (n *Node) remakeSnapshots(ctx context.Context) error {
	for {
		select {
		case <-n.snapshots.again:
		case <-ctx.Done():
			return nil
		}
		for n.IsLeader() {
			err := n.snapshot(ctx)
			if err == nil {
				n.log.InfoContext(ctx, "leader wrote a new snapshot")
				break
			}
			n.log.WarnContext(ctx, "cannot write a snapshot now", "err", err)
			if !backoff.Wait(ctx, n.timings.Reconcile) {
				return nil
			}
		}
	}
}
