package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// Limits of lists by packed names. Packed names are the names of many pins in one row.
const (
	// rowsShare decides whether to read rows instead of names: rows are read if at most one in
	// rowsShare of the account's pins has a requested status.
	rowsShare = 4
	// maxTail is the largest number of pinned pins without packed names whose rows are read.
	// There are more only during an upgrade.
	maxTail = 16 << 10
	// maxUnpinned is the largest number of pins that match by name but are not pinned. A list by
	// packed names stores their creation times in memory.
	maxUnpinned = 1 << 17
)

// byName lists the pins with a matching name by reading names first. done is false, and nothing
// was listed, if reading the rows with the requested statuses is faster.
func (l *lister) byName() (done bool, err error) {
	var all, asked, pinned uint64
	for _, s := range Statuses() {
		n, err := l.countPins(s, 1, maxMillis)
		if err != nil {
			return false, err
		}
		all += n
		if slices.Contains(l.q.Statuses, s) {
			asked += n
		}
		if s == Pinned {
			pinned = n
		}
	}
	if asked*rowsShare <= all {
		return false, nil
	}
	if slices.Contains(l.q.Statuses, Pinned) && (all-pinned)*rowsShare <= pinned {
		if done, err := l.packed(); done || err != nil {
			return done, err
		}
	}
	return l.named()
}

// packed lists the pins with a matching name by the packed names. Packed names include pins of
// every status, so it first finds the matching pins that are not pinned. done is false, and
// nothing was listed, if the account has no packed names or too many pins without them.
func (l *lister) packed() (done bool, err error) {
	to, err := packedTo(l.r, l.account)
	if err != nil || to == 0 {
		return false, err
	}
	s := packedSearch{lister: l, to: to, matcher: newChunkMatcher(l.q.Name, l.q.Match)}
	if done, err = s.list(); err == nil && !done {
		l.total, l.page = 0, page{limit: l.q.Limit}
	}
	return done, err
}

// packedSearch is the state of one list by packed names.
type packedSearch struct {
	*lister
	to      Millis // creation time up to which names are packed
	matcher *chunkMatcher
	rows    madeRows
	found   []int
	made    []Millis
}

func (s *packedSearch) list() (done bool, err error) {
	var ok bool
	s.unpinned, ok, err = s.notPinned(s.to, func(row []byte) (bool, error) {
		name, _, err := peekPin(row)
		return err == nil && s.filter.name(name), err
	})
	if err != nil || !ok {
		return false, err
	}
	defer s.page.next()
	if ok, err := s.tail(); !ok || err != nil {
		return false, err
	}
	if s.q.After >= s.to {
		return true, nil
	}
	s.filter.name = nil // the packed names have checked it
	s.rows = madeRows{lister: s.lister, status: Pinned, use: s.keep}
	if len(s.filter.meta) > 0 {
		s.rows.use = func(row []byte) error { return s.offer(row, false) }
	}
	if err := s.chunks(); err != nil {
		return false, err
	}
	return true, s.rows.read()
}

// tail lists the pinned pins whose names are not packed yet, by reading their rows. ok is false
// if there are more than maxTail.
func (s *packedSearch) tail() (ok bool, err error) {
	q := *s.q
	if q.After = max(q.After, s.to); q.After+1 >= q.Before {
		return true, nil
	}
	n := 0
	lower, upper := q.window(pinKey(s.account, pinRow).byte(byte(Pinned)))
	err = s.r.Scan(lower, upper, false, func(_, row []byte) (bool, error) {
		n++
		return n <= maxTail, s.offer(row, false)
	})
	return n <= maxTail, err
}

// chunks lists the pinned pins with matching packed names in the time range of the query, newest first.
func (s *packedSearch) chunks() error {
	prefix := chunksOf(s.account)
	var gone []byte
	newest := min(s.q.Before-1, s.to)
	return s.r.Scan(slices.Clone(prefix).descending(newest), prefix.end(), false, func(k, value []byte) (bool, error) {
		oldest, form, err := readChunkKey(k[len(prefix):])
		if err != nil {
			return false, err
		}
		if form == chunkGone {
			gone = append(gone[:0], value...)
			return true, s.scanned.add(0, len(value))
		}
		c, err := readChunk(oldest, value)
		if err != nil {
			return false, err
		}
		if err := s.chunk(&c, gone); err != nil {
			return false, err
		}
		gone = gone[:0]
		return oldest > s.q.After+1, s.scanned.add(1, len(value))
	})
}

// chunk lists the pinned pins of a chunk whose names match. gone has the bits of the names whose
// pins no longer exist.
func (s *packedSearch) chunk(c *chunk, gone []byte) error {
	newest := c.newest()
	for len(s.unpinned) > 0 && s.unpinned[0] > newest {
		s.unpinned = s.unpinned[1:]
	}
	within := c.oldest > s.q.After && newest < s.q.Before
	pinned := len(s.unpinned) == 0 || s.unpinned[0] < c.oldest
	if within && pinned && len(gone) == 0 && len(s.filter.meta) == 0 && !s.rows.wanted() {
		s.total += uint64(s.matcher.count(c))
		return nil
	}
	s.found = s.matcher.find(c, s.found[:0])
	if len(s.found) == 0 {
		return nil
	}
	var err error
	if s.made, err = c.created(s.made[:0]); err != nil {
		return err
	}
	for _, at := range s.found {
		if isGone(gone, at) {
			continue
		}
		if at >= len(s.made) {
			return fmt.Errorf("state: packed names of %d have more than %d names", c.oldest, len(s.made))
		}
		if err := s.match(s.made[at]); err != nil {
			return err
		}
	}
	return nil
}

// match lists the pin that was created at the given time and whose name matches, if the pin is
// pinned.
func (s *packedSearch) match(created Millis) error {
	if created <= s.q.After || created >= s.q.Before {
		return nil
	}
	for len(s.unpinned) > 0 && s.unpinned[0] > created {
		s.unpinned = s.unpinned[1:]
	}
	if len(s.unpinned) > 0 && s.unpinned[0] == created {
		return nil
	}
	if len(s.filter.meta) > 0 {
		return s.rows.add(created) // the row decides
	}
	s.total++
	if !s.rows.wanted() {
		return nil
	}
	return s.rows.add(created)
}

// named lists the pins with a matching name. It first reads only the index by name, because rows
// can be large. done is false, and nothing was listed, if more than maxNamed names match.
func (l *lister) named() (done bool, err error) {
	var found []Pin
	prefix := pinKey(l.account, pinByName)
	err = l.r.Scan(prefix, prefix.end(), false, func(k, id []byte) (bool, error) {
		k = k[len(prefix):]
		if len(k) < 2+8 || len(k)-2-8 != int(binary.BigEndian.Uint16(k)) {
			return false, fmt.Errorf("state: key %x of a name", k)
		}
		created := Millis(^binary.BigEndian.Uint64(k[len(k)-8:]))
		if created < l.q.Before && created > l.q.After && l.filter.name(k[2:len(k)-8]) {
			found = append(found, Pin{ID: RequestID(id), Created: created})
		}
		return len(found) <= maxNamed, l.scanned.add(1, len(k))
	})
	if err != nil || len(found) > maxNamed {
		return false, err
	}
	slices.SortFunc(found, func(a, b Pin) int { return cmp.Compare(b.Created, a.Created) })
	l.filter.name = nil // it matches
	defer l.page.next()
	for i := range found {
		if _, err := l.pin(found[i].ID); err != nil {
			return false, err
		}
	}
	return true, nil
}
