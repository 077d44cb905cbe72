package objects

import (
	"slices"

	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/cluster/placement"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// place chooses the nodes for new content. The root CID is unknown until the content has arrived,
// so the choice depends on id, the id of the version or upload. It prefers the nodes in keep, or
// this node if keep is nil, if they have room. It returns state.ErrNoSpace or
// state.ErrUnavailable if it finds too few nodes.
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

// tooFew returns the error if fewer nodes are able to store content than needed. It is
// state.ErrNoSpace if there would be enough nodes without the full ones among them. Otherwise it
// is state.ErrUnavailable, because too few members are alive, which usually ends sooner.
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

// copies returns on how many members content must be stored before an object may reference it.
func copies(c *state.Cluster, nodes []placement.Node) int {
	return max(1, min(int(c.WriteCopies), int(c.Replication), len(nodes)))
}
