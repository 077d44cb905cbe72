package consensus

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// Fsck checks the local state at one index, see state.View.Fsck. It reads the state at the rate of
// StateHash, waits until no other goroutine hashes or checks the state, and blocks no other work.
func (n *Node) Fsck(ctx context.Context, limit int) (index uint64, found state.Fsck, err error) {
	select {
	case n.hashing <- struct{}{}:
		defer func() { <-n.hashing }()
	case <-ctx.Done():
		return 0, found, fmt.Errorf("consensus: fsck: %w", ctx.Err())
	}
	view, release := n.LocalView()
	defer release()
	p := pacer{ctx: ctx, began: time.Now()}
	found, err = view.Fsck(limit, p.read)
	return view.Index(), found, err
}
