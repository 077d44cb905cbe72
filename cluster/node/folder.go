package node

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-ipfs/holdfast/cluster/content"
	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/holdfast-ipfs/holdfast/peer/dag"
	"github.com/holdfast-ipfs/holdfast/storage/blocks"
	block "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
)

// Import implements content.Store.
func (f *files) Import(ctx context.Context, reference string, r io.Reader, as content.Layout) (content.Imported, error) {
	layout, err := dag.LayoutOf(as.Hash, as.CIDVersion)
	if err != nil {
		return content.Imported{}, notImported(err)
	}
	root, size, err := dag.ImportAs(ctx, layout, r, f.put(ctx, reference))
	return content.Imported{Root: root, Size: size}, notImported(err)
}

// ImportFolder implements content.Store.
func (f *files) ImportFolder(ctx context.Context, reference string, r io.Reader, as content.Layout) (content.Imported, error) {
	layout, err := dag.LayoutOf(as.Hash, as.CIDVersion)
	if err != nil {
		return content.Imported{}, notImported(err)
	}
	return imported(dag.ImportTar(ctx, layout, r, f.put(ctx, reference)))
}

// ImportFiles implements content.Store.
func (f *files) ImportFiles(ctx context.Context, reference string, next content.NextFile, as content.Layout) (content.Imported, error) {
	layout, err := dag.LayoutOf(as.Hash, as.CIDVersion)
	if err != nil {
		return content.Imported{}, notImported(err)
	}
	return imported(dag.ImportFiles(ctx, layout, dag.NextFile(next), f.put(ctx, reference)))
}

// imported returns the result of the import of a folder for the caller.
func imported(tree dag.Tree, err error) (content.Imported, error) {
	if err != nil {
		return content.Imported{}, notImported(err)
	}
	done := content.Imported{Root: tree.Root, Size: tree.Size, Entries: make([]content.Entry, len(tree.Entries))}
	for i, e := range tree.Entries {
		done.Entries[i] = content.Entry{Name: e.Name, CID: e.CID}
	}
	return done, nil
}

func (f *files) put(ctx context.Context, reference string) func([]block.Block) error {
	return func(b []block.Block) error { return f.blocks.Put(ctx, reference, b) }
}

// notImported returns the error for the caller if an import fails. The error has a state code if the
// node itself works.
func notImported(err error) error {
	switch {
	case errors.Is(err, blocks.ErrNoSpace):
		return state.Errorf(state.CodeNoSpace, "the disk of this node has no room for new content")
	case errors.Is(err, dag.ErrInvalidTar), errors.Is(err, dag.ErrInvalidFolder), errors.Is(err, dag.ErrInvalidCAR), errors.Is(err, dag.ErrTooLarge), errors.Is(err, dag.ErrLayout):
		return state.Errorf(state.CodeInvalid, "%v", err)
	}
	return err
}

// OpenFolder implements content.Store.
func (f *files) OpenFolder(ctx context.Context, root cid.Cid, path []string, placed []state.NodeID) (content.Folder, error) {
	from, done := f.from(root, placed)
	var folder *dag.Folder
	at, err := dag.Resolve(ctx, from, root, path)
	if err == nil {
		folder, err = f.buffers.OpenFolder(ctx, from, at)
	}
	if err != nil {
		done()
		return nil, unreadable(root, path, err)
	}
	return keptFolder{folder, f.telling(root, from, done)}, nil
}

// keptFolder is an open folder. Until it is closed, its blocks are not deleted on this node or on the
// members from which this node reads them.
type keptFolder struct {
	folder *dag.Folder
	done   func()
}

// WriteTar implements content.Folder.
func (f keptFolder) WriteTar(ctx context.Context, w io.Writer) error {
	err := notHere(f.folder.WriteTar(ctx, w))
	if errors.Is(err, dag.ErrInvalidBlock) || errors.Is(err, dag.ErrTooLarge) || errors.Is(err, dag.ErrNotFile) || errors.Is(err, dag.ErrUnsupportedCodec) {
		return fmt.Errorf("%w: %w", state.Errorf(state.CodeInvalid, "%v", err), err)
	}
	return err
}

// Close implements io.Closer.
func (f keptFolder) Close() error {
	f.done()
	return nil
}
