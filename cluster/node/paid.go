package node

import (
	"github.com/holdfast-ipfs/holdfast/cluster/facilitator"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
)

// facilitator returns the facilitator in the options, or else a client of the one in the
// settings. It returns nil if this node accepts no payments.
func (n *Node) facilitator() (payments.Facilitator, error) {
	c := &n.opts.Config.Paid
	if n.opts.Facilitator != nil || c.Listen == "" {
		return n.opts.Facilitator, nil
	}
	asset, _ := c.Terms() // the settings were checked
	client, err := facilitator.New(facilitator.Options{
		URL: c.Facilitator, Network: c.Network, CAIP2: facilitator.CAIP2(asset.ChainID), Private: c.FacilitatorPrivate, Timeout: c.Timeout,
	})
	if err != nil {
		return nil, err
	}
	return client, nil
}

// Copies returns the number of copies that the cluster stores of each root, by this node's copy
// of the state: the replication factor, but at most the number of members. It returns 1 if the
// state cannot be read.
func (n *Node) Copies() int {
	view, release := n.consensus.LocalView()
	defer release()
	cluster, err := view.Cluster()
	if err != nil {
		return 1
	}
	nodes, err := view.Nodes()
	if err != nil {
		return 1
	}
	return max(1, min(int(cluster.Replication), len(nodes)))
}
