package state

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// buckets counts rows by their creation time. It has counters of the widths of counterShifts.
type buckets struct {
	r       Reader
	scanned *scanned
	counter func(level int) key                         // prefix of the counters of a level
	each    func(from, to Millis) (n uint64, err error) // counts rows in [from, to) by reading them
}

// countPins counts an account's pins of a status created in [from, to).
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

// count counts the rows created in [from, to).
func (b *buckets) count(from, to Millis) (uint64, error) {
	last := len(counterShifts) - 1
	if from <= 1 && to >= maxMillis {
		return counter(b.r, b.counter(last).descending(0))
	}
	return b.countLevel(last-1, from, to)
}

// countLevel adds the complete buckets of a level. At both edges it uses the next finer level.
func (b *buckets) countLevel(level int, from, to Millis) (uint64, error) {
	if from >= to {
		return 0, nil
	}
	if level < 0 {
		return b.each(from, to)
	}
	shift := counterShifts[level]
	first, end := (from+(1<<shift)-1)>>shift, to>>shift // whole buckets: [first, end)
	if first >= end {
		return b.countLevel(level-1, from, to)
	}
	prefix := b.counter(level)
	var n uint64
	err := b.r.Scan(slices.Clone(prefix).descending(end-1), slices.Clone(prefix).descending(first-1), false, func(_, value []byte) (bool, error) {
		if len(value) != 8 {
			return false, fmt.Errorf("state: pin counter of %d bytes", len(value))
		}
		n += binary.BigEndian.Uint64(value)
		return true, b.scanned.add(0, len(value))
	})
	if err != nil {
		return 0, err
	}
	older, err := b.countLevel(level-1, from, first<<shift)
	if err != nil {
		return 0, err
	}
	newer, err := b.countLevel(level-1, end<<shift, to)
	return n + older + newer, err
}
