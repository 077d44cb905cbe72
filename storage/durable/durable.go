// Package durable makes bytes, names and folders survive a power failure. It is the only
// place for fsync, rename and the fsync of the parent folder. It also locks a folder
// against a second process.
//
// Imports: std.
// Never:   anything of ours, a retry of a failed fsync (the kernel may have
// dropped the dirty pages, so a second success proves nothing).
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces the file at path by data, whole or not at all: it writes
// a temporary file in the same folder, fsyncs it, renames it over path and
// fsyncs the folder. A crash leaves the old or the new content, and at most one
// leftover named ".<base>.tmp" which the next call overwrites. Writers of one
// path must take turns.
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

// Datasync makes the bytes of f durable, and its size, but not its times.
func Datasync(f *os.File) error {
	if err := datasync(f); err != nil {
		return fmt.Errorf("durable: sync %s: %w", f.Name(), err)
	}
	return nil
}

// DropCache lets the system take back the memory in which it keeps n bytes of f
// from off on, as far as they are durable. It is a hint: where there is no such
// call nothing happens.
func DropCache(f *os.File, off, n int64) { dropCache(f, off, n) }

// DirectAlign is what offset, length and place in memory of a write have to be
// multiples of, in bytes, on a file of OpenDirect: the largest block that disks and
// file systems ask for (open(2), "O_DIRECT").
const DirectAlign = 4096

// OpenDirect opens an existing file for writes that go to the disk from the memory
// they are given, not through the system's page cache. They still need Datasync. It
// fails where the file system cannot do that; one that wants more than DirectAlign
// answers a write with EINVAL.
func OpenDirect(path string) (*os.File, error) { return openDirect(path) }

// Linked tells whether path still leads to the file that was opened there, as os.File.Stat
// told of it: what goes into a file that somebody removed or replaced, or whose folder was
// moved or unmounted, is synced and lost. Who cannot look has not seen it gone.
func Linked(path string, opened fs.FileInfo) bool {
	found, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist) && (err != nil || os.SameFile(opened, found))
}

// Rename moves oldPath to newPath (same file system) and fsyncs the folders of
// both, so that after it no crash brings the old name back.
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

// RemoveAll removes path and what is below it and makes the removal durable. A
// path that is not there is no error.
func RemoveAll(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("durable: remove: %w", err)
	}
	if err := SyncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Narrow takes all rights to a file or folder from everybody but its owner, and tells
// whether anybody else had some. Links are followed.
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
