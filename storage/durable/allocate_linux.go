package durable

import (
	"errors"
	"os"
	"syscall"
)

// Allocate reserves size bytes of disk space for f without writing them.
func Allocate(f *os.File, size int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return &os.PathError{Op: "allocate", Path: f.Name(), Err: err}
		}
	}
}
