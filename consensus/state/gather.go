package state

import (
	"maps"
	"slices"
)

// gather is a Tx that keeps the counters and sums that one command changes over and
// over, and writes each once: a command of 10,000 parts changes the same few 10,000
// times.
type gather struct {
	Tx
	rows map[string][]byte // nil: there is none
}

// gathered calls fn with a Tx that gathers, and writes what it gathered. A command
// that is refused must be so before its first write, as ever.
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

// gathers returns whether a key is cached. No scan reads a part of the tables of such keys.
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
