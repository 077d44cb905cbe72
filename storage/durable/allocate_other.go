//go:build !linux

package durable

import (
	"errors"
	"os"
)

// Allocate reserves size bytes of disk space for f without writing them.
func Allocate(f *os.File, _ int64) error {
	return &os.PathError{Op: "allocate", Path: f.Name(), Err: errors.ErrUnsupported}
}
