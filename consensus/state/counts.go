package state

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// buckets counts rows by their creation time. It adds stored counters, each of which counts the
// rows of one time interval, and reads rows only at the edges. The intervals of a level have a
// length of 1<<counterShifts[level] ms.
type buckets struct {
	r       Reader
	scanned *scanned
	counter func(level int) key                         // prefix of the counters of a level
	each    func(from, to Millis) (n uint64, err error) // counts rows in [from, to) by reading them
}

// countPins returns how many pins with a status the account has that were created in [from, to).
func (l *lister) countPins(s Status, from, to Millis) (uint64, error) {
	b := buckets{
		r: l.r, scanned: &l.scanned,
		counter: func(level int) key { return pinKey(l.account, pinCounter).byte(byte(s)).byte(byte(level)) },
		each: func(from, to Millis) (n uint64, err error) {
			q := PinQuery{After: from - 1, Before: to}
			lower, upper := q.window(pinKey(l.account, pinRow).byte(byte(s)))
			err = l.r.Scan(lower, upper, false, func(_, row []byte) (bool, error) {
				n++
				return true, l.scanned.add(0, max(len(row)-edgeBytes, 0))
			})
			return n, err
		},
	}
	return b.count(from, to)
}

// count returns the number of rows that were created in [from, to).
func (b *buckets) count(from, to Millis) (uint64, error) {
	last := len(counterShifts) - 1
	if from <= 1 && to >= maxMillis {
		return counter(b.r, b.counter(last).descending(0))
	}
	return b.countLevel(last-1, from, to)
}

// countLevel adds the counters of the intervals of a level that lie completely in [from, to). For
// the rest at both edges it uses the next finer level.
func (b *buckets) countLevel(level int, from, to Millis) (uint64, error) {
	if from >= to {
		return 0, nil
	}
	if level < 0 {
		return b.each(from, to)
	}
	first, end := wholeBuckets(level, from, to)
	if first >= end {
		return b.countLevel(level-1, from, to)
	}
	var n uint64
	if err := scanCounters(b.r, b.scanned, b.counter(level), first, end, func(_ Millis, of uint64) { n += of }); err != nil {
		return 0, err
	}
	shift := counterShifts[level]
	older, err := b.countLevel(level-1, from, first<<shift)
	if err != nil {
		return 0, err
	}
	newer, err := b.countLevel(level-1, end<<shift, to)
	return n + older + newer, err
}

// wholeBuckets returns the numbers [first, end) of the intervals of a level that lie completely
// in [from, to).
func wholeBuckets(level int, from, to Millis) (first, end Millis) {
	shift := counterShifts[level]
	return (from + (1 << shift) - 1) >> shift, to >> shift
}

// scanCounters calls fn for the counters with the given prefix of the intervals [first, end),
// newest first.
func scanCounters(r Reader, scanned *scanned, prefix key, first, end Millis, fn func(bucket Millis, n uint64)) error {
	lower, upper := slices.Clone(prefix).descending(end-1), slices.Clone(prefix).end()
	if first > 0 {
		upper = slices.Clone(prefix).descending(first - 1)
	}
	return r.Scan(lower, upper, false, func(k, value []byte) (bool, error) {
		if len(value) != 8 || len(k) != len(prefix)+8 {
			return false, fmt.Errorf("state: pin counter %x of %d bytes", k, len(value))
		}
		fn(Millis(^binary.BigEndian.Uint64(k[len(prefix):])), binary.BigEndian.Uint64(value))
		return true, scanned.add(0, len(value))
	})
}
