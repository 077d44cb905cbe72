package tracker

import (
	"context"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// damageKnower is an optional method of Blocks. Blocks.Reference reports a damaged reference
// as not sealed; Damaged distinguishes it from one that was never complete.
type damageKnower interface{ Damaged(reference string) bool }

func (t *Tracker) damaged(k state.RootKey) bool {
	b, ok := t.opts.Blocks.(damageKnower)
	return ok && b.Damaged(Reference(k))
}

// Repair makes the dispatcher check which blocks of a reference are on this node. If there are
// fewer than were reported, the node fetches the others again, from members first. It does
// nothing for references other than those of roots. It blocks until Run has begun.
func (t *Tracker) Repair(ctx context.Context, reference string) error {
	text, ok := strings.CutPrefix(reference, rootPrefix)
	if !ok {
		return nil
	}
	c, err := cid.Decode(text)
	if err != nil {
		return wrap("repair "+reference, err)
	}
	return t.offer(ctx, state.RootOf(c))
}
