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
	// copyBatchBytes is the number of bytes that Compact copies at a time, so that writers do
	// not wait long.
	copyBatchBytes = 2 << 20
	// garbagePart is the part of a segment that must be garbage before Compact copies its live
	// records and removes the segment. tightGarbagePart applies instead while the disk has no space
	// for new blocks, and for Collect.
	garbagePart      = 0.5
	tightGarbagePart = 0.1
)

// Run collects garbage until ctx ends: at once after a Drop, and every CompactEvery. It
// returns an error that wraps ErrBroken when the store breaks; it logs other errors and
// tries again.
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

// Compact collects garbage once: it finishes interrupted drops and seals, deletes segments without
// live records, and copies the live records of segments that are mostly garbage, at a limited rate.
func (s *Store) Compact(ctx context.Context) error {
	return s.compactOnce(ctx, func() error { return s.compact(ctx, garbagePart) })
}

// compactOnce runs fn while no other pass of Compact or Collect runs.
func (s *Store) compactOnce(ctx context.Context, fn func() error) error {
	select {
	case s.compacting <- struct{}{}:
		defer func() { <-s.compacting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := fn(); err != nil {
		return fmt.Errorf("blocks: compact: %w", err)
	}
	return nil
}

// compact is Compact without its lock. Segments with more garbage than their part enough are
// emptied.
func (s *Store) compact(ctx context.Context, enough float64) error {
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
		// Read again each time: removing one segment can make another one removable.
		content, copies := s.room()
		part := enough
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
			s.stuck[number] = true // until Scrub handles it; other segments have garbage too
			s.log.ErrorContext(ctx, "cannot read a segment", "segment", number, "err", err)
		} else if err != nil {
			return err
		}
		if err := s.removeEmpty(ctx); err != nil {
			return err
		}
	}
}

// full returns the numbers of the segments to which the store no longer appends and for which pick
// returns true.
func (s *Store) full(pick func(number uint32, size int64, l load) bool) []uint32 {
	s.stats.Lock()
	defer s.stats.Unlock()
	newest := uint32(0)
	for number := range s.sizes {
		newest = max(newest, number)
	}
	var picked []uint32
	for number, size := range s.sizes {
		// without counts the segment could not be read at all
		if l, ok := s.loads[number]; ok && number != newest && pick(number, size, l) {
			picked = append(picked, number)
		}
	}
	slices.Sort(picked)
	return picked
}

// mostGarbage returns the segment with the largest part of garbage, among the segments that are not
// in tried, whose garbage is more than part of the segment, and whose live records fit into room
// bytes. ok is false if there is none.
func (s *Store) mostGarbage(tried map[uint32]bool, part float64, room int64) (number uint32, ok bool) {
	most := int64(0)
	s.full(func(n uint32, size int64, l load) bool {
		garbage := size - l.bytes
		if heads := s.heads[n]; heads > 0 { // as large a part of them is live as of the rest
			garbage -= heads * l.bytes / max(1, size-heads)
		}
		if !tried[n] && !s.stuck[n] && l.bytes <= room && float64(garbage) > part*float64(size) && garbage > most {
			number, most = n, garbage
		}
		return false
	})
	return number, most > 0
}

// records returns a scan of the records of a segment. Until the caller calls done, the segment is
// kept open; other goroutines may read it or remove its file meanwhile.
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

// weigh measures the size of the parts of reference records in a segment that its load does not
// count. In stores of small objects these parts are so large that a segment without garbage would
// otherwise be copied, then its copy, and so on.
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

// removeEmpty deletes segments without live records. Then some drop records may no longer be
// needed, which can make further segments empty; these are deleted too.
func (s *Store) removeEmpty(ctx context.Context) error {
	for {
		numbers := s.full(func(_ uint32, _ int64, l load) bool { return l.records == 0 })
		if len(numbers) == 0 {
			return nil
		}
		// The index must durably know what recovery will no longer find. Nothing is added
		// to a full segment, so no record in it can become live again.
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
		// Only now may the drop records that kept its dead records dead be removed too.
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

// empty copies the live records of a segment to the end of the journal, so that the segment has
// none.
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
		// The unreadable part may have live records, so the file stays.
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

// looksAlive reports whether a record is probably live: a block according to the index, any other
// record always. It runs outside the committer, so the answer may be out of date. It saves work only:
// compaction does not copy, and scrubbing does not verify, blocks that are dead.
func (s *Store) looksAlive(rec record, number uint32) (bool, error) {
	if rec.kind != kindBlock {
		return true, nil
	}
	e, ok, err := getBlock(s.index, rec.hash)
	return ok && e.segment == number && int64(e.off) == rec.off, err
}

func (r record) clone() record {
	r.hash, r.data = bytes.Clone(r.hash), bytes.Clone(r.data)
	refs := make([]blockRef, len(r.refs))
	for i, f := range r.refs {
		refs[i] = blockRef{bytes.Clone(f.hash), f.size}
	}
	r.refs = refs
	return r
}

// relocate writes the live records among records, which are from the segment from, again. The
// copies describe the current state, so their later position in the journal is correct.
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
	o, ok, err := getReference(b.tx, rec.reference)
	if err != nil || !ok || o.inc != rec.inc {
		return err // dropped: the sweep removes these
	}
	alive := rec.refs[:0]
	for _, r := range rec.refs {
		v, ok, err := b.tx.Get(blockRefKey(rec.inc, r.hash))
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		e, err := decodeBlockRefEntry(blockRefKey(rec.inc, r.hash), v)
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
	b.s.buf = appendRefs(b.s.buf, rec.inc, rec.reference, alive)
	return b.end(rec)
}

func (b *batch) relocateSeal(from uint32, rec record) error {
	o, ok, err := getReference(b.tx, rec.reference)
	if err != nil || !ok || o.inc != rec.inc || o.sealed != rec.sealed {
		return err
	}
	if at, err := o.sealIn(b.tx, rec.reference); err != nil || at != from {
		return err
	}
	b.begin()
	b.s.buf = appendSeal(b.s.buf, rec.inc, rec.reference, rec.sealed)
	return b.end(rec)
}

func (b *batch) relocateDrop(from uint32, rec record) error {
	x, ok, err := getDropped(b.tx, rec.inc)
	if err != nil || !ok || x.segment != from {
		return err
	}
	b.begin()
	b.s.buf = appendReference(b.s.buf, rec.inc, rec.reference)
	return b.end(rec)
}
