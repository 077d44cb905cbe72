package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/holdfast-ipfs/holdfast/consensus/codec"
)

// Limits of lists by the bitmap index.
const (
	// A cursor reads at least the first number of rows at once, and at most the second.
	leastAhead, mostAhead         = 16, 1024
	leastRunsAhead, mostRunsAhead = 1, 64
	// bitsBytes is how many bytes a row of bits counts as. Rows of so many bytes take about as long
	// to read.
	bitsBytes = 256
)

// byBits lists the pins with several pairs of meta, with the requested statuses, by the bitmap
// index. p is the pair that the fewest pinned pins have, and pinned their number. Bits include
// pins of every status, so it first finds the matching pins that are not pinned. done is false,
// and nothing was listed, if the account has no bitmap index, if few pins have p, or if too many
// pins are not pinned.
func (l *lister) byBits(p pair, others []pair, pinned uint64) (done bool, err error) {
	if len(others) == 0 || l.filter.name != nil || pinned <= pairChunk {
		return false, nil
	}
	to, err := packedTo(l.r, l.account)
	if err != nil || to == 0 {
		return false, err
	}
	var unpinned uint64
	for _, s := range Statuses() {
		if s == Pinned {
			continue
		}
		n, err := l.countPins(s, 1, maxMillis)
		if err != nil {
			return false, err
		}
		unpinned += n
	}
	if unpinned*rowsPerEntry > pinned {
		return false, nil
	}
	made, ok, err := l.notPinned(to, func(row []byte) (bool, error) {
		is, err := l.filter.match(row)
		if err != nil || !is {
			return false, err
		}
		_, meta, err := peekPin(row)
		return codec.Count(&meta, MaxMetaPairs) <= maxIndexedPairs, err // others have no bits
	})
	if err != nil {
		return false, err
	}
	if !ok {
		l.total, l.page = 0, page{limit: l.q.Limit}
		return false, nil
	}
	l.bitsTo, l.unpinned = to, made
	return true, l.withMeta(p, others, []Status{Pinned})
}

// notPinned reads the rows of pins that are not pinned, and lists those that are requested. It
// returns the creation times up to to of the pins whose rows matches accepts, newest first. ok is
// false if there are more than maxUnpinned.
func (l *lister) notPinned(to Millis, matches func(row []byte) (bool, error)) (made []Millis, ok bool, err error) {
	for _, s := range Statuses() {
		if s == Pinned {
			continue
		}
		listed := slices.Contains(l.q.Statuses, s)
		prefix := pinKey(l.account, pinRow).byte(byte(s))
		lower, upper := l.q.window(prefix)
		err := l.r.Scan(lower, upper, false, func(k, row []byte) (bool, error) {
			created, err := createdOf(k, prefix)
			if err != nil {
				return false, err
			}
			is, err := matches(row)
			if err != nil {
				return false, err
			}
			if is && created <= to {
				made = append(made, created)
			}
			if listed {
				err = l.offer(row, false)
			} else {
				err = l.scanned.add(1, len(row))
			}
			return len(made) <= maxUnpinned, err
		})
		if err != nil || len(made) > maxUnpinned {
			return nil, false, err
		}
		if listed {
			l.page.next()
		}
	}
	slices.SortFunc(made, func(a, b Millis) int { return cmp.Compare(b, a) })
	return made, true, nil
}

// cursor reads rows of a table with a creation time each, newest first, several at once. It reads
// more at once while the caller needs most of them.
type cursor[T any] struct {
	read        func(from Millis, most int) ([]T, error) // returns up to most rows at or before a time; fewer mean that no others follow
	time        func(*T) Millis
	least, most int // numbers of rows to read at once
	rows        []T // read and not passed
	end         bool
	ahead, used int // number of rows read last, and how many of them seek has returned
}

// seek returns the newest row at or before a time, or nil if there is none. The time must not be
// later than in the call before. The row is valid until the next call.
func (c *cursor[T]) seek(t Millis) (*T, error) {
	for i := range c.rows {
		if c.time(&c.rows[i]) > t {
			continue
		}
		if c.rows = c.rows[i:]; i > 0 {
			c.used++
		}
		return &c.rows[0], nil
	}
	if c.rows = nil; c.end {
		return nil, nil
	}
	if c.used*2 > c.ahead {
		c.ahead = min(c.ahead*2, c.most)
	} else {
		c.ahead = c.least
	}
	var err error
	if c.rows, err = c.read(t, c.ahead); err != nil {
		return nil, err
	}
	c.end, c.used = len(c.rows) < c.ahead, 1
	if len(c.rows) == 0 {
		return nil, nil
	}
	return &c.rows[0], nil
}

// bitsSearch lists the pinned pins that have all of several pairs, by the bits of each run.
type bitsSearch struct {
	*conjunction
	pairs []pair
	bits  []*cursor[pairBits] // for each pair, by the oldest time of the run
	made  []*cursor[Millis]   // for each pair, the creation times of the pinned pins that are indexed under it
	runs  *cursor[pinRun]     // by the oldest time
	times []Millis            // of the pins of the run that was read last
}

// packed lists the matches created in [from, to). All pins created before to are packed.
func (c *conjunction) packed(pairs []pair, from, to Millis) error {
	s := bitsSearch{conjunction: c, pairs: pairs, runs: c.runsAhead()}
	for _, p := range pairs {
		s.bits, s.made = append(s.bits, c.bitsAhead(p)), append(s.made, c.madeAhead(p))
	}
	here := make([]*pairBits, len(pairs))
	for t := to - 1; t >= from; {
		older := from - 1 // newest time before t at which a pair has bits
		any := false
		for i, bits := range s.bits {
			row, err := bits.seek(t)
			if err != nil {
				return err
			}
			if here[i] = nil; row != nil && row.newest >= t {
				here[i], any = row, true
			} else if row != nil {
				older = max(older, row.newest)
			}
		}
		if !any {
			if err := c.compare(pairs, older+1, t+1); err != nil {
				return err
			}
			t = older
			continue
		}
		next, err := s.run(here, from, t)
		if err != nil {
			return err
		}
		t = next
	}
	return nil
}

// run lists the matches of one run that were created in [from, t]. here has the bits of each pair
// of which the run has bits, and nil for the others. It returns a time such that no other matches
// were created between it and t.
func (s *bitsSearch) run(here []*pairBits, from, t Millis) (next Millis, err error) {
	var all *pairBits
	var found bitmap
	for _, row := range here {
		switch {
		case row == nil:
		case all == nil:
			all, found = row, row.bits
		case row.oldest != all.oldest || row.newest != all.newest:
			return 0, fmt.Errorf("state: bits of pairs of %s at %d and %d are of different runs", s.account, all.oldest, row.oldest)
		default:
			found.and(&row.bits)
		}
	}
	oldest, newest := all.oldest, all.newest
	if found == (bitmap{}) {
		return oldest - 1, nil
	}
	s.passUnpinned(t)
	loaded := false
	load := func() error {
		if loaded {
			return nil
		}
		loaded = true
		return s.load(oldest)
	}
	for i, row := range here {
		if row != nil {
			continue
		}
		created, err := s.made[i].seek(t)
		if err != nil || created == nil {
			return from - 1, err
		}
		if *created < oldest {
			return *created, nil
		}
		if err := load(); err != nil {
			return 0, err
		}
		few, err := s.few(s.made[i], oldest, t)
		if err != nil {
			return 0, err
		}
		found.and(&few)
	}
	if found == (bitmap{}) {
		return oldest - 1, nil
	}
	if t < newest || from > oldest {
		if err := load(); err != nil {
			return 0, err
		}
		for at, created := range s.times {
			if created > t || created < from {
				found.clear(at)
			}
		}
	}
	if s.rows.wanted() {
		if err := load(); err != nil {
			return 0, err
		}
	}
	if err := s.count(&found, oldest, loaded); err != nil || !loaded {
		return oldest - 1, err
	}
	return oldest - 1, s.take(&found)
}

// count adds the pins with the given bits to the total, except for those that are not pinned. If
// the times of the run are read, it clears the bits of the latter.
func (s *bitsSearch) count(found *bitmap, oldest Millis, loaded bool) error {
	unpinned := 0
	for unpinned < len(s.unpinned) && s.unpinned[unpinned] >= oldest {
		unpinned++
	}
	if !loaded {
		if unpinned > found.count() {
			return fmt.Errorf("state: bits of pairs of %s at %d lack pins that are not pinned", s.account, oldest)
		}
		s.total += uint64(found.count() - unpinned)
		return nil
	}
	for _, created := range s.unpinned[:unpinned] {
		at, ok := placeIn(s.times, created)
		if !ok {
			return fmt.Errorf("state: pin of %s of %d is not in the run at %d", s.account, created, oldest)
		}
		found.clear(at)
	}
	s.total += uint64(found.count())
	return nil
}

// take adds the rows of the pins with the given bits to the page, as far as the page wants them.
func (s *bitsSearch) take(found *bitmap) error {
	for i, word := range found {
		for ; word != 0 && s.rows.wanted(); word &= word - 1 {
			at := i*64 + bits.TrailingZeros64(word)
			if at >= len(s.times) {
				return fmt.Errorf("state: bit %d of a run of %s with %d pins", at, s.account, len(s.times))
			}
			if err := s.rows.add(s.times[at]); err != nil {
				return err
			}
		}
	}
	return nil
}

// few returns the bits of a pair that has no row of bits in a run, for the pins of the run that
// were created up to t. The run begins at oldest and its times are read.
func (s *bitsSearch) few(made *cursor[Millis], oldest, t Millis) (b bitmap, err error) {
	for t >= oldest {
		created, err := made.seek(t)
		if err != nil || created == nil || *created < oldest {
			return b, err
		}
		at, ok := placeIn(s.times, *created)
		if !ok {
			return b, fmt.Errorf("state: pin of %s of %d is not in the run at %d", s.account, *created, oldest)
		}
		b.set(at)
		t = *created - 1
	}
	return b, nil
}

// passUnpinned forgets the pins that are not pinned and were created after t.
func (s *bitsSearch) passUnpinned(t Millis) {
	for len(s.unpinned) > 0 && s.unpinned[0] > t {
		s.unpinned = s.unpinned[1:]
	}
}

// load reads the creation times of the run that begins at oldest.
func (s *bitsSearch) load(oldest Millis) error {
	run, err := s.runs.seek(oldest)
	if err != nil {
		return err
	}
	if run == nil || run.oldest != oldest || run.count == 0 {
		return fmt.Errorf("state: there are bits of pairs of %s at %d and no run", s.account, oldest)
	}
	s.times, err = run.created(s.times[:0])
	return err
}

// bitsAhead returns a cursor of the rows with the bits of a pair.
func (c *conjunction) bitsAhead(p pair) *cursor[pairBits] {
	prefix := bitsOf(c.account, p)
	var rows []pairBits
	return &cursor[pairBits]{
		least: leastAhead, most: mostAhead,
		time: func(row *pairBits) Millis { return row.oldest },
		read: func(from Millis, most int) ([]pairBits, error) {
			rows = rows[:0]
			err := c.r.Scan(slices.Clone(prefix).descending(from), prefix.end(), false, func(k, value []byte) (bool, error) {
				if len(k) != len(prefix)+8 {
					return false, fmt.Errorf("state: key %x of the bits of a pair", k)
				}
				row, err := readPairBits(Millis(^binary.BigEndian.Uint64(k[len(prefix):])), value)
				if err != nil {
					return false, err
				}
				rows = append(rows, row)
				return len(rows) < most, c.scanned.add(0, bitsBytes)
			})
			return rows, err
		},
	}
}

// madeAhead returns a cursor of the creation times of the pinned pins that are indexed under a
// pair.
func (c *conjunction) madeAhead(p pair) *cursor[Millis] {
	var made []Millis
	return &cursor[Millis]{
		least: leastAhead, most: mostAhead,
		time: func(created *Millis) Millis { return *created },
		read: func(from Millis, most int) ([]Millis, error) {
			made = made[:0]
			err := c.entries(&PinQuery{Before: from + 1}, p, Pinned, func(created Millis) (bool, error) {
				made = append(made, created)
				return len(made) < most, c.scanned.add(1, 0)
			})
			return made, err
		},
	}
}

// runsAhead returns a cursor of the account's runs.
func (c *conjunction) runsAhead() *cursor[pinRun] {
	prefix := runsOf(c.account)
	return &cursor[pinRun]{
		least: leastRunsAhead, most: mostRunsAhead,
		time: func(run *pinRun) Millis { return run.oldest },
		read: func(from Millis, most int) (runs []pinRun, err error) {
			err = c.r.Scan(slices.Clone(prefix).descending(from), prefix.end(), false, func(k, value []byte) (bool, error) {
				oldest, form, err := readChunkKey(k[len(prefix):])
				if err != nil || form == chunkGone {
					return true, err
				}
				run, err := readRun(oldest, value)
				if err != nil {
					return false, err
				}
				runs = append(runs, *run)
				return len(runs) < most, c.scanned.add(0, len(value))
			})
			return runs, err
		},
	}
}
