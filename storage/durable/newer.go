package durable

import (
	"errors"
	"fmt"
)

// ErrNewer is wrapped by errors about a file that a newer release of Holdfast has written. The file
// is not damaged. The node must not change it, and does not start.
var ErrNewer = errors.New("a newer release of holdfast wrote it; start that release or a newer one")

// Newer returns the error for the file at path whose format has the version found, although this
// release knows only versions up to known. The error wraps ErrNewer.
func Newer(path string, found, known uint64) error {
	return fmt.Errorf("%s has format %d, and this release knows formats up to %d: %w", path, found, known, ErrNewer)
}
