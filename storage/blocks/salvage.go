package blocks

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/multiformats/go-multihash"
)

const (
	// loseStep is the number of blocks that one step records as lost.
	loseStep = 1024
	// salvageReads is the number of attempts to read a block before the block counts as lost.
	salvageReads = 2
)

// salvage removes a segment whose file is damaged or missing. It writes the readable blocks of the
// segment again at the end of the journal. It also writes again those references, seals and drops
// in the segment that the index knows. It marks the unreadable blocks as missing, and returns their
// number. Then it removes the file. If a crash interrupts salvage, the segment stays with fewer
// live records, and the next salvage continues.
func (s *Store) salvage(ctx context.Context, number uint32) (lost uint64, err error) {
	select {
	case s.compacting <- struct{}{}: // Compact moves the same records
		defer func() { <-s.compacting }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	size, needed := s.live(number)
	if !needed {
		return 0, nil
	}
	s.damaged.Add(1)
	s.log.WarnContext(ctx, "segment is damaged: moving its readable blocks", "segment", number)
	if err := s.retire(ctx, number); err != nil {
		return 0, err
	}
	s.fitSize(number)
	_, copies := s.room()
	room := size < copies // copies take space before they free any
	if room {
		if err := s.empty(ctx, number); err != nil && !unreadable(err) {
			return 0, err
		}
		delete(s.stuck, number)
	}
	if lost, err = s.salvageBlocks(ctx, number, room); err != nil || !room {
		return lost, err
	}
	if err := s.salvageReferences(ctx, number); err != nil {
		return lost, err
	}
	return lost, s.removeEmpty(ctx)
}

// retire makes sure that the store appends nothing more to a segment.
func (s *Store) retire(ctx context.Context, number uint32) error {
	err := s.do(ctx, recordSlack, func(b *batch) error {
		s.retired = number
		return nil
	})
	if err != nil {
		return err
	}
	// The next batch begins a new segment if it must.
	return s.do(ctx, recordSlack, func(*batch) error { return nil })
}

// fitSize sets the recorded size of a segment to the size of its file, so that reading ends there.
// A removed file can still be read if this process has it open. If it is not open, the size becomes
// 0, and the segment stays in the counts until it is removed from the index.
func (s *Store) fitSize(number uint32) {
	size := int64(0)
	if h, err := s.files.acquire(number); err == nil {
		if info, err := h.f.Stat(); err == nil {
			size = info.Size()
		}
		s.files.release(h)
	}
	s.stats.Lock()
	defer s.stats.Unlock()
	if known, ok := s.sizes[number]; !ok || known > size {
		s.sizes[number] = size
	}
}

// salvageBlocks writes the blocks that the index has in a segment again if they are readable, and
// marks the others as missing. It returns the number of missing blocks. room is false if the disk
// has no space for copies.
func (s *Store) salvageBlocks(ctx context.Context, number uint32, room bool) (lost uint64, err error) {
	v := s.index.View()
	defer v.Close()
	var bad []record
	flush := func() error {
		lost += uint64(len(bad))
		step := bad
		bad = nil
		return s.lose(ctx, number, step)
	}
	err = v.Scan([]byte{keyBlock}, []byte{keyBlock + 1}, false, func(key, value []byte) (bool, error) {
		e, err := decodeBlockEntry(key, value)
		if err = errors.Join(err, ctx.Err()); err != nil || e.segment != number {
			return err == nil, err
		}
		rec := record{kind: kindBlock, off: int64(e.off), hash: append(multihash.Multihash(nil), key[1:]...)}
		if rec.data, err = s.readAgain(e, rec.hash); err == nil {
			if !room {
				return true, nil
			}
			size := int64(len(rec.data)) + recordSlack
			if err := s.copying.WaitN(ctx, int(size)); err != nil {
				return false, err
			}
			return true, s.do(ctx, size, func(b *batch) error { return b.relocateBlock(number, rec) })
		}
		if !unreadable(err) {
			return false, err
		}
		if bad = append(bad, rec); len(bad) < loseStep {
			return true, nil
		}
		return true, flush()
	})
	return lost, errors.Join(err, flush())
}

// readAgain reads a block up to salvageReads times.
func (s *Store) readAgain(e blockEntry, hash multihash.Multihash) (data []byte, err error) {
	for range salvageReads {
		if data, err = s.read(e, hash, true, fresh); err == nil || !unreadable(err) {
			break
		}
	}
	return data, err
}

// salvageReferences writes the records of references again that are only in this segment.
// The index has all of their content.
func (s *Store) salvageReferences(ctx context.Context, number uint32) error {
	v := s.index.View()
	defer v.Close()
	err := v.Scan([]byte{keyReference}, []byte{keyReference + 1}, false, func(key, value []byte) (bool, error) {
		o, err := decodeReferenceEntry(key, value)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return false, err
		}
		rec := record{kind: kindReference, inc: o.inc, reference: string(key[1:])}
		if err := s.salvageRefs(ctx, v, number, rec); err != nil {
			return false, err
		}
		if at, err := o.sealIn(v, rec.reference); err != nil || at != number {
			return err == nil, err
		}
		rec.kind, rec.sealed = sealKind(o.sealed), o.sealed
		return true, s.do(ctx, recordSlack, func(b *batch) error { return b.relocateSeal(number, rec) })
	})
	if err != nil {
		return err
	}
	return v.Scan([]byte{keyDropped}, []byte{keyDropped + 1}, false, func(key, value []byte) (bool, error) {
		x, err := decodeDroppedEntry(key, value)
		if err != nil || len(key) != 9 {
			return false, badEntry(key)
		}
		if x.segment != number {
			return true, nil
		}
		rec := record{kind: kindDrop, inc: binary.BigEndian.Uint64(key[1:]), reference: x.reference}
		return true, s.do(ctx, recordSlack, func(b *batch) error { return b.relocateDrop(number, rec) })
	})
}

// salvageRefs writes the part of a reference again whose record is in the segment. rec names the
// reference.
func (s *Store) salvageRefs(ctx context.Context, v scanner, number uint32, rec record) error {
	flush := func() error {
		if len(rec.refs) == 0 {
			return nil
		}
		step := rec
		rec.refs = nil
		return s.do(ctx, int64(len(step.refs))*recordSlack/4, func(b *batch) error { return b.relocateRefs(number, step) })
	}
	prefix := blockRefPrefix(rec.inc)
	err := v.Scan(prefix, after(prefix), false, func(key, value []byte) (bool, error) {
		at, err := decodeBlockRefEntry(key, value)
		if err != nil || at.segment != number {
			return err == nil, err
		}
		hash := append(multihash.Multihash(nil), key[len(prefix):]...)
		e, ok, err := getBlock(v, hash)
		if err != nil || !ok {
			return false, errors.Join(err, badEntry(key))
		}
		if rec.refs = append(rec.refs, blockRef{hash, e.size}); len(rec.refs) < maxRefsPerRecord {
			return true, nil
		}
		return true, flush()
	})
	return errors.Join(err, flush())
}
