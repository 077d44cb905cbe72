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

// goodSnapshots are the snapshots that Raft may use. Unreadable ones are left out, and a
// snapshot is verified before it is sent. A follower refuses a damaged one and would ask for it
// for ever.
type goodSnapshots struct {
	raft.SnapshotStore
	log   *slog.Logger
	sends func() bool   // whether this node leads: then Raft opens a snapshot to send it
	again chan struct{} // has a token when one that is needed was left out

	// reading has a token while one is read through. Raft opens the same for each follower
	// that lacks it, at any time.
	reading chan struct{}

	// mu guards what follows.
	mu    sync.Mutex
	bad   map[string]bool      // by id
	read  map[string]time.Time // by id, when those were read through that were not sent since
	given map[*given]struct{}  // what is sent to followers, and was lately
}

// given is a snapshot that a follower is sent.
type given struct {
	index uint64
	until time.Time // what follows it in the log is kept for the follower; zero: it is being sent
}

// Bounds of what is remembered of snapshots that were read through.
const (
	maxRead = 16 // of how many
	// readFor is for how long, for a disk may rot while a member is down to whom Raft means
	// to send one.
	readFor = time.Hour
)

// verifier is a snapshot store that can tell whether a snapshot is good.
type verifier interface {
	// Verify returns an error if a snapshot is not as it was written: then it is
	// rotten; or if that cannot be told now. check is given its content, if that
	// may lack the newest commits, and says whether it does.
	Verify(id string, check func(get func(key []byte) ([]byte, bool, error)) error) (rotten bool, err error)
	// SetAside takes it out of the list.
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

// namedSnapshot is the stream of a snapshot that is taken over, and knows which it is. One
// that Raft opens to send it when this node has just lost the lead is one too.
type namedSnapshot struct {
	io.ReadCloser
	id string
}

// snapshotID tells which snapshot a stream is of, that Raft has wrapped to count its bytes;
// none if it comes from elsewhere.
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

// sentSnapshot is the stream of a snapshot that goes to a follower. Raft opens it
// before it has reached the follower, which may be down for days.
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

// give notes that a follower is to be sent a snapshot, and lacks what follows it.
func (s *goodSnapshots) give(id string) (*given, error) {
	index, known, err := s.index(id)
	if err != nil {
		return nil, err
	}
	if !known { // it was removed; Open says so
		return nil, nil
	}
	g := &given{index: index}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given[g] = struct{}{}
	return g, nil
}

// took notes that a follower has what was given to it, or that nothing was sent.
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

// sending notes that a snapshot goes out. If the follower refuses it, it comes again.
func (s *goodSnapshots) sending(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.read, id)
}

// served tells whether a follower may still need what lies behind a snapshot that it was
// sent, and behind which entry.
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

// readThrough looks at a snapshot that is to be sent, unless that was done since it was
// sent last. A rotten one is left out, and another one asked for.
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

// index is at what entry a snapshot was taken.
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

// whole is nil if the state is at the entry of the snapshot that was taken over.
// One whose newest commits are lost would be taken for it: Raft goes on behind
// the snapshot, and what lies between would be missing here for ever.
func (s *goodSnapshots) whole(id string, state uint64) error {
	want, known, err := s.index(id)
	if err == nil && known && want != state {
		err = fmt.Errorf("%w: the snapshot at %d holds the state at %d", ErrBroken, want, state)
	}
	return err
}

// refused leaves out a snapshot that could not be taken over. It came from a leader, and
// would be the newest one here.
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

// recover brings state, snapshots and log together before Raft starts, which
// takes all of them for good. The state goes forward to the newest snapshot if
// it is behind it; a crash between a snapshot's arrival and its use leaves it
// so, and so does a state that was lost. Behind the state, the log may only be
// longer: if it is shorter, this is not the log that the node had.
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

// leadToSent is leadTo for a snapshot that a leader has just sent. cached is the log with
// what remembers entries of it.
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

// leadTo has the log go on from a snapshot. A full disk that lacks the room for one
// entry more, which the cache would not tell, is no reason not to.
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

// forgetCovered removes the entries that a leader's snapshot covers, when the log
// does not lead to it: entries that nobody has committed may be among them. Raft
// leaves them in the log, below a gap, and if this node leads later it would send
// them to who has the one before them, and not notice.
//
// Entries behind the snapshot stay. A snapshot can come twice, late, and then
// they are those that this node has told the leader it has.
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

// standIn puts an empty entry in the place of the newest one that a snapshot covers, if
// the log begins behind that. A leader that does not know of the entries there, because
// the answer was lost, say, or has others, sends some that follow the snapshot. Raft
// knows of a snapshot's term only while nothing lies behind it: it would refuse them, and
// be sent the snapshot again and again.
//
// Nobody is ever sent the entry itself: what precedes it is not here, and so whoever
// lacks it is sent a snapshot.
func standIn(log raft.LogStore, snapshot raft.SnapshotMeta) error {
	if snapshot.Index < 2 { // there is none, or nothing has to precede it
		return nil
	}
	first, err := log.FirstIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if first > 0 && first != snapshot.Index+1 { // what is missing in between is for others to find
		return nil
	}
	entry := raft.Log{Index: snapshot.Index, Term: snapshot.Term, Type: raft.LogNoop}
	if err := log.StoreLog(&entry); err != nil {
		return fmt.Errorf("note where the log begins: %w", err)
	}
	return nil
}

// restoreNewest makes the state at least as new as the newest snapshot that can
// be read, and tells which that is, one at 0 without any.
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

// remakeSnapshots makes a snapshot whenever one had to be left out that a follower
// needs.
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
