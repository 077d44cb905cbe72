//go:build unix

package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ErrLocked means that another process, or another part of this process, has the lock.
var ErrLocked = errors.New("already in use by another process")

// maxLockNote is the maximum length of a lock file's note about its holder.
const maxLockNote = 32

// Lock takes the exclusive lock at path, and creates the file if it does not exist. The lock lasts
// until Close or until the process ends, also if the process crashes. If another process has the
// lock, the error wraps ErrLocked and contains the process id, if it is known. The file is never
// removed, because otherwise two processes could have locks on two files of the same name.
func Lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("durable: lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("durable: lock %s: %w%s", path, ErrLocked, holder(f))
		} else {
			err = fmt.Errorf("durable: lock %s: %w", path, err)
		}
		return nil, errors.Join(err, f.Close())
	}
	// The note is for people only, so it needs no fsync, and a full disk must
	// not keep the node from starting to free space.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return held{f}, nil
}

// held is the result of Lock: a lock that this process has.
type held struct{ f *os.File }

// Close releases the lock and closes the file. Closing the file alone would not suffice: a child
// process that is being created at this moment also has the file open and would keep the lock.
func (h held) Close() error {
	err := syscall.Flock(int(h.f.Fd()), syscall.LOCK_UN)
	return errors.Join(err, h.f.Close())
}

func holder(f *os.File) string {
	note := make([]byte, maxLockNote)
	n, _ := f.ReadAt(note, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(note[:n])))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}
