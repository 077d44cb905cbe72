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
	// maxManifestBytes bounds what is read of a manifest: Pebble begins a new one
	// at half of that.
	maxManifestBytes = 256 << 20
)

// checkManifest reads the manifest in a Pebble folder to its end. Pebble takes a
// record that it cannot read for the torn end of the manifest and leaves out
// what follows. With one flipped bit whole tables are forgotten so, which are
// synced and lie there, and later commits stand without the earlier ones. A
// manifest is synced with every record, so a torn end takes a loss of power in
// that moment; it is refused like rot, and costs getting the store anew.
func checkManifest(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	newest := ""
	for _, e := range entries { // sorted: the newest marker comes last
		if strings.HasPrefix(e.Name(), manifestMarker) {
			newest = e.Name()
		}
	}
	_, name, found := strings.Cut(newest, manifestName)
	if !found {
		return nil // a new folder; Pebble says what is missing in an old one
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
			return nil // what is left is room that was not used
		}
		return fmt.Errorf("%w: manifest %s from byte %d of %d on: %w", ErrCorrupt, path, good, len(raw), err)
	}
}
