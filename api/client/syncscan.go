package client

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Reasons for which Push does not upload a file.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrLink       = errors.New("a symbolic link")
	ErrName       = errors.New("the name is not UTF-8, as keys are")
)

// hashName returns a short hash of text, which serves as a file name.
func hashName(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// localFile is a file that a walk found, or a name that it could not read.
type localFile struct {
	path     string // path relative to the folder, with slashes
	size     int64
	modified time.Time
	changed  time.Time // status time; equal to modified on systems without one
	partial  bool      // the file belongs to an unfinished download
	err      error     // why the file cannot be read, or nil
	skip     bool      // skip the file because of err; this is no failure
}

// walk lists the files below a folder.
type walk struct {
	dir      string
	follow   bool // follow symbolic links
	partials bool // include partial downloads, because the folder is the target of Pull

	skipped []string // paths that were skipped
}

// protects reports whether the walk skipped the path name or a folder above it. The file may
// exist although the walk did not return it, so it must not be deleted at the target.
func (w *walk) protects(name string) bool {
	return slices.ContainsFunc(w.skipped, func(s string) bool {
		return name == s || strings.HasPrefix(name, s+"/")
	})
}

// files returns the files ordered by the bytes of their paths. The order is that of keys in a
// bucket: "/" is an ordinary byte.
func (w *walk) files() iter.Seq2[*localFile, error] {
	return func(yield func(*localFile, error) bool) {
		real, err := filepath.EvalSymlinks(w.dir)
		if w.partials && errors.Is(err, fs.ErrNotExist) {
			return // a dry run does not create its target
		}
		if err != nil {
			yield(nil, err)
			return
		}
		w.folder("", []string{real}, yield)
	}
}

// folder yields the files below one folder. above has the real paths of this folder and of all
// folders that contain it, by which below detects cycles.
func (w *walk) folder(name string, above []string, yield func(*localFile, error) bool) bool {
	list, err := os.ReadDir(filepath.Join(w.dir, filepath.FromSlash(name)))
	if err != nil {
		w.skipped = append(w.skipped, name)
		return yield(&localFile{path: name, err: err}, nil)
	}
	type item struct {
		key  string // name, with "/" at its end for a folder
		info fs.FileInfo
		err  error
		skip bool
	}
	var items []item
	for _, e := range list {
		it := item{key: path.Join(name, e.Name())}
		it.info, it.err = e.Info()
		if errors.Is(it.err, fs.ErrNotExist) {
			continue // the file was removed meanwhile
		}
		if it.err == nil && it.info.Mode()&fs.ModeSymlink != 0 {
			if !w.follow {
				it.err, it.skip = ErrLink, true
			} else if it.info, it.err = os.Stat(filepath.Join(w.dir, filepath.FromSlash(it.key))); errors.Is(it.err, fs.ErrNotExist) {
				it.err, it.skip = fmt.Errorf("%w that leads nowhere", ErrLink), true
			}
		}
		if it.err == nil && !utf8.ValidString(e.Name()) {
			it.err = ErrName
		}
		if it.err == nil && !it.info.Mode().IsRegular() && !it.info.IsDir() {
			it.err, it.skip = ErrNotRegular, true
		}
		if it.err == nil && it.info.IsDir() {
			it.key += "/"
		}
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.key, b.key) })
	for _, it := range items {
		switch below, isFolder := strings.CutSuffix(it.key, "/"); {
		case it.err != nil:
			w.skipped = append(w.skipped, it.key)
			if !yield(&localFile{path: it.key, err: it.err, skip: it.skip}, nil) {
				return false
			}
		case isFolder:
			if !w.below(below, above, yield) {
				return false
			}
		case IsPartial(path.Base(it.key)):
			if w.partials && !yield(&localFile{path: it.key, partial: true}, nil) {
				return false
			}
		default:
			f := &localFile{path: it.key, size: it.info.Size(), modified: it.info.ModTime(), changed: statusTime(it.info)}
			if !yield(f, nil) {
				return false
			}
		}
	}
	return true
}

// below yields the files below a subfolder, unless that is a symbolic link to a folder that
// contains it.
func (w *walk) below(name string, above []string, yield func(*localFile, error) bool) bool {
	if w.follow {
		real, err := filepath.EvalSymlinks(filepath.Join(w.dir, filepath.FromSlash(name)))
		if err == nil && slices.Contains(above, real) {
			err = fmt.Errorf("%w to a folder around it", ErrLink)
		}
		if err != nil {
			w.skipped = append(w.skipped, name)
			return yield(&localFile{path: name, err: err, skip: errors.Is(err, ErrLink)}, nil)
		}
		above = append(slices.Clip(above), real)
	}
	return w.folder(name, above, yield)
}

// merge iterates over two sequences that are ordered by path, and calls each for every path in
// order, once. The argument for a sequence without the path is nil. merge returns the first error
// of a sequence or of each.
func merge(local iter.Seq2[*localFile, error], remote iter.Seq2[*entry, error], each func(*localFile, *entry) error) error {
	nextLocal, stopLocal := iter.Pull2(local)
	defer stopLocal()
	nextRemote, stopRemote := iter.Pull2(remote)
	defer stopRemote()
	here, err, more := nextLocal()
	if more && err != nil {
		return err
	}
	there, err, others := nextRemote()
	if others && err != nil {
		return err
	}
	for more || others {
		order := 0
		switch {
		case !others:
			order = -1
		case !more:
			order = 1
		default:
			order = cmp.Compare(here.path, there.path)
		}
		var a *localFile
		var b *entry
		if order <= 0 {
			a = here
		}
		if order >= 0 {
			b = there
		}
		if err := each(a, b); err != nil {
			return err
		}
		if a != nil {
			if here, err, more = nextLocal(); more && err != nil {
				return err
			}
		}
		if b != nil {
			if there, err, others = nextRemote(); others && err != nil {
				return err
			}
		}
	}
	return nil
}
