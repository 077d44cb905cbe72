package durable

import (
	"errors"
	"io/fs"
	"syscall"
)

// IsFull tells whether err is a write that was refused because the disk, or a
// quota on it, is full, and that therefore left no more than a part of its own
// bytes behind. The same error of an fsync is none: there nobody knows what of
// the earlier writes is on the disk.
func IsFull(err error) bool {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return false
	}
	var at *fs.PathError
	if !errors.As(err, &at) {
		return false // a bare number comes of a flush
	}
	return at.Op != "sync" && at.Op != "fsync" && at.Op != "fdatasync"
}
