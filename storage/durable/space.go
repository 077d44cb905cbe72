//go:build unix

package durable

import (
	"fmt"
	"syscall"
)

// FreeBytes returns how many bytes a process without privileges may still
// write to the file system that holds path.
func FreeBytes(path string) (uint64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return 0, fmt.Errorf("durable: free space of %s: %w", path, err)
	}
	return uint64(fs.Bavail) * uint64(fs.Bsize), nil
}
