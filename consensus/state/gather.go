package state

import (
	"maps"
	"slices"
)

// gather is a Tx that caches the counters and sums that one command changes repeatedly, and
// writes each of them once. A command on 10,000 parts changes the same few rows 10,000 times.
type gather struct {
	Tx
	rows map[string][]byte // nil: there is none
}

// gathered calls fn with a gathering Tx and then writes the cached rows. fn must refuse a
// command before its first write, as every command must.
func gathered(tx Tx, fn func(Tx) error) error {
	g := &gather{Tx: tx, rows: map[string][]byte{}}
	if err := fn(g); err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(g.rows)) {
		var err error
		if v := g.rows[k]; v != nil {
			err = tx.Set([]byte(k), v)
		} else {
			err = tx.Delete([]byte(k))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// gathers returns whether the row of a key is cached. Scans never read a part of the tables of
// such keys.
func gathers(k []byte) bool {
	return len(k) > 0 && (k[0] == tableMeta || k[0] == tableQuota || k[0] == tableStored)
}

// Get implements Reader.
func (g *gather) Get(k []byte) ([]byte, bool, error) {
	if !gathers(k) {
		return g.Tx.Get(k)
	}
	if v, known := g.rows[string(k)]; known {
		return v, v != nil, nil
	}
	return g.Tx.Get(k)
}

// Set implements Tx.
func (g *gather) Set(k, v []byte) error {
	if !gathers(k) {
		return g.Tx.Set(k, v)
	}
	g.rows[string(k)] = append([]byte{}, v...)
	return nil
}

// Delete implements Tx.
func (g *gather) Delete(k []byte) error {
	if !gathers(k) {
		return g.Tx.Delete(k)
	}
	g.rows[string(k)] = nil
	return nil
}
