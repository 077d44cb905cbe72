package members

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Status describes the cluster according to this node. Reading it needs no majority.
type Status struct {
	ClusterID string
	Leader    state.NodeID // empty when none is known
	Index     uint64
	Node      state.Node
	Peers     []Peer
	Pins      map[state.Status]uint64
	// UnderReplicated is the result of Members.UnderReplicated.
	UnderReplicated uint64
	Repair          Repair
}

// Peer is a member with its role and its newest load.
type Peer struct {
	state.Node
	Load
	Role string // "voter" or "nonvoter"
	Pins uint64 // number of pins whose content it holds; see pinned
	// PinsPartial is true while the pins are still being counted, so that Pins is a lower bound.
	PinsPartial bool
	Roots       uint64 // number of roots that it holds
	Wanted      uint64 // number of roots that are allocated to it
	// Drain is the progress of the member's drain, or nil if it is not being drained.
	Drain *Drain
	// Quarantine is the reason why the member is in quarantine, so that it neither votes nor
	// serves; empty if it is not.
	Quarantine string
}

// Status returns the status of the cluster according to the local state and gossip.
func (m *Members) Status(_ context.Context) (Status, error) {
	view, release := m.opts.State.LocalView()
	defer release()
	var s Status
	s.Index = m.opts.State.Applied()
	s.Leader, _ = m.opts.State.Leader()
	if c, err := view.Cluster(); err == nil {
		s.ClusterID = c.ID
	}
	s.Node = m.own() // the state may have an older record
	var err error
	if s.Pins, _, err = view.Totals(); err != nil {
		return Status{}, fmt.Errorf("status: %w", err)
	}
	if s.UnderReplicated, err = m.UnderReplicated(view); err != nil {
		return Status{}, err
	}
	s.Repair = m.repairs.note(m.opts.Now(), s.UnderReplicated)
	pins, err := m.pinned.of(view, maxCounted)
	if err != nil {
		return Status{}, err
	}
	for _, n := range m.Nodes() {
		p, err := m.peer(view, n, pins)
		if err != nil {
			return Status{}, err
		}
		s.Peers = append(s.Peers, p)
	}
	slices.SortFunc(s.Peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	return s, nil
}

// peer returns a member with its role and its newest load.
func (m *Members) peer(view state.View, n state.Node, pins counts) (Peer, error) {
	p := Peer{Node: n, Role: m.opts.State.Roles()[n.ID], Pins: pins.of[n.ID], PinsPartial: pins.partial}
	if p.Role == "" {
		p.Role = "nonvoter" // it is not in the Raft configuration yet
	}
	p.Load, _ = m.opts.Gossip.Load(n.ID)
	drained, err := view.Drain(n.ID)
	if err == nil && drained != nil {
		p.Drain, err = m.drains.progress(view, n.ID, m.opts.Now())
	}
	if err != nil {
		return Peer{}, fmt.Errorf("status: %w", err)
	}
	if p.Drain != nil && p.Load.State == "alive" {
		p.Load.State = Draining
	}
	if p.Load.Version == "" {
		p.Load.Version = n.Version
	}
	if p.Roots, p.Wanted, err = view.CopiesOn(n.ID); err != nil {
		return Peer{}, fmt.Errorf("status: %w", err)
	}
	if p.Quarantine, err = quarantined(view, n.ID); err != nil {
		return Peer{}, err
	}
	if n.ID == m.opts.Self.ID {
		p.Node = m.own() // the state may have an older record
	}
	return p, nil
}

// UnderReplicated returns how many pinned roots have fewer holders than they should have,
// according to this node. Former members and unreachable members do not count as holders. It
// returns 0 once repair has restored all copies. If unreachable nodes hold very many roots, the
// number may be too high; see state.View.ShortWithout.
func (m *Members) UnderReplicated(view state.View) (uint64, error) {
	n, err := view.ShortWithout(func(id state.NodeID) bool {
		if id == m.opts.Self.ID {
			return true
		}
		if _, err := view.Node(id); err != nil {
			return false
		}
		load, _ := m.opts.Gossip.Load(id)
		return !load.Away
	})
	if err != nil {
		return 0, fmt.Errorf("count roots short of holders: %w", err)
	}
	return n, nil
}

// quarantined returns the reason why a member is in quarantine, or "".
func quarantined(view state.View, id state.NodeID) (string, error) {
	q, err := view.Quarantine(id)
	if err != nil || q == nil {
		return "", err
	}
	return fmt.Sprintf("its state differs from the majority's: %.12s, not %.12s, at index %d", q.Hash, q.Majority, q.Check), nil
}
