package consensus

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Keys of the stable store: this package's, and those of Raft that matter here.
const (
	franchiseKey = "HoldfastFranchise"
	termKey      = "CurrentTerm"
	voteTermKey  = "LastVoteTerm"
)

// storeIDBytes is how long the random part of a store's id is.
const storeIDBytes = 16

// errNoVote is what Raft gets when it wants to vote for somebody, this node
// included, and must not.
var errNoVote = errors.New("this node's log was lost or is new: it has no vote until the leader gives it one")

// franchise is Raft's stable store, which lets it vote only when this store may. A
// store that is new has promised nothing, but the node may have, with a store
// that is lost: to vote again it could elect a leader that lacks what it had
// acknowledged. So a new store waits until the leader, which has seen it catch
// up, gives it a vote in the replicated state. Raft persists every vote before
// it counts, so here none can slip through.
type franchise struct {
	raft.StableStore // for Raft's own values

	own raft.StableStore // for the record below

	// raising is held while Raft's loop raises the term, and by those who need it
	// to stay meanwhile. term is the one in the store.
	raising sync.RWMutex
	term    atomic.Uint64

	// mu guards what follows.
	mu     sync.Mutex
	record franchiseRecord
}

// franchiseRecord is what lies under franchiseKey.
type franchiseRecord struct {
	store state.StoreID
	votes bool
	// after is a term: in it and in those before, an earlier store of this node
	// may have voted.
	after uint64
}

func (r *franchiseRecord) code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &r.store, state.MaxIDLen)
	codec.Bool(c, &r.votes)
	codec.Uint(c, &r.after)
}

// openFranchise reads the store's franchise, or makes one. lost says that the log in
// the store is not the newest one that this node had: then it is a new store.
// One without one that knows a term was written by a release before, whose
// votes are kept.
func openFranchise(stable raft.StableStore, lost bool) (*franchise, error) {
	f := &franchise{StableStore: stable, own: stable}
	term, err := stable.GetUint64([]byte(termKey))
	if err != nil && err.Error() != "not found" { // Raft compares it so, too
		return nil, fmt.Errorf("read term: %w", err)
	}
	f.term.Store(term)
	encoded, err := stable.Get([]byte(franchiseKey))
	if err != nil && err.Error() != "not found" {
		return nil, fmt.Errorf("read franchise: %w", err)
	}
	if len(encoded) > 0 && !lost {
		c := codec.Decoder(encoded)
		f.record.code(c)
		if _, err := c.Finish(); err != nil {
			return nil, fmt.Errorf("read franchise: %w", err)
		}
		return f, nil
	}
	id := make([]byte, storeIDBytes)
	_, _ = rand.Read(id) // never fails, see crypto/rand
	earlier := len(encoded) == 0 && term > 0 && !lost
	return f, f.write(franchiseRecord{store: state.StoreID(hex.EncodeToString(id)), votes: earlier})
}

func (f *franchise) write(r franchiseRecord) error {
	c := codec.Encoder(nil)
	r.code(c)
	encoded, err := c.Finish()
	if err != nil {
		return fmt.Errorf("write franchise: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.own.Set([]byte(franchiseKey), encoded); err != nil {
		return fmt.Errorf("write franchise: %w", err)
	}
	f.record = r
	return nil
}

func (f *franchise) read() franchiseRecord {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.record
}

// grant lets the store vote in terms after one.
func (f *franchise) grant(after uint64) error {
	r := f.read()
	r.votes, r.after = true, after
	return f.write(r)
}

// SetUint64 implements raft.StableStore.
func (f *franchise) SetUint64(key []byte, value uint64) error {
	switch string(key) {
	case voteTermKey:
		if r := f.read(); !r.votes || value <= r.after {
			return errNoVote
		}
	case termKey:
		return f.raise(value)
	}
	return f.StableStore.SetUint64(key, value)
}

// raise stores a later term. The one that is stored already needs nothing, not
// even the turn, which a heartbeat of that term may have.
func (f *franchise) raise(term uint64) error {
	if term == f.term.Load() {
		return nil
	}
	f.raising.Lock()
	defer f.raising.Unlock()
	if err := f.StableStore.SetUint64([]byte(termKey), term); err != nil {
		return err
	}
	f.term.Store(term)
	return nil
}

// Store returns the id of the Raft store of this node and whether the store may vote.
func (n *Node) Store() (id state.StoreID, votes bool) {
	r := n.franchise.read()
	return r.store, r.votes
}

// knowsItsTerm tells whether this node knows every term that it voted in. With its
// log it may have lost one. In a cluster at level 0 a new voter has no franchise
// before it has caught up, which takes a read that it confirms itself.
func (n *Node) knowsItsTerm() bool {
	if n.franchise.read().votes {
		return true
	}
	known := n.fsm.verdict()
	return known.level == 0 && known.members.Founded()
}

// takeVote lets this node vote once the replicated state says that its store
// may. Before level 1 nobody says so, and who is a voter votes.
func (n *Node) takeVote(view state.View) error {
	r := n.franchise.read()
	if r.votes {
		return nil
	}
	own, err := view.Node(n.opts.ID)
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	granted := own.Votes && own.Store == r.store
	if level, known := n.Level(); !granted && known && level == 0 {
		granted = n.Roles()[n.opts.ID] == roleVoter
	}
	if !granted {
		return nil
	}
	n.log.Info("this node is eligible to vote from now on", "store", r.store)
	err = n.franchise.grant(n.raft.CurrentTerm())
	switch {
	case err == nil:
		return nil
	case n.disk.full(err):
		n.log.Warn("no room to record that this node is eligible to vote", "err", err)
		return nil // the next look tries again
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}
