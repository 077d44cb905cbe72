package objects

import (
	"slices"

	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// place chooses the nodes for new content. Its root is unknown before the content arrives,
// so the choice depends on the id of the version or upload. This node, where the content
// arrives, is one of them if it has capacity. Nodes in keep are preferred.
func (o *Objects) place(id string, keep []state.NodeID) (ingest.Placement, error) {
	view, release := o.opts.State.LocalView()
	cluster, err := view.Cluster()
	release()
	if err != nil {
		return ingest.Placement{}, err
	}
	nodes := o.opts.Nodes.Candidates()
	if keep == nil {
		keep = []state.NodeID{o.opts.Self}
	}
	// A preferred node holds nothing yet, so without room it has no advantage over others.
	keep = slices.DeleteFunc(slices.Clone(keep), func(id state.NodeID) bool {
		return slices.ContainsFunc(nodes, func(n placement.Node) bool { return n.ID == id && (n.Full || n.Free < placement.MinFree) })
	})
	all := placement.Choose(state.RootKey(id), len(nodes), nodes, keep)
	chosen := placement.Choose(state.RootKey(id), int(cluster.Replication), nodes, keep)
	need := copies(&cluster, nodes)
	if len(chosen) < need {
		return ingest.Placement{}, tooFew(nodes, len(chosen), need)
	}
	return ingest.Placement{
		Nodes: chosen,
		Spare: slices.DeleteFunc(all, func(n state.NodeID) bool { return slices.Contains(chosen, n) }),
		// Apply checks against the members at that time.
		Copies: need,
	}, nil
}

// tooFew returns why content cannot be placed. The reason is lack of capacity if there would be
// enough live members with capacity. Otherwise the reason is that too few members are alive,
// which usually ends sooner.
func tooFew(nodes []placement.Node, able, need int) error {
	full := 0
	for _, n := range nodes {
		if n.Full && n.Alive {
			full++
		}
	}
	if able+full >= need {
		return state.Errorf(state.CodeNoSpace, "%d members have room for new content, and %d have to keep it", able, need)
	}
	return state.Errorf(state.CodeUnavailable, "%d members can take new content, and %d have to keep it: others do not answer", able, need)
}

// copies returns how many members must have the content before an object may refer to it.
func copies(c *state.Cluster, nodes []placement.Node) int {
	return max(1, min(int(c.WriteCopies), int(c.Replication), len(nodes)))
}
