// Package content imports and reads files and folders by CID: it turns a file or a folder into a DAG
// in this node's block store, and reads a DAG that this node or another member holds.
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
	// Import stores r as a file. The blocks are durable on this node, and reference protects them
	// from garbage collection.
	Import(ctx context.Context, reference string, r io.Reader, as Layout) (Imported, error)
	// ImportFolder stores the tar stream r as a folder. It does the same as Import otherwise.
	ImportFolder(ctx context.Context, reference string, r io.Reader, as Layout) (Imported, error)
	// ImportFiles stores files as a folder. It does the same as Import otherwise.
	ImportFiles(ctx context.Context, reference string, next NextFile, as Layout) (Imported, error)
	// ImportCAR stores the blocks of the CAR r, which are then durable on this node and protected by
	// reference. It returns an error unless the DAGs of all roots are complete in the cluster.
	ImportCAR(ctx context.Context, reference string, r io.Reader) (CAR, error)
	// ExportCAR writes the DAG of root as a CAR, from this node or from other members, of which it
	// asks holders first.
	ExportCAR(ctx context.Context, w io.Writer, root cid.Cid, holders []state.NodeID) error
	// Drop removes a reference, and all blocks that no other reference protects.
	Drop(ctx context.Context, reference string) error
	// OpenPath returns a reader of the file at a path below root, or of root without a path, from
	// this node or from other members, of which it asks holders first. It returns ErrFolder for a
	// folder.
	OpenPath(ctx context.Context, root cid.Cid, path []string, holders []state.NodeID) (f io.ReadSeekCloser, size uint64, err error)
	// OpenFolder does the same as OpenPath for a folder.
	OpenFolder(ctx context.Context, root cid.Cid, path []string, holders []state.NodeID) (Folder, error)
	// OpenDAG returns a reader of a DAG that the members holders have completely, and all of whose blocks
	// are public. It asks them before other members.
	OpenDAG(holders []state.NodeID) DAG
	// OpenVisible returns a reader of the DAG of c, which gives only blocks that are public and complete
	// on the node that has them. Errors: state.ErrNotFound if no member shows the block c,
	// state.ErrUnavailable if members did not answer.
	OpenVisible(ctx context.Context, c cid.Cid) (DAG, error)
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

// Content imports files and folders and reads them.
type Content struct {
	opts Options

	// mu guards leases. It is not held during calls of other code.
	mu     sync.Mutex
	leases map[string]lease
}

type lease struct {
	running bool // the import is in progress
	roots   []state.RootKey
	expires time.Time // how long the lease lasts while no pin of its content is in progress
}

// New returns a Content. Its method Run removes leases that have ended.
func New(opts Options) *Content {
	return &Content{opts: opts, leases: map[string]lease{}}
}

// Add imports a file and returns its root and its size in bytes. When Add returns, the blocks are
// durable on this node. They are protected until a pin of the root is pinned, or for LeaseTTL if
// there is no pin. Add returns state.ErrLimited if maxLeases imports are not pinned yet.
func (c *Content) Add(ctx context.Context, r io.Reader, as Layout) (root cid.Cid, size uint64, err error) {
	done, err := c.AddPinned(ctx, r, as, nil)
	return done.Root, done.Size, err
}

// add runs an import of one root with a lease, and pins the root as leased does.
func (c *Content) add(run func(reference string) (Imported, error), pin Pin) (done Imported, err error) {
	err = c.leased(func(reference string) ([]cid.Cid, uint64, error) {
		done, err = run(reference)
		return []cid.Cid{done.Root}, done.Size, err
	}, pin)
	if err != nil {
		return Imported{}, err
	}
	return done, nil
}

// leased runs an import with a lease. run returns the roots and the size that the import has stored.
// If pin is not nil, it then pins them; if it fails, the lease ends.
func (c *Content) leased(run func(reference string) (roots []cid.Cid, size uint64, err error), pin Pin) error {
	reference := LeasePrefix + c.opts.NewID()
	if !c.hold(reference, lease{running: true}, true) {
		return state.Errorf(state.CodeLimited, "%d imports wait for their pins already", maxLeases)
	}
	roots, size, err := run(reference)
	if err != nil {
		c.hold(reference, lease{}, false) // an expired lease: Sweep drops it
		return fmt.Errorf("import: %w", err)
	}
	l := lease{expires: c.opts.Now().Add(LeaseTTL)}
	if pin != nil {
		if err := pin(roots, size); err != nil {
			c.hold(reference, lease{}, false)
			return err
		}
		l.expires = time.Time{} // if the pin is deleted or fails, nobody else will pin the content
	}
	for _, root := range roots {
		l.roots = append(l.roots, state.RootOf(root))
	}
	c.hold(reference, l, false)
	return nil
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
// operator: it checks no permissions. text may also be a CID with a path after a slash, which leads to
// a file in a folder. The caller must close f. It returns state.ErrInvalid if text has no valid CID,
// state.ErrNotFound if the path leads nowhere, and ErrFolder for a folder.
func (c *Content) Open(ctx context.Context, text string) (f io.ReadSeekCloser, size uint64, err error) {
	root, path, err := parse(text)
	if err != nil {
		return nil, 0, err
	}
	holders, err := c.holders(root)
	if err != nil {
		return nil, 0, err
	}
	return c.opts.Store.OpenPath(ctx, root, path, holders)
}

// OpenFor is Open for an account. It returns the error NotHeld if the content is private and
// neither a pin nor an object of the account references it. A CID that is not a root but a part
// of other content can be read if that content is public and a member has it completely. If members do
// not answer, and no other member has such content, the error is state.ErrUnavailable.
func (c *Content) OpenFor(ctx context.Context, account state.AccountID, text string) (f io.ReadSeekCloser, size uint64, err error) {
	root, path, err := parse(text)
	if err != nil {
		return nil, 0, err
	}
	holders, err := c.holdersFor(ctx, account, root)
	if err != nil {
		return nil, 0, err
	}
	return c.opts.Store.OpenPath(ctx, root, path, holders)
}

// NotHeld returns the error for content that does not exist or that the caller may not read. It
// is the same for both, so that it does not reveal which is the case.
func NotHeld(root cid.Cid) error {
	return state.Errorf(state.CodeNotFound, "no member that can be reached holds %s", root)
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
	if _, err = c.opts.Store.OpenVisible(ctx, root); errors.Is(err, state.ErrNotFound) { // as a part of other content
		return record, false, nil
	}
	return record, err == nil, err
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
			c.opts.Logger.WarnContext(ctx, "cannot drop a lease", "reference", reference, "roots", l.roots, "err", err)
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
	if l.running { // without a root: the import has failed
		return true, nil
	}
	for _, k := range l.roots {
		if needed, err := staysFor(view, k, now.Before(l.expires)); needed || err != nil {
			return needed, err
		}
	}
	return false, nil
}

// staysFor returns whether the lease is needed for one of its roots. fresh is true until the lease
// expires.
func staysFor(view state.View, k state.RootKey, fresh bool) (bool, error) {
	root, err := view.Root(k)
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
	return fresh, err
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
			c.opts.Logger.Error("cannot check a lease", "roots", l.roots, "err", err)
		}
		if needed {
			delete(all, reference)
		}
	}
	return all
}
