package state

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// Limits of a tally.
const (
	tallyCells = 1 << 16 // cells, of 16 bytes each
	// openCells is the largest number of cells whose facts the second pass keeps, and openFacts the
	// largest number of these facts.
	openCells = 128
	openFacts = 1 << 16
)

// A fact is one thing that the state stores and that can be computed from other rows: either the
// row with a key, or a number. Numbers have a name, because one row can have several of them.
type fact struct {
	key  string
	name string // of a number; "" for a row
}

// tally compares facts that rows store with the same facts computed from other rows, without
// keeping them. It distributes the facts among cells by their keys. A cell is a sum of hashes, to
// which stored facts are added and from which computed ones are subtracted. So the order of facts
// does not matter, and a cell is zero if all its facts agree. The sums have 128 bits of SHA-256, so
// different facts have equal sums only by intent of somebody who can break SHA-256.
//
// A second pass over the same facts keeps those of the cells that were not zero.
type tally struct {
	cells []sum128
	open  map[uint16]bool // second pass: cells whose facts are kept
	shut  int             // second pass: cells that are not zero and whose facts are not kept
	facts map[fact]*values
	buf   []byte
}

type sum128 [2]uint64

// values are the values of one fact. A row should have one value; a number is the sum of values.
type values struct {
	stored, computed []string
	has, is          uint64 // numbers: stored and computed
}

func newTally() *tally { return &tally{cells: make([]sum128, tallyCells)} }

// again returns the tally for the second pass, or nil if all facts agree.
func (t *tally) again() *tally {
	next := &tally{open: map[uint16]bool{}, facts: map[fact]*values{}}
	for i, sum := range t.cells {
		switch {
		case sum == sum128{}:
		case len(next.open) < openCells:
			next.open[uint16(i)] = true
		default:
			next.shut++
		}
	}
	if len(next.open) == 0 {
		return nil
	}
	return next
}

// cellOf returns the cell of a fact, by FNV-1a.
func cellOf(k key, name string) uint16 {
	h := uint64(14695981039346656037)
	for _, b := range k {
		h = (h ^ uint64(b)) * 1099511628211
	}
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return uint16(h ^ h>>16 ^ h>>32 ^ h>>48)
}

// hash returns the hash of a fact and of the value of its row.
func (t *tally) hash(k key, name string, value []byte) sum128 {
	t.buf = binary.BigEndian.AppendUint32(t.buf[:0], uint32(len(k)))
	t.buf = append(append(t.buf, k...), byte(len(name)))
	t.buf = append(append(t.buf, name...), value...)
	h := sha256.Sum256(t.buf)
	return sum128{binary.BigEndian.Uint64(h[:]), binary.BigEndian.Uint64(h[8:])}
}

// row adds a row that is stored, or one that was computed.
func (t *tally) row(k key, value []byte, stored bool) {
	if v, ok := t.values(k, ""); ok {
		if v == nil {
			return
		}
		if stored {
			v.stored = append(v.stored, string(value))
		} else {
			v.computed = append(v.computed, string(value))
		}
		return
	}
	h := t.hash(k, "", value)
	t.add(cellOf(k, ""), h, 1, stored)
}

// number adds n to a number that is stored, or to one that is computed.
func (t *tally) number(k key, name string, n uint64, stored bool) {
	if n == 0 {
		return
	}
	if v, ok := t.values(k, name); ok {
		if v == nil {
			return
		}
		if stored {
			v.has += n
		} else {
			v.is += n
		}
		return
	}
	h := t.hash(k, name, nil)
	h[0], h[1] = h[0]|1, h[1]|1 // an odd factor: no difference vanishes
	t.add(cellOf(k, name), h, n, stored)
}

func (t *tally) add(cell uint16, h sum128, n uint64, stored bool) {
	if !stored {
		n = -n
	}
	t.cells[cell][0] += h[0] * n
	t.cells[cell][1] += h[1] * n
}

// values returns the values of a fact in the second pass, or nil if they are not kept. ok is false
// in the first pass.
func (t *tally) values(k key, name string) (v *values, ok bool) {
	if t.open == nil {
		return nil, false
	}
	cell := cellOf(k, name)
	if !t.open[cell] {
		return nil, true
	}
	of := fact{string(k), name}
	if v = t.facts[of]; v == nil {
		if len(t.facts) == openFacts {
			t.close(cell)
			return nil, true
		}
		v = &values{}
		t.facts[of] = v
	}
	return v, true
}

// close gives up a cell, because there is no room for its facts.
func (t *tally) close(cell uint16) {
	delete(t.open, cell)
	t.shut++
	for of := range t.facts {
		if cellOf(key(of.key), of.name) == cell {
			delete(t.facts, of)
		}
	}
}

// differences returns the facts that differ, in the order of their keys.
func (t *tally) differences() (all []Difference) {
	var differ []fact
	for of, v := range t.facts {
		slices.Sort(v.stored)
		slices.Sort(v.computed)
		if v.has != v.is || !slices.Equal(v.stored, v.computed) {
			differ = append(differ, of)
		}
	}
	slices.SortFunc(differ, func(a, b fact) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.name, b.name)) })
	for _, of := range differ {
		v := t.facts[of]
		d := differenceAt(key(of.key))
		if of.name != "" {
			d.Key += ", " + of.name
			d.Stored, d.Computed = fmt.Sprint(v.has), fmt.Sprint(v.is)
		} else {
			d.Stored, d.Computed = valuesText(v.stored), valuesText(v.computed)
		}
		all = append(all, d)
	}
	return all
}

func valuesText(all []string) string {
	switch len(all) {
	case 0:
		return "nothing"
	case 1:
		return valueText([]byte(all[0]))
	}
	return fmt.Sprintf("%d rows, the first %s", len(all), valueText([]byte(all[0])))
}
