package tracker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// Limits of the sweeper, which drops content.
const (
	dropsAtOnce = 8   // largest number of drops at the same time
	sweepBatch  = 256 // largest number of roots that are checked with one linearizable view
	minViewWait = 100 * time.Millisecond
	maxViewWait = 5 * time.Second
)

// sweep is one reference to drop, with the result. The incomplete content of an abandoned fetch
// can be dropped at once. Other content is dropped only if a linearizable view, requested after
// the decision to drop it, does not want it on this node.
type sweep struct {
	root    state.RootKey
	partial bool   // the content was incomplete at the decision; a put may have completed it since
	bytes   uint64 // size of complete content in bytes

	dropped bool  // result: the content was dropped
	leased  bool  // result: not dropped, because the root has or had a lease, or has readers
	whole   bool  // result: not dropped, because the content is complete now, or that is unknown
	err     error // result: error of the drop
}

// sweeps contains the references to drop. Its size is limited, because the dispatcher has an
// entry for the root of each reference.
type sweeps struct {
	some chan struct{} // contains a token while waiting may not be empty

	// mu guards waiting. It is not held during calls of other code.
	mu      sync.Mutex
	waiting []sweep
}

func newSweeps() *sweeps { return &sweeps{some: make(chan struct{}, 1)} }

func (s *sweeps) add(w sweep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, w)
	token(s.some)
}

func (s *sweeps) take() []sweep {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), sweepBatch)
	batch := append([]sweep(nil), s.waiting[:n]...)
	s.waiting = append(s.waiting[:0], s.waiting[n:]...)
	if len(s.waiting) > 0 {
		token(s.some)
	}
	return batch
}

// sweep drops unwanted content until ctx ends and all running drops have ended.
func (t *Tracker) sweep(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	slots := make(chan struct{}, dropsAtOnce)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.sweeps.some:
		}
		batch, err := t.confirm(ctx, t.doomed(ctx, t.sweeps.take()))
		if err != nil {
			return nil // ctx has ended
		}
		for _, s := range batch {
			if s.err != nil {
				t.leases.cancelDrop(s.root)
				t.answer(ctx, s)
				continue
			}
			select {
			case <-ctx.Done():
				return nil
			case slots <- struct{}{}:
			}
			work.Go(func() {
				defer func() { <-slots }()
				if s.leased = !t.leases.drop(s.root, s.bytes); s.leased {
					t.hides.add(s.root) // content that stays only for its readers is hidden from unknown peers
				} else {
					t.drop(ctx, &s)
					t.leases.dropped(s.root)
				}
				t.answer(ctx, s)
			})
		}
	}
}

// drop drops a root. The caller must have called Leases.drop, so that the root can get no lease
// meanwhile. Then only a fetch could complete the root, and no fetch of it runs.
func (t *Tracker) drop(ctx context.Context, s *sweep) {
	if s.partial {
		var err error
		if s.whole, _, _, _, err = t.opts.Blocks.Reference(ctx, Reference(s.root)); err != nil {
			s.whole = true // the dispatcher asks again, and puts it off
		}
		if s.whole {
			return
		}
	}
	s.err = wrap("drop blocks", t.opts.Blocks.Drop(ctx, Reference(s.root)))
	s.dropped = s.err == nil
}

func (t *Tracker) answer(ctx context.Context, s sweep) {
	select {
	case t.swept <- s:
	case <-ctx.Done():
	}
}

// doomed returns the roots of a batch that have no lease now, and answers for the others. A lease
// that begins later still prevents the drop.
func (t *Tracker) doomed(ctx context.Context, batch []sweep) []sweep {
	keep := batch[:0]
	for _, s := range batch {
		if t.leases.requestDrop(s.root) {
			keep = append(keep, s)
			continue
		}
		s.leased = true
		t.answer(ctx, s)
	}
	return keep
}

// confirm returns those roots of a batch that the state does not want on this node, and answers
// for the others. It uses a linearizable view. A local view is not enough: a node that starts
// applies the end of its log again, and could follow a removal that was undone long ago. confirm
// waits for a majority. Its error is that of ctx.
func (t *Tracker) confirm(ctx context.Context, batch []sweep) ([]sweep, error) {
	keep := batch[:0]
	var ask []sweep
	for _, s := range batch {
		if s.partial {
			keep = append(keep, s)
		} else {
			ask = append(ask, s)
		}
	}
	if len(ask) == 0 {
		return keep, nil
	}
	fenced := t.leases.isFenced() // before the view, so that the view has everything before the fence
	view, release, err := t.linearizable(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	level, unread := view.FeatureLevel()
	settled := unread == nil && t.leases.mayDrop(level, fenced)
	for _, s := range ask {
		root, own, err := wanted(view, s.root, t.opts.Self)
		last := false
		if err == nil && own == nil {
			last, err = t.isLast(ctx, view, &root)
		}
		err = errors.Join(unread, err)
		switch {
		case err != nil:
			s.err = err
			keep = append(keep, s)
		case own != nil, last:
			t.leases.cancelDrop(s.root)
			t.answer(ctx, s) // it is wanted again, or elsewhere; the next audit finds it
		case !settled:
			t.leases.cancelDrop(s.root)
			s.leased = true // by an earlier process, perhaps
			t.answer(ctx, s)
		default:
			keep = append(keep, s)
		}
	}
	return keep, nil
}

// isLast returns whether this node may have the last copy of a root that is allocated to other
// nodes. That is so if the copy is complete, or was complete until it was damaged, and if the
// state records no member as a holder. Then the other nodes can only fetch the root from this
// node. This happens to a node that was removed and joins again with its blocks, and to a node
// that was down with a damaged copy.
func (t *Tracker) isLast(ctx context.Context, view state.View, root *state.Root) (bool, error) {
	if root.Key == "" || root.Status == state.Failed {
		return false, nil
	}
	for _, c := range root.Copies {
		if c.Phase != state.Held {
			continue
		}
		if _, err := view.Node(c.Node); !errors.Is(err, state.ErrNotFound) {
			return false, wrap("read member", err)
		}
	}
	sealed, _, _, _, err := t.opts.Blocks.Reference(ctx, Reference(root.Key))
	return sealed || t.damaged(root.Key), wrap("read reference", err)
}

func (t *Tracker) linearizable(ctx context.Context) (state.View, func(), error) {
	pause := backoff.New(minViewWait, maxViewWait)
	for {
		view, release, err := t.opts.State.View(ctx)
		if err == nil {
			return view, release, nil
		}
		t.opts.Logger.DebugContext(ctx, "deletions wait for a majority", "err", err)
		if !pause.Wait(ctx) {
			return state.View{}, nil, ctx.Err()
		}
	}
}

// wanted returns the record of a root and this node's copy in it. The copy is nil if the state
// does not want the root on this node. That includes a failed root, which will soon be removed.
func wanted(view state.View, k state.RootKey, self state.NodeID) (state.Root, *state.Copy, error) {
	root, err := view.Root(k)
	if errors.Is(err, state.ErrNotFound) {
		return state.Root{}, nil, nil
	}
	if err != nil {
		return state.Root{}, nil, wrap("read root", err)
	}
	if root.Status == state.Failed {
		return root, nil, nil
	}
	return root, root.Copy(self), nil
}
