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

// Keys of Raft's stable store: eligibilityKey is written by this package; the other two are
// Raft's own keys, which this package reads.
const (
	eligibilityKey = "HoldfastFranchise"
	termKey        = "CurrentTerm"
	voteTermKey    = "LastVoteTerm"
)

// storeIDBytes is the length of the random part of a store id, in bytes.
const storeIDBytes = 16

// errNoVote is returned to Raft when it tries to store a vote although the store is not eligible
// to vote.
var errNoVote = errors.New("this node's log was lost or is new: it has no vote until the leader gives it one")

// eligibility is Raft's stable store with a check: Raft may vote only if this store is eligible.
// A new, empty store is not, because an earlier store of the same node may have voted in the
// current term, and a second vote could elect a leader that lacks acknowledged entries. A new
// store becomes eligible when the leader has seen it catch up and has recorded that in the
// replicated state. Raft stores each vote before it sends it, so the check covers every vote.
type eligibility struct {
	raft.StableStore // for Raft's own values

	own raft.StableStore // for the eligibility record

	// raising is write-locked while Raft's main loop raises the term, and read-locked by callers
	// that need the term to stay the same. term is the stored term.
	raising sync.RWMutex
	term    atomic.Uint64

	// mu guards record.
	mu     sync.Mutex
	record eligibilityRecord
}

// eligibilityRecord is the value of eligibilityKey.
type eligibilityRecord struct {
	store state.StoreID
	votes bool
	// after is the last term in which an earlier store of this node may have voted. This store
	// may vote only in later terms.
	after uint64
}

func (r *eligibilityRecord) code(c *codec.Coder) {
	c.Version(1)
	codec.String(c, &r.store, state.MaxIDLen)
	codec.Bool(c, &r.votes)
	codec.Uint(c, &r.after)
}

// openEligibility reads the eligibility record of the store, or writes one for a new store. lost
// means that the log is older than the one that this node last had; the store then counts as new.
// A store with a term but no record was written by an earlier release, and remains eligible.
func openEligibility(stable raft.StableStore, lost bool) (*eligibility, error) {
	f := &eligibility{StableStore: stable, own: stable}
	term, err := stable.GetUint64([]byte(termKey))
	if err != nil && err.Error() != "not found" { // Raft compares it so, too
		return nil, fmt.Errorf("read term: %w", err)
	}
	f.term.Store(term)
	encoded, err := stable.Get([]byte(eligibilityKey))
	if err != nil && err.Error() != "not found" {
		return nil, fmt.Errorf("read voter eligibility: %w", err)
	}
	if len(encoded) > 0 && !lost {
		c := codec.Decoder(encoded)
		f.record.code(c)
		if _, err := c.Finish(); err != nil {
			return nil, fmt.Errorf("read voter eligibility: %w", err)
		}
		return f, nil
	}
	id := make([]byte, storeIDBytes)
	_, _ = rand.Read(id) // never fails, see crypto/rand
	earlier := len(encoded) == 0 && term > 0 && !lost
	return f, f.write(eligibilityRecord{store: state.StoreID(hex.EncodeToString(id)), votes: earlier})
}

func (f *eligibility) write(r eligibilityRecord) error {
	c := codec.Encoder(nil)
	r.code(c)
	encoded, err := c.Finish()
	if err != nil {
		return fmt.Errorf("write voter eligibility: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.own.Set([]byte(eligibilityKey), encoded); err != nil {
		return fmt.Errorf("write voter eligibility: %w", err)
	}
	f.record = r
	return nil
}

func (f *eligibility) read() eligibilityRecord {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.record
}

// grant makes the store eligible in terms later than after.
func (f *eligibility) grant(after uint64) error {
	r := f.read()
	r.votes, r.after = true, after
	return f.write(r)
}

// SetUint64 implements raft.StableStore.
func (f *eligibility) SetUint64(key []byte, value uint64) error {
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

// raise stores the term if it is later than the stored one. Otherwise it does nothing and takes
// no lock, because a heartbeat of the stored term may hold the lock.
func (f *eligibility) raise(term uint64) error {
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
	r := n.eligibility.read()
	return r.store, r.votes
}

// knowsItsTerm returns true if this node knows every term in which it has voted. A node that lost
// its log may have forgotten a term. At feature level 0 there is no record of eligibility; a new
// voter then counts only once it has caught up.
func (n *Node) knowsItsTerm() bool {
	if n.eligibility.read().votes {
		return true
	}
	known := n.fsm.verdict()
	return known.level == 0 && known.members.Founded()
}

// takeVote makes this node's store eligible when the replicated state says so. Below
// feature level 1 the state has no eligibility, and every Raft voter is eligible.
func (n *Node) takeVote(view state.View) error {
	r := n.eligibility.read()
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
	if level, known := n.FeatureLevel(); !granted && known && level == 0 {
		granted = n.Roles()[n.opts.ID] == roleVoter
	}
	if !granted {
		return nil
	}
	n.log.Info("this node is eligible to vote from now on", "store", r.store)
	err = n.eligibility.grant(n.raft.CurrentTerm())
	switch {
	case err == nil:
		return nil
	case n.disk.full(err):
		n.log.Warn("no room to record that this node is eligible to vote", "err", err)
		return nil // the next check tries again
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}
