package state

import "slices"

// Limits of a list by several pairs of meta.
const (
	// pairChunk is the number of index entries of the rarest pair that are compared at once with
	// those of another pair.
	pairChunk = 1024
	// entriesPerLookup is about how many index entries can be read by a scan in the time that one
	// look-up takes.
	entriesPerLookup = 8
	// entriesPerInterval is about how many index entries can be read in the time that one finer
	// interval takes, with its counters and the start of a scan for each pair.
	entriesPerInterval = 8
)

// conjunction lists the pinned pins that have all of several pairs of meta, none of which is
// manyPairs. For packed pins it can use the bits of the pairs. Otherwise it works by the time
// intervals of the counters. If all pins of an interval have a pair, that pair need not be compared
// there. If only one pair remains, its counter is the number of matches, and index entries are read
// only for the rows of the page. Otherwise it compares the index entries of the remaining pairs, in
// finer intervals if there are many entries.
type conjunction struct {
	*lister
	rows madeRows
}

// withAll lists the pinned pins that have all pairs; pairs[0] is the rarest one.
func (l *lister) withAll(pairs []pair) error {
	defer l.page.next()
	c := conjunction{lister: l, rows: madeRows{lister: l, status: Pinned, use: l.keep}}
	from := l.q.After + 1
	if from == 1 { // the first bucket is whole, as nothing was created at 0
		from = 0
	}
	level := len(counterShifts) - 2
	if l.bitsTo == 0 {
		if err := c.span(level, pairs, from, l.q.Before); err != nil {
			return err
		}
		return c.rows.read()
	}
	if err := c.span(level, pairs, max(from, l.bitsTo+1), l.q.Before); err != nil {
		return err
	}
	if err := c.packed(pairs, from, min(l.q.Before, l.bitsTo+1)); err != nil {
		return err
	}
	return c.rows.read()
}

// span lists the matches created in [from, to), newest first. It uses the intervals of a level
// that lie completely in that range, and finer levels at both edges.
func (c *conjunction) span(level int, pairs []pair, from, to Millis) error {
	if from >= to {
		return nil
	}
	if level < 0 {
		return c.compare(pairs, from, to)
	}
	first, end := wholeBuckets(level, from, to)
	if first >= end {
		return c.span(level-1, pairs, from, to)
	}
	shift := counterShifts[level]
	if err := c.span(level-1, pairs, end<<shift, to); err != nil {
		return err
	}
	all, err := c.counts(level, pairs, first, end)
	if err != nil {
		return err
	}
	for i := range all {
		if err := c.bucket(level, pairs, &all[i]); err != nil {
			return err
		}
	}
	return c.span(level-1, pairs, from, first<<shift)
}

// bucket lists the matches of one interval.
func (c *conjunction) bucket(level int, pairs []pair, b *pairCounts) error {
	left := make([]pair, 0, len(pairs))
	for i, n := range b.with {
		switch {
		case n == 0:
			return nil
		case n < b.pins:
			left = append(left, pairs[i])
		}
	}
	if len(left) == 0 { // all pins have all pairs
		left = pairs[:1]
	}
	shift := counterShifts[level]
	from, to := b.at<<shift, (b.at+1)<<shift
	if len(left) > 1 {
		if level > 0 && slices.Min(b.with) <= entriesPerInterval<<(shift-counterShifts[level-1]) {
			return c.compare(left, from, to)
		}
		return c.span(level-1, left, from, to)
	}
	c.total += slices.Min(b.with)
	if !c.rows.wanted() {
		return nil
	}
	q := PinQuery{After: from - 1, Before: to}
	return c.entries(&q, left[0], Pinned, func(created Millis) (bool, error) {
		err := c.rows.add(created)
		return c.rows.wanted(), err
	})
}

// pairCounts has the numbers of pinned pins of one interval; with has one number per pair.
type pairCounts struct {
	at   Millis // number of the interval
	pins uint64 // all pinned pins except those indexed under manyPairs
	with []uint64
}

// counts returns the counters of the intervals [first, end) of a level in which pins have
// pairs[0], newest first.
func (c *conjunction) counts(level int, pairs []pair, first, end Millis) (all []pairCounts, err error) {
	err = scanCounters(c.r, &c.scanned, metaCounters(c.account, pairs[0], level), first, end, func(bucket Millis, n uint64) {
		with := make([]uint64, len(pairs))
		with[0] = n
		all = append(all, pairCounts{at: bucket, with: with})
	})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	add := func(prefix key, use func(b *pairCounts, n uint64)) {
		if err != nil {
			return
		}
		i := 0
		err = scanCounters(c.r, &c.scanned, prefix, first, end, func(bucket Millis, n uint64) {
			for i < len(all) && all[i].at > bucket {
				i++
			}
			if i < len(all) && all[i].at == bucket {
				use(&all[i], n)
			}
		})
	}
	for i, p := range pairs[1:] {
		add(metaCounters(c.account, p, level), func(b *pairCounts, n uint64) { b.with[i+1] = n })
	}
	add(pinKey(c.account, pinCounter).byte(byte(Pinned)).byte(byte(level)), func(b *pairCounts, n uint64) { b.pins = n })
	add(metaCounters(c.account, manyPairs, level), func(b *pairCounts, n uint64) { b.pins -= n })
	return all, err
}

// compare lists the matches created in [from, to) by comparing the index entries of all pairs.
func (c *conjunction) compare(pairs []pair, from, to Millis) error {
	chunk := make([]Millis, 0, pairChunk)
	use := func() (err error) {
		read := len(chunk)
		for _, other := range pairs[1:] {
			if chunk, err = c.among(chunk, other); err != nil {
				return err
			}
		}
		c.total += uint64(len(chunk))
		for _, created := range chunk {
			if !c.rows.wanted() {
				break
			}
			read--
			if err := c.rows.add(created); err != nil {
				return err
			}
		}
		chunk = chunk[:0]
		return c.scanned.add(read, 0)
	}
	q := PinQuery{After: from - 1, Before: to}
	err := c.entries(&q, pairs[0], Pinned, func(created Millis) (bool, error) {
		if chunk = append(chunk, created); len(chunk) < pairChunk {
			return true, nil
		}
		return true, use()
	})
	if err != nil {
		return err
	}
	return use()
}

// among returns those of the creation times in made whose pins have the pair p. made is sorted
// newest first, and is overwritten.
func (c *conjunction) among(made []Millis, p pair) ([]Millis, error) {
	if len(made) == 0 {
		return made, nil
	}
	index := metaIndex(c.account, p)
	found, at, read := made[:0], 0, 0 // made[:at] are decided
	// found is never longer than what is decided, so it overwrites nothing that is needed.
	err := c.r.Scan(slices.Clone(index).descending(made[0]), slices.Clone(index).descending(made[len(made)-1]-1), false, func(k, _ []byte) (bool, error) {
		created, err := createdOf(k, index)
		if err != nil {
			return false, err
		}
		for at < len(made) && made[at] > created {
			at++
		}
		read++
		if at == len(made) || made[at] != created {
			return read < entriesPerLookup*len(made), c.scanned.add(1, 0)
		}
		found = append(found, created)
		at++
		return at < len(made) && read < entriesPerLookup*len(made), nil
	})
	if err != nil || read < entriesPerLookup*len(made) {
		return found, err
	}
	for _, created := range made[at:] {
		ok, err := has(c.r, slices.Clone(index).descending(created))
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, created)
		} else if err := c.scanned.add(1, 0); err != nil {
			return nil, err
		}
	}
	return found, nil
}
