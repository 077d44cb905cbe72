package content

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// DAG reads content that everybody may read, from this node or other members. It keeps no content
// from being deleted, so that a slow reader does not delay the end of content that must not be
// served any more. Its methods may be called concurrently.
type DAG interface {
	// Block returns the bytes of a block, whose hash was verified. The caller has found c in a block
	// of the same DAG. Errors: state.ErrNotFound if the block is not public, state.ErrUnavailable if
	// the members that may have it cannot be reached.
	Block(ctx context.Context, c cid.Cid) ([]byte, error)
	// File opens the UnixFS file or the raw block c. ctx must live until the caller closes the file.
	// Its errors, also while reading, are those of Block, and state.ErrInvalid if c is no file.
	File(ctx context.Context, c cid.Cid) (f io.ReadSeekCloser, size uint64, err error)
}

// ErrFetching means that the cluster keeps content, but no node has all of it yet.
var ErrFetching = errors.New("the content is still being fetched")

// Public returns a reader of the DAG of root if everybody may read it. This is the content that this
// cluster serves to unknown peers of the IPFS network: DAGs below a root that is not private, and
// their parts.
//
// A root is judged by this node's copy of the state. For any other CID, and for a private root, which
// may also be a part of public content, the members are asked whether they show its block. Then each
// block of the DAG is checked in this way, because the CID may name another codec than the links to
// the block, and so lead to private blocks.
//
// Errors: state.ErrNotFound if the cluster does not keep such content or if it is private, together with
// ErrFetching if a pin of root has not ended; state.ErrUnavailable if members did not answer.
func (c *Content) Public(ctx context.Context, root cid.Cid) (DAG, error) {
	record, err := c.root(root)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return nil, fmt.Errorf("read root %s: %w", root, err)
	}
	public := err == nil && !record.Private()
	if holders := record.Holders(); public && len(holders) > 0 {
		return c.opts.Store.OpenDAG(holders), nil
	}
	part, err := c.opts.Store.OpenVisible(ctx, root)
	if err == nil {
		return part, nil
	}
	if !public || !errors.Is(err, state.ErrNotFound) {
		return nil, err
	}
	if record.In(state.Assigned)+record.In(state.Fetching) > 0 {
		return nil, fmt.Errorf("%w: %w", state.Errorf(state.CodeNotFound, "this cluster is still fetching %s: try again later", root), ErrFetching)
	}
	return nil, state.Errorf(state.CodeNotFound, "this cluster could not fetch %s", root)
}
