package state

import (
	"fmt"
	"slices"
)

// rowsPerEntry is about how many entries of the index by meta can be read in the time that one
// row takes.
const rowsPerEntry = 4

// byMeta lists the pins with the requested meta by means of the index. done is false, and nothing
// was listed, if the index is not complete or a search by name is faster.
func (l *lister) byMeta() (done bool, err error) {
	if complete, err := metaIndexed(l.r); err != nil || !complete {
		return false, err
	}
	rarest, others, pinned, err := l.rarest()
	if err != nil || l.filter.name != nil && pinned > maxNamed {
		return false, err
	}
	if slices.Contains(l.q.Statuses, Pinned) {
		some, err := l.notOfAll(others)
		if err != nil {
			return false, err
		}
		if done, err := l.byBits(rarest, some, pinned); done || err != nil {
			return done, err
		}
		if err := l.withMeta(rarest, some, []Status{Pinned}); err != nil {
			return false, err
		}
	}
	rest := slices.DeleteFunc(slices.Clone(l.q.Statuses), func(s Status) bool { return s == Pinned })
	var rows uint64 // of the other statuses
	for _, s := range rest {
		n, err := l.countPins(s, 1, maxMillis)
		if err != nil {
			return false, err
		}
		rows += n
	}
	if rows*rowsPerEntry > pinned {
		return true, l.withMeta(rarest, others, rest)
	}
	for _, s := range rest {
		if err := l.rows(s, false); err != nil {
			return false, err
		}
	}
	return true, nil
}

// rarest returns the requested pair that the fewest pinned pins have, the other requested pairs,
// and how many pinned pins must be examined: those with that pair and those indexed under
// manyPairs. If the query itself has too many pairs, it returns manyPairs and no others.
func (l *lister) rarest() (rarest pair, others []pair, pinned uint64, err error) {
	many, err := counter(l.r, metaCounter(l.account, manyPairs, len(counterShifts)-1, 0))
	if err != nil {
		return rarest, nil, 0, err
	}
	all := (&Pin{Meta: l.q.Meta}).pairs()
	least, at := uint64(0), 0
	for i, p := range all {
		n, err := counter(l.r, metaCounter(l.account, p, len(counterShifts)-1, 0))
		if err != nil {
			return rarest, nil, 0, err
		}
		if i == 0 || n < least {
			least, at = n, i
		}
	}
	if all[at] == manyPairs {
		return manyPairs, nil, many, nil
	}
	rarest = all[at]
	return rarest, slices.Delete(all, at, at+1), least + many, nil
}

// notOfAll returns the pairs that not all pinned pins of the account have. Pins that are indexed
// under manyPairs do not count.
func (l *lister) notOfAll(pairs []pair) (some []pair, err error) {
	last := len(counterShifts) - 1
	all, err := counter(l.r, counterKey(l.account, Pinned, last, 0))
	if err != nil {
		return nil, err
	}
	many, err := counter(l.r, metaCounter(l.account, manyPairs, last, 0))
	if err != nil {
		return nil, err
	}
	for _, p := range pairs {
		n, err := counter(l.r, metaCounter(l.account, p, last, 0))
		if err != nil {
			return nil, err
		}
		if n+many < all {
			some = append(some, p)
		}
	}
	return some, nil
}

// withMeta lists the pins with one of the statuses that have the pair p and the others. For pins
// indexed under manyPairs it must read the rows to decide.
func (l *lister) withMeta(p pair, others []pair, statuses []Status) error {
	for _, s := range statuses {
		if p != manyPairs {
			if err := l.withPair(p, others, s); err != nil {
				return err
			}
		}
		many := madeRows{lister: l, status: s, use: func(row []byte) error { return l.offer(row, false) }}
		err := l.entries(l.q, manyPairs, s, func(created Millis) (bool, error) { return true, many.add(created) })
		if err == nil {
			err = many.read()
		}
		if err != nil {
			return err
		}
		l.page.next()
	}
	return nil
}

// withPair lists the pins with status s that have the pair p and the others, except those indexed
// under manyPairs. For pinned pins and a single pair, the total comes from counters, and only the
// returned rows are read.
func (l *lister) withPair(p pair, others []pair, s Status) error {
	if s == Pinned && len(others) > 0 && l.filter.name == nil {
		return l.withAll(append([]pair{p}, others...))
	}
	defer l.page.next()
	counted := l.filter.name == nil && len(others) == 0 && s == Pinned
	rows := madeRows{lister: l, status: s, use: l.keep}
	switch {
	case counted:
		n, err := l.countPair(p, l.q.After+1, l.q.Before)
		if l.total += n; err != nil || !l.page.wants() {
			return err
		}
	case l.filter.name != nil:
		rows.use = func(row []byte) error { return l.offer(row, false) }
	}
	err := l.entries(l.q, p, s, func(created Millis) (bool, error) {
		for _, other := range others {
			if ok, err := has(l.r, metaIndex(l.account, other).descending(created)); err != nil {
				return false, err
			} else if !ok {
				return true, l.scanned.add(1, 0)
			}
		}
		if l.filter.name == nil && !counted {
			l.total++
		}
		if l.filter.name == nil && !rows.wanted() {
			return !counted, l.scanned.add(1, 0)
		}
		return true, rows.add(created)
	})
	if err != nil {
		return err
	}
	return rows.read()
}

// countPair returns how many pinned pins with a pair were created in [from, to), without those
// indexed under manyPairs.
func (l *lister) countPair(p pair, from, to Millis) (uint64, error) {
	b := buckets{
		r: l.r, scanned: &l.scanned,
		counter: func(level int) key { return metaCounters(l.account, p, level) },
		each: func(from, to Millis) (n uint64, err error) {
			q := PinQuery{After: from - 1, Before: to}
			err = l.entries(&q, p, Pinned, func(Millis) (bool, error) {
				n++
				return true, l.scanned.add(1, 0)
			})
			return n, err
		},
	}
	return b.count(from, to)
}

// entries calls fn for the index entries of a pair whose pins have the status s and were created
// within the query's times, newest first.
func (l *lister) entries(q *PinQuery, p pair, s Status, fn func(created Millis) (more bool, err error)) error {
	prefix := metaIndex(l.account, p)
	lower, upper := q.window(prefix)
	return l.r.Scan(lower, upper, false, func(k, value []byte) (bool, error) {
		if len(value) != 1 {
			return false, fmt.Errorf("state: key %x of a pair has a value of %d bytes", k, len(value))
		}
		if Status(value[0]) != s {
			return true, l.scanned.add(1, 0)
		}
		created, err := createdOf(k, prefix)
		if err != nil {
			return false, err
		}
		return fn(created)
	})
}

// madeRows reads the rows of pins with one status, given their creation times, newest first. It
// reads rows that are near each other in one scan.
type madeRows struct {
	*lister
	status Status
	use    func(row []byte) error // called for each row, which is valid only during the call
	made   []Millis
}

// Limits of madeRows.
const (
	// madeAtOnce is the largest number of rows that are read in one scan.
	madeAtOnce = 64
	// otherRows is how many other rows a scan may pass per wanted row. Beyond that, a new scan is
	// as fast.
	otherRows = 8
)

// wanted returns whether the page may want one more row.
func (m *madeRows) wanted() bool {
	return len(m.page.pins)-m.page.run+len(m.made) < m.page.limit && m.page.wants()
}

// add adds the creation time of a row to read. It may read some of the rows.
func (m *madeRows) add(created Millis) error {
	if m.made = append(m.made, created); len(m.made) < madeAtOnce {
		return nil
	}
	return m.read()
}

// read reads all rows that were added and not read yet.
func (m *madeRows) read() error {
	for len(m.made) > 0 {
		if err := m.readSome(); err != nil {
			return err
		}
	}
	return nil
}

// readSome reads at least one of the rows that were added.
func (m *madeRows) readSome() error {
	prefix := pinKey(m.account, pinRow).byte(byte(m.status))
	first, last := m.made[0], m.made[len(m.made)-1]
	others, found := 0, 0
	err := m.r.Scan(slices.Clone(prefix).descending(first), slices.Clone(prefix).descending(last-1), false, func(k, row []byte) (bool, error) {
		created, err := createdOf(k, prefix)
		if err != nil {
			return false, err
		}
		if created != m.made[found] {
			others++
			return others <= otherRows*len(m.made), nil
		}
		found++
		return found < len(m.made), m.use(row)
	})
	if err == nil && found == 0 {
		err = fmt.Errorf("state: an index names a pin of %s at %d that does not exist", m.account, first)
	}
	m.made = append(m.made[:0], m.made[found:]...)
	return err
}
