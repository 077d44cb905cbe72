package dag

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

// Bounds of folders that are imported or read.
const (
	// MaxFolderDepth is the maximum number of names in a path below the root.
	MaxFolderDepth = 256
	// maxHeld is the maximum number of entries in memory: those of the folder that is imported or
	// read now, and of the folders around it. An entry takes about 150 bytes and its name.
	maxHeld = 1_000_000
	// MaxEntries is the maximum number of files, folders and links in a folder, at all depths.
	MaxEntries = DefaultMaxBlocks
)

// Errors of folders.
var (
	ErrInvalidTar = errors.New("invalid tar stream")
	ErrNoEntry    = errors.New("no such name in the folder")
)

// Entry is a file, folder or symbolic link in a folder.
type Entry struct {
	Name string
	CID  cid.Cid
	size uint64 // bytes of all its blocks
}

// Tree is an imported folder.
type Tree struct {
	Root    cid.Cid
	Size    uint64  // of its files, in bytes
	Entries []Entry // of the root, ordered by name
}

// ImportTar stores the entries of a tar stream as a UnixFS folder. The stream has regular files,
// folders and symbolic links. A folder comes before its content, and its content comes without
// other entries in between, as tar writes it. An entry for the root itself is optional. Modes, owners
// and times are ignored. put gets the blocks as from Import.
//
// The memory use does not depend on the sizes of files. It grows with the number of entries in the
// open folders, of which maxHeld are allowed. Errors: ErrInvalidTar, ErrTooLarge, and those of r and
// put.
func ImportTar(ctx context.Context, as Layout, r io.Reader, put func([]blocks.Block) error) (Tree, error) {
	t := newFolderImport(ctx, as, ErrInvalidTar, put)
	root, entries, err := t.read(r)
	if err != nil {
		return Tree{}, fmt.Errorf("dag: import folder: %w", err)
	}
	return Tree{Root: root.CID, Size: t.size, Entries: entries}, nil
}

// folderImport is a folder that is being imported.
type folderImport struct {
	*importer
	invalid error         // the error for an entry that cannot be in a folder
	open    []*openFolder // the folder that is being imported, below the folders around it
	held    int           // number of entries in open
	entries int
	size    uint64
}

func newFolderImport(ctx context.Context, as Layout, invalid error, put func([]blocks.Block) error) *folderImport {
	return &folderImport{
		importer: new(Buffers).importer(ctx, as, importBatch, func(blks []blocks.Block, _ func()) error { return put(blks) }),
		invalid:  invalid,
		open:     []*openFolder{{}},
	}
}

// openFolder is a folder whose entries are not complete.
type openFolder struct {
	name    string
	entries []Entry
}

func (t *folderImport) read(r io.Reader) (root Entry, entries []Entry, err error) {
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if err == io.EOF { //nolint:errorlint // the end of the archive
			break
		}
		if err == nil {
			err = t.entry(h, archive)
		} else if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) {
			err = fmt.Errorf("%w: %w", ErrInvalidTar, err)
		}
		if err != nil {
			return Entry{}, nil, err
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // a stream that was cut ends with an error
		return Entry{}, nil, err
	}
	return t.end()
}

// end stores the folders that are open, and returns the root and its entries.
func (t *folderImport) end() (root Entry, entries []Entry, err error) {
	for len(t.open) > 1 {
		if err := t.close(); err != nil {
			return Entry{}, nil, err
		}
	}
	entries = t.open[0].entries
	if root, err = t.folder(t.open[0]); err != nil {
		return Entry{}, nil, err
	}
	return root, entries, t.sink.flush()
}

// entry imports one entry of the stream.
func (t *folderImport) entry(h *tar.Header, content io.Reader) error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	path, err := partsOf(h.Name, t.invalid)
	if err != nil {
		return err
	}
	if len(path) == 0 {
		if h.Typeflag != tar.TypeDir || t.entries > 0 {
			return fmt.Errorf("%w: entry %q is no folder at the beginning", ErrInvalidTar, h.Name)
		}
		return nil
	}
	around := path[:len(path)-1]
	if opened, err := t.enter(around); err != nil {
		return err
	} else if opened < len(around) {
		return fmt.Errorf("%w: the folder of %q comes not before it, or with other entries in between", ErrInvalidTar, h.Name)
	}
	if err := t.count(); err != nil {
		return err
	}
	name := strings.Clone(path[len(path)-1]) // not the whole path
	var node ipld.Node
	switch h.Typeflag {
	case tar.TypeDir:
		t.open = append(t.open, &openFolder{name: name})
		return nil
	case tar.TypeReg:
		var size uint64
		node, size, err = t.file(content)
		t.size += size
	case tar.TypeSymlink:
		node, err = t.link(h.Linkname)
	default:
		return fmt.Errorf("%w: %q is no file, folder or symbolic link", ErrInvalidTar, h.Name)
	}
	if err != nil {
		return err
	}
	return t.add(name, node)
}

// partsOf splits the name of an entry. It returns no parts for the root. invalid is the error for a name
// that is no path.
func partsOf(name string, invalid error) ([]string, error) {
	path := strings.Split(strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/"), "/")
	if len(path) == 1 && (path[0] == "." || path[0] == "") {
		return nil, nil
	}
	if len(path) > MaxFolderDepth {
		return nil, fmt.Errorf("%w: a path of more than %d names", ErrTooLarge, MaxFolderDepth)
	}
	for _, part := range path {
		if !ValidName(part) {
			return nil, fmt.Errorf("%w: the path %q", invalid, name)
		}
	}
	return path, nil
}

// ValidName returns whether a file or folder may have this name: it is not empty, "." or "..", and
// has no slash and no NUL.
func ValidName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// count counts an entry, or returns ErrTooLarge if there are too many.
func (t *folderImport) count() error {
	if t.entries++; t.entries > MaxEntries || t.held >= maxHeld {
		return fmt.Errorf("%w: more than %d entries in a folder, or %d at all depths", ErrTooLarge, maxHeld, MaxEntries)
	}
	t.held++
	return nil
}

// enter closes the open folders that are not on the path of a folder. It returns how many of the
// folders on the path are open then.
func (t *folderImport) enter(path []string) (opened int, err error) {
	for opened < len(path) && opened+1 < len(t.open) && t.open[opened+1].name == path[opened] {
		opened++
	}
	for len(t.open) > opened+1 {
		if err := t.close(); err != nil {
			return opened, err
		}
	}
	return opened, nil
}

// close adds the folder that is being imported to the folder around it.
func (t *folderImport) close() error {
	last := t.open[len(t.open)-1]
	t.open = t.open[:len(t.open)-1]
	done, err := t.folder(last)
	if err != nil {
		return err
	}
	t.held -= len(last.entries)
	around := t.open[len(t.open)-1]
	around.entries = append(around.entries, done)
	return nil
}

// link stores a symbolic link.
func (t *folderImport) link(target string) (ipld.Node, error) {
	data, err := unixfs.SymlinkData(target)
	if err != nil {
		return nil, err
	}
	n := merkledag.NodeWithData(data)
	if err := n.SetCidBuilder(t.layout.builder); err != nil {
		return nil, err
	}
	return n, t.sink.Add(t.ctx, n)
}

// add adds an entry to the folder that is being imported.
func (t *folderImport) add(name string, n ipld.Node) error {
	done, err := entryOf(name, n)
	if err != nil {
		return err
	}
	into := t.open[len(t.open)-1]
	into.entries = append(into.entries, done)
	return nil
}

func entryOf(name string, n ipld.Node) (Entry, error) {
	size, err := n.Size()
	return Entry{Name: name, CID: n.Cid(), size: size}, err
}

// folder stores a folder and sorts its entries by name.
func (t *folderImport) folder(f *openFolder) (Entry, error) {
	slices.SortFunc(f.entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	for i := range f.entries[:max(len(f.entries), 1)-1] {
		if f.entries[i].Name == f.entries[i+1].Name {
			return Entry{}, fmt.Errorf("%w: two entries of a folder have the name %q", t.invalid, f.entries[i].Name)
		}
	}
	n, err := t.directory(f.entries)
	if err != nil {
		return Entry{}, err
	}
	return entryOf(f.name, n)
}
