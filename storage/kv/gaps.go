package kv

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// gapSteps is the number of deleted keys that a scan must have passed before its first key,
	// before the store remembers the gap.
	gapSteps = 32
	// maxGaps is the largest number of remembered gaps. When it is exceeded, the store forgets all
	// gaps.
	maxGaps = 64
)

// gaps remembers, for ranges that begin with many deleted keys, the first key that still exists.
// Without it, a caller that repeatedly takes keys from the front of a range would pass all deleted
// keys each time, until Pebble has removed them. Store.writer guards gaps. The store has only one
// writer, so a gap stays valid until this writer sets a key in it.
type gaps struct {
	all   []gap
	steps int // gapSteps; tests set another number
}

// gap is a range without keys. The range begins with the key from and ends before the key to.
type gap struct{ from, to []byte }

func (g *gaps) find(from []byte) *gap {
	for i := range g.all {
		if bytes.Equal(g.all[i].from, from) {
			return &g.all[i]
		}
	}
	return nil
}

// skip returns the key at which a scan of [lower, upper) may begin. The second result is false
// if the range has no keys.
func (g *gaps) skip(lower, upper []byte) (from []byte, anything bool) {
	known := g.find(lower)
	if known == nil {
		return lower, true
	}
	return known.to, upper == nil || bytes.Compare(known.to, upper) < 0
}

// learn remembers that no key exists from lower up to, but not including, the key to.
func (g *gaps) learn(lower, to []byte) {
	if known := g.find(lower); known != nil {
		known.to = bytes.Clone(to)
		return
	}
	if len(g.all) == maxGaps {
		g.clear()
	}
	g.all = append(g.all, gap{bytes.Clone(lower), bytes.Clone(to)})
}

// wrote shortens the gap in which a commit has set the key, so that the gap ends before this key.
func (g *gaps) wrote(key string) {
	for i := range g.all {
		if known := &g.all[i]; string(known.from) <= key && key < string(known.to) {
			known.to = []byte(key)
		}
	}
}

func (g *gaps) clear() { g.all = nil }

// passed returns the number of keys that an iterator has stepped over, including deleted keys.
func passed(it *pebble.Iterator) int {
	return it.Stats().ForwardStepCount[pebble.InternalIterCall]
}
