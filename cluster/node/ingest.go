package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/ingest"
	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// putIdle is how long the end of a put waits for a block of another member.
const putIdle = 30 * time.Second

// openIngest makes the part that takes content in. What puts of an earlier process
// left is dropped.
func (n *Node) openIngest(guards *tracker.Guards, buffer *dag.Buffer) error {
	limits := objectLimits(fetchLimits(n.opts.Config.Tracker))
	limits.Idle = min(limits.Idle, putIdle)
	store := sealing{n.blocks, n.scrubber, n.hidden}
	memory := new(dag.Buffers)
	n.ingest = ingest.New(ingest.Options{
		Self:    n.self.ID,
		Blocks:  arriving{held{n.blocks, n.scrubber, n.peer, n.hidden}, store},
		Fetcher: &gatherer{peer: n.peer, store: store, limits: limits, buffer: buffer, members: n.members.Nodes, down: n.down},
		DAGs:    dags{memory}, Buffers: memory, Guards: guards, Fences: &fences{n.self.ID, n.consensus}, Network: n.peer, Owner: tracker.Owner,
		Now: n.opts.Now, Logger: n.logger,
	})
	return n.ingest.DropLeftovers(context.Background())
}

// arriving adapts the block store to ingest.
type arriving struct {
	held
	store sealing
}

// roomy names want of room as the state does.
func roomy(err error) error {
	if errors.Is(err, blocks.ErrNoSpace) {
		return state.Errorf(state.CodeNoSpace, "the disk of a node that was to keep the content is full")
	}
	return err
}

// Put implements ingest.Blocks.
func (a arriving) Put(ctx context.Context, owner string, blks []block.Block) error {
	return roomy(a.Store.PutCold(ctx, owner, blks))
}

// PutAndSeal implements ingest.Blocks.
func (a arriving) PutAndSeal(ctx context.Context, owner string, blks []block.Block, bytes, count uint64) (hidden bool, err error) {
	if a.scrubber.Damaged(owner) {
		if err := a.Put(ctx, owner, blks); err != nil {
			return false, err
		}
		return a.Seal(ctx, owner, bytes, count)
	}
	sealed := a.store.as(owner, bytes, count)
	return sealed.Hidden, roomy(a.Store.PutColdAndSeal(ctx, owner, blks, sealed))
}

// Seal implements ingest.Blocks.
func (a arriving) Seal(ctx context.Context, owner string, bytes, count uint64) (hidden bool, err error) {
	hidden, err = a.seal(ctx, owner, bytes, count)
	return hidden, roomy(err)
}

// gatherer makes DAGs whole of what is here and of what members have. The IPFS network
// is not asked: what is put comes from nowhere else.
type gatherer struct {
	peer    *peer.Peer
	store   sealing
	limits  dag.Limits
	buffer  *dag.Buffer
	members func() []state.Node
	down    func(state.NodeID) bool
}

// Fetch implements ingest.Fetcher.
func (g *gatherer) Fetch(ctx context.Context, root cid.Cid, owner string, first []state.NodeID) (bytes, count uint64, err error) {
	order := slices.Clone(first)
	for _, n := range g.members() {
		if !slices.Contains(order, n.ID) {
			order = append(order, n.ID)
		}
	}
	var sources []dag.Source
	for _, id := range order {
		if string(id) != g.peer.ID() && !g.down(id) {
			sources = append(sources, member{peer: g.peer, id: string(id)})
		}
	}
	got, err := dag.Fetch(ctx, dag.FetchRequest{
		Root: root, Owner: owner, Store: g.store, Sources: sources, Limits: g.limits, Buffer: g.buffer, Here: true,
	})
	return got.Bytes, got.Blocks, roomy(err)
}

// dags implements ingest.DAGs.
type dags struct{ *dag.Buffers }

// Leaf implements ingest.DAGs.
func (dags) Leaf(data, sum []byte) (block.Block, error) { return dag.LeafOf(data, sum) }

// Join implements ingest.DAGs.
func (dags) Join(parts []ingest.File) (cid.Cid, []block.Block, error) {
	all := make([]dag.Part, len(parts))
	for i, p := range parts {
		all[i] = dag.Part(p)
	}
	return dag.Join(all)
}
