package dag

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strings"

	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
	"github.com/spaolacci/murmur3"
)

// maxStack is the maximum number of folders, and of nodes of sharded folders, on the path to an entry.
const maxStack = 2 * MaxFolderDepth

// unixfsNode is a dag-pb node with UnixFS data.
type unixfsNode struct {
	block blocks.Block
	links []*ipld.Link
	data  *unixfs.FSNode
}

// loadUnixFS reads a UnixFS node. Errors: ErrNotFile if the block is something else, ErrInvalidBlock,
// ErrUnsupportedCodec, and those of from.
func loadUnixFS(ctx context.Context, from Getter, c cid.Cid) (*unixfsNode, error) {
	if codec := c.Prefix().Codec; codec != cid.DagProtobuf {
		if supported(codec) {
			return nil, fmt.Errorf("%w: %s has codec 0x%x", ErrNotFile, c, codec)
		}
		return nil, fmt.Errorf("%w: 0x%x", ErrUnsupportedCodec, codec)
	}
	b, inlined, err := inline(c)
	if err == nil && !inlined {
		b, err = get(ctx, from, c)
	}
	if err != nil {
		return nil, err
	}
	if _, err := Links(b); err != nil { // also checks the form of a node of a sharded folder
		return nil, err
	}
	n, err := merkledag.DecodeProtobufBlock(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalidBlock, c, err)
	}
	p, ok := n.(*merkledag.ProtoNode)
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNotFile, c)
	}
	data, err := unixfs.FSNodeFromBytes(p.Data())
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNotFile, c, err)
	}
	return &unixfsNode{b, p.Links(), data}, nil
}

// isFolder returns whether a node is that of a folder, or of a part of a sharded folder.
func (n *unixfsNode) isFolder() bool {
	return n.data.Type() == unixfs.TDirectory || n.data.Type() == unixfs.THAMTShard
}

// digits returns the length of the prefix that the names in a node of a sharded folder have; 0 for
// other folders.
func (n *unixfsNode) digits() int {
	if n.data.Type() != unixfs.THAMTShard {
		return 0
	}
	return len(placeName(0, int(n.data.Fanout())))
}

// Resolve returns the CID at a path below a folder. Without a path it returns root. It follows no
// symbolic links. Errors: ErrNoEntry, and those of Open.
func Resolve(ctx context.Context, from Getter, root cid.Cid, path []string) (cid.Cid, error) {
	if len(path) > MaxFolderDepth {
		return cid.Undef, fmt.Errorf("%w: a path of more than %d names", ErrTooLarge, MaxFolderDepth)
	}
	for i, name := range path {
		next, err := find(ctx, from, root, name)
		if err != nil {
			return cid.Undef, fmt.Errorf("dag: %q: %w", strings.Join(path[:i+1], "/"), err)
		}
		root = next
	}
	return root, nil
}

// find returns the CID of the entry with this name in a folder.
func find(ctx context.Context, from Getter, folder cid.Cid, name string) (cid.Cid, error) {
	hash := murmur3.Sum64([]byte(name))
	for used := 0; ; {
		if folder.Prefix().Codec == cid.Raw {
			return cid.Undef, ErrNoEntry // a file has no entries
		}
		n, err := loadUnixFS(ctx, from, folder)
		if err != nil {
			return cid.Undef, err
		}
		if !n.isFolder() || used > 0 && n.digits() == 0 {
			return cid.Undef, ErrNoEntry
		}
		prefix, use := "", 0
		if n.digits() > 0 {
			use = bits.Len64(n.data.Fanout()) - 1
			if used+use > hashBits {
				return cid.Undef, ErrNoEntry
			}
			prefix = placeName(placeOf(hash, used, use), int(n.data.Fanout()))
		}
		next := cid.Undef
		for _, l := range n.links {
			if l.Name == prefix+name {
				return l.Cid, nil
			}
			if use > 0 && l.Name == prefix {
				next = l.Cid
			}
		}
		if !next.Defined() {
			return cid.Undef, ErrNoEntry
		}
		folder, used = next, used+use
	}
}

// Folder is a UnixFS folder that can be read. It is not safe for concurrent use.
type Folder struct {
	from    *remembering
	buffers *Buffers
	root    *unixfsNode
}

// OpenFolder reads the first block of a folder. It returns ErrNotFile if root is no folder, and the
// errors of Open.
func (b *Buffers) OpenFolder(ctx context.Context, from Lender, root cid.Cid) (*Folder, error) {
	n, err := loadUnixFS(ctx, from, root)
	if err == nil && !n.isFolder() {
		err = ErrNotFile
	}
	if err != nil {
		return nil, fmt.Errorf("dag: open folder %s: %w", root, err)
	}
	return &Folder{&remembering{Lender: from}, b, n}, nil
}

// remembering is a Lender that returns the last block that was loaded as a node again, so that a file
// whose type was read is not requested a second time.
type remembering struct {
	Lender
	last blocks.Block // may be nil; does not change while a file is open
}

// Get implements Getter.
func (r *remembering) Get(ctx context.Context, c cid.Cid) (blocks.Block, error) {
	if r.last != nil && r.last.Cid().Equals(c) {
		return r.last, nil
	}
	return r.Lender.Get(ctx, c)
}

// level is a folder, or a node of a sharded folder, whose entries are being written.
type level struct {
	path   string // of the folder, with a slash at the end; empty for the root
	depth  int    // number of folders around it
	digits int    // length of the prefix of the names
	links  []*ipld.Link
	held   int // number of links at the beginning
}

// WriteTar writes the content of the folder as a tar stream: an entry for each file, folder and
// symbolic link below the root, whose names are relative to it, and folders before their content. The
// memory use does not depend on the number or the sizes of the files, but at most maxHeld entries of
// the open folders are in memory. Errors: ErrTooLarge; ErrInvalidBlock, also for a name that no file
// can have; ErrNotFile for an entry that is no file, folder or link; and those of the Getter and of w.
func (f *Folder) WriteTar(ctx context.Context, w io.Writer) error {
	t := &tarWriter{folder: f, to: tar.NewWriter(w)}
	err := t.push(level{}, f.root)
	for err == nil && len(t.stack) > 0 {
		if err = ctx.Err(); err != nil {
			break
		}
		top := &t.stack[len(t.stack)-1]
		if len(top.links) == 0 {
			t.held -= top.held
			t.stack = t.stack[:len(t.stack)-1]
			continue
		}
		link := top.links[0]
		top.links = top.links[1:]
		err = t.entry(ctx, *top, link)
	}
	if err == nil {
		err = t.to.Close()
	}
	if err != nil {
		return fmt.Errorf("dag: read folder %s: %w", f.root.block.Cid(), err)
	}
	return nil
}

// tarWriter writes a folder. It does not recurse.
type tarWriter struct {
	folder  *Folder
	to      *tar.Writer
	stack   []level
	held    int // number of links in stack
	entries int
}

// push begins to write the entries of a folder or of a node of a sharded folder.
func (t *tarWriter) push(l level, n *unixfsNode) error {
	l.digits, l.links, l.held = n.digits(), n.links, len(n.links)
	t.held += l.held
	switch {
	case l.depth >= MaxFolderDepth || len(t.stack) >= maxStack:
		return fmt.Errorf("%w: more than %d folders in each other", ErrTooLarge, MaxFolderDepth)
	case t.held > maxHeld:
		return fmt.Errorf("%w: more than %d entries in open folders", ErrTooLarge, maxHeld)
	}
	t.stack = append(t.stack, l)
	return nil
}

// entry writes one entry of the folder in.
func (t *tarWriter) entry(ctx context.Context, in level, link *ipld.Link) error {
	if in.digits > 0 && len(link.Name) == in.digits {
		n, err := loadUnixFS(ctx, t.folder.from, link.Cid)
		if err != nil {
			return err
		}
		if n.digits() == 0 {
			return fmt.Errorf("%w: %s is no part of a sharded folder", ErrInvalidBlock, link.Cid)
		}
		return t.push(in, n)
	}
	name := link.Name[in.digits:]
	if !ValidName(name) {
		return fmt.Errorf("%w: the folder %q has an entry with the name %q", ErrInvalidBlock, in.path, name)
	}
	if t.entries++; t.entries > MaxEntries {
		return fmt.Errorf("%w: more than %d entries", ErrTooLarge, MaxEntries)
	}
	path := in.path + name
	if link.Cid.Prefix().Codec == cid.Raw {
		return t.file(ctx, path, link.Cid)
	}
	n, err := loadUnixFS(ctx, t.folder.from, link.Cid)
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	switch n.data.Type() {
	case unixfs.TDirectory, unixfs.THAMTShard:
		if err := t.to.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path + "/", Mode: 0o755, Format: tar.FormatPAX}); err != nil {
			return err
		}
		return t.push(level{path: path + "/", depth: in.depth + 1}, n)
	case unixfs.TSymlink:
		target := string(n.data.Data())
		if target == "" || strings.Contains(target, "\x00") {
			return fmt.Errorf("%w: the link %q has the target %q", ErrInvalidBlock, path, target)
		}
		return t.to.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: path, Linkname: target, Mode: 0o777, Format: tar.FormatPAX})
	default:
		t.folder.from.last = n.block
		defer func() { t.folder.from.last = nil }()
		return t.file(ctx, path, link.Cid)
	}
}

// file writes a file with its content.
func (t *tarWriter) file(ctx context.Context, path string, c cid.Cid) (err error) {
	f, err := t.folder.buffers.Open(ctx, t.folder.from, c)
	if err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if f.Size() > 1<<62 {
		return fmt.Errorf("%w: %q has %d bytes", ErrTooLarge, path, f.Size())
	}
	if err := t.to.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Size: int64(f.Size()), Mode: 0o644, Format: tar.FormatPAX}); err != nil {
		return err
	}
	if _, err := f.WriteTo(t.to); err != nil {
		return fmt.Errorf("%q: %w", path, err)
	}
	return nil
}
