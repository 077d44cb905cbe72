package kv

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// Bounds of a filter.
const (
	// filterBlocks is the number of blocks. A block has 64 bytes, a line of the processor's
	// cache, so a filter has 4 MiB.
	filterBlocks = 1 << 16
	// filterKeys is the number of keys added before the filter is rebuilt without deleted
	// keys. At 11 bits a key, 1 % of the answers are false positives.
	filterKeys = 3_000_000
	// filterMost is the largest number of keys in a store that has a filter. With more keys,
	// false positives are frequent and each rebuild reads all keys.
	filterMost = 8_000_000
	// filterStep is the number of stored keys that one commit adds during a rebuild. This takes
	// well below 1 ms.
	filterStep = 256
)

// filter is a Bloom filter of the keys that Options.Sparse selects. A read of a key that the
// generation surely lacks then costs no look-up in Pebble. The filter is in memory only.
// Commits build it, filterStep keys each, and until it is complete it excludes nothing. It
// is given up when the store has more than filterMost keys.
type filter struct {
	sparse *Sparse // nil selects nothing
	seed   maphash.Seed
	// whole has every selected key of the store. It is nil until the first build is complete.
	// A key is added before readers can see it in the store, and whole is replaced between
	// commits.
	whole atomic.Pointer[bits]

	// Store.writer guards the rest.

	over  bool // the store has too many keys, so there is no filter
	added int  // keys added since whole was stored
	most  int  // filterMost; tests set a smaller number
	// young is the filter that is being built: the selected keys below from, and all keys
	// written since its start. It is nil between builds.
	young *bits
	from  []byte
	found int // keys of the store that are in young
}

// bits is a blocked Bloom filter: the four bits of a key are in one block.
type bits [filterBlocks][8]atomic.Uint64

func (b *bits) add(hash uint64) {
	block := &b[hash>>48]
	for range 4 {
		block[hash>>6&7].Or(1 << (hash & 63))
		hash >>= 9
	}
}

func (b *bits) has(hash uint64) bool {
	block := &b[hash>>48]
	for range 4 {
		if block[hash>>6&7].Load()&(1<<(hash&63)) == 0 {
			return false
		}
		hash >>= 9
	}
	return true
}

func (s *filter) begin(sparse *Sparse) {
	if s.sparse = sparse; sparse != nil {
		s.seed, s.young, s.most = maphash.MakeSeed(), new(bits), filterMost
	}
}

// lacks returns true if the store surely lacks the key.
func (s *filter) lacks(key []byte) bool { return s.lacked(s.whole.Load(), key) }

// lacked returns true if the store surely lacked the key when whole was the newest filter.
func (s *filter) lacked(whole *bits, key []byte) bool {
	return whole != nil && s.sparse.Is(key) && !whole.has(maphash.Bytes(s.seed, key))
}

// add adds a key that is about to be written.
func (s *filter) add(key []byte) {
	if s.sparse == nil || s.over || !s.sparse.Is(key) {
		return
	}
	hash := maphash.Bytes(s.seed, key)
	if whole := s.whole.Load(); whole != nil {
		whole.add(hash)
		s.added++
	}
	if s.young != nil {
		s.young.add(hash)
	}
}

// advance adds the next filterStep stored keys to the filter that is being built. After an
// error it ends the build, and reads go to the store.
func (s *filter) advance(db *pebble.DB) (err error) {
	if s.young == nil {
		if s.sparse == nil || s.over || s.added <= filterKeys {
			return nil
		}
		s.young, s.from, s.found, s.added = new(bits), nil, 0, 0
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: s.from})
	if err != nil {
		s.young, s.from = nil, nil
		return fmt.Errorf("kv: filter: %w", coded(err))
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("kv: filter: %w", coded(cerr))
		}
		if err != nil {
			s.young, s.from = nil, nil
		}
	}()
	valid := it.First()
	for range filterStep {
		if !valid {
			break
		}
		if s.sparse.Is(it.Key()) {
			s.young.add(maphash.Bytes(s.seed, it.Key()))
			s.found++
		} else if next := s.sparse.After(it.Key()); bytes.Compare(next, it.Key()) > 0 {
			valid = it.SeekGE(next)
			continue
		}
		valid = it.Next()
	}
	if s.found > s.most {
		s.whole.Store(nil)
		s.over, s.young, s.from = true, nil, nil // until the next Open
		return nil
	}
	if valid {
		s.from = bytes.Clone(it.Key())
		return nil
	}
	if it.Error() == nil { // otherwise Close returns the error
		s.whole.Store(s.young)
		s.young, s.from = nil, nil
	}
	return nil
}
