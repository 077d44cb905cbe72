// Package content adds and reads files by CID for the local operator: it turns a file
// into a DAG in this node's block store, and reads a DAG that any member holds.
//
// Imports: consensus/state.
// Never:   libp2p, boxo, HTTP.
package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// State is what this package needs of consensus.
type State interface {
	// LocalView returns what this node has applied; release it.
	LocalView() (view state.View, release func())
}

// Store imports and reads DAGs.
type Store interface {
	// Import makes a DAG of r, whose blocks are durable here under owner.
	Import(ctx context.Context, owner string, r io.Reader) (root cid.Cid, size uint64, err error)
	// Drop lets go of everything under owner.
	Drop(ctx context.Context, owner string) error
	// Open reads the file root, from here or from members, holders first.
	Open(ctx context.Context, root cid.Cid, holders []state.NodeID) (f io.ReadSeekCloser, size uint64, err error)
	// Visible tells whether a block belongs to content that is here as a whole and that
	// everybody may see.
	Visible(ctx context.Context, c cid.Cid) (bool, error)
}

// LeasePrefix begins the owners of imported content that no pin holds yet.
const LeasePrefix = "lease/"

// Bounds of imports.
const (
	// LeaseTTL is how long imported content stays without a pin that is on its way.
	LeaseTTL = time.Hour
	// maxLeases is how many imports may wait for their pins.
	maxLeases = 1024
	// checkLeases is how often leases are looked at.
	checkLeases = 5 * time.Second
)

// Options are what Content is made of. All fields are required.
type Options struct {
	State  State
	Store  Store
	NewID  func() string // of a lease
	Now    func() time.Time
	Logger *slog.Logger
}

// Content takes files in and gives them out.
type Content struct {
	opts Options

	// mu guards leases. It is never held while calling out.
	mu     sync.Mutex
	leases map[string]lease
}

type lease struct {
	running bool // the import is under way
	root    state.RootKey
	expires time.Time
}

// New returns the use cases of content. Run lets leases go.
func New(opts Options) *Content {
	return &Content{opts: opts, leases: map[string]lease{}}
}

// Add imports a file. Its blocks are durable on this node when Add returns, and
// stay until a pin of the root is pinned, or for LeaseTTL when there is none.
func (c *Content) Add(ctx context.Context, r io.Reader) (root cid.Cid, size uint64, err error) {
	owner := LeasePrefix + c.opts.NewID()
	if !c.hold(owner, lease{running: true}, true) {
		return cid.Undef, 0, state.Errorf(state.CodeLimited, "%d imports wait for their pins already", maxLeases)
	}
	root, size, err = c.opts.Store.Import(ctx, owner, r)
	if err != nil {
		c.hold(owner, lease{}, false) // run out: Sweep drops it
		return cid.Undef, 0, fmt.Errorf("import: %w", err)
	}
	c.hold(owner, lease{root: state.RootOf(root), expires: c.opts.Now().Add(LeaseTTL)}, false)
	return root, size, nil
}

func (c *Content) hold(owner string, l lease, fresh bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fresh && len(c.leases) >= maxLeases {
		return false
	}
	c.leases[owner] = l
	return true
}

// Open reads the file that a CID names from this node or any other member, whoever
// has put it there. The caller closes it.
func (c *Content) Open(ctx context.Context, text string) (f io.ReadSeekCloser, size uint64, err error) {
	root, err := parse(text)
	if err != nil {
		return nil, 0, err
	}
	record, err := c.root(root)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return nil, 0, fmt.Errorf("read root %s: %w", root, err)
	}
	return c.opts.Store.Open(ctx, root, record.Holders())
}

// OpenFor is Open for an account: what is private and neither a pin nor an object of
// the account names is answered as content that is not there. A CID that only lies
// inside of other content is read where this node has that content and everybody may
// see it.
func (c *Content) OpenFor(ctx context.Context, account state.AccountID, text string) (f io.ReadSeekCloser, size uint64, err error) {
	root, err := parse(text)
	if err != nil {
		return nil, 0, err
	}
	record, may, err := c.mayRead(ctx, account, root)
	if err != nil {
		return nil, 0, fmt.Errorf("judge %s: %w", root, err)
	}
	if !may {
		return nil, 0, NotHeld(root)
	}
	return c.opts.Store.Open(ctx, root, record.Holders())
}

// NotHeld is the answer for content that is not there, or not for who asks: the two
// are not told apart.
func NotHeld(root cid.Cid) error {
	return state.Errorf(state.CodeNotFound, "no member that can be reached holds %s", root)
}

func parse(text string) (cid.Cid, error) {
	root, err := cid.Decode(text)
	if err != nil {
		return cid.Undef, state.Errorf(state.CodeInvalid, "cid %q is not valid", text)
	}
	return root, nil
}

// root returns the record of a root, or state.ErrNotFound.
func (c *Content) root(root cid.Cid) (state.Root, error) {
	view, release := c.opts.State.LocalView()
	defer release()
	return view.Root(state.RootOf(root))
}

// mayRead tells whether an account may read what a CID names, and returns its record,
// which is empty where it is the root of nothing.
func (c *Content) mayRead(ctx context.Context, account state.AccountID, root cid.Cid) (record state.Root, may bool, err error) {
	view, release := c.opts.State.LocalView()
	record, err = view.Root(state.RootOf(root))
	switch {
	case errors.Is(err, state.ErrNotFound):
		err = nil
	case err != nil:
	case !record.Private():
		may = true
	default:
		may, err = view.Names(account, &record)
	}
	release()
	if err != nil || may {
		return record, may, err
	}
	may, err = c.opts.Store.Visible(ctx, root) // as a part of something else
	return record, may, err
}

// Run lets go of leases whose content is pinned, and of those that ran out.
func (c *Content) Run(ctx context.Context) error {
	tick := time.NewTicker(checkLeases)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			c.Sweep(ctx)
		}
	}
}

// Sweep is one pass of Run.
func (c *Content) Sweep(ctx context.Context) {
	for owner, l := range c.ended() {
		if err := c.opts.Store.Drop(ctx, owner); err != nil {
			c.opts.Logger.WarnContext(ctx, "cannot drop a lease", "owner", owner, "root", l.root, "err", err)
			continue
		}
		c.mu.Lock()
		delete(c.leases, owner)
		c.mu.Unlock()
	}
}

// stays tells whether a lease is needed yet. While a pin of it is on its way the members
// that are to keep the content may have it from here alone, however long that takes them.
func stays(view state.View, l lease, now time.Time) (bool, error) {
	if l.running || l.root == "" { // without a root the import has failed
		return l.running, nil
	}
	root, err := view.Root(l.root)
	switch {
	case errors.Is(err, state.ErrNotFound):
		err = nil
	case err != nil, root.Status == state.Failed:
	case root.Status != state.Pinned, root.Late:
		return true, nil
	default: // pinned it is too when all copies were lost since
		var enough bool
		if enough, err = view.Enough(&root); enough {
			return false, nil
		}
	}
	return now.Before(l.expires), err
}

// ended returns the leases that nothing needs any more.
func (c *Content) ended() map[string]lease {
	c.mu.Lock()
	all := make(map[string]lease, len(c.leases))
	for owner, l := range c.leases {
		all[owner] = l
	}
	c.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	view, release := c.opts.State.LocalView()
	defer release()
	now := c.opts.Now()
	for owner, l := range all {
		needed, err := stays(view, l, now)
		if err != nil {
			c.opts.Logger.Error("cannot check a lease", "root", l.root, "err", err)
		}
		if needed {
			delete(all, owner)
		}
	}
	return all
}
