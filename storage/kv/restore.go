package kv

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// Restore replaces everything in the store by the archive that r yields
// (WriteArchive made it). It waits for an open Tx. The archive is checked,
// made durable and read through once before the switch, so a bad one changes
// nothing. Views opened before go on reading the old data. A crash at any
// moment leaves the old or the new data, whole.
func (s *Store) Restore(r io.Reader) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	old, err := s.acquire()
	if err != nil {
		return err
	}
	next, err := s.extract(r, generationNumber(old.name)+1)
	if err != nil {
		return errors.Join(fmt.Errorf("kv: restore: %w", err), old.release(s.log))
	}
	// A crash before this leaves the old store and a folder that Open removes;
	// after it, the new store and the old folder, which Open removes.
	if err := s.point(next.name); err != nil {
		// Which of both the pointer names now is unknown, so neither may be
		// removed, nor written to: the store must be opened again.
		s.mu.Lock()
		s.live = nil
		s.mu.Unlock()
		old.onClosed = s.lock.Close
		return errors.Join(fmt.Errorf("kv: restore: %w", err), next.release(s.log), old.release(s.log), old.release(s.log))
	}
	s.mu.Lock()
	s.live = next
	s.mu.Unlock()
	old.obsolete = true
	// Once for the acquire above, once for the store itself. The new data is
	// live, so trouble with closing the old is only worth a log line.
	if err := errors.Join(old.release(s.log), old.release(s.log)); err != nil {
		s.log.Error("cannot close replaced store cleanly", "err", err)
	}
	return nil
}

// extract makes the archive r the closed-and-checked generation number and
// opens it. On error it leaves nothing behind.
func (s *Store) extract(r io.Reader, number uint64) (g *generation, err error) {
	name := fmt.Sprintf("gen-%06d", number)
	dir := filepath.Join(s.dir, name)
	tmp := dir + tmpSuffix
	if err := errors.Join(durable.RemoveAll(tmp), durable.RemoveAll(dir)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, durable.RemoveAll(tmp), durable.RemoveAll(dir))
		}
	}()
	if err := extractArchive(r, tmp); err != nil {
		return nil, err
	}
	if err := durable.Rename(tmp, dir); err != nil {
		return nil, err
	}
	db, err := s.openPebble(dir, true, false)
	if err != nil {
		return nil, err
	}
	if err := readThrough(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return newGeneration(name, dir, db, s.opts.Sparse), nil
}

// readThrough verifies every checksum of the store. The archive's checksums only prove that
// it arrived as it was sent; a damaged table of the sender must not be used.
func readThrough(db *pebble.DB) error {
	return scan(db.NewIter, nil, nil, false, func(_, _ []byte) (bool, error) { return true, nil })
}
