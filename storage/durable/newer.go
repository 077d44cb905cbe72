package durable

import (
	"errors"
	"fmt"
)

// ErrNewer is wrapped by errors about a file that a newer release wrote. The file is not
// damaged: the node must not change it and does not start.
var ErrNewer = errors.New("a newer release of holdfast wrote it; start that release or a newer one")

// Newer returns the error for a file whose format is newer than this release knows.
func Newer(path string, found, known uint64) error {
	return fmt.Errorf("%s has format %d, and this release knows formats up to %d: %w", path, found, known, ErrNewer)
}
