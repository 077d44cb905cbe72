package tracker

import (
	"context"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// damageKnower is a Blocks that knows of damage: Owner says of what is damaged
// that it is not sealed, and Damaged tells it from what was never complete.
type damageKnower interface{ Damaged(owner string) bool }

func (t *Tracker) damaged(k state.RootKey) bool {
	b, ok := t.opts.Blocks.(damageKnower)
	return ok && b.Damaged(Owner(k))
}

// Repair has the dispatcher look at what an owner of blocks has here, which may
// be less than was reported: then the rest is fetched again, from members first.
// Owners that are no roots need nothing. It waits while Run has not begun.
func (t *Tracker) Repair(ctx context.Context, owner string) error {
	text, ok := strings.CutPrefix(owner, rootPrefix)
	if !ok {
		return nil
	}
	c, err := cid.Decode(text)
	if err != nil {
		return wrap("repair "+owner, err)
	}
	return t.offer(ctx, state.RootOf(c))
}
