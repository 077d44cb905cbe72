package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/cluster/integrity"
	"github.com/holdfast-ipfs/holdfast/cluster/tracker"
	"github.com/holdfast-ipfs/holdfast/config"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/holdfast-ipfs/holdfast/peer"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

const (
	// fetchBuffer is the largest number of bytes of received blocks in memory that are not stored
	// yet, in all fetches together.
	fetchBuffer = 256 << 20
	// originsAlone is how long only the origins of new content are asked for its root block.
	// After that, members are asked too. It is longer than a network round trip, but short enough
	// for a user who pins content that another member has imported.
	originsAlone = 300 * time.Millisecond
)

// member is one other node as a source of blocks.
type member struct {
	peer    *peer.Peer
	id      string
	sharing bool // the member fetches the same content
}

// Name implements dag.Source.
func (m member) Name() string { return "cluster node " + m.id }

// Shares returns whether the member fetches the same DAG at the same time. Such a member starts
// at another child of the root, so that both can copy from each other.
func (m member) Shares() bool { return m.sharing }

// ChecksHashes returns true: the peer has verified the hashes of the blocks.
func (m member) ChecksHashes() bool { return true }

// Blocks implements dag.Source.
func (m member) Blocks(ctx context.Context, cids []cid.Cid, fn func(block.Block) error) ([]cid.Cid, error) {
	return m.peer.GetBlocks(ctx, m.id, cids, fn)
}

// hear is Blocks that also calls heard when a block begins to arrive. It may call heard
// concurrently.
func (m member) hear(ctx context.Context, cids []cid.Cid, heard func(), fn func(block.Block) error) ([]cid.Cid, error) {
	return m.peer.GetBlocksHearing(ctx, m.id, cids, heard, fn)
}

// originsFirst is the source for the root block of new content. At first it asks the origins only. If
// the block has not come within the time in the field alone, it also asks the members, one after the
// other. The state knows no member with the content, so asking
// all members first would fail for almost every pin. A member may have the block nevertheless,
// because it was imported there or is a part of other content. originsFirst returns all other
// blocks as missing, so that the fetch asks its next sources, the members.
type originsFirst struct {
	root    cid.Cid
	origins dag.Source
	members []dag.Source
	alone   time.Duration
}

// Name implements dag.Source.
func (o *originsFirst) Name() string { return o.origins.Name() }

// ChecksHashes returns true, because the origins and the members verify hashes.
func (o *originsFirst) ChecksHashes() bool { return true }

// Blocks implements dag.Source.
func (o *originsFirst) Blocks(ctx context.Context, cids []cid.Cid, fn func(block.Block) error) ([]cid.Cid, error) {
	if len(cids) != 1 || !cids[0].Equals(o.root) {
		return cids, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // of given and refused; fn is called under it
	var given bool
	var refused error
	take := func(b block.Block) error {
		mu.Lock()
		defer mu.Unlock()
		if given || refused != nil {
			return refused
		}
		refused = fn(b)
		given = refused == nil
		cancel() // the other sources can stop
		return refused
	}
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	others.Go(func() {
		if !backoff.Wait(ctx, o.alone) {
			return
		}
		for _, m := range o.members {
			// One that does not answer is passed over like one that has not got it.
			_, _ = m.Blocks(ctx, cids, take)
			if ctx.Err() != nil {
				return
			}
		}
	})
	_, err := o.origins.Blocks(ctx, cids, take)
	if err != nil && ctx.Err() == nil {
		others.Wait() // members may still do better
	}
	mu.Lock()
	defer mu.Unlock()
	switch {
	case given:
		return nil, nil
	case refused != nil:
		return cids, refused
	case err == nil:
		err = errors.New("not given yet")
	}
	return cids, err
}

// sealing is the block store for a fetch. It stores a small DAG and seals its reference in one
// call, unless the reference is damaged. The tracker seals damaged references after a scan.
type sealing struct {
	*blocks.Store
	scrubber *integrity.Scrubber
	hidden   func(reference string) bool // whether the reference is sealed as hidden
}

// Complete lets dag.Fetch store all blocks of a small DAG and seal its reference in one call.
func (s sealing) Complete(ctx context.Context, reference string, blks []block.Block, bytes, count uint64) error {
	if s.scrubber.Damaged(reference) {
		return s.Put(ctx, reference, blks)
	}
	return s.PutAndSeal(ctx, reference, blks, s.as(reference, bytes, count))
}

// as returns the argument with which to seal a reference of bytes bytes in count blocks.
func (s sealing) as(reference string, bytes, count uint64) blocks.Sealed {
	return blocks.Sealed{Bytes: bytes, Blocks: count, Hidden: s.hidden(reference)}
}

// TakeOver lets dag.Fetch add many blocks that are already stored to a reference in one call. It
// returns the sum of their bytes, and the CIDs that are not stored.
func (s sealing) TakeOver(ctx context.Context, reference string, cids []cid.Cid) (bytes uint64, missing []cid.Cid, err error) {
	return s.Store.TakeOver(ctx, reference, cids, s.hidden(reference))
}

// fetcher fetches DAGs from members, origins and the IPFS network, and stores them durably on
// this node. It implements tracker.Fetcher.
type fetcher struct {
	peer   *peer.Peer
	store  sealing
	limits dag.Limits
	buffer *dag.Buffer // limits the bytes in memory of all fetches together
}

func fetchLimits(c config.Tracker) dag.Limits {
	return dag.Limits{
		MaxBlocks: uint64(c.MaxBlocks), MaxDepth: c.MaxDepth, MaxBytes: uint64(c.MaxBytes),
		Idle: c.IdleTimeout, Total: c.TotalTimeout,
	}
}

// objectLimits returns l without the limit of bytes, for the content of objects. The object
// gateway has a size limit of its own. Acknowledged content must be copied even if the limit for
// pins has become smaller since then.
func objectLimits(l dag.Limits) dag.Limits {
	l.MaxBytes = 0
	return l
}

// Fetch implements tracker.Fetcher.
func (f *fetcher) Fetch(ctx context.Context, job tracker.Job, progress func(bytes, blocks uint64)) (bytes, count uint64, err error) {
	var session dag.Source // of the IPFS network
	refused := func() bool { return false }
	if !job.Private {
		s := f.peer.Session(ctx, string(job.Account), job.Origins)
		defer s.Close()
		session, refused = s, s.AllRefused
	}
	limits := f.limits
	if job.Linked {
		limits = objectLimits(limits)
	}
	got, err := dag.Fetch(ctx, dag.FetchRequest{
		Root: job.Root, Reference: job.Reference, Store: f.store, Sources: f.sources(job, session), Limits: limits,
		Share: dag.Share{Index: job.Index, Of: job.Of}, Buffer: f.buffer,
		Progress: func(p dag.Progress) { progress(p.Bytes, p.Blocks) },
	})
	if err != nil && got.Blocks == 0 && refused() {
		err = &refusedError{err}
	}
	return got.Bytes, got.Blocks, err
}

// refusedError is the error of a fetch that got no block and whose origins all have addresses
// that this node never dials.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

// Vain implements tracker.Fetcher. It returns true if err is a refusedError: another attempt with
// the same origins would fail too.
func (f *fetcher) Vain(err error) bool { return errors.As(err, new(*refusedError)) }

// sources returns the sources of a job's blocks, in the order in which the fetch asks them. A nil
// session, as for private content, means that only members are asked.
func (f *fetcher) sources(job tracker.Job, session dag.Source) []dag.Source {
	members := make([]dag.Source, 0, len(job.Members)+2)
	for i, id := range job.Members {
		members = append(members, member{peer: f.peer, id: string(id), sharing: i < job.Sharing})
	}
	if session == nil {
		return members
	}
	all := append(members, session)
	if len(job.Origins) == 0 || job.Held {
		return all
	}
	return append([]dag.Source{&originsFirst{root: job.Root, origins: session, members: members, alone: originsAlone}}, all...)
}

// Reason implements tracker.Fetcher. It separates the remarks about origins from the rest of the
// text, because only pins that name an origin show them.
func (f *fetcher) Reason(err error) string {
	if errors.Is(err, blocks.ErrNoSpace) {
		return "the disk of a node that was to keep it is full"
	}
	var failed *dag.FetchError
	if !errors.As(err, &failed) {
		return state.ReasonOf(dag.Reason(err), nil)
	}
	shared := *failed
	shared.Notes = nil
	return state.ReasonOf(shared.Reason(), failed.Notes)
}

// Blameless implements tracker.Fetcher. It returns true if the fetch failed because other work of
// this node had used up the memory.
func (f *fetcher) Blameless(err error) bool { return errors.Is(err, dag.ErrMemory) }

// Final implements tracker.Fetcher. It returns true if the content itself is the reason of the
// failure, so that no later attempt can succeed.
func (f *fetcher) Final(err error) bool {
	return errors.Is(err, dag.ErrTooLarge) || errors.Is(err, dag.ErrUnsupportedCodec) || errors.Is(err, dag.ErrInvalidBlock)
}
