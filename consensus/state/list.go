package state

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/ipfs/go-cid"
)

// Match is a way to compare names, as the Pinning Service API 1.0.0 names them.
type Match uint8

// The four ways.
const (
	Exact    Match = iota // equal
	IExact                // equal, letter case aside
	Partial               // contains
	IPartial              // contains, letter case aside
)

// PinQuery selects pins of one account. The zero value of a field selects all.
type PinQuery struct {
	CIDs          []cid.Cid // any of these; versions of a CID are different
	Statuses      []Status  // any of these
	Name          string
	Match         Match
	Before, After Millis // created strictly before, strictly after
	Meta          map[string]string
	Limit         int // rows returned, at least 0
}

// ListPins returns the newest pins that match, newest first, and how many match
// in all. Without filters by cid, name or meta it reads the rows it returns and
// counters; with one by cid or exact name, the pins of that cid or name; else
// the account's rows of those statuses and times.
func (v View) ListPins(a AccountID, q PinQuery) (total uint64, pins []Pin, err error) {
	if len(q.Statuses) == 0 {
		q.Statuses = Statuses()
	}
	q.Statuses = slices.Compact(slices.Sorted(slices.Values(q.Statuses)))
	if q.Before == 0 {
		q.Before = maxMillis
	}
	q.After = max(q.After, 0) // nothing is older
	if q.After+1 >= q.Before {
		return 0, nil, nil
	}
	switch {
	case len(q.CIDs) > 0:
		return v.listIndexed(a, &q, cidRanges(a, &q))
	case q.Name != "" && q.Match == Exact:
		return v.listIndexed(a, &q, []key{nameIndex(a, q.Name)})
	case q.Name != "" || len(q.Meta) > 0:
		return v.listScanned(a, &q)
	}
	for _, s := range q.Statuses {
		n, err := v.countPins(a, s, q.After+1, q.Before)
		if err != nil {
			return 0, nil, err
		}
		total += n
		rows, err := v.rows(a, s, &q)
		if err != nil {
			return 0, nil, err
		}
		pins = append(pins, rows...)
	}
	return total, newestFirst(pins, q.Limit), nil
}

// maxMillis is above every time; the top bit stays free for arithmetic.
const maxMillis = Millis(1) << 62

// window narrows a range ordered by descending time to (after, before).
func (q *PinQuery) window(prefix key) (lower, upper key) {
	return slices.Clone(prefix).descending(q.Before - 1), slices.Clone(prefix).descending(max(q.After, 0))
}

// rows returns the newest pins of a status, Limit at the most.
func (v View) rows(a AccountID, s Status, q *PinQuery) (pins []Pin, err error) {
	if q.Limit == 0 {
		return nil, nil
	}
	lower, upper := q.window(pinKey(a, pinRow).byte(byte(s)))
	err = v.r.Scan(lower, upper, false, func(_, value []byte) (bool, error) {
		p, err := decode[Pin](value)
		if err != nil {
			return false, err
		}
		pins = append(pins, *p)
		return len(pins) < q.Limit, nil
	})
	return pins, err
}

// listScanned reads every row in the window and keeps the newest that match.
func (v View) listScanned(a AccountID, q *PinQuery) (total uint64, pins []Pin, err error) {
	match := q.matcher()
	for _, s := range q.Statuses {
		kept := 0
		lower, upper := q.window(pinKey(a, pinRow).byte(byte(s)))
		err := v.r.Scan(lower, upper, false, func(_, value []byte) (bool, error) {
			p, err := decode[Pin](value)
			if err != nil {
				return false, err
			}
			if match(p) {
				total++
				if kept < q.Limit { // the newest of this status come first
					pins = append(pins, *p)
					kept++
				}
			}
			return true, nil
		})
		if err != nil {
			return 0, nil, err
		}
	}
	return total, newestFirst(pins, q.Limit), nil
}

func cidRanges(a AccountID, q *PinQuery) []key {
	var prefixes []key
	for _, c := range q.CIDs {
		k := cidIndex(a, c)
		if !slices.ContainsFunc(prefixes, func(p key) bool { return string(p) == string(k) }) {
			prefixes = append(prefixes, k)
		}
	}
	return prefixes
}

// listIndexed reads the pins that an index names.
func (v View) listIndexed(a AccountID, q *PinQuery, prefixes []key) (total uint64, pins []Pin, err error) {
	match := q.matcher()
	for _, prefix := range prefixes {
		var ids []RequestID
		lower, upper := q.window(prefix)
		err := v.r.Scan(lower, upper, false, func(_, value []byte) (bool, error) {
			ids = append(ids, RequestID(value))
			return true, nil
		})
		if err != nil {
			return 0, nil, err
		}
		kept := 0
		for _, id := range ids {
			p, err := findPin(v.r, a, id)
			if err != nil {
				return 0, nil, err
			}
			if p == nil {
				return 0, nil, fmt.Errorf("state: index names pin %s, which does not exist", id)
			}
			if slices.Contains(q.Statuses, p.Status) && match(p) {
				total++
				if kept < q.Limit {
					pins = append(pins, *p)
					kept++
				}
			}
		}
	}
	return total, newestFirst(pins, q.Limit), nil
}

func newestFirst(pins []Pin, limit int) []Pin {
	slices.SortFunc(pins, func(a, b Pin) int {
		if a.Created != b.Created {
			return int(min(max(b.Created-a.Created, -1), 1))
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return pins[:min(len(pins), limit)]
}

// matcher tells whether a pin has the name and meta that are asked for.
func (q *PinQuery) matcher() func(*Pin) bool {
	name := nameMatcher(q.Name, q.Match)
	return func(p *Pin) bool {
		if !name(p.Name) {
			return false
		}
		for k, want := range q.Meta {
			if got, ok := p.Meta[k]; !ok || got != want {
				return false
			}
		}
		return true
	}
}

func nameMatcher(want string, how Match) func(string) bool {
	if want == "" {
		return func(string) bool { return true }
	}
	folded := fold(want)
	switch how {
	case IExact:
		return func(name string) bool { return strings.EqualFold(name, want) }
	case Partial:
		return func(name string) bool { return strings.Contains(name, want) }
	case IPartial:
		return func(name string) bool { return strings.Contains(fold(name), folded) }
	default:
		return func(name string) bool { return name == want }
	}
}

// fold maps every character to the smallest of its simple case folding orbit,
// the equivalence that strings.EqualFold compares by.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, s)
}

// countPins counts an account's pins of a status created in [from, to).
func (v View) countPins(a AccountID, s Status, from, to Millis) (uint64, error) {
	last := len(counterShifts) - 1
	if from <= 1 && to >= maxMillis {
		return counter(v.r, counterKey(a, s, last, 0))
	}
	return v.countLevel(a, s, last-1, from, to)
}

// countLevel adds the whole buckets of a level, and goes a level down at both edges.
func (v View) countLevel(a AccountID, s Status, level int, from, to Millis) (uint64, error) {
	if from >= to {
		return 0, nil
	}
	if level < 0 {
		q := PinQuery{After: from - 1, Before: to}
		lower, upper := q.window(pinKey(a, pinRow).byte(byte(s)))
		var n uint64
		err := v.r.Scan(lower, upper, false, func(_, _ []byte) (bool, error) { n++; return true, nil })
		return n, err
	}
	shift := counterShifts[level]
	first, end := (from+(1<<shift)-1)>>shift, to>>shift // whole buckets: [first, end)
	if first >= end {
		return v.countLevel(a, s, level-1, from, to)
	}
	prefix := pinKey(a, pinCounter).byte(byte(s)).byte(byte(level))
	var n uint64
	err := v.r.Scan(slices.Clone(prefix).descending(end-1), slices.Clone(prefix).descending(first-1), false, func(_, value []byte) (bool, error) {
		if len(value) != 8 {
			return false, fmt.Errorf("state: pin counter of %d bytes", len(value))
		}
		n += binary.BigEndian.Uint64(value)
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	older, err := v.countLevel(a, s, level-1, from, first<<shift)
	if err != nil {
		return 0, err
	}
	newer, err := v.countLevel(a, s, level-1, end<<shift, to)
	return n + older + newer, err
}
