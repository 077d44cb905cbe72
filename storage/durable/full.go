package durable

import (
	"errors"
	"io/fs"
	"syscall"
)

// IsFull reports whether err is a write that failed because the disk or a quota is full.
// Such a write leaves at most a part of its own bytes. The same error of an fsync does not
// count, because then the state of earlier writes is unknown.
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
