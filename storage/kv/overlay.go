package kv

import (
	"slices"
	"strings"
)

// known is what a transaction knows about a key that it has read or written.
type known struct {
	value   []byte
	exists  bool
	written bool // written by this transaction; otherwise only read
	reread  bool // the key existed when it was read, so its value is cached after the commit
	missing bool // the store has no such key, so a deletion need not be written
	again   bool // the transaction deleted the key before it set it
}

// overlay has the keys that a transaction has read and written. At the end of the transaction, each
// written key is written to Pebble once, even if it was changed several times, and in the order of
// keys. For memtables this is several times faster.
type overlay struct {
	keys map[string]*known
	// written has the keys of the writes by their first byte, so that a scan reads only
	// those that can be in its range.
	written map[byte]*group
	size    int // approximate size of the writes in bytes
}

// group has the keys that begin with the same byte.
type group struct {
	sorted []string // never changed in place, because scans read it
	added  []string // keys added since sorted was made
}

func newOverlay() overlay {
	return overlay{keys: make(map[string]*known), written: make(map[byte]*group)}
}

// batchKeyBytes is the size of a write in a batch, in addition to its key and value.
const batchKeyBytes = 12

// write records the new value of a key, or that the key is deleted.
func (o *overlay) write(key, value []byte, exists bool) {
	k := o.keys[string(key)]
	again := k != nil && k.written && !k.exists && exists
	if k == nil || !k.written {
		name := string(key)
		if k == nil {
			k = new(known)
			o.keys[name] = k
		}
		k.written = true
		var first byte
		if len(key) > 0 {
			first = key[0]
		}
		g := o.written[first]
		if g == nil {
			g = new(group)
			o.written[first] = g
		}
		g.added = append(g.added, name)
		o.size += len(key) + batchKeyBytes
	}
	o.size += len(value) - len(k.value)
	k.again = k.again || again
	k.value, k.exists = append([]byte(nil), value...), exists
}

// all returns the keys of the group in rising order.
func (g *group) all() []string {
	if len(g.added) == 0 {
		return g.sorted
	}
	slices.Sort(g.added)
	merged := make([]string, 0, len(g.sorted)+len(g.added))
	i, j := 0, 0
	for i < len(g.sorted) && j < len(g.added) {
		if g.sorted[i] < g.added[j] {
			merged = append(merged, g.sorted[i])
			i++
		} else {
			merged = append(merged, g.added[j])
			j++
		}
	}
	merged = append(append(merged, g.sorted[i:]...), g.added[j:]...)
	g.sorted, g.added = merged, nil
	return merged
}

// within returns the written keys in [lower, upper) in rising order; a nil bound means no
// bound. Later writes do not change the returned slice.
func (o *overlay) within(lower, upper []byte) []string {
	var firsts []byte
	for first := range o.written {
		if (len(lower) == 0 || first >= lower[0]) && (upper == nil || len(upper) > 0 && first <= upper[0]) {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	var found []string
	for _, first := range firsts {
		keys := o.written[first].all()
		from, _ := slices.BinarySearchFunc(keys, lower, compareKey)
		to := len(keys)
		if upper != nil {
			to, _ = slices.BinarySearchFunc(keys, upper, compareKey)
		}
		if from >= to {
			continue
		}
		if found == nil {
			found = keys[from:to:to]
		} else {
			found = append(found, keys[from:to]...)
		}
	}
	return found
}

func compareKey(key string, bound []byte) int { return strings.Compare(key, string(bound)) }

// merge calls fn for the pairs that scan yields, with the writes of the transaction to keys applied
// to them, in the direction of the scan. keys must be in ascending order.
func (o *overlay) merge(keys []string, reverse bool, fn visit, scan func(visit) error) error {
	next := func() string { return keys[0] }
	drop := func() { keys = keys[1:] }
	before := func(a string, b []byte) bool { return a < string(b) }
	if reverse {
		next = func() string { return keys[len(keys)-1] }
		drop = func() { keys = keys[:len(keys)-1] }
		before = func(a string, b []byte) bool { return a > string(b) }
	}
	ended := false
	// visitOwn visits the first of the writes that are left, if it is still there.
	visitOwn := func() (bool, error) {
		key := next()
		drop()
		k := o.keys[key]
		if !k.exists {
			return true, nil
		}
		more, err := fn([]byte(key), k.value)
		ended = ended || !more
		return more, err
	}
	err := scan(func(key, value []byte) (bool, error) {
		for len(keys) > 0 && before(next(), key) {
			if more, err := visitOwn(); err != nil || !more {
				return false, err
			}
		}
		if len(keys) > 0 && next() == string(key) {
			return visitOwn()
		}
		more, err := fn(key, value)
		ended = ended || !more
		return more, err
	})
	for err == nil && !ended && len(keys) > 0 {
		_, err = visitOwn()
	}
	return err
}

// visit is called with a key and its value, which are valid only during the call. The scan ends if
// it returns false or an error.
type visit = func(key, value []byte) (more bool, err error)
