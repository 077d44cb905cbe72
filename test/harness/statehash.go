package harness

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// sameWithin is the longest time in which all nodes must have applied the same log entries, when no
// client writes.
const sameWithin = 2 * time.Minute

// StateHash returns the hash of this node's replicated state, and the index of the log entry after
// which the state has this hash. It asks the operator socket in the node's folder.
func (n *Node) StateHash(ctx context.Context) (client.StateHash, error) {
	c := client.New(n.Dir)
	defer c.Close()
	h, err := c.StateHash(ctx)
	if err != nil {
		return h, fmt.Errorf("%s: state hash: %w", n.Name, err)
	}
	return h, nil
}

// SameState waits until all running nodes have applied the log up to the same index. It returns an
// error if the hashes of their states differ at this index. Meanwhile no client may write.
func (c *Cluster) SameState(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sameWithin)
	defer cancel()
	return Poll(ctx, pollEvery, func() (bool, error) {
		var first client.StateHash
		for i, n := range c.Live() {
			h, err := n.StateHash(ctx)
			switch {
			case err != nil:
				return false, err
			case i == 0:
				first = h
			case h.Index != first.Index:
				return false, fmt.Errorf("%s is at %d, another at %d", n.Name, h.Index, first.Index)
			case h.Hash != first.Hash:
				cancel() // waiting does not make it better
				return false, fmt.Errorf("states differ: %s has %s at %d, another %s", n.Name, h.Hash, h.Index, first.Hash)
			}
		}
		return true, nil
	})
}
