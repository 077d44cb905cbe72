package dag

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// Bounds of the memory for visited CIDs.
const (
	// maxSeenBytes bounds the memory for visited nodes of all walks that share a Buffer. A walk
	// of DefaultMaxBlocks nodes takes at most 190 MB.
	maxSeenBytes = 256 << 20
	// keptForSmall is the part of maxSeenBytes that only sets of at most smallSeen bytes (80,000
	// nodes or more) may use, so that walks of the largest DAGs cannot block all others.
	keptForSmall = 64 << 20
	smallSeen    = 2 << 20
	slotBytes    = 12
	firstSlots   = 8
	// splitAt is the number of entries at which a set is split into seenParts tables. The tables
	// grow one by one, so that no growth copies much at once.
	splitAt   = 8192
	seenParts = 256
	// A table is at most 80 % full and grows by 25 %.
	fullPart, fullOf = 4, 5
	growPart, growOf = 5, 4
)

// seen is a set of CIDs. It takes about 12 bytes for each and counts them against free. It
// stores 96 bits of a hash with a random seed, which others cannot predict. Among 10
// million CIDs, the probability that two collide is 10^-15. The zero value does not work.
type seen struct {
	seeds [2]maphash.Seed
	flat  table   // used below splitAt entries
	parts []table // used from splitAt entries on
	free  *atomic.Int64
	taken int64 // bytes taken of free
}

// table is a hash table with open addressing. A slot of zeros is free.
type table struct {
	slots []slot
	used  int
}

type slot [slotBytes / 4]uint32

func newSeen(free *atomic.Int64) *seen {
	return &seen{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, free: free}
}

// add adds key and returns whether it was not in the set. The error is ErrMemory.
func (s *seen) add(key string) (first bool, err error) {
	v, t := s.place(key)
	if t.find(v) {
		return false, nil
	}
	if t.used*fullOf >= len(t.slots)*fullPart {
		if t == &s.flat && t.used >= splitAt {
			if err := s.split(); err != nil {
				return false, err
			}
			t = &s.parts[partOf(v)]
		}
		if err := s.grow(t, t.used+1); err != nil {
			return false, err
		}
	}
	t.insert(v)
	return true, nil
}

// has returns whether key is in the set.
func (s *seen) has(key string) bool {
	v, t := s.place(key)
	return t.find(v)
}

// place returns the entry of key and the table to which it belongs.
func (s *seen) place(key string) (v slot, t *table) {
	h, more := maphash.String(s.seeds[0], key), maphash.String(s.seeds[1], key)
	v = slot{uint32(h), uint32(h >> 32), uint32(more) | 1} // never all zeros
	if s.parts != nil {
		return v, &s.parts[partOf(v)]
	}
	return v, &s.flat
}

// home returns the slot at which the search for v begins.
func (t *table) home(v slot) int {
	at, _ := bits.Mul64(uint64(v[0])|uint64(v[1])<<32, uint64(len(t.slots)))
	return int(at)
}

func (t *table) find(v slot) bool {
	if len(t.slots) == 0 {
		return false
	}
	for i := t.home(v); t.slots[i] != (slot{}); {
		if t.slots[i] == v {
			return true
		}
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	return false
}

// insert adds an entry that is not in the table. The table must have a free slot.
func (t *table) insert(v slot) {
	i := t.home(v)
	for t.slots[i] != (slot{}) {
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	t.slots[i] = v
	t.used++
}

// grow resizes a table for want entries.
func (s *seen) grow(t *table, want int) error {
	size := max(len(t.slots), firstSlots)
	for want*fullOf > size*fullPart {
		size = size*growPart/growOf + 1
	}
	if size == len(t.slots) {
		return nil
	}
	if err := s.take(int64(size-len(t.slots)) * slotBytes); err != nil {
		return err
	}
	old := t.slots
	*t = table{slots: make([]slot, size)}
	for _, v := range old {
		if v != (slot{}) {
			t.insert(v)
		}
	}
	return nil
}

// split distributes the flat table over parts.
func (s *seen) split() error {
	parts := make([]table, seenParts)
	for _, v := range s.flat.slots {
		if v == (slot{}) {
			continue
		}
		t := &parts[partOf(v)]
		if err := s.grow(t, t.used+1); err != nil {
			return err
		}
		t.insert(v)
	}
	s.give(int64(len(s.flat.slots)) * slotBytes)
	s.flat, s.parts = table{}, parts
	return nil
}

// partOf uses bits of v that home does not use.
func partOf(v slot) int { return int(v[2]>>1) % seenParts }

func (s *seen) take(n int64) error {
	kept := int64(0)
	if s.taken+n > smallSeen {
		kept = keptForSmall
	}
	if s.free.Add(-n) < kept {
		s.free.Add(n)
		return fmt.Errorf("%w: no room to remember more nodes", ErrMemory)
	}
	s.taken += n
	return nil
}

func (s *seen) give(n int64) {
	s.free.Add(n)
	s.taken -= n
}

// forget empties the set and returns all its bytes to free.
func (s *seen) forget() {
	s.give(s.taken)
	s.flat, s.parts = table{}, nil
}
