package dag

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	blocks "github.com/ipfs/go-block-format"
)

// ErrInvalidFolder is the error for a file whose path cannot be in a folder.
var ErrInvalidFolder = errors.New("invalid folder")

// NextFile returns the next file of an import, with its path in the folder. The names in the path are
// separated by slashes. The content is read before the next call. After the last file the error is
// io.EOF.
type NextFile func() (path string, content io.Reader, err error)

// ImportFiles stores files as a UnixFS folder, with the folders of their paths. The files of one
// folder come without others in between, those in folders in it included. put gets the blocks as from
// Import.
//
// The memory use is that of ImportTar. Errors: ErrInvalidFolder, also for two files with one path;
// ErrTooLarge; and those of next, of the content and of put.
func ImportFiles(ctx context.Context, as Layout, next NextFile, put func([]blocks.Block) error) (Tree, error) {
	t := newFolderImport(ctx, as, ErrInvalidFolder, put)
	root, entries, err := t.files(next)
	if err != nil {
		return Tree{}, fmt.Errorf("dag: import files: %w", err)
	}
	return Tree{Root: root.CID, Size: t.size, Entries: entries}, nil
}

func (t *folderImport) files(next NextFile) (root Entry, entries []Entry, err error) {
	for {
		path, content, err := next()
		if err == io.EOF { //nolint:errorlint // the end of the files
			return t.end()
		}
		if err == nil {
			err = t.fileAt(path, content)
		}
		if err != nil {
			return Entry{}, nil, err
		}
	}
}

// fileAt stores a file at a path. It opens the folders on the path that are not open.
func (t *folderImport) fileAt(path string, content io.Reader) error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	parts, err := partsOf(path, t.invalid)
	if err != nil {
		return err
	}
	if len(parts) == 0 || strings.HasSuffix(path, "/") {
		return fmt.Errorf("%w: the path %q", t.invalid, path)
	}
	around := parts[:len(parts)-1]
	opened, err := t.enter(around)
	if err != nil {
		return err
	}
	for _, name := range around[opened:] {
		if err := t.count(); err != nil {
			return err
		}
		t.open = append(t.open, &openFolder{name: strings.Clone(name)})
	}
	if err := t.count(); err != nil {
		return err
	}
	node, size, err := t.file(content)
	if err != nil {
		return err
	}
	t.size += size
	return t.add(strings.Clone(parts[len(parts)-1]), node)
}
