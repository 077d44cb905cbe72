package node

import (
	"github.com/holdfast-ipfs/holdfast/cluster/facilitator"
	"github.com/holdfast-ipfs/holdfast/cluster/payments"
)

// facilitator returns the facilitator of the options, or that of the settings; nil: this node takes no
// payments.
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

// Copies returns the number of copies that the cluster keeps, as the state of this node has it.
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
