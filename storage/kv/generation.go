package kv

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfast-ipfs/holdfast/storage/durable"
)

// generation is one opened Pebble store. Restore replaces the live generation by a new one. The
// Store holds one reference to the live generation, and each View and each Tx holds one to its
// generation. When the last reference is released, the generation is closed.
type generation struct {
	name string
	dir  string
	db   *pebble.DB
	refs atomic.Int64

	points points
	filter filter
	gaps   gaps
	// passing is Options.Passing.
	passing func(key []byte) bool

	// The following fields are set before the Store gives up its reference, and read after the
	// last reference is released.
	obsolete bool         // Restore has replaced this generation, so its folder is removed
	onClosed func() error // releases the lock of the store
}

func newGeneration(name, dir string, db *pebble.DB, opts Options) *generation {
	g := &generation{name: name, dir: dir, db: db, passing: opts.Passing}
	g.filter.begin(db, opts.Sparse)
	g.points.commits, g.points.recent = 1, newRecent()
	g.gaps.steps = gapSteps
	g.refs.Store(1)
	return g
}

func (g *generation) retain() { g.refs.Add(1) }

func (g *generation) release(log *slog.Logger) error {
	if g.refs.Add(-1) > 0 {
		return nil
	}
	g.filter.stop()
	var errs []error
	if err := g.db.Close(); err != nil {
		errs = append(errs, fmt.Errorf("kv: close %s: %w", g.name, err))
	}
	if g.obsolete {
		// This is no error of the last holder, because Open removes the folder too.
		if err := durable.RemoveAll(g.dir); err != nil {
			log.Error("cannot remove replaced store", "folder", g.dir, "err", err)
		}
	}
	if g.onClosed != nil {
		if err := g.onClosed(); err != nil {
			errs = append(errs, fmt.Errorf("kv: unlock: %w", err))
		}
	}
	return errors.Join(errs...)
}
