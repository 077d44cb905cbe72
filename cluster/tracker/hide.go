package tracker

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// Limits for changes of which content is hidden from peers that are not members.
const (
	hidesAtOnce = 8 // largest number of references that are changed at the same time
	hidesInTurn = 2 // up to this number, references are changed one after the other without goroutines
	// maxHides is the largest number of roots that wait; an audit finds further ones.
	maxHides = 64 << 10
)

// hides contains the roots that may have to be hidden from peers that are not members, or shown
// to them.
type hides struct {
	some chan struct{} // contains a token while there may be some
	turn chan struct{} // contains a token while no goroutine changes references

	// mu guards the fields below. It is not held during calls of other code.
	mu    sync.Mutex
	roots map[state.RootKey]struct{}
	more  bool // there are more roots than fit
}

func newHides() *hides {
	h := &hides{some: make(chan struct{}, 1), turn: make(chan struct{}, 1), roots: map[state.RootKey]struct{}{}}
	h.turn <- struct{}{}
	return h
}

func (h *hides) add(roots ...state.RootKey) {
	if len(roots) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range roots {
		if len(h.roots) == maxHides {
			h.more = true
			break
		}
		h.roots[k] = struct{}{}
	}
	token(h.some)
}

func (h *hides) take() (page []state.RootKey, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.roots {
		if len(page) == pageRoots {
			token(h.some)
			return page, false
		}
		page = append(page, k)
		delete(h.roots, k)
	}
	more, h.more = h.more, false
	return page, more
}

// hide takes roots from t.hides until ctx ends. It hides those that are private by the state from
// peers that are not members, and shows the others.
func (t *Tracker) hide(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.hides.some:
		}
		page, more := t.hides.take()
		if more {
			token(t.audits)
		}
		err := t.hideAll(ctx, page)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		t.opts.Logger.ErrorContext(ctx, "cannot determine which content is private", "err", err)
		t.hides.add(page...)
		if !backoff.Wait(ctx, auditRetry) {
			return nil
		}
	}
}

// hideAll hides or shows the roots of a page as the state requires. Only one call at a time reads
// the state and changes references, so the newest state decides. It does not change unwanted
// roots, except that it hides those that remain for their readers.
func (t *Tracker) hideAll(ctx context.Context, page []state.RootKey) error {
	select {
	case <-t.hides.turn:
		defer func() { t.hides.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	t.leases.sealChanging(page...) // before the state is read
	defer t.leases.sealChanged(page...)
	kept, err := t.private(page)
	if err != nil {
		return err
	}
	if len(kept) <= hidesInTurn {
		for _, k := range kept {
			if err := t.hideOne(ctx, k); err != nil {
				return err
			}
		}
		return nil
	}
	work, scope := errgroup.WithContext(ctx)
	work.SetLimit(hidesAtOnce)
	for _, k := range kept {
		work.Go(func() error { return t.hideOne(scope, k) })
	}
	return work.Wait()
}

func (t *Tracker) hideOne(ctx context.Context, k keptRoot) error {
	return wrap("hide blocks", t.opts.Blocks.Hide(ctx, Reference(k.root), k.private))
}

// keptRoot is a root that the state wants on this node or that remains for its readers.
type keptRoot struct {
	root    state.RootKey
	private bool
}

// private returns the roots of a page that remain on this node, and whether each must be hidden.
// Roots that remain only for their readers must be hidden.
func (t *Tracker) private(page []state.RootKey) ([]keptRoot, error) {
	view, release := t.opts.State.LocalView()
	defer release()
	kept := make([]keptRoot, 0, len(page))
	for _, k := range page {
		root, own, err := wanted(view, k, t.opts.Self)
		if err != nil {
			return nil, err
		}
		switch {
		case own != nil:
			kept = append(kept, keptRoot{k, root.Private()})
		case t.leases.read(k):
			kept = append(kept, keptRoot{k, true})
		}
	}
	return kept, nil
}
