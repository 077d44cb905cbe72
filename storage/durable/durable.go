// Package durable makes bytes, names and folders survive a power failure: it replaces files
// atomically, renames and removes them, creates folders, and calls fsync for files and their parent
// folders. Other packages of storage use it where a change must be durable. It also locks a folder
// against a second process.
//
// Imports: std.
// Never:   imports of other packages of Holdfast; a second attempt after a failed fsync, because
// the kernel may have dropped the unwritten pages, and a later success would prove nothing.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile atomically replaces the file at path: it writes a temporary file in the same
// folder, fsyncs it, renames it over path and fsyncs the folder. A crash leaves the old or
// the new content, and at most one file ".<base>.tmp", which the next call overwrites.
// Callers serialize writes to one path.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	tmp := filepath.Join(dir, "."+base+".tmp")
	if err := writeSynced(tmp, data, perm); err != nil {
		return errors.Join(fmt.Errorf("durable: write %s: %w", path, err), removeIfThere(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(fmt.Errorf("durable: write %s: %w", path, err), removeIfThere(tmp))
	}
	return SyncDir(dir)
}

func writeSynced(path string, data []byte, perm fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		// The mode of a leftover, or the umask, must not decide who may read.
		err = f.Chmod(perm)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// SyncDir makes the names in dir durable: files created, renamed into or
// removed from it before the call.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("durable: sync folder: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("durable: sync folder %s: %w", dir, err)
	}
	return nil
}

// Datasync makes the bytes and the size of f durable, but not its times.
func Datasync(f *os.File) error {
	if err := datasync(f); err != nil {
		return fmt.Errorf("durable: sync %s: %w", f.Name(), err)
	}
	return nil
}

// DropCache tells the system that it may remove n bytes of f, from the offset off on, from its page
// cache. The bytes must be durable. The system may ignore this hint. On systems without such a call
// DropCache does nothing.
func DropCache(f *os.File, off, n int64) { dropCache(f, off, n) }

// DropMapped removes the pages of a file that this process has mapped from its resident memory. The
// kernel keeps the pages in its cache while it has room for them, and a later read of the mapping
// brings them back. The caller must prevent that the file is unmapped meanwhile. DropMapped does
// nothing where the system does not list the mappings of a process.
func DropMapped(file fs.FileInfo) error {
	if err := dropMapped(file); err != nil {
		return fmt.Errorf("durable: drop mapped pages of %s: %w", file.Name(), err)
	}
	return nil
}

// DirectAlign is the alignment in bytes that a write to a file of OpenDirect needs for its
// offset, length and memory address: the largest block size that disks and file systems
// require (open(2), "O_DIRECT").
const DirectAlign = 4096

// OpenDirect opens an existing file for writes that bypass the page cache. The writes
// still need Datasync. It fails if the file system does not support this. A file system
// that needs more than DirectAlign answers a write with EINVAL.
func OpenDirect(path string) (*os.File, error) { return openDirect(path) }

// Linked reports whether path still leads to the file that opened describes. Writes to a
// file that was removed, replaced, moved or unmounted succeed and are lost. It returns true
// if path exists and cannot be examined.
func Linked(path string, opened fs.FileInfo) bool {
	found, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist) && (err != nil || os.SameFile(opened, found))
}

// Rename moves oldPath to newPath on the same file system and fsyncs both parent folders, so
// that no later crash brings the old name back.
func Rename(oldPath, newPath string) error {
	if err := os.Rename(oldPath, newPath); err != nil {
		return fmt.Errorf("durable: rename: %w", err)
	}
	newDir, oldDir := filepath.Dir(newPath), filepath.Dir(oldPath)
	if err := SyncDir(newDir); err != nil {
		return err
	}
	if oldDir != newDir {
		return SyncDir(oldDir)
	}
	return nil
}

// RemoveAll removes path and everything below it, and makes the removal durable. A missing
// path is no error.
func RemoveAll(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("durable: remove: %w", err)
	}
	if err := SyncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Narrow removes all access rights to a file or folder except those of its owner. narrowed is true
// if there were other rights. If path is a symbolic link, Narrow changes its target.
func Narrow(path string) (narrowed bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, fmt.Errorf("durable: narrow: %w", err)
	}
	const others = 0o077
	if info.Mode()&others == 0 {
		return false, nil
	}
	if err := os.Chmod(path, info.Mode()&^others); err != nil {
		return false, fmt.Errorf("durable: narrow: %w", err)
	}
	return true, nil
}

// MkdirAll creates dir and its missing parents and makes every new name
// durable.
func MkdirAll(dir string, perm fs.FileMode) error {
	var created []string
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("durable: create folder: %w", err)
		}
		created = append(created, at)
		if at == filepath.Dir(at) {
			break
		}
	}
	if err := os.MkdirAll(dir, perm); err != nil {
		return fmt.Errorf("durable: create folder: %w", err)
	}
	for _, at := range created {
		if err := SyncDir(filepath.Dir(at)); err != nil {
			return err
		}
	}
	return nil
}
