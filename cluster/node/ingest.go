package node

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
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

// putIdle is how long a put, when it completes its DAG, waits for the next block from another
// member.
const putIdle = 30 * time.Second

// openIngest creates n.ingest and deletes what unfinished puts of an earlier process have left in
// the block store.
func (n *Node) openIngest(leases *tracker.Leases, buffer *dag.Buffer) error {
	limits := objectLimits(fetchLimits(n.opts.Config.Tracker))
	limits.Idle = min(limits.Idle, putIdle)
	store := sealing{n.blocks, n.scrubber, n.hidden}
	memory := new(dag.Buffers)
	n.ingest = ingest.New(ingest.Options{
		Self:    n.self.ID,
		Blocks:  arriving{held{n.blocks, n.scrubber, n.peer, n.hidden}, store},
		Fetcher: &gatherer{peer: n.peer, store: store, limits: limits, buffer: buffer, members: n.members.Nodes, down: n.down},
		DAGs:    dags{memory}, Buffers: memory, Leases: leases, Fences: &fences{n.self.ID, n.consensus}, Network: n.peer, Reference: tracker.Reference,
		Now: n.opts.Now, Logger: n.logger,
	})
	return n.ingest.DropLeftovers(context.Background())
}

// arriving adapts the block store to the interface ingest.Blocks.
type arriving struct {
	held
	store sealing
}

// hasCapacity turns the block store's ErrNoSpace into a state error with CodeNoSpace, and returns
// other errors unchanged.
func hasCapacity(err error) error {
	if errors.Is(err, blocks.ErrNoSpace) {
		return state.Errorf(state.CodeNoSpace, "the disk of a node that was to keep the content is full")
	}
	return err
}

// Put implements ingest.Blocks.
func (a arriving) Put(ctx context.Context, reference string, blks []block.Block) error {
	return hasCapacity(a.Store.PutCold(ctx, reference, blks))
}

// PutAndSeal implements ingest.Blocks.
func (a arriving) PutAndSeal(ctx context.Context, reference string, blks []block.Block, bytes, count uint64) (hidden bool, err error) {
	if a.scrubber.Damaged(reference) {
		if err := a.Put(ctx, reference, blks); err != nil {
			return false, err
		}
		return a.Seal(ctx, reference, bytes, count)
	}
	sealed := a.store.as(reference, bytes, count)
	return sealed.Hidden, hasCapacity(a.Store.PutColdAndSeal(ctx, reference, blks, sealed))
}

// Seal implements ingest.Blocks.
func (a arriving) Seal(ctx context.Context, reference string, bytes, count uint64) (hidden bool, err error) {
	hidden, err = a.seal(ctx, reference, bytes, count)
	return hidden, hasCapacity(err)
}

// gatherer completes DAGs from the blocks of this node and of other members. It does not ask the
// IPFS network, because content of a put exists only in the cluster. It implements
// ingest.Fetcher.
type gatherer struct {
	peer    *peer.Peer
	store   sealing
	limits  dag.Limits
	buffer  *dag.Buffer
	members func() []state.Node
	down    func(state.NodeID) bool
}

// Fetch implements ingest.Fetcher.
func (g *gatherer) Fetch(ctx context.Context, root cid.Cid, reference string, first []state.NodeID) (bytes, count uint64, err error) {
	order := slices.Clone(first)
	for _, n := range g.members() {
		if !slices.Contains(order, n.ID) {
			order = append(order, n.ID)
		}
	}
	var members []speaker
	for _, id := range order {
		if string(id) != g.peer.ID() && !g.down(id) {
			members = append(members, member{peer: g.peer, id: string(id)})
		}
	}
	got, err := dag.Fetch(ctx, dag.FetchRequest{
		Root: root, Reference: reference, Store: g.store, Sources: promptFirst(members), Limits: g.limits, Buffer: g.buffer, Here: true,
	})
	return got.Bytes, got.Blocks, hasCapacity(err)
}

// speaker is a source of blocks that can report when a block begins to arrive. member implements
// it.
type speaker interface {
	dag.Source
	hear(ctx context.Context, cids []cid.Cid, heard func(), fn func(block.Block) error) (missing []cid.Cid, err error)
}

// promptFirst returns the sources for a fetch for which a client waits. The fetch skips members
// that do not answer within askNextAfter: the connection to a member that hangs remains open for
// a while, and each later dial takes its full timeout. The last source asks the skipped members
// again, without the short limit, for blocks that no other member has.
func promptFirst(members []speaker) []dag.Source {
	sources, all := make([]dag.Source, len(members), len(members)+1), make(patient, len(members))
	for i, m := range members {
		all[i] = &prompt{speaker: m}
		sources[i] = all[i]
	}
	return append(sources, all)
}

// prompt is a member that is skipped if it does not answer within askNextAfter. The limit does
// not apply after the member has sent its first bytes, because then a wait means only that
// parallel requests share the connection.
type prompt struct {
	speaker
	spoke, silent atomic.Bool
}

// ChecksHashes returns true, as for members.
func (*prompt) ChecksHashes() bool { return true }

// Blocks implements dag.Source.
func (p *prompt) Blocks(ctx context.Context, cids []cid.Cid, fn func(block.Block) error) ([]cid.Cid, error) {
	if p.silent.Load() {
		return cids, errSilent
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(askNextAfter, func() {
		if !p.spoke.Load() {
			cancel(errSilent)
		}
	})
	defer late.Stop()
	missing, err := p.hear(ctx, cids, func() { p.spoke.Store(true) }, fn)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		p.silent.Store(true)
		err = errSilent
	}
	return missing, err
}

// patient is the source that asks the members that were skipped as silent, without the short time
// limit.
type patient []*prompt

// Name implements dag.Source.
func (patient) Name() string { return "cluster nodes that said nothing" }

// ChecksHashes returns true, as for members.
func (patient) ChecksHashes() bool { return true }

// Blocks implements dag.Source.
func (p patient) Blocks(ctx context.Context, cids []cid.Cid, fn func(block.Block) error) (missing []cid.Cid, err error) {
	missing = cids
	for _, m := range p {
		if len(missing) == 0 || ctx.Err() != nil {
			break
		}
		if m.silent.Load() {
			rest, failed := m.speaker.Blocks(ctx, missing, fn)
			missing, err = rest, errors.Join(err, failed)
		}
	}
	return missing, err
}

// dags implements ingest.DAGs with package dag.
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
