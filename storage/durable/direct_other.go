//go:build !linux

package durable

import (
	"errors"
	"os"
)

func openDirect(path string) (*os.File, error) {
	return nil, &os.PathError{Op: "open past the page cache", Path: path, Err: errors.ErrUnsupported}
}
