package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ipfs/go-cid"
)

// Match is a way to compare names, with the names of the Pinning Service API 1.0.0.
type Match uint8

// The four ways to compare names. IExact and IPartial ignore letter case.
const (
	Exact    Match = iota // equal
	IExact                // equal, ignoring letter case
	Partial               // contains
	IPartial              // contains, ignoring letter case
)

// PinQuery selects pins of one account. A field with its zero value does not restrict the result,
// except Limit.
type PinQuery struct {
	CIDs          []cid.Cid // any of these; CIDv0 and CIDv1 of the same hash are different
	Statuses      []Status  // any of these
	Name          string
	Match         Match
	Before, After Millis // created strictly before Before and strictly after After
	Meta          map[string]string
	Limit         int // rows returned, at least 0

	// Brief makes ListPins return ErrLong instead of reading many rows.
	Brief bool
}

// ErrLong is returned by ListPins for a Brief query that would have to read many rows.
var ErrLong = errors.New("state: the list is long")

// Limits of a list of pins.
const (
	// MaxListBytes is the largest size of a page in bytes, as ListBytes counts its rows.
	MaxListBytes = 4 << 20
	// rowBytes is the size that ListBytes adds for each row, and textBytes the size that it adds
	// for each origin and each pair of meta.
	rowBytes  = 256
	textBytes = 64
	// A Brief query fails with ErrLong above briefRows rows that are read but not returned, or
	// above briefBytes bytes that are read.
	briefRows  = 1024
	briefBytes = 2 << 20
	// When pins are counted, rows are read only at the edges of a time range. edgeBytes of each
	// such row are not counted against briefBytes, because the intervals of the counters bound
	// the number of these rows.
	edgeBytes = 1 << 10
	// maxNamed is the largest number of pins that are read one by one after a search by name has
	// found them.
	maxNamed = 1024
	// checkEvery is the number of rows between two checks of the context.
	checkEvery = 256
)

// ListBytes returns about how much memory a row takes, in bytes.
func ListBytes(p *Pin) int {
	n := rowBytes + len(p.Name)
	for _, o := range p.Origins {
		n += textBytes + len(o)
	}
	for k, v := range p.Meta {
		n += textBytes + len(k) + len(v)
	}
	return n
}

// ListPins returns the newest pins that match the query, newest first, and the number of all
// matches. A page has at most Limit rows, and ends before the row that would exceed MaxListBytes,
// unless that is the first row. For the next page, the caller sets Before to the creation time of
// the last row. Errors: that of ctx, ErrLong for a Brief query.
//
// The cost depends on the filters:
//
//   - None by CID, name or meta: it reads the returned rows and counters.
//   - By CID or exact name: the pins with that CID or name.
//   - By one pair of meta: the returned rows and counters. By several pairs: also bits of the
//     pairs or entries of the index, and the rows of pins that are not pinned.
//   - By another match of the name: the account's packed names, the returned rows, and the rows
//     of pins that are not pinned.
//   - Otherwise: all rows of the account with the requested statuses and times.
func (v View) ListPins(ctx context.Context, a AccountID, q PinQuery) (total uint64, pins []Pin, err error) {
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
	l := lister{
		r: v.r, account: a, q: &q, filter: q.filter(),
		scanned: scanned{over: ctx.Err, brief: q.Brief}, page: page{limit: q.Limit},
	}
	if err := l.list(); err != nil {
		return 0, nil, err
	}
	return l.total, l.page.done(), nil
}

// lister is the state of one call of ListPins.
type lister struct {
	r       Reader
	account AccountID
	q       *PinQuery
	filter  filter
	scanned scanned
	page    page
	total   uint64

	// unpinned has the creation times of packed pins that match and are not pinned, newest first.
	// Only lists by packed names and by bits of pairs set it.
	unpinned []Millis
	bitsTo   Millis // creation time up to which pins are listed by bits of pairs
}

func (l *lister) list() error {
	switch q := l.q; {
	case len(q.CIDs) > 0:
		for _, c := range distinct(q.CIDs) {
			if err := l.indexed(cidIndex(l.account, c)); err != nil {
				return err
			}
		}
		return nil
	case q.Name != "" && q.Match == Exact:
		l.filter.name = nil // the index has checked it
		return l.indexed(nameIndex(l.account, q.Name))
	case len(q.Meta) > 0:
		if done, err := l.byMeta(); done || err != nil {
			return err
		}
	}
	if l.filter.name != nil {
		if done, err := l.byName(); done || err != nil {
			return err
		}
	}
	every := l.filter.every()
	for _, s := range l.q.Statuses {
		if every {
			n, err := l.countPins(s, l.q.After+1, l.q.Before)
			if err != nil {
				return err
			}
			l.total += n
		}
		if err := l.rows(s, every); err != nil {
			return err
		}
	}
	return nil
}

// scanned counts the rows and bytes that a list has read, to stop it at its limits.
type scanned struct {
	over        func() error // returns the error of ctx, if it has ended
	brief       bool
	rows, bytes int
	calls       int
}

// add counts rows that were read but are not returned, and bytes that were read. It returns an
// error if the list must stop.
func (s *scanned) add(rows, bytes int) error {
	s.rows += rows
	s.bytes += bytes
	if s.brief && (s.rows > briefRows || s.bytes > briefBytes) {
		return ErrLong
	}
	if s.calls++; s.calls%checkEvery == 0 {
		return s.over()
	}
	return nil
}

// keep decodes a row and adds it to the page.
func (l *lister) keep(row []byte) error {
	p, err := decode[Pin](row)
	if err != nil {
		return err
	}
	return l.scanned.add(0, l.page.add(p))
}

// maxMillis is later than every time. The top bit stays free for arithmetic.
const maxMillis = Millis(1) << 62

// window returns the key range of creation times between After and Before under a prefix that
// sorts by descending time.
func (q *PinQuery) window(prefix key) (lower, upper key) {
	return slices.Clone(prefix).descending(q.Before - 1), slices.Clone(prefix).descending(max(q.After, 0))
}

// rows reads the pins with a status, newest first. every means that all pins match and are
// already counted in total; rows then stops at the end of the page.
func (l *lister) rows(s Status, every bool) error {
	if every && !l.page.wants() {
		return nil
	}
	defer l.page.next()
	lower, upper := l.q.window(pinKey(l.account, pinRow).byte(byte(s)))
	return l.r.Scan(lower, upper, false, func(_, row []byte) (bool, error) {
		err := l.offer(row, every)
		return !every || l.page.wants(), err
	})
}

// offer adds a row to the page if it matches. It also counts the match in total, unless every
// says that all pins are counted already.
func (l *lister) offer(row []byte, every bool) error {
	matches, err := l.filter.match(row)
	if err != nil {
		return err
	}
	if matches && !every {
		l.total++
	}
	if !matches || !l.page.wants() {
		return l.scanned.add(1, len(row))
	}
	return l.keep(row)
}

// indexed lists the pins to which the index entries with a prefix refer, newest first. It reads a
// pin's row only if the row is returned or the index cannot decide whether the pin matches.
func (l *lister) indexed(prefix key) error {
	defer l.page.next()
	lower, upper := l.q.window(prefix)
	return l.r.Scan(lower, upper, false, func(_, id []byte) (bool, error) { return l.pin(RequestID(id)) })
}

// pin lists the pin with the id, which an index has named, if it matches. more is true unless
// there is an error.
func (l *lister) pin(id RequestID) (more bool, err error) {
	at, err := locate(l.r, l.account, id)
	if err != nil {
		return false, err
	}
	if at == nil {
		return false, fmt.Errorf("state: index names pin %s, which does not exist", id)
	}
	every, listed := l.filter.every(), slices.Contains(l.q.Statuses, at.Status)
	if listed && every {
		l.total++
	}
	if !listed || every && !l.page.wants() {
		return true, l.scanned.add(1, len(id))
	}
	row, err := rowAt(l.r, at)
	if err != nil {
		return false, err
	}
	return true, l.offer(row, every)
}

// distinct returns the CIDs of a list without repetitions.
func distinct(cids []cid.Cid) (each []cid.Cid) {
	for _, c := range cids {
		if !slices.ContainsFunc(each, c.Equals) {
			each = append(each, c)
		}
	}
	return each
}

// page collects the newest pins from several runs; each run adds pins newest first. It stores few
// more pins than it finally returns.
type page struct {
	limit int
	pins  []Pin
	bytes int // bytes of pins
	run   int // start in pins of the run that is being added
	taken int // bytes added in that run
}

// wants returns true if the next pin of the run may belong to the page. The caller may stop the
// run at false. The pin that exceeds MaxListBytes is still accepted.
func (p *page) wants() bool { return len(p.pins)-p.run < p.limit && p.taken <= MaxListBytes }

// add appends the next pin of the run, and returns its size by ListBytes.
func (p *page) add(pin *Pin) int {
	n := ListBytes(pin)
	p.pins = append(p.pins, *pin)
	p.bytes += n
	p.taken += n
	return n
}

// next ends the current run of pins and begins another.
func (p *page) next() {
	if p.bytes > MaxListBytes {
		p.cut(1)
	}
	p.run, p.taken = len(p.pins), 0
}

// done returns the finished page.
func (p *page) done() []Pin {
	p.cut(0)
	return p.pins
}

// cut sorts the pins and removes those that do not fit on the page, except for more of them.
func (p *page) cut(more int) {
	slices.SortFunc(p.pins, func(a, b Pin) int {
		if a.Created != b.Created {
			return int(min(max(b.Created-a.Created, -1), 1))
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	n, sum := 0, 0
	for n < min(len(p.pins), p.limit) {
		if sum += ListBytes(&p.pins[n]); sum > MaxListBytes && n > 0 {
			n = min(n+more, p.limit)
			break
		}
		n++
	}
	clear(p.pins[n:])
	p.pins = p.pins[:n]
	p.bytes = 0
	for i := range p.pins {
		p.bytes += ListBytes(&p.pins[i])
	}
}
