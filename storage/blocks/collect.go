package blocks

import "context"

// Freed counts what the store has freed since it was opened.
type Freed struct {
	Blocks, Bytes    uint64 // blocks that lost their last reference, and their bytes
	Files, FileBytes uint64 // removed segment files, and their bytes
}

// Freed returns what the store has freed since Open.
func (s *Store) Freed() Freed {
	s.stats.Lock()
	defer s.stats.Unlock()
	return s.freed
}

// Collect collects garbage like Compact, and empties all segments of which more than
// tightGarbagePart is garbage. This includes the newest segment, to which the store no longer
// appends then. Copies are made at the rate of Compact.
func (s *Store) Collect(ctx context.Context) error {
	return s.compactOnce(ctx, func() error {
		if err := s.compact(ctx, tightGarbagePart); err != nil {
			return err
		}
		number, wasteful := s.wastes()
		if wasteful && s.heads[number] == 0 {
			if err := s.weigh(ctx, number); err != nil {
				return err
			}
			number, wasteful = s.wastes()
		}
		if !wasteful {
			return nil
		}
		delete(s.heads, number) // it may have grown since
		if err := s.retire(ctx, number); err != nil {
			return err
		}
		return s.compact(ctx, tightGarbagePart)
	})
}

// wastes returns the number of the newest segment, and whether more than tightGarbagePart of it is
// garbage.
func (s *Store) wastes() (number uint32, wasteful bool) {
	s.stats.Lock()
	defer s.stats.Unlock()
	for n := range s.sizes {
		number = max(number, n)
	}
	size, l := s.sizes[number], s.loads[number]
	garbage := size - headerBytes - l.bytes - s.heads[number]
	return number, float64(garbage) > tightGarbagePart*float64(size)
}
