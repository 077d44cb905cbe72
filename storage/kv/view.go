package kv

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// View reads the store as it was when the view was opened, without regard to later writes and
// restores. It may be used concurrently and must be closed.
type View struct {
	store *Store
	gen   *generation
	at    *point
	err   error // error of all methods if the store was closed

	closing sync.Once
}

// View opens a view of everything that is committed so far. On a closed store every method of
// the view returns ErrClosed.
func (s *Store) View() *View {
	g, err := s.acquire()
	if err != nil {
		return &View{err: err}
	}
	return &View{store: s, gen: g, at: g.current()}
}

// Get returns the value of key. The value belongs to the caller.
func (v *View) Get(key []byte) (value []byte, ok bool, err error) {
	if v.err != nil {
		return nil, false, v.err
	}
	return v.at.get(key)
}

// Scan calls fn for each key in [lower, upper) in ascending order, or in descending order if
// reverse is true, until fn returns false or an error. A nil bound means no bound. The slices are
// valid only during the call.
func (v *View) Scan(lower, upper []byte, reverse bool, fn func(key, value []byte) (more bool, err error)) error {
	if v.err != nil {
		return v.err
	}
	return scan(v.at.iterator, lower, upper, reverse, fn)
}

// Walk does the same as Scan in ascending order. fn may return a later key, on, at which Walk
// continues; nil means the next key. One Walk costs less than several Scans.
func (v *View) Walk(lower, upper []byte, fn func(key, value []byte) (on []byte, more bool, err error)) error {
	if v.err != nil {
		return v.err
	}
	return walk(v.at.iterator, lower, upper, fn)
}

// Close releases the view. It may be called twice. After Close the view must not be read.
func (v *View) Close() {
	if v.err != nil {
		return
	}
	v.closing.Do(func() {
		// A failed Close of a view loses no acknowledged data, so it is logged and not
		// returned.
		err := errors.Join(v.at.close(), v.gen.release(v.store.log))
		if err != nil {
			v.store.log.Error("cannot close a view cleanly", "err", err)
		}
	})
}

func get(r pebble.Reader, key []byte) ([]byte, bool, error) {
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("kv: get: %w", coded(err))
	}
	owned := append(make([]byte, 0, len(value)), value...)
	if err := closer.Close(); err != nil {
		return nil, false, fmt.Errorf("kv: get: %w", coded(err))
	}
	return owned, true, nil
}

// opener opens an iterator.
type opener = func(*pebble.IterOptions) (*pebble.Iterator, error)

func scan(open opener, lower, upper []byte, reverse bool, fn visit) (err error) {
	return iterate(open, lower, upper, func(it *pebble.Iterator) error {
		first, next := it.First, it.Next
		if reverse {
			first, next = it.Last, it.Prev
		}
		return visitAll(it, first, next, fn)
	})
}

// visitAll calls fn for each position of an iterator until fn returns false.
func visitAll(it *pebble.Iterator, first, next func() bool, fn visit) error {
	for ok := first(); ok; ok = next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("kv: scan: %w", coded(err))
		}
		more, err := fn(it.Key(), value)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func walk(open opener, lower, upper []byte, fn func(key, value []byte) (on []byte, more bool, err error)) error {
	return iterate(open, lower, upper, func(it *pebble.Iterator) error {
		for ok := it.First(); ok; {
			value, err := it.ValueAndErr()
			if err != nil {
				return fmt.Errorf("kv: scan: %w", coded(err))
			}
			on, more, err := fn(it.Key(), value)
			if err != nil || !more {
				return err
			}
			if on == nil {
				ok = it.Next()
			} else {
				ok = it.SeekGE(on)
			}
		}
		return nil
	})
}

// iterate opens an iterator and passes it to fn.
func iterate(open opener, lower, upper []byte, fn func(it *pebble.Iterator) error) (err error) {
	it, err := open(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return fmt.Errorf("kv: scan: %w", coded(err))
	}
	defer func() {
		// Close returns the iterator's error again, which is the reason why it stopped.
		if cerr := it.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("kv: scan: %w", coded(cerr))
		}
	}()
	return fn(it)
}
