package state

import (
	"maps"
	"slices"
)

// gather is a Tx that caches counters and sums in memory while a command runs, so that each is
// written once. A command on 10,000 parts, for example, changes the same few counters 10,000
// times.
type gather struct {
	Tx
	rows map[string][]byte // a nil value means that the row does not exist
}

// gathered calls fn with a gather on tx, and then writes the cached rows. If fn rejects the
// command, it must do so before its first write.
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

// gathers returns whether gather caches the row of a key. No command scans the tables of such
// rows in part, so a scan cannot miss a cached row.
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
