package kv

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// formatMarker is the prefix of the file whose name has the version of Pebble's format:
// marker.format-version.<change>.<version>.
const formatMarker = "marker.format-version."

// checkFormat returns an error that wraps durable.ErrNewer if a newer version of Pebble has written
// the folder dir. Pebble's own error would not say that a newer release of Holdfast is needed.
func checkFormat(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		change, found := strings.CutPrefix(e.Name(), formatMarker)
		if !found {
			continue
		}
		_, text, _ := strings.Cut(change, ".")
		version, err := strconv.ParseUint(text, 10, 64)
		if err == nil && version > uint64(pebble.FormatNewest) {
			return durable.Newer(filepath.Join(dir, e.Name()), version, uint64(pebble.FormatNewest))
		}
	}
	return nil
}
