package kv

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// Restore replaces the whole content of the store by that of an archive, which WriteArchive made
// and r returns. Restore waits until no Tx is open. It first reads the archive completely, checks
// it and makes it durable, so a bad archive changes nothing. Views that were opened before continue
// to read the old data. After a crash the store has either all of the old or all of the new data.
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

// extract unpacks the archive r into the generation with the given number, checks it and opens
// it. After an error no files remain.
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
	// The checksums of the archive only prove that the data arrived as it was sent, but a table may
	// have been damaged on the sender.
	if err := s.verifyTables(tmp); err != nil {
		return nil, err
	}
	if err := durable.Rename(tmp, dir); err != nil {
		return nil, err
	}
	db, err := s.openPebble(dir, true, false)
	if err != nil {
		return nil, err
	}
	return newGeneration(name, dir, db, s.opts), nil
}
