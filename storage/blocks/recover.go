package blocks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// replayStep is the number of records that recovery adds to the index in one transaction. Each
// block in a reference record counts as one too.
const replayStep = 2048

// recoverOrRebuild recovers the store. If recovery finds that the index is damaged,
// recoverOrRebuild rebuilds the index from the segments.
func (s *Store) recoverOrRebuild() error {
	err := s.recoverState()
	if !errors.Is(err, kv.ErrCorrupt) {
		return err
	}
	if err := s.distrustIndex(err); !fileExists(filepath.Join(s.dir, rebuildFile)) {
		return err
	}
	if s.index != nil {
		if err := s.index.Close(); err != nil {
			return fmt.Errorf("close the damaged index: %w", err)
		}
		s.index = nil
	}
	if s.active != nil {
		if err := s.active.close(); err != nil {
			return fmt.Errorf("close the active segment: %w", err)
		}
		s.active = nil
	}
	clear(s.loads)
	clear(s.unswept)
	clear(s.uncounted)
	return s.recoverState()
}

// recoverState makes the index and the counts agree with the segments, and opens the
// segment to append to.
func (s *Store) recoverState() error {
	dir := filepath.Join(s.dir, segmentsDir)
	sizes, err := segmentFiles(dir)
	if err != nil {
		return err
	}
	s.sizes = sizes
	covered, err := s.openIndex()
	if err != nil {
		return err
	}
	if err := s.loadCounts(); err != nil {
		return err
	}
	s.totals = covered.totals
	s.rebuilt = covered == (meta{})
	numbers := slices.Sorted(maps.Keys(sizes))
	for i, number := range numbers {
		if number < covered.segment {
			continue
		}
		from := int64(headerBytes)
		if number == covered.segment {
			from = max(from, covered.off)
		}
		if err := s.replay(number, from, i == len(numbers)-1); err != nil {
			return fmt.Errorf("replay %s: %w", segmentPath(dir, number), err)
		}
	}
	if err := s.openActive(); err != nil {
		return err
	}
	if err := s.finishReplay(); err != nil {
		return err
	}
	return nil
}

// openIndex opens the index and returns the position in the segments up to which the index is
// complete. If the index is damaged or belongs to other segments, openIndex opens an empty
// index.
func (s *Store) openIndex() (meta, error) {
	dir, marker := filepath.Join(s.dir, indexDir), filepath.Join(s.dir, rebuildFile)
	if fileExists(marker) {
		// The index is removed before the marker, so that after a crash the marker is still
		// there.
		if err := errors.Join(durable.RemoveAll(dir), durable.RemoveAll(marker)); err != nil {
			return meta{}, err
		}
	}
	opts := kv.Options{
		Logger: s.log, CacheBytes: s.opts.CacheBytes, Fatal: s.opts.Fatal, Full: s.opts.Full,
		Sparse: &kv.Sparse{Is: sparse, After: sparseAfter},
	}
	index, err := kv.Open(dir, opts)
	if errors.Is(err, durable.ErrLocked) || durable.IsFull(err) {
		return meta{}, err // a full disk does not mean that the index is damaged
	}
	if err == nil {
		s.index = index
		var m meta
		if m, err = s.readMeta(); err == nil {
			return m, nil
		}
		s.index = nil
		err = errors.Join(err, index.Close())
	}
	if errors.Is(err, durable.ErrNewer) {
		return meta{}, fmt.Errorf("block index %s: %w", dir, err) // a newer release wrote it, so this one must not rebuild it
	}
	s.log.Warn("rebuilding the block index from the segments", "dir", dir, "why", err)
	if err := durable.RemoveAll(dir); err != nil {
		return meta{}, err
	}
	if s.index, err = kv.Open(dir, opts); err != nil {
		return meta{}, err
	}
	return meta{}, nil
}

// readMeta returns the position up to which the index is complete, or an error if the index
// does not belong to the segments.
func (s *Store) readMeta() (meta, error) {
	raw, ok, err := s.index.Get([]byte{keyMeta})
	if err != nil || !ok {
		return meta{}, err
	}
	m, err := decodeMeta(raw)
	if err != nil {
		return meta{}, err
	}
	if size, ok := s.sizes[m.segment]; !ok || size < m.off {
		return meta{}, fmt.Errorf("it reaches offset %d of segment %d, which has %d bytes", m.off, m.segment, size)
	}
	for number := range s.sizes {
		if number > m.segment {
			continue
		}
		if _, ok, err := s.index.Get(segmentKey(number)); err != nil || !ok {
			return meta{}, errors.Join(err, fmt.Errorf("it does not know segment %d", number))
		}
	}
	return m, nil
}

func (s *Store) loadCounts() error {
	v := s.index.View()
	defer v.Close()
	err := v.Scan([]byte{keySegment}, []byte{keySegment + 1}, false, func(key, value []byte) (bool, error) {
		r := reader{b: key[1:]}
		number := uint32(r.uint(4))
		l, err := decodeLoad(key, value)
		if r.bad || err != nil {
			return false, badEntry(key)
		}
		s.loads[number] = l
		return true, nil
	})
	if err != nil {
		return err
	}
	err = v.Scan([]byte{keyOpen}, []byte{keyOpen + 1}, false, func(key, value []byte) (bool, error) {
		if len(key) != 9 {
			return false, badEntry(key)
		}
		if len(value) > 0 {
			s.uncounted[binary.BigEndian.Uint64(key[1:])] = false
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	return v.Scan([]byte{keyDropped}, []byte{keyDropped + 1}, false, func(key, value []byte) (bool, error) {
		r := reader{b: key[1:]}
		inc := r.uint(8)
		x, err := decodeDroppedEntry(key, value)
		if r.bad || err != nil {
			return false, badEntry(key)
		}
		if !x.swept {
			s.unswept[inc] = false
		}
		return true, nil
	})
}

// replay adds the records of a segment from an offset on to the index. In the last segment,
// bytes after the last valid record are a write that a crash interrupted. It was not
// acknowledged, so replay cuts it off.
func (s *Store) replay(number uint32, from int64, last bool) (err error) {
	dir := filepath.Join(s.dir, segmentsDir)
	f, seed, err := openSegment(dir, number, os.O_RDWR)
	if errors.Is(err, ErrCorrupt) {
		if last && s.sizes[number] <= headerBytes {
			s.log.Warn("removing an empty segment that a crash left", "file", segmentPath(dir, number))
			delete(s.sizes, number)
			return durable.RemoveAll(segmentPath(dir, number))
		}
		s.damaged.Add(1)
		s.log.Error("cannot read a segment", "file", segmentPath(dir, number), "err", err)
		if _, known := s.loads[number]; known {
			return nil // CheckSegments salvages what the index knows of it
		}
		// No index entry will name the segment, and an index without it would be rebuilt at
		// every start. Other members have its blocks; the file stays for the operator.
		delete(s.sizes, number)
		return durable.Rename(segmentPath(dir, number), segmentPath(dir, number)+rottenSuffix)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// A killed process may have written data that it did not flush. Once such data is in
	// the index, the store treats it as durable and acknowledges a repeated put. After a
	// failed flush the data is only in memory, and the system reports that nothing needs to
	// be flushed. So it is written again. All data of earlier segments was flushed.
	if last {
		err := writeAgain(f, from, s.sizes[number])
		if durable.IsFull(err) { // on a file system that never writes in place
			s.log.Warn("cannot rewrite the end of a segment: the disk is full", "file", f.Name(), "err", err)
		} else if err != nil {
			return err
		}
	}
	if err := durable.Datasync(f); err != nil {
		return err
	}
	sc := &scan{src: f, seed: seed, size: s.sizes[number]}
	if err := s.enter(sc, number, from); err != nil {
		return err
	}
	if end := sc.tail(); last && end < sc.size {
		s.log.Warn("cutting off an unfinished write", "file", f.Name(), "offset", end, "bytes", sc.size-end)
		sc.bad = sc.bad[:len(sc.bad)-1]
		if err := f.Truncate(end); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		s.sizes[number] = end
	}
	for _, bad := range sc.bad {
		s.damaged.Add(1)
		s.log.Error("segment contains unreadable bytes", "file", f.Name(), "offset", bad.from, "bytes", bad.to-bad.from)
	}
	return nil
}

// writeAgain reads the bytes of a file between the offsets from and end and writes them again, so
// that a later flush makes them durable.
func writeAgain(f *os.File, from, end int64) error {
	if from == headerBytes {
		from = 0 // with the header, because no part of the file is known to be on the disk
	}
	_, err := io.Copy(io.NewOffsetWriter(f, from), io.NewSectionReader(f, from, end-from))
	return err
}

func (s *Store) enter(sc *scan, number uint32, from int64) error {
	c := s.change()
	defer func() { c.tx.Discard() }()
	n, end := 0, from
	publish := func() error {
		// The marker is written before the end of recovery, so that a crash does not lose
		// it. A rebuilt index knows neither of removed files nor of damage in a removed
		// segment.
		if s.rebuilt || s.damaged.Load() > 0 || len(sc.bad) > 0 && sc.bad[0].from < end {
			if err := c.tx.Set([]byte{keyDoubt}, nil); err != nil {
				return err
			}
		}
		return s.publish(c, number, end)
	}
	err := sc.each(from, func(rec record) error {
		if err := c.apply(rec, number); err != nil {
			return err
		}
		end = rec.off + rec.bytes
		if n += 1 + len(rec.refs); n < replayStep {
			return nil
		}
		n = 0
		if err := publish(); err != nil {
			return err
		}
		c = s.change()
		return nil
	})
	if err != nil {
		return err
	}
	return publish()
}

// openActive opens the newest segment if it has space, else a new segment.
func (s *Store) openActive() error {
	dir := filepath.Join(s.dir, segmentsDir)
	newest := uint32(0)
	for number := range s.sizes {
		newest = max(newest, number)
	}
	room := newest != 0 && s.sizes[newest] < s.opts.SegmentBytes
	rotten, err := newestRotten(dir)
	if err != nil {
		return err
	}
	if rotten > newest { // its number was used, and the file is still there
		newest, room = rotten, false
	}
	for number := range s.loads {
		// The number of a lost file is not used again, because the index still has it.
		if number > newest {
			newest, room = number, false
		}
	}
	if room {
		f, seed, err := openSegment(dir, newest, os.O_RDWR)
		if err == nil {
			s.active = &active{number: newest, f: f, seed: seed, size: s.sizes[newest], letGo: s.sizes[newest]}
			return nil
		}
		if !errors.Is(err, ErrCorrupt) {
			return err
		}
	}
	a, err := createSegment(dir, newest+1)
	if err != nil {
		return err
	}
	s.active = a
	s.sizes[a.number] = a.size
	return nil
}

// finishReplay frees the blocks without references, counts hidden entries, and revokes the
// seals of references that damage has left incomplete. It also removes the index entries of
// segments whose files are gone.
func (s *Store) finishReplay() error {
	for done := false; !done; {
		c := s.change()
		var err error
		if done, err = c.orphans(replayStep); err == nil {
			err = s.publish(c, s.active.number, s.active.size)
		}
		c.tx.Discard()
		if err != nil {
			return err
		}
	}
	for inc := range s.uncounted {
		if err := s.countHere(inc); err != nil {
			return err
		}
	}
	if err := s.doubtSeals(); err != nil {
		return err
	}
	for number, l := range maps.Clone(s.loads) {
		if _, ok := s.sizes[number]; ok {
			continue
		}
		if l.records > 0 {
			s.damaged.Add(1)
			s.log.Error("segment is missing", "file", segmentPath(filepath.Join(s.dir, segmentsDir), number), "records", l.records)
			continue
		}
		if err := s.forget(number); err != nil {
			return err
		}
	}
	return nil
}

// doubtSeals revokes the seals of references that have fewer blocks than their seals declare. It
// runs after damage was found and after the index was rebuilt. The records of the lacking blocks
// were unreadable or are gone: after a loss of power, the end of a batch can be on the disk
// although its beginning is not. The blocks may be lost, and no other check would detect that.
func (s *Store) doubtSeals() error {
	if _, met, err := s.index.Get([]byte{keyDoubt}); err != nil || !met && s.damaged.Load() == 0 {
		return err
	}
	from, end := []byte{keyReference}, []byte{keyReference + 1}
	for done := false; !done; {
		c := s.change()
		doubted, err := c.doubtful(from, end, replayStep)
		if done = len(doubted) < replayStep; !done {
			from = append(referenceKey(doubted[len(doubted)-1]), 0)
		}
		if len(doubted) > 0 {
			s.log.Error("references to blocks are lost: complete content will be verified again", "references", len(doubted), "first", doubted[0])
		}
		for _, reference := range doubted {
			err = errors.Join(err, c.doubt(reference))
		}
		if done {
			err = errors.Join(err, c.tx.Delete([]byte{keyDoubt}))
		}
		if err == nil {
			err = s.publish(c, s.active.number, s.active.size)
		}
		c.tx.Discard()
		if err != nil {
			return err
		}
	}
	return nil
}

// countHere finishes marking the blocks of an incarnation as hidden or visible after a Seal was
// interrupted. It runs before other writes begin.
func (s *Store) countHere(inc uint64) error {
	for done := false; !done; {
		c := s.change()
		var err error
		if done, err = c.countOn(inc, replayStep); err == nil {
			err = s.publish(c, s.active.number, s.active.size)
		}
		c.tx.Discard()
		if err != nil {
			return err
		}
	}
	delete(s.uncounted, inc)
	return nil
}

func (s *Store) forget(number uint32) error {
	c := s.change()
	defer c.tx.Discard()
	if err := c.gone(number); err != nil {
		return err
	}
	delete(s.loads, number)
	return s.publish(c, s.active.number, s.active.size)
}
