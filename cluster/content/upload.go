package content

import (
	"context"
	"io"

	"github.com/ipfs/go-cid"
)

// NextFile returns the next file of an upload, with its path in the folder. The names in the path are
// separated by slashes. The content is read before the next call. After the last file the error is
// io.EOF.
type NextFile func() (path string, content io.Reader, err error)

// Pin pins the roots that an import has stored. size is that of its files or, for a CAR, of its blocks,
// in bytes.
type Pin func(roots []cid.Cid, size uint64) error

// AddPinned imports a file as Add does, and then calls pin, which may be nil. If pin fails, AddPinned returns its error
// and the blocks are no longer protected. Otherwise they are protected while the pin is in progress: if it
// is deleted or fails, they are deleted soon.
func (c *Content) AddPinned(ctx context.Context, r io.Reader, as Layout, pin Pin) (Imported, error) {
	return c.add(func(reference string) (Imported, error) { return c.opts.Store.Import(ctx, reference, r, as) }, pin)
}

// AddFolderPinned does the same as AddPinned for the tar stream of a folder. It returns state.ErrInvalid if r is not
// such a stream.
func (c *Content) AddFolderPinned(ctx context.Context, r io.Reader, as Layout, pin Pin) (Imported, error) {
	return c.add(func(reference string) (Imported, error) { return c.opts.Store.ImportFolder(ctx, reference, r, as) }, pin)
}

// AddFilesPinned does the same as AddPinned for files, which become a folder. A folder that would have
// one entry is left out: its entry, a file or a folder, is the root. It returns state.ErrInvalid for a
// path that cannot be in a folder.
func (c *Content) AddFilesPinned(ctx context.Context, next NextFile, as Layout, pin Pin) (Imported, error) {
	return c.add(func(reference string) (Imported, error) {
		done, err := c.opts.Store.ImportFiles(ctx, reference, next, as)
		if err == nil && len(done.Entries) == 1 {
			done.Root = done.Entries[0].CID
		}
		return done, err
	}, pin)
}

// ImportCARPinned imports a CAR as ImportCAR does, and then calls pin, as AddPinned does.
func (c *Content) ImportCARPinned(ctx context.Context, r io.Reader, pin Pin) (car CAR, err error) {
	err = c.leased(func(reference string) ([]cid.Cid, uint64, error) {
		car, err = c.opts.Store.ImportCAR(ctx, reference, r)
		return car.Roots, car.Bytes, err
	}, pin)
	return car, err
}
