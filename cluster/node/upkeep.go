package node

import (
	"context"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/cluster/upkeep"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
)

// Upkeep returns the service that collects garbage and checks this node on request.
func (n *Node) Upkeep() *upkeep.Upkeep { return n.upkeep }

// openUpkeep creates n.upkeep from the parts that it uses.
func (n *Node) openUpkeep() {
	store := upkept{n.blocks}
	n.upkeep = &upkeep.Upkeep{
		Collector: upkeep.NewCollector(store, n.tracker, n.content, ingest.ReferencePrefix, content.LeasePrefix),
		Checker:   upkeep.NewChecker(n.self.ID, n.consensus, store, n.tracker),
	}
}

// upkept adapts the block store to the interfaces upkeep.Garbage and upkeep.Copies.
type upkept struct{ *blocks.Store }

// Freed implements upkeep.Garbage.
func (s upkept) Freed() upkeep.Freed { return upkeep.Freed(s.Store.Freed()) }

// Usage implements upkeep.Garbage.
func (s upkept) Usage() upkeep.Usage {
	u := s.Store.Usage()
	return upkeep.Usage{LiveBytes: u.LiveBytes, DiskBytes: u.DiskBytes}
}

// References implements upkeep.Garbage and upkeep.Copies.
func (s upkept) References(ctx context.Context, prefix string, fn func(reference string, bytes uint64) (bool, error)) error {
	return s.Store.References(ctx, prefix, func(o blocks.ReferenceInfo) (bool, error) { return fn(o.Reference, o.Bytes) })
}

// Check implements upkeep.Copies.
func (s upkept) Check(ctx context.Context, limit int) (state.Fsck, error) {
	found, err := s.Store.Check(ctx, limit)
	out := state.Fsck{Rows: found.Rows, More: found.More, AtLeast: found.AtLeast}
	for _, d := range found.Differences {
		out.Differences = append(out.Differences, state.Difference{Table: d.What, Key: d.Key, Stored: d.Stored, Computed: d.Computed})
	}
	return out, err
}

// Copy implements upkeep.Copies.
func (s upkept) Copy(ctx context.Context, reference string) (upkeep.Copy, error) {
	o, there, err := s.Store.Reference(ctx, reference)
	if err != nil || !there {
		return upkeep.Copy{}, err
	}
	whole, err := s.Store.Whole(ctx, reference)
	return upkeep.Copy{There: true, Sealed: o.Sealed, Whole: whole, Hidden: o.Hidden}, err
}
