package members

import (
	"context"
	"fmt"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Draining is the state of a member that answers and is being drained.
const Draining = "draining"

// DrainPlan describes the effect of the drain of a member.
type DrainPlan struct {
	Peer // Roots is the number of roots that would move; Pins is 0
	// Others is the number of other members that store content during the drain. Free is the sum
	// of their free bytes.
	Others int
	Free   uint64
	// Copies is the number of copies that a root should have now, and CopiesThen the number
	// without the member.
	Copies, CopiesThen int
}

// Tight reports whether the other members may have too little space for the content of this
// member. The space may suffice nevertheless, because they may have some of the content already.
func (p *DrainPlan) Tight() bool { return p.CopiesThen == p.Copies && p.UsedBytes > p.Free }

// DrainPlan returns the effect of draining a member. who is an id or a name, as for Named.
func (m *Members) DrainPlan(ctx context.Context, who string) (DrainPlan, error) {
	view, release, err := m.opts.State.View(ctx)
	if err != nil {
		return DrainPlan{}, err
	}
	defer release()
	plan, err := m.drainPlan(view, who)
	if err != nil {
		return DrainPlan{}, fmt.Errorf("drain member: %w", err)
	}
	return plan, nil
}

func (m *Members) drainPlan(view state.View, who string) (p DrainPlan, err error) {
	nodes, err := view.Nodes()
	if err != nil {
		return p, err
	}
	node, err := named(nodes, who)
	if err != nil {
		return p, err
	}
	if p.Peer, err = m.peer(view, node, counts{}); err != nil {
		return p, err
	}
	cluster, err := view.Cluster()
	if err != nil {
		return p, err
	}
	if p.Copies, err = view.Copies(); err != nil {
		return p, err
	}
	drained, err := drainedOf(view)
	if err != nil {
		return p, err
	}
	for _, n := range nodes {
		if n.ID == node.ID || drained[n.ID] {
			continue
		}
		load, _ := m.opts.Gossip.Load(n.ID)
		p.Others++
		p.Free += load.FreeBytes
	}
	p.CopiesThen = min(int(cluster.Replication), p.Others)
	return p, nil
}

// Drain begins the drain of a member, or ends it if on is false. A member that is being drained
// gets no new content, and the leader moves its content to other members. It votes and serves as
// before.
//
// Errors: a *state.Error with CodeNotFound; CodeConflict if no other member would store content;
// CodeUnavailable without a majority, or below state.DrainLevel.
func (m *Members) Drain(ctx context.Context, id state.NodeID, on bool) error {
	view, release, err := m.opts.State.View(ctx)
	if err != nil {
		return err
	}
	level, err := view.FeatureLevel()
	release()
	switch {
	case err != nil:
		return fmt.Errorf("read level: %w", err)
	case level < state.DrainLevel:
		return state.Errorf(state.CodeUnavailable, "not every member of the cluster has been upgraded to a release that can drain a member")
	}
	_, err = m.opts.State.Propose(ctx, &state.SetDrain{Node: id, On: on, At: state.MillisOf(m.opts.Now())})
	return err
}

// Drained returns the members that are being drained, as of the last Refresh.
func (m *Members) Drained() map[state.NodeID]bool { return m.gate.Load().drained }

func drainedOf(view state.View) (map[state.NodeID]bool, error) {
	drains, err := view.Drains()
	if err != nil {
		return nil, fmt.Errorf("read drains: %w", err)
	}
	ids := make(map[state.NodeID]bool, len(drains))
	for _, d := range drains {
		ids[d.Node] = true
	}
	return ids, nil
}
