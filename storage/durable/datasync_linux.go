package durable

import (
	"errors"
	"os"
	"syscall"
)

func datasync(f *os.File) error {
	for {
		// A signal before the flush began is not a failed flush: EINTR is the
		// one answer after which asking again is sound.
		if err := syscall.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
