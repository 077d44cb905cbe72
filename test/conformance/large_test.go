//go:build conformance

package conformance

import (
	"flag"
	"testing"
	"time"

	"github.com/holdfast-ipfs/holdfast/test/harness"
)

// largeGrowth is what a node may grow by while it walks a large DAG: A41 has it
// for content that is built to hurt, and this might be.
const largeGrowth = 256 << 20

// largeWithin is how long the walk may take where others want the processors too.
const largeWithin = 40 * time.Minute

// treeDepth is 19 for 1,048,575 blocks.
var treeDepth = flag.Int("tree-depth", 15, "levels below the root of the tree that -long pins")

// TestALargeDAGOfSmallNodesIsPinned promises that a real process pins a large binary tree of small dag-cbor nodes
// within its bound of memory. With -long only: the tree has 65,535 blocks, half of them dag-cbor nodes.
func TestALargeDAGOfSmallNodesIsPinned(t *testing.T) {
	if !*longFlag {
		t.Skip("takes minutes; run with -long")
	}
	c := harness.Start(t, harness.Options{Nodes: 1, Env: []string{"HOLDFAST_ACCOUNTS_ALLOWANCE=16GiB"}})
	s := newService(t, c, "large@example.org")
	n := c.Nodes[0]
	boxo := harness.StartBoxo(t)
	tree := boxo.AddDAG("dag-cbor", 2, *treeDepth)
	before, most := n.ResidentBytes(), int64(0)
	used, start := n.ProcessorTime(), time.Now()
	id := s.post(harness.Pin{CID: tree.CID, Origins: boxo.Addrs}).RequestID
	harness.Eventually(t, largeWithin, "the tree is pinned", func() (bool, error) {
		most = max(most, n.ResidentBytes())
		now := s.get(id)
		if now.Status == "failed" {
			t.Fatal(now.Info)
		}
		return now.Status == "pinned", nil
	})
	t.Logf("%d blocks in %s, %s of processor time; the node grew by %d MiB to %d MiB",
		tree.Blocks, time.Since(start).Round(time.Second), n.ProcessorTime()-used, (most-before)>>20, most>>20)
	if most-before > largeGrowth {
		t.Errorf("the node grew by %d MiB", (most-before)>>20)
	}
}
