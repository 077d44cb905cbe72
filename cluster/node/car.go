package node

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

// ImportCAR implements content.Store.
func (f *files) ImportCAR(ctx context.Context, reference string, r io.Reader) (content.CAR, error) {
	car, err := dag.ImportCAR(ctx, r, f.put(ctx, reference))
	if err != nil {
		return content.CAR{}, notImported(err)
	}
	from, done := f.from(car.Roots[0], nil)
	defer done()
	if err := f.walks.Check(ctx, from, f.blocks.Has, car.Roots); err != nil {
		return content.CAR{}, incomplete(err)
	}
	return content.CAR{Roots: car.Roots, Blocks: car.Blocks, Bytes: car.Bytes}, nil
}

// incomplete returns the error for the caller if the DAG of a root of a CAR cannot be pinned.
func incomplete(err error) error {
	switch {
	case errors.Is(err, dag.ErrMemory):
		return state.Errorf(state.CodeLimited, "%v", err)
	case errors.Is(err, dag.ErrNotFound):
		return state.Errorf(state.CodeInvalid, "the CAR is not complete, and no member has the rest: %v", err)
	case errors.Is(err, dag.ErrInvalidBlock), errors.Is(err, dag.ErrTooLarge), errors.Is(err, dag.ErrUnsupportedCodec):
		return state.Errorf(state.CodeInvalid, "the CAR cannot be pinned: %v", err)
	}
	return err
}

// ExportCAR implements content.Store.
func (f *files) ExportCAR(ctx context.Context, w io.Writer, root cid.Cid, placed []state.NodeID) error {
	from, done := f.from(root, placed)
	defer f.telling(root, from, done)()
	begun := &begun{w: w}
	err := f.walks.Export(ctx, begun, from, root)
	switch {
	case err == nil || begun.err != nil:
		return err
	case errors.Is(err, dag.ErrMemory):
		return state.Errorf(state.CodeLimited, "%v", err)
	case errors.Is(err, dag.ErrNotFound):
		var missing ipld.ErrNotFound
		if errors.As(err, &missing) && missing.Cid.Equals(root) {
			return content.NotHeld(root)
		}
		return fmt.Errorf("%w: %w", state.Errorf(state.CodeUnavailable, "the members that have all of this content cannot be reached: %v", err), err)
	case errors.Is(err, dag.ErrInvalidBlock), errors.Is(err, dag.ErrTooLarge), errors.Is(err, dag.ErrUnsupportedCodec):
		return state.Errorf(state.CodeInvalid, "%v", err)
	}
	return err
}

// begun is a writer that remembers its error.
type begun struct {
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (b *begun) Write(data []byte) (n int, err error) {
	n, b.err = b.w.Write(data)
	return n, b.err
}

// Distant implements dag.Distant: it returns true once a member has sent a block.
func (r *reader) Distant() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.giver != ""
}
