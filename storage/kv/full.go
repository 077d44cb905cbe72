package kv

import (
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FileSystem returns the file system inner with changes that Pebble needs. Only the user of the
// process can enter folders that are created in it. If full is not nil, a write that finds the disk
// full calls full, which may wait for free space, and is then tried once more; without this Pebble
// would end the process.
func FileSystem(inner vfs.FS, full func()) vfs.FS {
	inner = private{inner}
	if full == nil {
		return inner
	}
	return vfs.OnDiskFull(flushes{inner}, full)
}

// private is a file system whose new folders only the user of the process can enter. Pebble itself
// would create folders that everybody can enter, and so everybody could read the files in them.
type private struct{ vfs.FS }

// MkdirAll implements vfs.FS.
func (p private) MkdirAll(dir string, _ os.FileMode) error { return p.FS.MkdirAll(dir, dirPerm) }

// Unwrap lets Pebble find the file system below.
func (p private) Unwrap() vfs.FS { return p.FS }

// flushes is a file system that hides from Pebble that a flush has failed because the disk is full.
// Otherwise Pebble's wrapper OnDiskFull would flush again and trust the result. But after a failed
// flush it is unknown which earlier writes are on the disk.
type flushes struct{ vfs.FS }

// Create implements vfs.FS.
func (f flushes) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return flushOnce(f.FS.Create(name, category))
}

// OpenReadWrite implements vfs.FS.
func (f flushes) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return flushOnce(f.FS.OpenReadWrite(name, category, opts...))
}

// ReuseForWrite implements vfs.FS.
func (f flushes) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return flushOnce(f.FS.ReuseForWrite(oldname, newname, category))
}

// OpenDir implements vfs.FS.
func (f flushes) OpenDir(name string) (vfs.File, error) { return flushOnce(f.FS.OpenDir(name)) }

// Unwrap lets Pebble find the file system below.
func (f flushes) Unwrap() vfs.FS { return f.FS }

func flushOnce(inner vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return flushedFile{inner}, nil
}

type flushedFile struct{ vfs.File }

// Sync implements vfs.File.
func (f flushedFile) Sync() error { return opaque(f.File.Sync()) }

// SyncData implements vfs.File.
func (f flushedFile) SyncData() error { return opaque(f.File.SyncData()) }

// SyncTo implements vfs.File.
func (f flushedFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = f.File.SyncTo(length)
	return fullSync, opaque(err)
}

// opaque returns an error with the text of err that wraps no other error, so that Pebble does not
// recognize the cause.
func opaque(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("flush: %v", err) //nolint:errorlint // that is its purpose
}
