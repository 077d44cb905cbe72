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

// replayStep is how many records, and references in them, recovery enters into the index
// at a time.
const replayStep = 2048

// recoverOrRebuild recovers, and where that finds the index damaged, does it
// again from the segments alone.
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

// recoverState makes the index and the counts what the segments say, and opens
// the segment to append to.
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

// openIndex opens the index, or an empty one in the place of one that is
// damaged or does not belong to these segments, and says how far it reaches.
func (s *Store) openIndex() (meta, error) {
	dir, marker := filepath.Join(s.dir, indexDir), filepath.Join(s.dir, rebuildFile)
	if fileExists(marker) {
		// The index goes before the marker, so that no crash forgets it.
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
		return meta{}, err // a full disk says nothing against the index
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
		return meta{}, fmt.Errorf("block index %s: %w", dir, err) // and is not for this release to make anew
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

// readMeta says how far the index reaches, or why it does not fit the segments.
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

// replay enters the records of a segment from an offset on into the index. Of
// the last one, what does not end in a good record is a write that a crash cut
// short: it was acknowledged to nobody and is cut off.
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
			return nil // who looks for damage salvages what the index knows of it
		}
		// No index entry will refer to the segment, and an index without it would be rebuilt at
		// every start. Other members have its blocks; the file is left for the operator.
		delete(s.sizes, number)
		return durable.Rename(segmentPath(dir, number), segmentPath(dir, number)+rottenSuffix)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// A process that was killed may have written what it did not flush. Once it is in the index
	// it is taken for durable, and is acknowledged to who puts it again. After a flush that
	// failed it is in memory alone, and the system says that there is nothing to flush: so it
	// is written again. Of the segments before the last one everything was flushed.
	if last {
		err := writeAgain(f, from, s.sizes[number])
		if durable.IsFull(err) { // of a file system that writes nothing in place
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

// writeAgain has the system write what it says a file holds from an offset on.
func writeAgain(f *os.File, from, end int64) error {
	if from == headerBytes {
		from = 0 // the header too: nothing of the file is known to be on the disk
	}
	_, err := io.Copy(io.NewOffsetWriter(f, from), io.NewSectionReader(f, from, end-from))
	return err
}

func (s *Store) enter(sc *scan, number uint32, from int64) error {
	c := s.change()
	defer func() { c.tx.Discard() }()
	n, end := 0, from
	publish := func() error {
		// It is looked at when all is read, and must not be forgotten if that is cut short. An
		// index that is rebuilt does not know of files that are gone, nor of damage that went
		// with a segment.
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

// openActive opens the newest segment if it has room, else a new one.
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
	if rotten > newest { // its number was used, and its name stays
		newest, room = rotten, false
	}
	for number := range s.loads {
		// A lost file's number is not used again: the index still names it.
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

// finishReplay frees the blocks that nobody references, counts what is hidden, takes back
// the seals that damage has left without their references, and clears away what the index
// still says of segments whose files are gone.
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

// doubtSeals takes back, after damage and after a rebuild, the seals of owners that refer to
// fewer blocks than these declare. Their references were in what could not be read, or is
// gone: of a batch that a loss of power cut short, the end may be on the disk and the
// beginning not. The blocks may be gone, and nothing would miss them.
func (s *Store) doubtSeals() error {
	if _, met, err := s.index.Get([]byte{keyDoubt}); err != nil || !met && s.damaged.Load() == 0 {
		return err
	}
	from, end := []byte{keyOwner}, []byte{keyOwner + 1}
	for done := false; !done; {
		c := s.change()
		doubted, err := c.doubtful(from, end, replayStep)
		if done = len(doubted) < replayStep; !done {
			from = append(ownerKey(doubted[len(doubted)-1]), 0)
		}
		if len(doubted) > 0 {
			s.log.Error("references to blocks are lost: complete content will be verified again", "owners", len(doubted), "first", doubted[0])
		}
		for _, owner := range doubted {
			err = errors.Join(err, c.doubt(owner))
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

// countHere ends what a Seal began, before anybody else can write.
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
