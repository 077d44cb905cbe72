package kv

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Tx is the one open write transaction of a store. It sees the store and its
// own writes, and nobody else sees those before Commit. It must end with
// Commit or Discard, and belongs to one goroutine at a time.
type Tx struct {
	store *Store
	gen   *generation
	batch *pebble.Batch // nil once ended
	err   error         // why it is empty: the store was closed
}

// Begin opens a transaction. Another Begin, Restore and Close wait until it
// ends, so no transaction ever works on data that changes under it; begin none
// while holding one. On a closed store every method answers ErrClosed.
func (s *Store) Begin() *Tx {
	s.writer.Lock()
	g, err := s.acquire()
	if err != nil {
		s.writer.Unlock()
		return &Tx{err: err}
	}
	return &Tx{store: s, gen: g, batch: g.db.NewIndexedBatch()}
}

func (t *Tx) ended() error {
	if t.err != nil {
		return t.err
	}
	if t.batch == nil {
		return ErrClosed
	}
	return nil
}

// Get returns the value of key as this transaction sees it, owned by the
// caller.
func (t *Tx) Get(key []byte) (value []byte, ok bool, err error) {
	if err := t.ended(); err != nil {
		return nil, false, err
	}
	return get(t.batch, key)
}

// Scan is View.Scan over what this transaction sees. Writes made by fn may or
// may not be met by the same scan.
func (t *Tx) Scan(lower, upper []byte, reverse bool, fn func(key, value []byte) (more bool, err error)) error {
	if err := t.ended(); err != nil {
		return err
	}
	return scan(t.batch, lower, upper, reverse, fn)
}

// Set makes key hold value. Both slices are copied.
func (t *Tx) Set(key, value []byte) error {
	if err := t.ended(); err != nil {
		return err
	}
	if err := t.batch.Set(key, value, nil); err != nil {
		return fmt.Errorf("kv: set: %w", err)
	}
	return nil
}

// Delete removes key. A key that is not there is no error.
func (t *Tx) Delete(key []byte) error {
	if err := t.ended(); err != nil {
		return err
	}
	if err := t.batch.Delete(key, nil); err != nil {
		return fmt.Errorf("kv: delete: %w", err)
	}
	return nil
}

// Commit makes the writes visible, all at once, and ends the transaction. With
// sync they are durable on return; without, a crash may undo the newest
// commits, but never one before another that it keeps.
func (t *Tx) Commit(sync bool) error {
	if err := t.ended(); err != nil {
		return err
	}
	opts := pebble.NoSync
	if sync {
		opts = pebble.Sync
	}
	err := t.batch.Commit(opts)
	if err != nil {
		err = fmt.Errorf("kv: commit: %w", coded(err))
	}
	return errors.Join(err, t.end())
}

// Discard ends the transaction without a trace. After Commit it does nothing,
// so it can be deferred.
func (t *Tx) Discard() {
	if t.ended() != nil {
		return
	}
	if err := t.end(); err != nil {
		t.store.log.Error("cannot discard a transaction cleanly", "err", err)
	}
}

func (t *Tx) end() error {
	err := t.batch.Close()
	t.batch = nil
	err = errors.Join(err, t.gen.release(t.store.log))
	t.store.writer.Unlock()
	return err
}
