package kv

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Tx is a write transaction; a store has at most one at a time. A Tx reads the store together with
// its own writes. Others do not see these writes before Commit; until then they are in memory. The
// caller must end the transaction with Commit or Discard, and must use it from one goroutine at a
// time.
type Tx struct {
	store   *Store
	gen     *generation // nil after the transaction has ended
	overlay overlay
	err     error // error of all methods if the store was closed
}

// Begin opens a transaction. Another Begin, Restore and Close wait until the transaction ends,
// so the data never changes under it. A goroutine that holds a transaction must not begin
// another. On a closed store every method returns ErrClosed.
func (s *Store) Begin() *Tx {
	s.writer.Lock()
	g, err := s.acquire()
	if err != nil {
		s.writer.Unlock()
		return &Tx{err: err}
	}
	return &Tx{store: s, gen: g, overlay: newOverlay()}
}

func (t *Tx) ended() error {
	if t.err != nil {
		return t.err
	}
	if t.gen == nil {
		return ErrClosed
	}
	return nil
}

// Get returns the value of key as this transaction sees it. The value belongs to the caller.
func (t *Tx) Get(key []byte) (value []byte, ok bool, err error) {
	if err := t.ended(); err != nil {
		return nil, false, err
	}
	if k := t.overlay.keys[string(key)]; k != nil {
		return owned(k.value, k.exists)
	}
	if f, known := t.gen.points.recall(key); known {
		return owned(f.value, f.exists)
	}
	if t.gen.filter.lacks(key) {
		return nil, false, nil
	}
	value, ok, err = get(t.gen.db, key)
	if err != nil {
		return nil, false, err
	}
	t.overlay.keys[string(key)] = &known{value: value, exists: ok, reread: ok, missing: !ok}
	return owned(value, ok)
}

// GetOwn returns the value that this transaction has set for key. It does not search the store. It
// is for keys that the caller knows to be missing in the store.
func (t *Tx) GetOwn(key []byte) (value []byte, ok bool, err error) {
	if err := t.ended(); err != nil {
		return nil, false, err
	}
	if k := t.overlay.keys[string(key)]; k != nil {
		return owned(k.value, k.exists)
	}
	return nil, false, nil
}

func owned(value []byte, ok bool) ([]byte, bool, error) {
	if !ok {
		return nil, false, nil
	}
	return append(make([]byte, 0, len(value)), value...), true, nil
}

// Scan calls fn for the keys that this transaction sees, as View.Scan does. If fn writes keys, it
// is undefined whether the scan returns them.
func (t *Tx) Scan(lower, upper []byte, reverse bool, fn func(key, value []byte) (more bool, err error)) error {
	if err := t.ended(); err != nil {
		return err
	}
	keys := t.overlay.within(lower, upper)
	if len(keys) == 0 {
		return t.scan(lower, upper, reverse, fn)
	}
	return t.overlay.merge(keys, reverse, fn, func(fn visit) error { return t.scan(lower, upper, reverse, fn) })
}

// scan scans the keys in the store, without the writes of this transaction.
func (t *Tx) scan(lower, upper []byte, reverse bool, fn visit) error {
	if reverse {
		return scan(t.gen.db.NewIter, lower, upper, true, fn)
	}
	from, anything := t.gen.gaps.skip(lower, upper)
	if !anything {
		return nil
	}
	return iterate(t.gen.db.NewIter, from, upper, func(it *pebble.Iterator) error {
		first := func() bool {
			found := it.First()
			switch many := passed(it) > t.gen.gaps.steps; {
			case many && found:
				t.gen.gaps.learn(lower, it.Key())
			case many && upper != nil && it.Error() == nil:
				t.gen.gaps.learn(lower, upper)
			}
			return found
		}
		return visitAll(it, first, it.Next, fn)
	})
}

// Set stores value under key. It copies both slices.
func (t *Tx) Set(key, value []byte) error {
	if err := t.ended(); err != nil {
		return err
	}
	t.overlay.write(key, value, true)
	return nil
}

// Delete removes key. It is no error if the key does not exist.
func (t *Tx) Delete(key []byte) error {
	if err := t.ended(); err != nil {
		return err
	}
	t.overlay.write(key, nil, false)
	return nil
}

// Commit makes all writes visible at once and ends the transaction. With sync the writes are
// durable on return. Without sync, a crash may undo the newest commits; it never undoes a commit
// without all later ones.
func (t *Tx) Commit(sync bool) error {
	if err := t.ended(); err != nil {
		return err
	}
	opts := pebble.NoSync
	if sync {
		opts = pebble.Sync
	}
	t.gen.points.writes(t.gen.db)
	err := t.write(opts)
	t.gen.points.wrote(t.overlay.keys, err != nil)
	if err != nil {
		t.gen.gaps.clear()
		err = fmt.Errorf("kv: commit: %w", coded(err))
	} else if serr := t.gen.filter.advance(t.gen.db); serr != nil {
		// The commit is complete. Readers of the unreadable keys get the error.
		t.store.log.Error("cannot read the store's keys", "err", serr)
	}
	return errors.Join(err, t.end())
}

// write writes the overlay to Pebble in the order of keys.
func (t *Tx) write(opts *pebble.WriteOptions) (err error) {
	b := t.gen.db.NewBatchWithSize(t.overlay.size + batchKeyBytes)
	defer func() { err = errors.Join(err, b.Close()) }()
	for _, key := range t.overlay.within(nil, nil) {
		k := t.overlay.keys[key]
		if !k.exists || k.again {
			if err := t.remove(b, key, k); err != nil {
				return err
			}
		}
		if !k.exists {
			continue
		}
		op := b.SetDeferred(len(key), len(k.value))
		copy(op.Key, key)
		copy(op.Value, k.value)
		t.gen.filter.add(op.Key) // before it can be there
		t.gen.gaps.wrote(key)
		if err := op.Finish(); err != nil {
			return err
		}
	}
	if b.Empty() && opts.Sync { // an earlier commit has deleted what this one would delete
		return t.gen.db.LogData(nil, opts)
	}
	return b.Commit(opts)
}

// remove adds the deletion of a key to a batch if the store may have the key. If the transaction
// has deleted and then set a passing key, the deletion is necessary before the new value: without
// it, the store could have two values of the key, and the next SingleDelete would remove only one
// of them.
func (t *Tx) remove(b *pebble.Batch, key string, k *known) error {
	name := []byte(key)
	passing := t.gen.passing != nil && t.gen.passing(name)
	if k.missing || k.exists && !passing || t.gen.filter.lacks(name) {
		return nil
	}
	var op *pebble.DeferredBatchOp
	if passing && !k.exists {
		op = b.SingleDeleteDeferred(len(key))
	} else {
		op = b.DeleteDeferred(len(key))
	}
	copy(op.Key, key)
	return op.Finish()
}

// Discard ends the transaction without its writes. After Commit it does nothing, so callers can
// defer it.
func (t *Tx) Discard() {
	if t.ended() != nil {
		return
	}
	if err := t.end(); err != nil {
		t.store.log.Error("cannot discard a transaction cleanly", "err", err)
	}
}

func (t *Tx) end() error {
	err := t.gen.release(t.store.log)
	t.gen = nil
	t.store.writer.Unlock()
	return err
}
