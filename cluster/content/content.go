// Package content imports and reads files by CID: it turns a file into a DAG in this node's block
// store, and reads a DAG that this node or another member holds.
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

// State is the part of consensus that this package uses.
type State interface {
	// LocalView returns a view of the state that this node has applied; the caller must call
	// release.
	LocalView() (view state.View, release func())
}

// Store imports and reads DAGs.
type Store interface {
	// Import stores r as a DAG and returns its root and its size in bytes. The blocks are durable
	// on this node, and reference protects them from garbage collection.
	Import(ctx context.Context, reference string, r io.Reader) (root cid.Cid, size uint64, err error)
	// Drop removes a reference, and all blocks that no other reference protects.
	Drop(ctx context.Context, reference string) error
	// Open returns a reader of the file with this root, from this node or from other members, of
	// which it asks holders first.
	Open(ctx context.Context, root cid.Cid, holders []state.NodeID) (f io.ReadSeekCloser, size uint64, err error)
	// Visible returns whether a block belongs to content that is public and complete on this
	// node.
	Visible(ctx context.Context, c cid.Cid) (bool, error)
}

// LeasePrefix is the prefix of the references that protect imported content before it is pinned.
const LeasePrefix = "lease/"

// Limits of imports.
const (
	// LeaseTTL is how long imported content is protected if no pin of it is in progress.
	LeaseTTL = time.Hour
	// maxLeases is the largest number of imports that are not pinned yet.
	maxLeases = 1024
	// checkLeases is the interval at which Run checks the leases.
	checkLeases = 5 * time.Second
)

// Options are the dependencies of Content. All fields are required.
type Options struct {
	State  State
	Store  Store
	NewID  func() string // returns the id of a new lease
	Now    func() time.Time
	Logger *slog.Logger
}

// Content imports files and reads them.
type Content struct {
	opts Options

	// mu guards leases. It is not held during calls of other code.
	mu     sync.Mutex
	leases map[string]lease
}

type lease struct {
	running bool // the import is in progress
	root    state.RootKey
	expires time.Time
}

// New returns a Content. Its method Run removes leases that have ended.
func New(opts Options) *Content {
	return &Content{opts: opts, leases: map[string]lease{}}
}

// Add imports a file and returns its root and its size in bytes. When Add returns, the blocks are
// durable on this node. They are protected until a pin of the root is pinned, or for LeaseTTL if
// there is no pin. Add returns state.ErrLimited if maxLeases imports are not pinned yet.
func (c *Content) Add(ctx context.Context, r io.Reader) (root cid.Cid, size uint64, err error) {
	reference := LeasePrefix + c.opts.NewID()
	if !c.hold(reference, lease{running: true}, true) {
		return cid.Undef, 0, state.Errorf(state.CodeLimited, "%d imports wait for their pins already", maxLeases)
	}
	root, size, err = c.opts.Store.Import(ctx, reference, r)
	if err != nil {
		c.hold(reference, lease{}, false) // an expired lease: Sweep drops it
		return cid.Undef, 0, fmt.Errorf("import: %w", err)
	}
	c.hold(reference, lease{root: state.RootOf(root), expires: c.opts.Now().Add(LeaseTTL)}, false)
	return root, size, nil
}

func (c *Content) hold(reference string, l lease, fresh bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fresh && len(c.leases) >= maxLeases {
		return false
	}
	c.leases[reference] = l
	return true
}

// Open returns a reader of the file with the CID text, from this node or another member, for the
// operator: it checks no permissions. The caller must close f. It returns state.ErrInvalid if
// text is not a CID.
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

// OpenFor is Open for an account. It returns the error NotHeld if the content is private and
// neither a pin nor an object of the account references it. A CID that is not a root but a part
// of other content can be read if this node has that content completely and it is public.
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

// NotHeld returns the error for content that does not exist or that the caller may not read. It
// is the same for both, so that it does not reveal which is the case.
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

// mayRead returns whether an account may read a CID, and the record of the root, which is empty
// if the CID is not a root.
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
	may, err = c.opts.Store.Visible(ctx, root) // as a part of other content
	return record, may, err
}

// Run removes leases that have expired or whose content is pinned, until ctx ends.
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

// Sweep does one pass of Run.
func (c *Content) Sweep(ctx context.Context) {
	for reference, l := range c.ended() {
		if err := c.opts.Store.Drop(ctx, reference); err != nil {
			c.opts.Logger.WarnContext(ctx, "cannot drop a lease", "reference", reference, "root", l.root, "err", err)
			continue
		}
		c.mu.Lock()
		delete(c.leases, reference)
		c.mu.Unlock()
	}
}

// stays returns whether a lease is still needed. While a pin of its content is in progress, the
// lease is needed for as long as that takes, because this node may have the only copy.
func stays(view state.View, l lease, now time.Time) (bool, error) {
	if l.running || l.root == "" { // without a root: the import has failed
		return l.running, nil
	}
	root, err := view.Root(l.root)
	switch {
	case errors.Is(err, state.ErrNotFound):
		err = nil
	case err != nil, root.Status == state.Failed:
	case root.Status != state.Pinned, root.UnderReplicated:
		return true, nil
	default: // the status stays Pinned after a loss of copies
		var enough bool
		if enough, err = view.Enough(&root); enough {
			return false, nil
		}
	}
	return now.Before(l.expires), err
}

// ended returns the leases that are no longer needed.
func (c *Content) ended() map[string]lease {
	c.mu.Lock()
	all := make(map[string]lease, len(c.leases))
	for reference, l := range c.leases {
		all[reference] = l
	}
	c.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	view, release := c.opts.State.LocalView()
	defer release()
	now := c.opts.Now()
	for reference, l := range all {
		needed, err := stays(view, l, now)
		if err != nil {
			c.opts.Logger.Error("cannot check a lease", "root", l.root, "err", err)
		}
		if needed {
			delete(all, reference)
		}
	}
	return all
}
