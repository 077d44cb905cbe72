package kv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/record"
)

const (
	manifestMarker = "marker.manifest."
	manifestName   = "MANIFEST-"
	// maxManifestBytes is the maximum size of a manifest. Pebble starts a new one at half
	// of that.
	maxManifestBytes = 256 << 20
)

// checkManifest reads the manifest of a Pebble folder to its end. It returns an error if a record
// cannot be read. Pebble itself takes such a record for the incompletely written end of the
// manifest and ignores everything after it. So one flipped bit could make Pebble forget whole
// tables that are durable, although later commits remain. Pebble flushes the manifest after every
// record, so an incomplete end is possible only if the power was lost at that moment. checkManifest
// treats it as damage too, and the node must then fetch the store again.
func checkManifest(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	newest := ""
	for _, e := range entries { // sorted: the newest marker is last
		if strings.HasPrefix(e.Name(), manifestMarker) {
			newest = e.Name()
		}
	}
	_, name, found := strings.Cut(newest, manifestName)
	if !found {
		return nil // a new folder; in an old one Pebble reports what is missing
	}
	path := filepath.Join(dir, manifestName+name)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxManifestBytes))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	records := record.NewReader(bytes.NewReader(raw), 0)
	good := int64(0) // where the newest record that was read ends
	for {
		r, err := records.Next()
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		switch {
		case err == nil:
			good = records.Offset()
			continue
		case len(bytes.Trim(raw[min(good, int64(len(raw))):], "\x00")) == 0:
			return nil // the rest is unused space
		}
		return fmt.Errorf("%w: manifest %s from byte %d of %d on: %w", ErrCorrupt, path, good, len(raw), err)
	}
}
