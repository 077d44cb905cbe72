package content

import (
	"context"
	"io"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// CAR describes a CAR that was imported.
type CAR struct {
	Roots  []cid.Cid // the distinct roots, in the order of the header
	Blocks uint64    // number of blocks in the CAR
	Bytes  uint64    // size of these blocks
}

// ImportCAR imports the blocks of a CAR. When it returns, the blocks are durable on this node. They
// are protected until pins of all roots are pinned, or for LeaseTTL if there are no pins. Then only
// blocks that belong to pinned roots remain.
//
// Errors: state.ErrInvalid for a bad CAR, and for one with a root whose DAG is not complete in the
// cluster; state.ErrLimited if maxLeases imports are not pinned yet.
func (c *Content) ImportCAR(ctx context.Context, r io.Reader) (CAR, error) {
	return c.ImportCARPinned(ctx, r, nil)
}

// ExportCAR writes the DAG with the CID text to w as a CARv1, from this node or another member, for
// the operator: it checks no permissions. It returns state.ErrInvalid if text is not a CID.
func (c *Content) ExportCAR(ctx context.Context, w io.Writer, text string) error {
	root, err := parseAlone(text)
	if err != nil {
		return err
	}
	holders, err := c.holders(root)
	if err != nil {
		return err
	}
	return c.opts.Store.ExportCAR(ctx, w, root, holders)
}

// ExportCARFor is ExportCAR for an account, which can read the same content as with OpenFor.
func (c *Content) ExportCARFor(ctx context.Context, w io.Writer, account state.AccountID, text string) error {
	root, err := parseAlone(text)
	if err != nil {
		return err
	}
	holders, err := c.holdersFor(ctx, account, root)
	if err != nil {
		return err
	}
	return c.opts.Store.ExportCAR(ctx, w, root, holders)
}

// parseAlone returns the CID text, which must have no path after it.
func parseAlone(text string) (cid.Cid, error) {
	root, path, err := parse(text)
	if err == nil && len(path) > 0 {
		err = state.Errorf(state.CodeInvalid, "%q is a path: a CAR is exported by the CID of its root", text)
	}
	return root, err
}
