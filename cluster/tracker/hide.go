package tracker

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
)

// Bounds of hiding and showing content.
const (
	hidesAtOnce = 8 // changes of references that run at the same time
	hidesInTurn = 2 // up to this number of changes runs without goroutines
	// maxHides bounds the roots that wait; an audit finds more.
	maxHides = 64 << 10
)

// hides has the roots whose visibility to unknown peers may have to change.
type hides struct {
	some chan struct{} // has a token while there may be some
	turn chan struct{} // has a token while no goroutine changes references

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

// hide makes private content hidden and other content visible for unknown peers, according
// to the state, until ctx ends.
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

// hideAll hides or shows the roots of a page. It reads the state under a lock, so the newest
// state wins. Unwanted roots stay as they are until they are dropped; those with readers are
// hidden.
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

// keptRoot is a root that is wanted on this node or stays for its readers.
type keptRoot struct {
	root    state.RootKey
	private bool
}

// private returns the roots of a page that stay on this node and are private.
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
