package members

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Status is the cluster as this node sees it. It needs no majority.
type Status struct {
	ClusterID string
	Leader    state.NodeID // empty when none is known
	Index     uint64
	Node      state.Node
	Peers     []Peer
	Pins      map[state.Status]uint64
	// UnderReplicated is what Members.UnderReplicated tells.
	UnderReplicated uint64
}

// Peer is one member with its role and its newest load.
type Peer struct {
	state.Node
	Load
	Role   string // voter or nonvoter
	Pins   uint64 // roots it holds
	Wanted uint64 // roots allocated to it
	// Quarantine says why the member neither votes nor serves; empty: it may.
	Quarantine string
}

// Status returns the picture of the cluster from the local state and gossip.
func (m *Members) Status(_ context.Context) (Status, error) {
	view, release := m.opts.State.LocalView()
	defer release()
	var s Status
	s.Index = m.opts.State.Applied()
	s.Leader, _ = m.opts.State.Leader()
	if c, err := view.Cluster(); err == nil {
		s.ClusterID = c.ID
	}
	s.Node = m.own() // what is true, whatever the state still says
	var err error
	if s.Pins, _, err = view.Totals(); err != nil {
		return Status{}, fmt.Errorf("status: %w", err)
	}
	if s.UnderReplicated, err = m.UnderReplicated(view); err != nil {
		return Status{}, err
	}
	quarantine, err := quarantined(view)
	if err != nil {
		return Status{}, err
	}
	roles := m.opts.State.Roles()
	for _, n := range m.Nodes() {
		p := Peer{Node: n, Role: roles[n.ID], Quarantine: quarantine[n.ID]}
		if p.Role == "" {
			p.Role = "nonvoter" // a member that the log does not know yet
		}
		p.Load, _ = m.opts.Gossip.Load(n.ID)
		if p.Load.Version == "" {
			p.Load.Version = n.Version
		}
		if p.Pins, p.Wanted, err = view.CopiesOn(n.ID); err != nil {
			return Status{}, fmt.Errorf("status: %w", err)
		}
		if n.ID == m.opts.Self.ID {
			p.Node = s.Node
		}
		s.Peers = append(s.Peers, p)
	}
	slices.SortFunc(s.Peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	return s, nil
}

// UnderReplicated counts the pinned roots with fewer holders than they should have, as
// this node sees it now: who is no member any more, or is away, holds nothing. It is 0 when
// repair has placed everything again. Of very many roots on such nodes it may be too
// high, see state.View.ShortWithout.
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

// quarantined returns why members are in quarantine.
func quarantined(view state.View) (map[state.NodeID]string, error) {
	all, err := view.Quarantined()
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	why := make(map[state.NodeID]string, len(all))
	for _, q := range all {
		why[q.Node] = fmt.Sprintf("its state differs from the majority's: %.12s, not %.12s, at index %d", q.Hash, q.Majority, q.Check)
	}
	return why, nil
}
