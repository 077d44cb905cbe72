package kv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// tableSuffix ends the name of a table of Pebble.
const tableSuffix = ".sst"

// verifyTables verifies the checksum of every block of the tables in the folder dir. Every key of
// the store is in a table, or in the log, which Pebble verifies when it opens the store. Nothing
// may write to the folder meanwhile. An error about damage wraps ErrCorrupt.
func (s *Store) verifyTables(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	opts := s.settings()
	opts.EnsureDefaults()
	reading := opts.MakeReaderOptions()
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), tableSuffix) {
			continue
		}
		if err := verifyTable(filepath.Join(dir, e.Name()), reading); err != nil {
			return fmt.Errorf("table %s: %w", e.Name(), coded(err))
		}
	}
	return nil
}

func verifyTable(path string, reading sstable.ReaderOptions) (err error) {
	f, err := vfs.Default.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(context.Background(), readable, reading)
	if err != nil {
		return errors.Join(err, readable.Close())
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return r.ValidateBlockChecksums()
}
