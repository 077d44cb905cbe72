package ingest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// Times and limits for epochs and for removing blocks.
const (
	// fenceEvery is the shortest time between two increases of a node's epoch, because each is an
	// entry in the Raft log.
	fenceEvery = time.Minute
	fenceRetry = 20 * time.Millisecond
	maxRetry   = 5 * time.Second
	// readyPatience is how long complete content waits for the first epoch of this node.
	readyPatience = 10 * time.Second
	// maxUnknown is the largest number of leases with an unknown outcome. Above it, the node
	// accepts no content until a new epoch has ended some of them.
	maxUnknown = 64 << 10
	// Shortest and longest pause before the next attempt to remove the blocks of a put, if a full
	// disk has prevented it.
	minDropPause = time.Second
	maxDropPause = time.Minute
	// maxLeft is the largest number of references that wait to be removed. Further ones are
	// removed at the next start.
	maxLeft = 64 << 10
)

// keeper stores content that arrives at this node, under a separate reference per put. At the end
// of a put it seals the root under a lease and answers with this node's epoch.
type keeper struct {
	opts Options
	work sync.WaitGroup // counts running drops

	ready chan struct{} // closed when this process has its first epoch
	some  chan struct{} // has a token while unknown may have leases
	stays chan struct{} // has a token while left may have references

	// mu guards the fields below. It is not held during calls of other code.
	mu      sync.Mutex
	epoch   uint64          // 0 means that there is no epoch yet
	unknown []state.RootKey // leases with an unknown outcome, which the next epoch ends
	left    []string        // references of ended puts that could not be dropped
}

func newKeeper(opts Options) *keeper {
	return &keeper{opts: opts, ready: make(chan struct{}), some: make(chan struct{}, 1), stays: make(chan struct{}, 1)}
}

// run raises this node's epoch at the start and whenever leases with an unknown outcome exist,
// until ctx ends.
func (k *keeper) run(ctx context.Context) error {
	defer k.work.Wait()
	k.work.Go(func() { k.clear(ctx) })
	if !k.refence(ctx) {
		return nil
	}
	k.opts.Leases.Fenced()
	close(k.ready)
	for {
		last := k.opts.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-k.some:
		}
		if !backoff.Wait(ctx, fenceEvery-k.opts.Now().Sub(last)) || !k.refence(ctx) {
			return nil
		}
	}
}

// refence calls fence until it succeeds. It returns false if ctx has ended.
func (k *keeper) refence(ctx context.Context) bool {
	pause := backoff.New(fenceRetry, maxRetry)
	for {
		err := k.fence(ctx)
		if err == nil {
			return true
		}
		k.opts.Logger.DebugContext(ctx, "cannot begin a new epoch yet", "err", err)
		if !pause.Wait(ctx) {
			return false
		}
	}
}

// fence raises this node's epoch in the replicated state. From then on, commands that contain
// lower epochs of this node cannot reference its content. So the leases with an unknown outcome
// can end.
func (k *keeper) fence(ctx context.Context) error {
	k.mu.Lock()
	ends := len(k.unknown)
	k.mu.Unlock()
	last, err := k.opts.Fences.Epoch(ctx)
	if err != nil {
		return fmt.Errorf("read epoch: %w", err)
	}
	if err := k.opts.Fences.Raise(ctx, last+1); err != nil {
		return fmt.Errorf("raise epoch: %w", err)
	}
	k.mu.Lock()
	k.epoch = last + 1
	over := k.unknown[:ends:ends]
	k.unknown = append([]state.RootKey(nil), k.unknown[ends:]...)
	if len(k.unknown) > 0 {
		token(k.some)
	}
	k.mu.Unlock()
	for _, root := range over {
		k.opts.Leases.End(root)
	}
	return nil
}

// now returns the current epoch of this node.
func (k *keeper) now() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.epoch
}

// await waits until this node has an epoch. It returns state.ErrUnavailable after readyPatience,
// and while there are too many leases with an unknown outcome.
func (k *keeper) await(ctx context.Context) error {
	select {
	case <-k.ready:
	default:
		timer := time.NewTimer(readyPatience)
		defer timer.Stop()
		select {
		case <-k.ready:
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return state.Errorf(state.CodeUnavailable, "this node does not take content in yet")
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.unknown) >= maxUnknown {
		return state.Errorf(state.CodeUnavailable, "this node waits for the cluster before it takes more content in")
	}
	return nil
}

// lose records a lease whose outcome is unknown, so that the next epoch ends it.
func (k *keeper) lose(root state.RootKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unknown = append(k.unknown, root)
	token(k.some)
}

// dropLeftovers removes the references that puts of an earlier process have left.
func (k *keeper) dropLeftovers(ctx context.Context) error {
	const page = 512
	for more := true; more; {
		var references []string
		more = false
		err := k.opts.Blocks.References(ctx, ReferencePrefix, func(reference string, _ bool) (bool, error) {
			more = len(references) == page
			if !more {
				references = append(references, reference)
			}
			return !more, nil
		})
		if err != nil {
			return fmt.Errorf("list what was put: %w", err)
		}
		for _, reference := range references {
			if err := k.opts.Blocks.Drop(ctx, reference); err != nil {
				return fmt.Errorf("drop what was put: %w", err)
			}
		}
	}
	return nil
}

// drop removes the reference of a put. If that fails, clear tries it again.
func (k *keeper) drop(reference string) {
	err := k.opts.Blocks.Drop(context.Background(), reference)
	if err == nil {
		return
	}
	k.opts.Logger.Warn("cannot drop the blocks of a put yet", "reference", reference, "err", err)
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.left) == maxLeft {
		return
	}
	k.left = append(k.left, reference)
	token(k.stays)
}

// clear repeats failed removals of references until ctx ends.
func (k *keeper) clear(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.stays:
		}
		pause := backoff.New(minDropPause, maxDropPause)
		for {
			if !pause.Wait(ctx) {
				return
			}
			if k.dropLeft(ctx) {
				break
			}
		}
	}
}

// dropLeft removes the references in left until one fails, which goes to the end of the list. It
// returns true if none is left.
func (k *keeper) dropLeft(ctx context.Context) bool {
	for {
		k.mu.Lock()
		if len(k.left) == 0 {
			k.left = nil
			k.mu.Unlock()
			return true
		}
		reference := k.left[0]
		k.left = k.left[1:]
		k.mu.Unlock()
		if err := k.opts.Blocks.Drop(ctx, reference); err != nil {
			k.opts.Logger.DebugContext(ctx, "cannot drop the blocks of a put yet", "reference", reference, "err", err)
			k.mu.Lock()
			k.left = append(k.left, reference)
			k.mu.Unlock()
			return false
		}
	}
}

// intake is one put on this node, its own or that of another node. Only one goroutine uses it.
type intake struct {
	k         *keeper
	reference string
	wrote     bool // reference may have blocks
	ended     bool // root has a lease, which done or lost ends

	root state.RootKey
	kept kept
}

func (k *keeper) open(id string) *intake { return &intake{k: k, reference: ReferencePrefix + id} }

// put implements dest.
func (n *intake) put(ctx context.Context, blks []block.Block) error {
	n.wrote = true
	return n.k.opts.Blocks.Put(ctx, n.reference, blks)
}

// end implements dest. If the node crashes before the seal, the tracker deletes the incomplete
// blocks after the restart; if it crashes after the seal, the tracker deletes the root once the
// epoch was raised and nothing references the root.
func (n *intake) end(ctx context.Context, e end, last []block.Block) (kept, error) {
	if err := n.k.await(ctx); err != nil {
		return kept{}, err
	}
	root := state.RootOf(e.root)
	if err := n.k.opts.Leases.Begin(ctx, root); err != nil {
		return kept{}, err
	}
	bytes, blocks, err := n.whole(ctx, e, last)
	if err != nil {
		n.k.opts.Leases.End(root) // the other side got no answer
		return kept{}, err
	}
	n.ended, n.root = true, root
	n.letGo()
	n.kept = kept{epoch: n.k.now(), bytes: bytes, blocks: blocks}
	return n.kept, nil
}

// whole completes the root on this node, seals it durably, and records the seal in its lease.
func (n *intake) whole(ctx context.Context, e end, last []block.Block) (bytes, blocks uint64, err error) {
	root := state.RootOf(e.root)
	store, reference := n.k.opts.Blocks, n.k.opts.Reference(root)
	sealed, bytes, blocks, _, err := store.Reference(ctx, reference)
	if err != nil {
		return 0, 0, err
	}
	if sealed { // what was put before last was compared by Put
		if sealed, err = store.Verify(ctx, last); err != nil {
			return 0, 0, err
		}
	}
	if sealed {
		n.k.opts.Leases.Found(root)
		return bytes, blocks, nil
	}
	var hidden bool
	defer func() {
		if err == nil {
			n.k.opts.Leases.Sealed(root, hidden)
		}
	}()
	if len(last) == 1 && last[0].Cid().Equals(e.root) && e.root.Prefix().Codec == cid.Raw {
		bytes = uint64(len(last[0].RawData()))
		hidden, err = store.PutAndSeal(ctx, reference, last, bytes, 1)
		return bytes, 1, err
	}
	if len(last) > 0 {
		if err := n.put(ctx, last); err != nil {
			return 0, 0, err
		}
	}
	bytes, blocks, err = n.k.opts.Fetcher.Fetch(ctx, e.root, reference, e.sources)
	if err != nil {
		return 0, 0, err
	}
	hidden, err = store.Seal(ctx, reference, bytes, blocks)
	return bytes, blocks, err
}

// letGo removes the reference of the put in the background; the blocks of the root are in the
// root's own reference. If a crash prevents this, the next start does it.
func (n *intake) letGo() {
	if !n.wrote {
		return
	}
	n.wrote = false
	n.k.work.Go(func() { n.k.drop(n.reference) })
}

// renew implements dest.
func (n *intake) renew(context.Context) (kept, error) {
	n.kept.epoch = n.k.now()
	return n.kept, nil
}

// done implements dest. It drops the reference of the put and ends the lease on the root, whatever the
// outcome.
func (n *intake) done(byte) {
	n.letGo()
	if n.ended {
		n.ended = false
		n.k.opts.Leases.End(n.root)
	}
}

// lost implements dest.
func (n *intake) lost() {
	n.letGo()
	if n.ended {
		n.ended = false
		n.k.lose(n.root)
	}
}

// token sends a token to a channel of capacity one, unless the channel has one already.
func token(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// quit implements dest.
func (n *intake) quit() { n.done(outcomeGivenUp) }
