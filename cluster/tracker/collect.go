package tracker

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/internal/backoff"
	"github.com/ipfs/go-cid"
)

// Limits of Collect.
const (
	collectStrays   = 16 << 10              // roots that one round of Collect waits for
	collectPoll     = 50 * time.Millisecond // interval at which Collect looks whether a root is dropped
	collectPatience = 10 * time.Second      // time without a drop after which Collect stops to wait
	collectCatchUp  = 2 * time.Second       // time in which the node may catch up with the cluster first
)

// collectLeases is the time after its beginning in which Collect waits for the end of leases. The holders
// of a put hear of its outcome a moment later, and a client may have deleted the content already.
const collectLeases = 2 * time.Second

// Kept is a number of roots that stay on this node although the state does not want them here.
type Kept struct{ Roots, Bytes uint64 }

func (k *Kept) add(bytes uint64) {
	k.Roots++
	k.Bytes += bytes
}

// Collected is the result of Collect.
type Collected struct {
	Dropped uint64 // number of dropped roots
	// Leased are the roots of puts whose outcome is not known yet, Read those that are open, Last those
	// of which this node may have the last copy, and Waiting all others: those that wait for a majority
	// of the members, or for a drop that takes long.
	Leased, Read, Last, Waiting Kept
}

// Why tells why a root that the state does not want on this node is still there.
type Why uint8

// The reasons.
const (
	NotKept  Why = iota // nothing prevents the drop
	ForLease            // a command that references the root may be in progress
	ForReaders
	AsLast // the other nodes may need this copy
)

// Keeps returns why a root stays on this node although the state of the view does not want it here.
func (t *Tracker) Keeps(ctx context.Context, view state.View, k state.RootKey) (Why, error) {
	if why := t.leases.keptFor(k); why != NotKept {
		return why, nil
	}
	root, own, err := wanted(view, k, t.opts.Self)
	if err != nil || own != nil {
		return NotKept, err
	}
	last, err := t.isLast(ctx, view, &root)
	if last {
		return AsLast, err
	}
	return NotKept, err
}

// keptFor returns whether a root has a lease or remains for its readers.
func (g *Leases) keptFor(root state.RootKey) Why {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch e := g.roots[root]; {
	case e == nil:
	case e.holders > 0:
		return ForLease
	case e.readers > 0:
		return ForReaders
	}
	return NotKept
}

// Audit does one complete audit now. It returns when all differences are offered to the dispatcher,
// which works on them afterwards.
func (t *Tracker) Audit(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case t.asked <- done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Collect drops all content that the state does not want on this node, and waits until it is
// dropped. It does not drop what leases protect, see Leases. It waits while drops make progress.
func (t *Tracker) Collect(ctx context.Context) (c Collected, err error) {
	// The caller may have deleted something through another node a moment ago.
	caughtUp, cancel := context.WithTimeout(ctx, collectCatchUp)
	if _, release, err := t.opts.State.View(caughtUp); err == nil {
		release()
	}
	cancel()
	for more := true; more; {
		var all []state.RootKey
		if all, more, err = t.straysHere(ctx); err != nil {
			return c, err
		}
		before := c.Dropped
		if err := t.Audit(ctx); err != nil { // which offers them all
			return c, wrap("audit", err)
		}
		c = Collected{Dropped: before}
		if err := t.awaitDrops(ctx, all, &c); err != nil {
			return c, err
		}
		more = more && c.Dropped > before
	}
	return c, nil
}

// straysHere returns the roots that the state does not want on this node, at most collectStrays. more
// is true if there are others.
func (t *Tracker) straysHere(ctx context.Context) (all []state.RootKey, more bool, err error) {
	page := make([]state.RootKey, 0, pageRoots)
	flush := func() error {
		strays, err := t.strays(page)
		all, page = append(all, strays...), page[:0]
		return err
	}
	err = t.opts.Blocks.References(ctx, RootPrefix, func(reference string, _ bool) (bool, error) {
		if c, err := cid.Decode(strings.TrimPrefix(reference, RootPrefix)); err == nil {
			page = append(page, state.RootOf(c))
		}
		if len(page) < pageRoots {
			return true, nil
		}
		err := flush()
		more = len(all) >= collectStrays
		return !more, err
	})
	if err != nil {
		return nil, false, wrap("list references", err)
	}
	return all, more, flush()
}

// awaitDrops waits until roots are dropped, and counts them and those that stay.
func (t *Tracker) awaitDrops(ctx context.Context, all []state.RootKey, c *Collected) error {
	begin := time.Now()
	progress := begin
	for _, k := range all {
		for {
			_, bytes, _, there, err := t.opts.Blocks.Reference(ctx, Reference(k))
			if err != nil {
				return wrap("read reference", err)
			}
			if !there {
				c.Dropped++
				progress = time.Now()
				break
			}
			leased := t.leases.keptFor(k) == ForLease
			if leased && time.Since(begin) < collectLeases {
				if !backoff.Wait(ctx, collectPoll) {
					return ctx.Err()
				}
				progress = time.Now()
				continue
			}
			stays, err := t.stays(ctx, k, bytes, c)
			if err != nil {
				return err
			}
			if stays {
				break
			}
			if time.Since(progress) > collectPatience {
				c.Waiting.add(bytes)
				break
			}
			if !backoff.Wait(ctx, collectPoll) {
				return ctx.Err()
			}
		}
	}
	return nil
}

// stays returns whether a root stays on this node, and counts it with the reason.
func (t *Tracker) stays(ctx context.Context, k state.RootKey, bytes uint64, c *Collected) (bool, error) {
	view, release := t.opts.State.LocalView()
	defer release()
	_, own, err := wanted(view, k, t.opts.Self)
	if err != nil || own != nil {
		return true, err // it is wanted again
	}
	why, err := t.Keeps(ctx, view, k)
	if err != nil {
		return false, err
	}
	switch why {
	case ForLease:
		c.Leased.add(bytes)
	case ForReaders:
		c.Read.add(bytes)
	case AsLast:
		c.Last.add(bytes)
	case NotKept:
		return false, nil
	}
	return true, nil
}
