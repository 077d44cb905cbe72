package durable

import (
	"errors"
	"fmt"
)

// ErrNewer is wrapped by the error about a file that a newer release wrote. Such a file is
// not damaged: nothing of it may be changed, and the start ends.
var ErrNewer = errors.New("a newer release of holdfast wrote it; start that release or a newer one")

// Newer returns the error about a file of a format that is newer than what is known here.
func Newer(path string, found, known uint64) error {
	return fmt.Errorf("%s has format %d, and this release knows formats up to %d: %w", path, found, known, ErrNewer)
}
