package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Permissions of folders and files that get writes, before the umask.
const (
	newFolderMode = 0o755
	newFileInMode = 0o644
)

// maxPartialName is the number of bytes of the name of a folder that its temporary name has. A name may
// have 255 bytes.
const maxPartialName = 200

// writeFolder writes the folder in a tar stream to a new folder at a path, which must not exist. The
// folder gets its name when it is complete. Until then it has a temporary name in the same folder, and
// it is removed if writeFolder fails. A crash leaves a folder named .NAME.partial-* behind. Nothing is
// written outside of the folder. note is called with each symbolic link that would lead out of the
// folder; such a link is left out.
func writeFolder(to string, stream io.Reader, note func(link, target string)) (err error) {
	if err := mustBeFree(to); err != nil {
		return err
	}
	name := filepath.Base(to)
	name = strings.ToValidUTF8(name[:min(len(name), maxPartialName)], "")
	partial, err := os.MkdirTemp(filepath.Dir(to), "."+name+".partial-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	root, err := os.OpenRoot(partial)
	if err != nil {
		return err
	}
	err = unpack(root, stream, note)
	if err == nil {
		err = flushFolder(partial)
	}
	if err = errors.Join(err, root.Close()); err != nil {
		return err
	}
	if err := os.Chmod(partial, newFolderMode); err != nil {
		return err
	}
	if err := mustBeFree(to); err != nil { // os.Rename replaces an empty folder
		return err
	}
	return os.Rename(partial, to)
}

// mustBeFree returns an error if something exists at a path.
func mustBeFree(path string) error {
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return fmt.Errorf("%s exists already: -o names another place", path)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// unpack writes the entries of a tar stream below root.
func unpack(root *os.Root, stream io.Reader, note func(link, target string)) error {
	archive := tar.NewReader(stream)
	buf := make([]byte, copyBuffer)
	for {
		h, err := archive.Next()
		if err == io.EOF { //nolint:errorlint // the end of the archive
			_, err := io.Copy(io.Discard, stream) // an incomplete stream ends with an error
			return err
		}
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(h.Name, "/")
		if !filepath.IsLocal(name) || path.Clean(name) != name || name == "." {
			return fmt.Errorf("the folder has the path %q, which cannot be written", h.Name)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.Mkdir(name, newFolderMode)
		case tar.TypeReg:
			err = unpackFile(root, name, archive, buf)
		case tar.TypeSymlink:
			if !staysInside(name, h.Linkname) {
				note(name, h.Linkname)
				continue
			}
			err = root.Symlink(h.Linkname, name)
		default:
			err = fmt.Errorf("%q is no file, folder or symbolic link", h.Name)
		}
		if err != nil {
			return err
		}
	}
}

func unpackFile(root *os.Root, name string, content io.Reader, buf []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, newFileInMode)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, content, buf)
	return errors.Join(err, f.Close())
}

// staysInside returns whether a symbolic link leads to a place in the folder that is written. It must
// be relative, and can begin with "..", as often as there are folders around it, but cannot have ".."
// after a name, because the name could be that of another link.
func staysInside(link, target string) bool {
	if target == "" || path.IsAbs(target) || filepath.IsAbs(target) {
		return false
	}
	up, names := 0, false
	for part := range strings.SplitSeq(filepath.ToSlash(target), "/") {
		switch part {
		case "", ".":
		case "..":
			if up++; names {
				return false
			}
		default:
			names = true
		}
	}
	return up <= strings.Count(link, "/")
}
