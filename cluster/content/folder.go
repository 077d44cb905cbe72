package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
	"github.com/ipfs/go-cid"
)

// ErrFolder is the error of a call that opens a file and gets the CID of a folder.
var ErrFolder = errors.New("the content is a folder")

// Layout describes how imported content becomes blocks. Its zero value means BLAKE3 and version 1.
type Layout struct {
	Hash       string // sha2-256 or blake3; empty means blake3, or sha2-256 with version 0
	CIDVersion string // 0 or 1; empty means 1
}

// Imported is content that was imported.
type Imported struct {
	Root cid.Cid
	Size uint64 // of its files, in bytes
	// Entries are the files, folders and links directly in a folder, ordered by name. They are empty
	// for a file.
	Entries []Entry
}

// Entry is a file, folder or link in a folder.
type Entry struct {
	Name string
	CID  cid.Cid
}

// Folder is an open folder. The caller closes it.
type Folder interface {
	// WriteTar writes the entries of the folder as a tar stream, with names that are relative to it.
	WriteTar(ctx context.Context, w io.Writer) error
	io.Closer
}

// AddFolder imports the tar stream r as a folder. It does the same as Add otherwise. It returns
// state.ErrInvalid if r is not the stream of a folder.
func (c *Content) AddFolder(ctx context.Context, r io.Reader, as Layout) (Imported, error) {
	return c.AddFolderPinned(ctx, r, as, nil)
}

// OpenFolder opens a folder. Its arguments and errors are those of Open. It returns state.ErrInvalid
// if the content is no folder.
func (c *Content) OpenFolder(ctx context.Context, text string) (Folder, error) {
	root, path, err := parse(text)
	if err != nil {
		return nil, err
	}
	holders, err := c.holders(root)
	if err != nil {
		return nil, err
	}
	return c.opts.Store.OpenFolder(ctx, root, path, holders)
}

// OpenFolderFor is OpenFolder for an account, with the rights and errors of OpenFor.
func (c *Content) OpenFolderFor(ctx context.Context, account state.AccountID, text string) (Folder, error) {
	root, path, err := parse(text)
	if err != nil {
		return nil, err
	}
	holders, err := c.holdersFor(ctx, account, root)
	if err != nil {
		return nil, err
	}
	return c.opts.Store.OpenFolder(ctx, root, path, holders)
}

// holders returns the members to ask first for the blocks of a root.
func (c *Content) holders(root cid.Cid) ([]state.NodeID, error) {
	record, err := c.root(root)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return nil, fmt.Errorf("read root %s: %w", root, err)
	}
	return record.Holders(), nil
}

// holdersFor is holders for an account. It returns NotHeld if the account may not read the root.
func (c *Content) holdersFor(ctx context.Context, account state.AccountID, root cid.Cid) ([]state.NodeID, error) {
	record, may, err := c.mayRead(ctx, account, root)
	if err != nil {
		return nil, fmt.Errorf("judge %s: %w", root, err)
	}
	if !may {
		return nil, NotHeld(root)
	}
	return record.Holders(), nil
}

// parse splits text, which is a CID or a CID with a path in its folder after a slash.
func parse(text string) (root cid.Cid, path []string, err error) {
	first, rest, _ := strings.Cut(text, "/")
	root, err = cid.Decode(first)
	if err != nil {
		return cid.Undef, nil, state.Errorf(state.CodeInvalid, "cid %q is not valid", text)
	}
	for name := range strings.SplitSeq(rest, "/") {
		if name != "" {
			path = append(path, name)
		}
	}
	return root, path, nil
}
