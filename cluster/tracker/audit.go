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

// pageRoots is the number of roots that the auditor reads at once.
const pageRoots = 512

// auditRetry is the pause after an audit that could not be finished.
const auditRetry = 10 * time.Second

// maxBehind bounds the accounts whose scan continues where it stopped. With more accounts,
// the next audit scans all their roots again.
const maxBehind = 1 << 10

// offer is a root that the dispatcher must check against the state and the disk.
type offer struct {
	root   state.RootKey
	must   bool           // the dispatcher takes the root, however many roots of its account wait already
	answer chan<- verdict // has room for one answer; not used if must is true
}

// verdict is the answer of the dispatcher to an offer.
type verdict struct {
	refused bool // the account has as many roots in memory as it may have
	account state.AccountID
}

// refills has the accounts of which the dispatcher can take more roots.
type refills struct {
	some chan struct{} // has a token while there may be accounts

	// mu guards accounts. It is not held during calls of other code.
	mu       sync.Mutex
	accounts map[state.AccountID]bool // true means that the walk begins at the first root
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

// auditor compares the wanted roots with the blocks on this node. It is used by one
// goroutine.
type auditor struct {
	t       *Tracker
	answers chan verdict
	behind  map[state.AccountID]bookmark
}

// bookmark is the position at which the walk for one account continues.
type bookmark struct {
	from  state.RootKey
	again bool // after this walk, another one begins at the first root
}

// audit compares the wanted roots with the roots on this node, after a start, on request and
// every Audit. It offers the differences to the dispatcher. The dispatcher uses only a share of
// its memory for one account, and asks for more roots when it has worked on these. So a million
// missing roots of one account take only one place in a table and do not delay other accounts.
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

// wanted offers two kinds of roots: wanted roots that this node does not hold, and roots that
// the state records as held but that are not on this node. It also corrects which roots are
// hidden from unknown peers.
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

// refill continues to offer roots of accounts whose walk has stopped, from the position where
// it stopped, until the dispatcher refuses them again.
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

// walk offers the missing roots of one account, beginning at a root, and returns the first root
// that the dispatcher refuses.
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

// ask offers a root. If the dispatcher refuses it, ask records where the walk for the account
// has stopped and returns the account.
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

// wantedPage returns one page of wanted roots, beginning at a root, and the first root of the
// next page. If an account is given, it returns only roots that the account wants and that this
// node does not hold.
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

// auditHere offers the roots that are on this node, completely or partly, and that are not
// wanted.
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
	err = t.opts.Blocks.References(ctx, rootPrefix, func(reference string, _ bool) (bool, error) {
		c, err := cid.Decode(strings.TrimPrefix(reference, rootPrefix))
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

// offer passes a root to the dispatcher.
func (t *Tracker) offer(ctx context.Context, k state.RootKey) error {
	select {
	case t.offers <- offer{root: k, must: true}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
