package tracker

import (
	"context"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// damageKnower is an optional interface of Blocks. Blocks.Reference reports a damaged reference
// as not sealed. Damaged distinguishes it from a reference that was never complete.
type damageKnower interface{ Damaged(reference string) bool }

func (t *Tracker) damaged(k state.RootKey) bool {
	b, ok := t.opts.Blocks.(damageKnower)
	return ok && b.Damaged(Reference(k))
}

// Repair makes the dispatcher check whether the content of a reference is complete on this node.
// If it is not, the node fetches the missing blocks again, from members first. Repair does
// nothing for a reference that is not that of a root. It blocks until Run accepts the root.
func (t *Tracker) Repair(ctx context.Context, reference string) error {
	text, ok := strings.CutPrefix(reference, RootPrefix)
	if !ok {
		return nil
	}
	c, err := cid.Decode(text)
	if err != nil {
		return wrap("repair "+reference, err)
	}
	return t.offer(ctx, state.RootOf(c))
}
