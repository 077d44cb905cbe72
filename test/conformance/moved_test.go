//go:build conformance

package conformance

import (
	"testing"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// TestAllNodesAtOtherAddressesFindEachOther promises that nodes whose addresses have all changed find each other if
// each is started with its new address and, by --join, that of one other. From then on the cluster knows the new
// addresses by itself.
func TestAllNodesAtOtherAddressesFindEachOther(t *testing.T) {
	longForm(t)
	t.Parallel() // it mostly waits
	c := harness.Start(t, harness.Options{})
	before := c.Nodes[0].Status()
	ids := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		ids[i] = n.Status().Node.ID
	}
	for _, n := range c.Nodes {
		n.Stop()
		c.Move(n)
	}
	at := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		at[i] = n.ClusterAddr(ids[i])
	}
	for i, n := range c.Nodes {
		n.AddArgs("--join", at[(i+1)%len(at)])
		n.Restart()
	}
	settled := func() {
		t.Helper()
		c.Settle()
		for i, n := range c.Nodes {
			s := n.Status()
			if s.ClusterID != before.ClusterID || s.Node.ID != ids[i] || len(s.Peers) != len(ids) || s.Node.ClusterAddrs[0] != at[i] {
				t.Errorf("%s is %s at %v in the cluster %s of %d", n.Name, s.Node.ID, s.Node.ClusterAddrs, s.ClusterID, len(s.Peers))
			}
		}
	}
	settled()
	c.Nodes[0].UserKey("moved@example.org") // it can be written to
	for _, n := range c.Nodes {
		n.Stop()
		n.DropArgs(2)
	}
	for _, n := range c.Nodes {
		n.Restart()
	}
	settled()
}
