package kv

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// gapSteps is how many deleted keys a scan has passed before its first one, that it is
	// worth remembering.
	gapSteps = 32
	// maxGaps is how many gaps are remembered; with more, all are forgotten.
	maxGaps = 64
)

// gaps cache, for ranges that begin with many deleted keys, the first key that is left. A
// caller that takes keys from the front of a range would otherwise pass all deleted keys each
// time, until Pebble has removed them. Store.writer guards them. There is one writer, so a gap
// stays valid until that writes into it.
type gaps struct {
	all   []gap
	steps int // gapSteps, unless a test says otherwise
}

// gap is a range without a key: from at least, below to.
type gap struct{ from, to []byte }

func (g *gaps) find(from []byte) *gap {
	for i := range g.all {
		if bytes.Equal(g.all[i].from, from) {
			return &g.all[i]
		}
	}
	return nil
}

// skip returns where a scan of [lower, upper) may begin; false: there is nothing in it.
func (g *gaps) skip(lower, upper []byte) (from []byte, anything bool) {
	known := g.find(lower)
	if known == nil {
		return lower, true
	}
	return known.to, upper == nil || bytes.Compare(known.to, upper) < 0
}

// learn notes that there is nothing from lower on below to.
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

// wrote notes a key that a commit has set.
func (g *gaps) wrote(key string) {
	for i := range g.all {
		if known := &g.all[i]; string(known.from) <= key && key < string(known.to) {
			known.to = []byte(key)
		}
	}
}

func (g *gaps) clear() { g.all = nil }

// passed is how many keys, deleted ones included, an iterator has stepped over.
func passed(it *pebble.Iterator) int {
	return it.Stats().ForwardStepCount[pebble.InternalIterCall]
}
