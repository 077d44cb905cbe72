package blocks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

const (
	// copyBatchBytes is how much Compact copies at a time, so that a writer
	// never waits for more than this.
	copyBatchBytes = 2 << 20
	// A segment is worth copying when more than this part of it is garbage, and
	// on a disk that takes no new blocks already when this much is.
	garbagePart      = 0.5
	tightGarbagePart = 0.1
)

// Run collects garbage until ctx ends: at once after a Drop, and now and then.
// It returns an error that wraps ErrBroken when the store breaks; other
// troubles are logged and tried again.
func (s *Store) Run(ctx context.Context) error {
	timer := time.NewTimer(s.opts.CompactEvery)
	defer timer.Stop()
	for {
		if err := s.Compact(ctx); err != nil && ctx.Err() == nil {
			if errors.Is(err, ErrBroken) || errors.Is(err, ErrClosed) {
				return err
			}
			s.log.ErrorContext(ctx, "compaction failed", "err", err)
		}
		timer.Reset(s.opts.CompactEvery)
		select {
		case <-ctx.Done():
			return nil
		case <-s.failed:
			return ErrBroken
		case <-s.garbage:
		case <-timer.C:
		}
	}
}

// Compact is one pass over the garbage: it finishes interrupted drops and seals, deletes
// segments in which nothing lives, and moves what lives out of those that are
// mostly garbage, at a bounded rate.
func (s *Store) Compact(ctx context.Context) error {
	select {
	case s.compacting <- struct{}{}:
		defer func() { <-s.compacting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.compact(ctx); err != nil {
		return fmt.Errorf("blocks: compact: %w", err)
	}
	return nil
}

func (s *Store) compact(ctx context.Context) error {
	s.stats.Lock()
	var waiting []uint64
	for inc, busy := range s.unswept {
		if !busy {
			waiting = append(waiting, inc)
		}
	}
	var uncounted []uint64
	for inc, busy := range s.uncounted {
		if !busy {
			uncounted = append(uncounted, inc)
		}
	}
	s.stats.Unlock()
	for _, inc := range waiting {
		if _, err := s.sweep(ctx, inc); err != nil {
			return err
		}
	}
	for _, inc := range uncounted {
		if err := s.count(ctx, inc); err != nil {
			return err
		}
	}
	if err := s.removeEmpty(ctx); err != nil {
		return err
	}
	tried := make(map[uint32]bool)
	for {
		// Looked up again each time: removing one segment can end the need for
		// another.
		content, copies := s.room()
		part := garbagePart
		if content <= 0 {
			part = tightGarbagePart
		}
		number, ok := s.mostGarbage(tried, part, copies)
		if !ok {
			return nil
		}
		work := s.weigh
		if _, weighed := s.heads[number]; weighed {
			tried[number], work = true, s.empty
		}
		if err := work(ctx, number); unreadable(err) && !errors.Is(err, ErrBroken) {
			s.stuck[number] = true // until Scrub finds it: there is garbage elsewhere too
			s.log.ErrorContext(ctx, "cannot read a segment", "segment", number, "err", err)
		} else if err != nil {
			return err
		}
		if err := s.removeEmpty(ctx); err != nil {
			return err
		}
	}
}

// full lists the segments that are no longer appended to, with what they hold.
func (s *Store) full(pick func(number uint32, size int64, l load) bool) []uint32 {
	s.stats.Lock()
	defer s.stats.Unlock()
	newest := uint32(0)
	for number := range s.sizes {
		newest = max(newest, number)
	}
	var picked []uint32
	for number, size := range s.sizes {
		// One without counts could not be read at all: nobody knows what it is.
		if l, ok := s.loads[number]; ok && number != newest && pick(number, size, l) {
			picked = append(picked, number)
		}
	}
	slices.Sort(picked)
	return picked
}

// mostGarbage returns the segment that is most worth copying, if any is and was
// not tried: more than part of it is garbage, and there is room for the rest.
func (s *Store) mostGarbage(tried map[uint32]bool, part float64, room int64) (number uint32, ok bool) {
	most := int64(0)
	s.full(func(n uint32, size int64, l load) bool {
		garbage := size - l.bytes
		if heads := s.heads[n]; heads > 0 { // of which as much lives as of the rest
			garbage -= heads * l.bytes / max(1, size-heads)
		}
		if !tried[n] && !s.stuck[n] && l.bytes <= room && float64(garbage) > part*float64(size) && garbage > most {
			number, most = n, garbage
		}
		return false
	})
	return number, most > 0
}

// records is a scan of a segment that others may read and remove, until done is called.
func (s *Store) records(number uint32) (sc *scan, done func(), err error) {
	h, err := s.files.acquire(number)
	if err != nil {
		return nil, nil, err
	}
	s.stats.Lock()
	size := s.sizes[number]
	s.stats.Unlock()
	return &scan{src: h.f, seed: h.seed, size: size}, func() { s.files.release(h) }, nil
}

// weigh finds out what the records of references in a segment take that loads do not count.
// Of small objects that is so much that a segment without any garbage would be copied, and
// its copy, and so on.
func (s *Store) weigh(ctx context.Context, number uint32) error {
	sc, done, err := s.records(number)
	if err != nil {
		return err
	}
	defer done()
	heads := int64(0)
	err = sc.each(headerBytes, func(rec record) error {
		if rec.kind == kindReference {
			heads += rec.bytes
			for _, r := range rec.refs {
				heads -= refBytes(r.hash)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	s.heads[number] = heads
	return nil
}

// removeEmpty deletes segments in which nothing lives. Drops that were kept
// for their dead records may then be needed no longer, which can empty others.
func (s *Store) removeEmpty(ctx context.Context) error {
	for {
		numbers := s.full(func(_ uint32, _ int64, l load) bool { return l.records == 0 })
		if len(numbers) == 0 {
			return nil
		}
		// The index must know durably what recovery will no longer find. Nobody
		// adds to a full segment, so none of these can come to life again.
		if err := s.index.Sync(); err != nil {
			return err
		}
		dir := filepath.Join(s.dir, segmentsDir)
		for _, number := range numbers {
			s.files.remove(number)
			delete(s.heads, number)
			if err := os.Remove(segmentPath(dir, number)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			s.log.DebugContext(ctx, "segment removed", "segment", number)
		}
		if err := durable.SyncDir(dir); err != nil {
			return err
		}
		// Only now may what kept its dead records dead go as well.
		err := s.do(context.WithoutCancel(ctx), recordSlack, func(b *batch) error {
			for _, number := range numbers {
				if err := b.gone(number); err != nil {
					return err
				}
				delete(b.loads, number)
			}
			b.removed = append(b.removed, numbers...)
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// empty moves what lives in a segment to the end of the journal.
func (s *Store) empty(ctx context.Context, number uint32) error {
	sc, done, err := s.records(number)
	if err != nil {
		return err
	}
	defer done()
	var step []record
	var stepBytes int64
	flush := func() error {
		if len(step) == 0 {
			return nil
		}
		if err := s.copying.WaitN(ctx, int(min(stepBytes, int64(s.copying.Burst())))); err != nil {
			return err
		}
		records := step
		step = nil
		err := s.do(ctx, stepBytes, func(b *batch) error { return b.relocate(number, records) })
		stepBytes = 0
		return err
	}
	err = sc.each(headerBytes, func(rec record) error {
		if alive, err := s.looksAlive(rec, number); err != nil || !alive {
			return err
		}
		step = append(step, rec.clone())
		if stepBytes += rec.bytes; stepBytes < copyBatchBytes {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return err
	}
	if len(sc.bad) > 0 {
		// Something alive may be in the unreadable part; the file stays.
		s.stats.Lock()
		left := s.loads[number].records
		s.stats.Unlock()
		if left > 0 {
			s.stuck[number] = true
			s.damaged.Add(uint64(len(sc.bad)))
			s.log.ErrorContext(ctx, "cannot compact a segment with unreadable bytes", "file", segmentPath(filepath.Join(s.dir, segmentsDir), number), "offset", sc.bad[0].from, "records", left)
		}
	}
	return nil
}

// looksAlive is a look at the index without being the committer, which saves the
// copying of what is surely dead.
func (s *Store) looksAlive(rec record, number uint32) (bool, error) {
	if rec.kind != kindBlock {
		return true, nil
	}
	e, ok, err := getBlock(s.index, rec.hash)
	return ok && e.segment == number && int64(e.off) == rec.off, err
}

func (r record) clone() record {
	r.hash, r.data = bytes.Clone(r.hash), bytes.Clone(r.data)
	refs := make([]ref, len(r.refs))
	for i, f := range r.refs {
		refs[i] = ref{bytes.Clone(f.hash), f.size}
	}
	r.refs = refs
	return r
}

// relocate rewrites the live records of segment from. The copies describe the present state, so
// their later position in the journal is right.
func (b *batch) relocate(from uint32, records []record) error {
	for _, rec := range records {
		var err error
		switch rec.kind {
		case kindBlock:
			err = b.relocateBlock(from, rec)
		case kindReference:
			err = b.relocateRefs(from, rec)
		case kindSeal, kindHidden:
			err = b.relocateSeal(from, rec)
		case kindDrop:
			err = b.relocateDrop(from, rec)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) relocateBlock(from uint32, rec record) error {
	e, ok, err := getBlock(b.tx, rec.hash)
	if err != nil || !ok || e.segment != from || int64(e.off) != rec.off {
		return err
	}
	return b.block(rec)
}

func (b *batch) relocateRefs(from uint32, rec record) error {
	o, ok, err := getOwner(b.tx, rec.owner)
	if err != nil || !ok || o.inc != rec.inc {
		return err // dropped: the sweep takes these
	}
	alive := rec.refs[:0]
	for _, r := range rec.refs {
		v, ok, err := b.tx.Get(refKey(rec.inc, r.hash))
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		e, err := decodeRefEntry(refKey(rec.inc, r.hash), v)
		if err != nil {
			return err
		}
		if e.segment == from {
			alive = append(alive, r)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	rec.refs = alive
	b.begin()
	b.s.buf = appendRefs(b.s.buf, rec.inc, rec.owner, alive)
	return b.end(rec)
}

func (b *batch) relocateSeal(from uint32, rec record) error {
	o, ok, err := getOwner(b.tx, rec.owner)
	if err != nil || !ok || o.inc != rec.inc || o.sealed != rec.sealed {
		return err
	}
	if at, err := o.sealIn(b.tx, rec.owner); err != nil || at != from {
		return err
	}
	b.begin()
	b.s.buf = appendSeal(b.s.buf, rec.inc, rec.owner, rec.sealed)
	return b.end(rec)
}

func (b *batch) relocateDrop(from uint32, rec record) error {
	x, ok, err := getDropped(b.tx, rec.inc)
	if err != nil || !ok || x.segment != from {
		return err
	}
	b.begin()
	b.s.buf = appendOwner(b.s.buf, rec.inc, rec.owner)
	return b.end(rec)
}
