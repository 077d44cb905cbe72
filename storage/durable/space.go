//go:build unix

package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Space describes the size and the free space of a file system at one moment.
type Space struct {
	Device uint64 // identifies the file system
	// Total and Free are bytes. Free is what a process without privileges may
	// still write.
	Total, Free uint64
	// Files is the number of files that the file system can have, and FreeFiles the number that
	// it can still create. Files is 0 if the file system does not count files.
	Files, FreeFiles uint64
}

// SpaceOf measures the file system that holds path.
func SpaceOf(path string) (Space, error) {
	var fs syscall.Statfs_t
	var at syscall.Stat_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return Space{}, fmt.Errorf("durable: space of %s: %w", path, err)
	}
	if err := syscall.Stat(path, &at); err != nil {
		return Space{}, fmt.Errorf("durable: space of %s: %w", path, err)
	}
	block := uint64(fs.Bsize)
	return Space{
		Device: uint64(at.Dev), Total: fs.Blocks * block, Free: uint64(fs.Bavail) * block,
		Files: fs.Files, FreeFiles: uint64(fs.Ffree),
	}, nil
}

// FreeBytes returns how many bytes an unprivileged process can still write to the file system
// of path.
func FreeBytes(path string) (uint64, error) {
	s, err := SpaceOf(path)
	return s.Free, err
}

// Allocated returns the disk space of the file at path in bytes, which is less than its
// size if it has holes. It returns 0 if the file does not exist.
func Allocated(path string) (uint64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("durable: size of %s: %w", path, err)
	}
	size := uint64(info.Size())
	if at, ok := info.Sys().(*syscall.Stat_t); ok {
		const sector = 512 // what stat counts in
		size = min(size, uint64(at.Blocks)*sector)
	}
	return size, nil
}
