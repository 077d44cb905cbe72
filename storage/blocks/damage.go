package blocks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// maxMissing bounds the missing blocks that one call of Damaged keeps in memory.
	maxMissing = 1 << 18
	// maxDamaged bounds the references that one call of Damaged returns.
	maxDamaged = 1 << 17
)

// scanner is the common part of a kv view and a transaction.
type scanner interface {
	getter
	Scan(lower, upper []byte, reverse bool, fn func(key, value []byte) (more bool, err error)) error
}

// Lost returns a channel that receives a value after a read or a Scrub has found a damaged
// block.
func (s *Store) Lost() <-chan struct{} { return s.losses }

func (s *Store) notifyLost() {
	select {
	case s.losses <- struct{}{}:
	default:
	}
}

// missing returns how many blocks have a reference and are not in the store.
func (s *Store) missing() int64 {
	s.stats.Lock()
	defer s.stats.Unlock()
	return s.totals.missing
}

// Damaged calls fn for each reference that needs a repair: for each reference whose seal was
// revoked, and for each sealed reference with missing blocks. blocks is the number of its missing
// blocks. It stops when fn returns false or an error. If no block is missing, it costs almost
// nothing; otherwise it scans the index once. If very many blocks are missing, it reports only some
// of the references; after their repair a later call reports more.
func (s *Store) Damaged(ctx context.Context, fn func(reference string, blocks uint64) (more bool, err error)) error {
	v := s.index.View()
	defer v.Close()
	more, err := inDoubt(ctx, v, fn)
	if err != nil {
		return fmt.Errorf("blocks: damaged: %w", s.readError(err))
	}
	if !more || s.missing() == 0 {
		return ctx.Err()
	}
	hurt, err := damagedIncarnations(ctx, v)
	if err == nil && len(hurt) > 0 {
		err = v.Scan([]byte{keyReference}, []byte{keyReference + 1}, false, func(key, value []byte) (bool, error) {
			o, err := decodeReferenceEntry(key, value)
			if err = errors.Join(err, ctx.Err()); err != nil {
				return false, err
			}
			n := hurt[o.inc]
			if n == 0 || o.sealSegment == 0 {
				return true, nil
			}
			return fn(string(key[1:]), n)
		})
	}
	if err != nil {
		return fmt.Errorf("blocks: damaged: %w", s.readError(err))
	}
	return nil
}

// inDoubt calls fn for each reference whose seal was revoked, with the number of blocks that were
// missing when it was revoked. It stops when fn returns false or an error.
func inDoubt(ctx context.Context, v scanner, fn func(reference string, blocks uint64) (bool, error)) (more bool, err error) {
	more = true
	prefix := []byte{keyDoubt}
	err = v.Scan(doubtKey("\x00"), after(prefix), false, func(key, value []byte) (bool, error) {
		d, err := decodeDoubtEntry(key, value)
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			more, err = fn(string(key[1:]), d.lacked)
		}
		return more, err
	})
	return more, err
}

// Doubted returns whether the store revoked the seal of a reference, because it no longer
// knows all its blocks, and the reference was neither sealed nor dropped since.
func (s *Store) Doubted(reference string) (bool, error) {
	_, doubted, err := s.index.Get(doubtKey(reference))
	if err != nil {
		return false, fmt.Errorf("blocks: doubted: %w", s.readError(err))
	}
	return doubted, nil
}

// damagedIncarnations returns the number of missing blocks of each incarnation.
func damagedIncarnations(ctx context.Context, v scanner) (map[uint64]uint64, error) {
	missing := make(map[string]struct{})
	err := v.Scan([]byte{keyBlock}, []byte{keyBlock + 1}, false, func(key, value []byte) (bool, error) {
		e, err := decodeBlockEntry(key, value)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return false, err
		}
		if e.segment == 0 {
			missing[string(key[1:])] = struct{}{}
		}
		return len(missing) < maxMissing, nil
	})
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	hurt := make(map[uint64]uint64)
	const head = 1 + 8 // letter, incarnation
	err = v.Scan([]byte{keyBlockRef}, []byte{keyBlockRef + 1}, false, func(key, _ []byte) (bool, error) {
		if len(key) <= head {
			return false, badEntry(key)
		}
		if _, ok := missing[string(key[head:])]; ok {
			hurt[binary.BigEndian.Uint64(key[1:])]++
		}
		return len(hurt) < maxDamaged, ctx.Err()
	})
	return hurt, err
}

// Whole returns whether the store has all blocks of a reference, according to the index. If the
// name is not a valid name of a reference, the error is ErrBadReference.
func (s *Store) Whole(ctx context.Context, reference string) (bool, error) {
	if err := checkReference(reference); err != nil {
		return false, err
	}
	if s.missing() == 0 {
		return true, ctx.Err()
	}
	v := s.index.View()
	defer v.Close()
	whole := true
	o, ok, err := getReference(v, reference)
	if err == nil && ok {
		prefix := blockRefPrefix(o.inc)
		err = v.Scan(prefix, after(prefix), false, func(key, _ []byte) (bool, error) {
			e, _, err := getBlock(v, append([]byte(nil), key[len(prefix):]...))
			whole = e.segment != 0
			return whole, errors.Join(err, ctx.Err())
		})
	}
	if err != nil {
		return false, fmt.Errorf("blocks: whole: %w", s.readError(err))
	}
	return whole, nil
}
