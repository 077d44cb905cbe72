package members

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Named returns the member whose id is text, or the only member with that name. The error is a
// *state.Error: CodeNotFound, CodeConflict if several members have the name, or CodeUnavailable
// without a majority.
func (m *Members) Named(ctx context.Context, text string) (state.Node, error) {
	view, release, err := m.opts.State.View(ctx)
	if err != nil {
		return state.Node{}, err
	}
	defer release()
	nodes, err := view.Nodes()
	if err != nil {
		return state.Node{}, fmt.Errorf("find member: %w", err)
	}
	return named(nodes, text)
}

// named is Named for a list of members. An id has priority over a name.
func named(nodes []state.Node, text string) (state.Node, error) {
	if i := slices.IndexFunc(nodes, func(n state.Node) bool { return string(n.ID) == text }); i >= 0 {
		return nodes[i], nil
	}
	var found []state.Node
	for _, n := range nodes {
		if n.Name == text {
			found = append(found, n)
		}
	}
	switch len(found) {
	case 0:
		return state.Node{}, state.Errorf(state.CodeNotFound, "no member has the id or the name %q: see holdfast peers ls", text)
	case 1:
		return found[0], nil
	}
	ids := make([]string, len(found))
	for i, n := range found {
		ids[i] = string(n.ID)
	}
	return state.Node{}, state.Errorf(state.CodeConflict, "%d members are called %q: give the id, %s", len(found), text, strings.Join(ids, " or "))
}

// Leaving describes the effect of the removal of a member.
type Leaving struct {
	Peer  // Pins is 0 if it was not counted
	Leads bool
	Sole  int // number of roots that would be lost, because no other available member holds them; 0 if not counted
	// Votes is the number of voters without this member; Answer is how many of them can be
	// counted on.
	Votes, Answer int
}

// Leaving returns the effect of removing a member. who is an id or a name, as for Named. Pins and
// Sole are set only if count is true, because counting reads every root.
func (m *Members) Leaving(ctx context.Context, who string, count bool) (Leaving, error) {
	view, release, err := m.opts.State.View(ctx)
	if err != nil {
		return Leaving{}, err
	}
	defer release()
	nodes, err := view.Nodes()
	if err != nil {
		return Leaving{}, fmt.Errorf("find member: %w", err)
	}
	node, err := named(nodes, who)
	if err != nil {
		return Leaving{}, err
	}
	var (
		l    Leaving
		pins counts
	)
	if count {
		if pins, err = m.pinned.of(view, maxCounted); err != nil {
			return Leaving{}, err
		}
		if l.Sole, err = soleHolder(ctx, view, node.ID, m.stays); err != nil {
			return Leaving{}, fmt.Errorf("find what it alone holds: %w", err)
		}
	}
	if l.Peer, err = m.peer(view, node, pins); err != nil {
		return Leaving{}, err
	}
	leader, _ := m.opts.State.Leader()
	l.Leads = leader == node.ID
	ids := make([]state.NodeID, len(nodes))
	for i, n := range nodes {
		ids[i] = n.ID
	}
	l.Votes, l.Answer = m.votersWithout(ids, node.ID)
	return l, nil
}
