package objects

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-ipfs/holdfast/consensus/state"
)

// MaxSorted is the largest number of keys and common prefixes that Sorted can sort. The state has
// no index by size or by time, so Sorted reads all of them for each page.
const MaxSorted = 10_000

// SortedQuery asks for a page of the objects in a bucket, sorted by size or by creation time. The
// common prefixes precede all objects, always in the order of their names.
type SortedQuery struct {
	Prefix, Delimiter string // as in state.ObjectsQuery
	ByTime            bool   // by time; else by size
	Descending        bool
	// After is the last key or common prefix of the previous page; "" for the first page. If
	// After is a key, Value is the size in bytes or the creation time in milliseconds of that
	// object.
	After string
	Value int64
	Limit int // at most state.MaxListLimit
}

// value returns the number by which the query sorts an object.
func (q *SortedQuery) value(o *state.Object) int64 {
	if q.ByTime {
		return int64(o.Created)
	}
	return int64(o.Size) //nolint:gosec // an object has less than 2^63 bytes
}

// compare compares two objects in the order of the query. Objects with equal values are in the
// order of their keys.
func (q *SortedQuery) compare(a, b *state.Object) int {
	by := cmp.Compare(q.value(a), q.value(b))
	if q.Descending {
		by = -by
	}
	return cmp.Or(by, strings.Compare(a.Key, b.Key))
}

// Sorted returns a page of a bucket's objects, sorted by size or by creation time. many is true
// if there are more than MaxSorted keys and common prefixes; then the page is empty.
//
// Errors: state.ErrNoBucket; state.ErrUnavailable without a majority.
func (o *Objects) Sorted(ctx context.Context, a state.AccountID, bucket string, q SortedQuery) (page state.ObjectsPage, many bool, err error) {
	var all state.ObjectsPage
	err = o.read(ctx, func(v state.View) error {
		b, err := v.Bucket(a, bucket)
		if err != nil {
			return err
		}
		all, many, err = listAll(ctx, v, &b, &q, MaxSorted)
		return err
	})
	if err != nil {
		return page, false, fmt.Errorf("sort objects: %w", err)
	}
	if many {
		return page, true, nil
	}
	return q.page(&all), false, nil
}

// listAll returns all objects and common prefixes of the query. If there are more than most, it
// returns none and many is true.
func listAll(ctx context.Context, v state.View, b *state.Bucket, q *SortedQuery, most int) (all state.ObjectsPage, many bool, err error) {
	next := state.ObjectsQuery{Prefix: q.Prefix, Delimiter: q.Delimiter, Limit: state.MaxListLimit}
	for {
		part, err := v.Objects(b, next)
		if err != nil {
			return all, false, err
		}
		all.Objects, all.Prefixes = append(all.Objects, part.Objects...), append(all.Prefixes, part.Prefixes...)
		if n := len(all.Objects) + len(all.Prefixes); n > most || n == most && part.Truncated {
			return state.ObjectsPage{}, true, nil
		}
		if !part.Truncated {
			return all, false, nil
		}
		if err := ctx.Err(); err != nil {
			return all, false, err
		}
		next.After = part.Next
	}
}

// page sorts all objects and common prefixes and returns the page that the query asks for.
func (q *SortedQuery) page(all *state.ObjectsPage) (page state.ObjectsPage) {
	limit := min(q.Limit, state.MaxListLimit)
	slices.SortFunc(all.Objects, func(a, b state.Object) int { return q.compare(&a, &b) })
	prefixes, objects := all.Prefixes, all.Objects
	switch {
	case q.After == "":
	case q.Delimiter != "" && strings.HasSuffix(q.After, q.Delimiter) && q.After != q.Prefix:
		at, found := slices.BinarySearch(prefixes, q.After)
		if found {
			at++
		}
		prefixes = prefixes[at:]
	default:
		last := state.Object{Key: q.After, Size: uint64(max(q.Value, 0)), Created: state.Millis(q.Value)}
		at, found := slices.BinarySearchFunc(objects, &last, func(o state.Object, last *state.Object) int { return q.compare(&o, last) })
		if found {
			at++
		}
		prefixes, objects = nil, objects[at:]
	}
	page.Prefixes = prefixes[:min(len(prefixes), limit)]
	page.Objects = objects[:min(len(objects), limit-len(page.Prefixes))]
	if len(page.Prefixes)+len(page.Objects) == len(prefixes)+len(objects) {
		return page
	}
	page.Truncated = true
	if n := len(page.Objects); n > 0 {
		page.Next = page.Objects[n-1].Key
	} else {
		page.Next = page.Prefixes[len(page.Prefixes)-1]
	}
	return page
}
