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

// ErrIncomplete means that the entries between the state and the log are missing and no
// snapshot has them, so this node cannot continue with its data.
var ErrIncomplete = errors.New("the state, the snapshots and the log do not reach each other")

// goodSnapshots are the snapshots that Raft may use. Unreadable snapshots are left out. A
// snapshot is verified before it is sent, because a follower would refuse a damaged snapshot
// and ask for it forever.
type goodSnapshots struct {
	raft.SnapshotStore
	log   *slog.Logger
	sends func() bool   // whether this node leads; then Raft opens a snapshot in order to send it
	again chan struct{} // has a token when a snapshot was left out that a follower needs

	// reading has a token while a snapshot is read through. Raft opens the same snapshot for
	// each follower that needs it, at any time.
	reading chan struct{}

	// mu guards the fields below.
	mu    sync.Mutex
	bad   map[string]bool      // by id
	read  map[string]time.Time // verification times, by id, of snapshots that were not sent since
	given map[*given]struct{}  // snapshots that are being sent to followers, or were sent recently
}

// given is a snapshot that was opened for a follower.
type given struct {
	index uint64
	until time.Time // until then the log keeps later entries; zero while it is being sent
}

// Bounds of the memory of verified snapshots.
const (
	maxRead = 16 // largest number of remembered verifications
	// readFor is how long a verification is valid, because a disk may lose data while the
	// follower that needs the snapshot is down.
	readFor = time.Hour
)

// verifier is a snapshot store that can verify a snapshot.
type verifier interface {
	// Verify returns an error if a snapshot is not as it was written (rotten is true), or
	// if that cannot be determined now. If the content may lack the newest commits, Verify
	// passes it to check, which returns whether it does.
	Verify(id string, check func(get func(key []byte) ([]byte, bool, error)) error) (rotten bool, err error)
	// SetAside removes a snapshot from the list.
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

// namedSnapshot is the stream of a snapshot that this node takes over. It knows the id of the
// snapshot. It is also used if Raft opens a snapshot to send it when this node has just lost
// leadership.
type namedSnapshot struct {
	io.ReadCloser
	id string
}

// snapshotID returns the id of the snapshot that a stream reads, although Raft has wrapped the
// stream to count bytes. It returns "" if the stream has another source.
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

// give records that a snapshot is to be sent to a follower, which also needs the entries after
// the snapshot.
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

// took records that a follower has received the snapshot, or that nothing was sent.
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

// sending records that a snapshot is being sent. If the follower refuses it, Raft sends it
// again.
func (s *goodSnapshots) sending(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.read, id)
}

// served returns whether a follower may still need the entries after a snapshot that it was
// sent, and the index of the snapshot.
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

// readThrough verifies a snapshot before it is sent, unless that was done since the last
// time. It removes a damaged one and requests another.
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

// index returns the log index at which a snapshot was taken.
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

// whole returns an error if the state is not at the entry of the snapshot that was taken over.
// This happens if the newest commits of the snapshot are lost. Raft continues after the
// snapshot's entry, so this node would lack the lost commits forever.
func (s *goodSnapshots) whole(id string, state uint64) error {
	want, known, err := s.index(id)
	if err == nil && known && want != state {
		err = fmt.Errorf("%w: the snapshot at %d holds the state at %d", ErrBroken, want, state)
	}
	return err
}

// refused removes a snapshot that could not be restored. The snapshot came from a leader and
// would otherwise be the newest one.
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

// recover makes state, snapshots and log agree before Raft starts, because Raft trusts all of
// them. If the state is older than the newest snapshot, recover replaces the state; this
// happens after a crash between the arrival of a snapshot and its use, and after the loss of
// the state. If the log ends before the state, the log is not the one that this node had, so
// recover makes the store count as new.
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

// leadToSent does the same as leadTo for a snapshot that a leader has just sent. cached is the
// log with the cache of its entries.
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

// leadTo makes the log continue from a snapshot. It ignores a full disk that has no space for
// one more entry, because the cache would not report this error.
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

// forgetCovered removes the entries that a leader's snapshot covers if the log has a gap
// before the snapshot. They may include uncommitted entries. Raft leaves them in the log
// below the gap. If this node leads later, it would send them to followers that have the
// entry before them, and not notice.
//
// Entries after the snapshot stay. A snapshot can arrive twice, late, and then they are
// entries that this node has acknowledged to the leader.
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

// standIn writes an empty entry in the place of the newest entry that a snapshot covers, if
// the log begins after that. A leader that does not know of the entries there, for example
// because the answer was lost, sends entries that follow the snapshot. Raft knows the term
// of a snapshot only while no entry follows it, so it would reject them and get the
// snapshot again and again.
//
// The empty entry is never sent to another node: the entry before it is not here, so a
// follower that lacks it gets a snapshot.
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

// restoreNewest makes the state at least as new as the newest readable snapshot, and returns
// that snapshot. Index 0 means that there is none.
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

// remakeSnapshots takes a new snapshot whenever a snapshot was left out that a follower needs.
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
