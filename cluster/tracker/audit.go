package tracker

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// pageRoots is how many roots the auditor reads at once.
const pageRoots = 512

// auditRetry is the pause after an audit that could not be finished.
const auditRetry = 10 * time.Second

// offer is a root that needs a look, whatever the state says of it.
type offer struct {
	root state.RootKey
}

// audit compares everything that is wanted with everything that is here: when
// it is asked to, after a restart first of all, and every Audit. What it finds
// it offers to the dispatcher, and waits while that knows enough roots, so that
// a million missing roots are a place in a table, not memory.
func (t *Tracker) audit(ctx context.Context) error {
	timer := time.NewTimer(t.limits.Audit)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.audits:
		case <-timer.C:
		}
		next := t.limits.Audit
		if err := t.auditOnce(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			t.opts.Logger.ErrorContext(ctx, "audit not finished", "err", err)
			next = min(auditRetry, next)
		}
		timer.Reset(next)
	}
}

// auditOnce is one look at everything.
func (t *Tracker) auditOnce(ctx context.Context) error {
	begin := t.opts.Now()
	missing, err := t.auditWanted(ctx)
	if err != nil {
		return err
	}
	stray, err := t.auditHere(ctx)
	if err != nil {
		return err
	}
	t.opts.Logger.DebugContext(ctx, "audit", "missing", missing, "stray", stray, "took", t.opts.Now().Sub(begin))
	return nil
}

// auditWanted offers the roots that are wanted and not held, and those that are
// said to be held and are not.
func (t *Tracker) auditWanted(ctx context.Context) (found int, err error) {
	var from state.RootKey
	for {
		page, next, err := t.wantedPage(from)
		if err != nil {
			return found, err
		}
		for _, w := range page {
			if w.phase == state.Held {
				sealed, _, _, _, err := t.opts.Blocks.Owner(ctx, Owner(w.root))
				if err != nil {
					return found, wrap("read owner", err)
				}
				if sealed {
					continue
				}
			}
			found++
			if err := t.offer(ctx, w.root); err != nil {
				return found, err
			}
		}
		if next == "" {
			return found, nil
		}
		from = next
	}
}

type wantedRoot struct {
	root  state.RootKey
	phase state.Phase
}

// wantedPage reads one page from a root on, and the first root of the next one.
func (t *Tracker) wantedPage(from state.RootKey) (page []wantedRoot, next state.RootKey, err error) {
	view, release := t.opts.State.LocalView()
	defer release()
	err = view.WantedOn(t.opts.Self, from, func(k state.RootKey, p state.Phase) (bool, error) {
		if len(page) == pageRoots {
			next = k
			return false, nil
		}
		page = append(page, wantedRoot{root: k, phase: p})
		return true, nil
	})
	return page, next, wrap("read wanted roots", err)
}

// auditHere offers the roots that are here, in part or whole, and not wanted.
func (t *Tracker) auditHere(ctx context.Context) (found int, err error) {
	page := make([]state.RootKey, 0, pageRoots)
	flush := func() error {
		stray, err := t.strays(page)
		if err != nil {
			return err
		}
		for _, k := range stray {
			found++
			if err := t.offer(ctx, k); err != nil {
				return err
			}
		}
		page = page[:0]
		return nil
	}
	err = t.opts.Blocks.Owners(ctx, rootPrefix, func(owner string, _ bool) (bool, error) {
		c, err := cid.Decode(strings.TrimPrefix(owner, rootPrefix))
		if err != nil {
			t.opts.Logger.ErrorContext(ctx, "owner of blocks is no root", "owner", owner)
			return true, nil
		}
		page = append(page, state.RootOf(c))
		if len(page) < pageRoots {
			return true, nil
		}
		return true, flush()
	})
	if err != nil {
		return found, wrap("list owners", err)
	}
	return found, flush()
}

func (t *Tracker) strays(page []state.RootKey) ([]state.RootKey, error) {
	view, release := t.opts.State.LocalView()
	defer release()
	var stray []state.RootKey
	for _, k := range page {
		_, own, err := wanted(view, k, t.opts.Self)
		if err != nil {
			return nil, err
		}
		if own == nil {
			stray = append(stray, k)
		}
	}
	return stray, nil
}

func (t *Tracker) offer(ctx context.Context, k state.RootKey) error {
	select {
	case t.offers <- offer{root: k}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
