package tracker

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// pageRoots is the largest number of roots that the auditor reads from one view.
const pageRoots = 512

// auditRetry is the pause after an audit that could not be finished.
const auditRetry = 10 * time.Second

// maxBehind is the largest number of accounts whose scan can continue at the position where it
// stopped. For further accounts, the next audit scans all roots again.
const maxBehind = 1 << 10

// offer is a root that the auditor passes to the dispatcher. The dispatcher must compare the
// state and the disk for it.
type offer struct {
	root   state.RootKey
	must   bool           // the dispatcher must accept the root, even if many roots of its account are waiting
	answer chan<- verdict // capacity 1; not used if must is true
}

// verdict is the answer of the dispatcher to an offer.
type verdict struct {
	refused bool // the account has its maximum number of roots in memory
	account state.AccountID
}

// refills contains the accounts of which the dispatcher can accept more roots.
type refills struct {
	some chan struct{} // contains a token while accounts may not be empty

	// mu guards accounts. It is not held during calls of other code.
	mu       sync.Mutex
	accounts map[state.AccountID]bool // true means that the scan must begin at the first root
}

func newRefills() *refills {
	return &refills{some: make(chan struct{}, 1), accounts: map[state.AccountID]bool{}}
}

func (r *refills) add(account state.AccountID, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accounts[account] = r.accounts[account] || again
	token(r.some)
}

func (r *refills) take() map[state.AccountID]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.accounts
	r.accounts = map[state.AccountID]bool{}
	return taken
}

// auditor compares the roots that the state wants on this node with the blocks on this node. Only
// one goroutine uses it.
type auditor struct {
	t       *Tracker
	answers chan verdict
	behind  map[state.AccountID]bookmark
}

// bookmark is the position at which the scan for one account continues.
type bookmark struct {
	from  state.RootKey
	again bool // after this scan, another one must begin at the first root
}

// audit compares the roots that the state wants on this node with the roots on this node: on
// request, as after the start, and at the interval Limits.Audit. It offers the differences to the
// dispatcher. The dispatcher reserves only a share of its memory for one account, and asks for
// more roots when it has worked on half of these. So the missing roots of one account, even a
// million, do not fill the memory or delay other accounts.
func (t *Tracker) audit(ctx context.Context) error {
	a := &auditor{t: t, answers: make(chan verdict, 1), behind: map[state.AccountID]bookmark{}}
	timer := time.NewTimer(t.limits.Audit)
	defer timer.Stop()
	for {
		var err error
		next := t.limits.Audit
		select {
		case <-ctx.Done():
			return nil
		case <-t.refills.some:
			if err = a.refill(ctx, t.refills.take()); err == nil {
				continue // the next audit keeps its time
			}
		case <-t.audits:
			err = a.everything(ctx)
		case done := <-t.asked:
			err = a.everything(ctx)
			done <- err
		case <-timer.C:
			err = a.everything(ctx)
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			t.opts.Logger.ErrorContext(ctx, "audit failed before its end", "err", err)
			next = min(auditRetry, next)
		}
		timer.Reset(next)
	}
}

// everything does one complete audit.
func (a *auditor) everything(ctx context.Context) error {
	t, begin := a.t, time.Now()
	clear(a.behind)
	missing, err := a.wanted(ctx)
	if err != nil {
		return err
	}
	stray, err := t.auditHere(ctx)
	if err != nil {
		return err
	}
	if err := t.auditNodeMeta(); err != nil {
		return err
	}
	t.opts.Logger.DebugContext(ctx, "audit finished", "missing", missing, "stray", stray, "took", time.Since(begin))
	return nil
}

// wanted offers two kinds of roots: roots that the state wants on this node and does not record
// as held, and roots that it records as held but that are not complete on this node. wanted also
// corrects which roots are hidden from peers that are not members. found is the number of offered
// roots.
func (a *auditor) wanted(ctx context.Context) (found int, err error) {
	t := a.t
	var from state.RootKey
	for {
		page, next, err := t.wantedPage(from, nil)
		if err != nil {
			return found, err
		}
		held := make([]state.RootKey, 0, len(page))
		for _, w := range page {
			if w.phase != state.Held {
				found++
				if _, err := a.ask(ctx, w.root); err != nil {
					return found, err
				}
				continue
			}
			sealed, _, _, _, err := t.opts.Blocks.Reference(ctx, Reference(w.root))
			if err != nil {
				return found, wrap("read reference", err)
			}
			if sealed {
				held = append(held, w.root)
				continue
			}
			found++
			if err := t.offer(ctx, w.root); err != nil { // the state says held, but the root is not complete here
				return found, err
			}
		}
		if err := t.hideAll(ctx, held); err != nil {
			return found, err
		}
		if next == "" {
			return found, nil
		}
		from = next
	}
}

// refill continues the scans of accounts for which the dispatcher had refused a root. Each scan
// continues at the refused root until the dispatcher refuses one again.
func (a *auditor) refill(ctx context.Context, accounts map[state.AccountID]bool) error {
	for account, again := range accounts {
		mark, known := a.behind[account]
		mark.again = mark.again || again && known
		delete(a.behind, account)
		for more := true; more; {
			refused, err := a.walk(ctx, account, mark.from)
			if err != nil {
				token(a.t.audits)
				return err
			}
			if refused != "" {
				a.leave(account, bookmark{refused, mark.again})
				break
			}
			more, mark = mark.again, bookmark{}
		}
	}
	return nil
}

// walk offers the missing roots of one account, beginning at from. It returns the first root that
// the dispatcher refuses, or "" if the dispatcher accepts all.
func (a *auditor) walk(ctx context.Context, account state.AccountID, from state.RootKey) (refused state.RootKey, err error) {
	for {
		page, next, err := a.t.wantedPage(from, &account)
		if err != nil {
			return "", err
		}
		for _, w := range page {
			if no, err := a.ask(ctx, w.root); err != nil || no == account {
				return w.root, err
			}
		}
		if next == "" {
			return "", nil
		}
		from = next
	}
}

// ask offers a root. If the dispatcher refuses it, ask records the root as the position at which
// the scan for its account continues, and returns the account. Otherwise it returns "".
func (a *auditor) ask(ctx context.Context, k state.RootKey) (refused state.AccountID, err error) {
	select {
	case a.t.offers <- offer{root: k, answer: a.answers}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	v := <-a.answers // the dispatcher answers what it has taken
	if !v.refused {
		return "", nil
	}
	if _, known := a.behind[v.account]; !known {
		a.leave(v.account, bookmark{from: k})
	}
	return v.account, nil
}

func (a *auditor) leave(account state.AccountID, mark bookmark) {
	if len(a.behind) < maxBehind {
		a.behind[account] = mark
	}
}

type wantedRoot struct {
	root  state.RootKey
	phase state.Phase
}

// wantedPage returns one page of the roots that the state wants on this node, beginning at from.
// next is the first root of the next page, or "". If account is not nil, wantedPage returns only
// roots that this account wants and that the state does not record as held on this node.
func (t *Tracker) wantedPage(from state.RootKey, account *state.AccountID) (page []wantedRoot, next state.RootKey, err error) {
	view, release := t.opts.State.LocalView()
	defer release()
	read := 0
	err = view.WantedOn(t.opts.Self, from, func(k state.RootKey, p state.Phase) (bool, error) {
		if read == pageRoots {
			next = k
			return false, nil
		}
		read++
		if account != nil {
			if p == state.Held {
				return true, nil
			}
			accounts, err := view.AttachedAccounts(k, maxAccounts)
			if err != nil {
				return false, err
			}
			if *account != "" && !slices.Contains(accounts, *account) {
				return true, nil
			}
		}
		page = append(page, wantedRoot{root: k, phase: p})
		return true, nil
	})
	return page, next, wrap("read wanted roots", err)
}

// auditHere offers the roots of which this node stores blocks and which the state does not want
// on it. found is their number.
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
	err = t.opts.Blocks.References(ctx, RootPrefix, func(reference string, _ bool) (bool, error) {
		c, err := cid.Decode(strings.TrimPrefix(reference, RootPrefix))
		if err != nil {
			t.opts.Logger.ErrorContext(ctx, "a reference to blocks names no root", "reference", reference)
			return true, nil
		}
		page = append(page, state.RootOf(c))
		if len(page) < pageRoots {
			return true, nil
		}
		return true, flush()
	})
	if err != nil {
		return found, wrap("list references", err)
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

// offer passes a root to the dispatcher, which must accept it. The error is that of ctx.
func (t *Tracker) offer(ctx context.Context, k state.RootKey) error {
	select {
	case t.offers <- offer{root: k, must: true}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
