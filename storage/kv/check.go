package kv

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// Getter returns the value of a key, and whether the key exists.
type Getter = func(key []byte) (value []byte, ok bool, err error)

// VerifyCheckpoint reads the checkpoint in the folder dir completely, as Restore would, and does
// not change it. It creates and removes a folder at the path scratch, which must be on the same
// file system. It calls check with a function that reads the checkpoint. If the checkpoint is
// damaged, the error wraps ErrCorrupt.
//
// The function check must compare the content with what the caller expects. Pebble cannot
// distinguish damage in the unsynced part of its log from the end of the log; it then opens the
// state after an earlier commit.
func VerifyCheckpoint(dir, scratch string, logger *slog.Logger, check func(get Getter) error) (err error) {
	files, err := archiveFiles(dir)
	if err != nil {
		return fmt.Errorf("kv: verify checkpoint: %w", err)
	}
	// Pebble takes a lock in the folder that it opens, a file that would become
	// part of the checkpoint.
	if err := errors.Join(durable.RemoveAll(scratch), os.Mkdir(scratch, dirPerm)); err != nil {
		return fmt.Errorf("kv: verify checkpoint: %w", err)
	}
	defer func() { err = errors.Join(err, durable.RemoveAll(scratch)) }()
	for _, f := range files {
		if err := os.Link(filepath.Join(dir, f.name), filepath.Join(scratch, f.name)); err != nil {
			return fmt.Errorf("kv: verify checkpoint: %w", err)
		}
	}
	s := &Store{log: logger, damage: newDamage()}
	if err := s.verifyTables(scratch); err != nil {
		return fmt.Errorf("kv: verify checkpoint: %w", err)
	}
	db, err := s.openPebble(scratch, true, true)
	if err != nil {
		return fmt.Errorf("kv: verify checkpoint: %w", err)
	}
	if err = check(func(key []byte) ([]byte, bool, error) { return get(db, key) }); err != nil {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("kv: verify checkpoint: %w", err)
	}
	return nil
}

// VerifyArchive reads a stream of WriteArchive to its end and writes nothing. An error
// that wraps ErrBadArchive means that the stream is damaged. It does not check the
// checkpoint that the stream contains.
func VerifyArchive(r io.Reader) error {
	if err := readArchive(&extraction{r: r}); err != nil {
		return fmt.Errorf("kv: verify archive: %w", err)
	}
	return nil
}
