package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// Limits of a check.
const (
	// MaxDifferences is the largest number of differences that a check reports one by one.
	MaxDifferences = 100
	// maxSuspects is the largest number of roots that a check looks at again before it reports them.
	maxSuspects = 4096
	// pageRoots is the largest number of roots that are read from one view.
	pageRoots = 512
	// settleFor is the time without change after which roots that differ are reported.
	settleFor = 10 * time.Second
	// settlePoll is the interval at which they are compared again.
	settlePoll = 250 * time.Millisecond
)

// State is the part of consensus that a check needs.
type State interface {
	// LocalView returns a view of the state on this node. The caller must call release.
	LocalView() (view state.View, release func())
	// Fsck checks the state on this node at one index, and reports up to limit differences.
	Fsck(ctx context.Context, limit int) (index uint64, found state.Fsck, err error)
}

// Copy is what the block store knows about a root.
type Copy struct {
	There  bool // it has a reference
	Sealed bool // the reference is sealed
	Whole  bool // no block of it is missing
	Hidden bool // it is hidden from peers that are not members
}

// Copies is the part of the block store that a check needs.
type Copies interface {
	// Check computes the reference counts of blocks, and reports up to limit differences.
	Check(ctx context.Context, limit int) (found state.Fsck, err error)
	// Copy returns what the store knows about a reference.
	Copy(ctx context.Context, reference string) (Copy, error)
	// References calls fn for each reference with a prefix, with its size in bytes.
	References(ctx context.Context, prefix string, fn func(reference string, bytes uint64) (more bool, err error)) error
}

// Keeper tells why content that the state does not want on this node is still there.
type Keeper interface {
	Keeps(ctx context.Context, view state.View, root state.RootKey) (tracker.Why, error)
}

// Checker checks a node on request.
type Checker struct {
	self   state.NodeID
	state  State
	copies Copies
	keeper Keeper

	settle  time.Duration
	running chan struct{} // a lock: has a value while a check runs
}

// NewChecker returns a Checker for the node self.
func NewChecker(self state.NodeID, s State, copies Copies, keeper Keeper) *Checker {
	return &Checker{self: self, state: s, copies: copies, keeper: keeper, settle: settleFor, running: make(chan struct{}, 1)}
}

// Report is the result of a check.
type Report struct {
	Index       uint64 // log index at which the state was checked
	Rows        uint64 // rows of the state
	Copies      uint64 // roots that were compared with the block store
	Blocks      uint64 // rows of the index of the block store
	Differences []state.Difference
	More        uint64 // number of further differences
	AtLeast     bool   // More is a lower bound
}

func (r *Report) add(found state.Fsck) {
	for _, d := range found.Differences {
		r.differs(d)
	}
	r.More += found.More
	r.AtLeast = r.AtLeast || found.AtLeast
}

func (r *Report) differs(d state.Difference) {
	if len(r.Differences) < MaxDifferences {
		r.Differences = append(r.Differences, d)
	} else {
		r.More++
	}
}

// Check checks the state of this node at one index, the reference counts of its block store, and
// whether the block store has the copies that the state records for this node. It repairs nothing. A
// difference between state and block store is reported only if it stays for settleFor, because
// copies come and go during the check. If another check runs, Check waits for it first.
func (c *Checker) Check(ctx context.Context) (r Report, err error) {
	select {
	case c.running <- struct{}{}:
		defer func() { <-c.running }()
	case <-ctx.Done():
		return r, ctx.Err()
	}
	index, found, err := c.state.Fsck(ctx, MaxDifferences)
	if err != nil {
		return r, fmt.Errorf("upkeep: check the state: %w", err)
	}
	r.Index, r.Rows = index, found.Rows
	r.add(found)
	if found, err = c.copies.Check(ctx, MaxDifferences); err != nil {
		return r, fmt.Errorf("upkeep: check the blocks: %w", err)
	}
	r.Blocks = found.Rows
	r.add(found)
	suspects, more, err := c.compareAll(ctx, &r)
	if err != nil {
		return r, err
	}
	left, err := c.settled(ctx, suspects)
	if err != nil {
		return r, err
	}
	for _, d := range left {
		r.differs(d)
	}
	if more > 0 {
		r.More, r.AtLeast = r.More+more, true
	}
	return r, nil
}

// compareAll compares all roots, and returns those that differ. more is the number of those that
// were not returned.
func (c *Checker) compareAll(ctx context.Context, r *Report) (suspects []state.RootKey, more uint64, err error) {
	suspect := func(view state.View, k state.RootKey) error {
		d, err := c.compare(ctx, view, k)
		if err != nil || d == nil {
			return err
		}
		if len(suspects) < maxSuspects {
			suspects = append(suspects, k)
		} else {
			more++
		}
		return nil
	}
	for from, first := state.RootKey(""), true; first || from != ""; first = false {
		if from, err = c.page(from, func(view state.View, k state.RootKey) error { r.Copies++; return suspect(view, k) }); err != nil {
			return nil, 0, fmt.Errorf("upkeep: compare copies: %w", err)
		}
	}
	view, release := c.state.LocalView()
	defer func() { release() }()
	n := 0
	err = c.copies.References(ctx, tracker.RootPrefix, func(reference string, _ uint64) (bool, error) {
		if n++; n%pageRoots == 0 {
			release()
			view, release = c.state.LocalView()
		}
		id, ok := tracker.RootOf(reference)
		if !ok {
			r.differs(state.Difference{Table: "reference", Key: reference, Stored: "blocks", Computed: "nothing: the name is that of no root"})
			return true, nil
		}
		k := state.RootOf(id)
		own, err := c.recorded(view, k)
		if err != nil || own != nil {
			return err == nil, err // compared above
		}
		r.Copies++
		return true, suspect(view, k)
	})
	if err != nil {
		return nil, 0, fmt.Errorf("upkeep: compare references: %w", err)
	}
	return suspects, more, nil
}

// page calls fn for roots that are allocated to this node, from one on, and returns the next one.
func (c *Checker) page(from state.RootKey, fn func(view state.View, k state.RootKey) error) (next state.RootKey, err error) {
	view, release := c.state.LocalView()
	defer release()
	n := 0
	err = view.WantedOn(c.self, from, func(k state.RootKey, _ state.Phase) (bool, error) {
		if n == pageRoots {
			next = k
			return false, nil
		}
		n++
		return true, fn(view, k)
	})
	return next, err
}

// recorded returns the copy that the state records for this node, or nil.
func (c *Checker) recorded(view state.View, k state.RootKey) (*state.Copy, error) {
	root, err := view.Root(k)
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil
	}
	return root.Copy(c.self), err
}

// compare returns the difference between the copy of a root that the state records for this node and
// the one in the block store, or nil if they agree.
func (c *Checker) compare(ctx context.Context, view state.View, k state.RootKey) (*state.Difference, error) {
	root, err := view.Root(k)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return nil, err
	}
	own := root.Copy(c.self)
	here, err := c.copies.Copy(ctx, tracker.Reference(k))
	if err != nil {
		return nil, err
	}
	d := &state.Difference{Table: "copy on this node", Key: k.String(), Stored: here.text()}
	switch {
	case own != nil && own.Phase == state.Held && !(here.There && here.Sealed && here.Whole):
		d.Computed = "a complete copy, which the state records"
	case own != nil && own.Phase == state.Held && here.Hidden != root.Private():
		d.Computed = "a complete copy that is " + privacy(root.Private())
	case own == nil && here.There:
		why, err := c.keeper.Keeps(ctx, view, k)
		if err != nil || why != tracker.NotKept {
			return nil, err
		}
		d.Computed = "nothing: the state does not want the content on this node"
	case own != nil && own.Phase != state.Held && here.There && here.Sealed && here.Whole:
		d.Computed = "an incomplete copy: the state records that it is " + own.Phase.String()
	default:
		return nil, nil
	}
	return d, nil
}

func (c Copy) text() string {
	switch {
	case !c.There:
		return "nothing"
	case !c.Sealed:
		return "an incomplete copy"
	case !c.Whole:
		return "a copy that lacks blocks"
	}
	return "a complete copy that is " + privacy(c.Hidden)
}

func privacy(hidden bool) string {
	if hidden {
		return "hidden from peers that are not members"
	}
	return "visible to all peers"
}

// settled returns the differences of roots that stay for a while. It waits as long as the number of
// differences falls.
func (c *Checker) settled(ctx context.Context, suspects []state.RootKey) (left []state.Difference, err error) {
	for since := time.Now(); len(suspects) > 0; {
		still := suspects[:0:0]
		left = left[:0]
		view, release := c.state.LocalView()
		for _, k := range suspects {
			d, err := c.compare(ctx, view, k)
			if err != nil {
				release()
				return nil, fmt.Errorf("upkeep: compare again: %w", err)
			}
			if d != nil {
				still, left = append(still, k), append(left, *d)
			}
		}
		release()
		if len(still) < len(suspects) {
			since = time.Now()
		}
		if suspects = still; time.Since(since) >= c.settle {
			break
		}
		if len(suspects) > 0 && !backoff.Wait(ctx, settlePoll) {
			return nil, ctx.Err()
		}
	}
	return left, nil
}
