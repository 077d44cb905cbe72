package main

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/holdfast-ipfs/holdfast/api/admin/client"
)

// maxFolderDepth is the maximum number of names in a path of a folder. A node has the same limit.
const maxFolderDepth = 256

// importFolder imports a folder, or several paths as one folder, and returns its CID. Nothing is left
// on the node if it fails.
func (a *app) importFolder(ctx context.Context, o operator, paths []string, how addPlan) (client.Content, error) {
	names, err := namesOf(paths)
	if err != nil {
		return client.Content{}, err
	}
	bar := a.newBar(-1, "importing")
	p := pack(ctx, paths, names, how.hidden)
	added, err := o.Import(ctx, io.TeeReader(p, bar), client.Import{
		Hash: how.hash, CIDVersion: how.version, Folder: true, Entries: len(paths) > 1,
	})
	_ = bar.Finish() // it is only for the eye
	_ = p.Close()    // never fails
	if err == nil {
		return added, a.packed(ctx, p)
	}
	if failed := p.result(ctx); failed != nil {
		err = failed // the node only knows that the stream ended early
	}
	return client.Content{}, err
}

// packing is a folder that is being packed, as a tar stream.
type packing struct {
	*io.PipeReader

	packer *packer
	ended  chan error // gets the result of the packer
}

// pack begins to pack paths under names. The caller closes the result.
func pack(ctx context.Context, paths, names []string, hidden bool) *packing {
	out, in := io.Pipe()
	p := &packing{out, &packer{ctx: ctx, to: tar.NewWriter(in), hidden: hidden}, make(chan error, 1)}
	go func() {
		err := p.packer.pack(paths, names)
		_ = in.CloseWithError(err) // never fails
		p.ended <- err
	}()
	return p
}

// Close implements io.Closer. It ends the packer, if that has not ended.
func (p *packing) Close() error { return p.CloseWithError(errAnswered) }

// result waits for the end of the packer after Close and returns its error, if it has one of its own. It does not
// wait longer than ctx.
func (p *packing) result(ctx context.Context) error {
	select {
	case <-ctx.Done(): // the packer may hang in a file system that does not answer
		return errInterrupted
	case err := <-p.ended:
		if errors.Is(err, errAnswered) {
			return nil
		}
		return err
	}
}

// packed returns the error of a packer after Close, and reports what it has left out.
func (a *app) packed(ctx context.Context, p *packing) error {
	if err := p.result(ctx); err != nil {
		return err
	}
	if unseen := p.packer.unseen; unseen > 0 {
		what := "hidden files and folders were"
		if unseen == 1 {
			what = "hidden file or folder was"
		}
		a.say(a.stderr, "holdfast: add: %d %s left out; --hidden adds them\n", unseen, what)
	}
	return nil
}

// errAnswered ends the packer when the node has answered before it got everything.
var errAnswered = errors.New("the node has answered")

// namesOf returns the names that the paths get in the folder around them. A single path is the folder
// itself and has no name.
func namesOf(paths []string) ([]string, error) {
	if len(paths) == 1 {
		return []string{""}, nil
	}
	names := make([]string, len(paths))
	seen := map[string]string{}
	for i, path := range paths {
		if path == "-" {
			return nil, usagef("add: - is standard input, which is added alone")
		}
		whole, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		if whole == filepath.Dir(whole) {
			return nil, usagef("add: %q has no name: add it alone", path)
		}
		names[i] = filepath.Base(whole)
		if other, ok := seen[names[i]]; ok {
			return nil, usagef("add: %q and %q would both be named %q in the folder around them", other, path, names[i])
		}
		seen[names[i]] = path
	}
	return names, nil
}

// packer writes files and folders as a tar stream. It leaves out times, owners and modes.
type packer struct {
	ctx    context.Context // of one command
	to     *tar.Writer
	hidden bool // include files and folders whose names begin with a dot
	unseen int  // number of those that were left out
	buf    []byte
}

// pack writes each path under its name. A path with the name "" is a folder, whose content is written.
func (p *packer) pack(paths, names []string) error {
	p.buf = make([]byte, copyBuffer)
	for i, path := range paths {
		info, err := os.Stat(path) // a link in the arguments is followed
		switch {
		case err != nil:
		case info.IsDir():
			err = p.top(path, names[i])
		case !info.Mode().IsRegular():
			err = notAddable(path, info.Mode())
		default:
			err = p.open(path, names[i], func() (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) })
		}
		if err != nil {
			return err
		}
	}
	return p.to.Close()
}

// notAddable returns the error for a file that is no regular file, folder or link.
func notAddable(path string, mode fs.FileMode) error {
	kind := "a special file"
	switch {
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return fmt.Errorf("%s is %s, which has no place in a folder of IPFS", path, kind)
}

// top writes a folder of the arguments.
func (p *packer) top(path, name string) (err error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	t := packedFolder{packer: p, root: root, path: path, name: name}
	if name == "" {
		return t.content(".", 1)
	}
	return t.folder(".", name, 1)
}

// packedFolder is a folder of the arguments. Nothing outside of it is read, also if a file is replaced
// by a link meanwhile.
type packedFolder struct {
	*packer
	root *os.Root
	path string // as the user named it
	name string // in the stream; may be empty
}

// folder writes the folder at a path below root, with its content.
func (t *packedFolder) folder(at, name string, depth int) error {
	if err := t.header(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, filepath.Join(t.path, at)); err != nil {
		return err
	}
	return t.content(at, depth+1)
}

// content writes the entries of the folder at a path below root, ordered by name.
func (t *packedFolder) content(at string, depth int) error {
	entries, err := t.list(at)
	if err != nil {
		return err
	}
	if depth > maxFolderDepth && len(entries) > 0 {
		return fmt.Errorf("%s: more than %d folders in each other", filepath.Join(t.path, at), maxFolderDepth)
	}
	for _, e := range entries {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		if !t.hidden && strings.HasPrefix(e.Name(), ".") {
			t.unseen++
			continue
		}
		if err := t.entry(filepath.Join(at, e.Name()), e, depth); err != nil {
			return err
		}
	}
	return nil
}

func (t *packedFolder) list(at string) ([]fs.DirEntry, error) {
	dir, err := t.root.Open(at)
	if err != nil {
		return nil, t.named(err)
	}
	entries, err := dir.ReadDir(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return nil, t.named(err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// named returns an error of root with the path as the user named it.
func (t *packedFolder) named(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return &fs.PathError{Op: strings.TrimSuffix(failed.Op, "at"), Path: filepath.Join(t.path, failed.Path), Err: failed.Err}
	}
	return err
}

// entry writes one entry of a folder.
func (t *packedFolder) entry(at string, e fs.DirEntry, depth int) error {
	name := filepath.ToSlash(at)
	if t.name != "" {
		name = t.name + "/" + name
	}
	path := filepath.Join(t.path, at)
	switch mode := e.Type(); {
	case mode.IsDir():
		return t.folder(at, name, depth)
	case mode&fs.ModeSymlink != 0:
		target, err := t.root.Readlink(at)
		if err != nil {
			return t.named(err)
		}
		if !utf8.ValidString(target) {
			return fmt.Errorf("the target of the link %q is not UTF-8", path)
		}
		return t.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, path)
	case mode.IsRegular():
		return t.named(t.open(path, name, func() (*os.File, error) { return t.root.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0) }))
	default:
		return notAddable(path, mode)
	}
}

func (p *packer) header(h *tar.Header, path string) error {
	if !utf8.ValidString(h.Name) {
		return fmt.Errorf("the name of %q is not UTF-8", path)
	}
	h.Format = tar.FormatPAX
	return p.to.WriteHeader(h)
}

// open writes a regular file. It does not wait if the file has become a pipe meanwhile.
func (p *packer) open(path, name string, open func() (*os.File, error)) (err error) {
	f, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read from
	before, err := f.Stat()
	if err != nil {
		return err
	}
	if !before.Mode().IsRegular() {
		return notAddable(path, before.Mode())
	}
	if err := p.header(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: before.Size(), Mode: 0o644}, path); err != nil {
		return err
	}
	n, err := io.CopyBuffer(p.to, io.LimitReader(f, before.Size()), p.buf)
	if err != nil {
		return err
	}
	after, err := f.Stat()
	if err != nil {
		return err
	}
	if n < before.Size() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return fmt.Errorf("%s changed while it was read: add it again", path)
	}
	return nil
}
