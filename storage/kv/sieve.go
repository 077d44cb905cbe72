package kv

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// Bounds of a sieve.
const (
	// sieveBlocks are of 64 bytes, a line of a processor's cache: 4 MiB.
	sieveBlocks = 1 << 16
	// sieveKeys is how many keys are added before it is made anew, without those
	// that are gone: 11 bits for each, so one answer in a hundred needs a look.
	sieveKeys = 3_000_000
	// sieveMost is how many keys of the store it is worth having for. With more it
	// would tell little, and making it anew would read all of them each time.
	sieveMost = 8_000_000
	// sieveStep is how many keys of the store a commit adds while one is made,
	// in well below a millisecond.
	sieveStep = 256
)

// sieve tells of keys that are surely not in a generation, so that looking for a
// new one costs no look-up in Pebble. It is a Bloom filter of the keys that
// Options.Sparse selects. There is nothing of it on disk: commits make it, a few
// keys each, and until it is whole it knows of nothing; when there are too many
// keys for it, it is given up.
type sieve struct {
	sparse *Sparse // nil: nothing is selected
	seed   maphash.Seed
	// whole has every selected key of the store, nil while there is none. A key is
	// in it before anybody can see it in the store, and no commit is under way when
	// another takes its place.
	whole atomic.Pointer[bits]

	// What follows belongs to who holds Store.writer.

	over  bool // given up
	added int  // keys since it was whole
	most  int  // sieveMost, unless a test says otherwise
	// young has the selected keys below from, and all that were written since it
	// was begun; nil: none is being made.
	young *bits
	from  []byte
	found int // keys of the store that are in young
}

// bits is a Bloom filter in blocks: the four bits of a key are in one of them.
type bits [sieveBlocks][8]atomic.Uint64

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

func (s *sieve) begin(sparse *Sparse) {
	if s.sparse = sparse; sparse != nil {
		s.seed, s.young, s.most = maphash.MakeSeed(), new(bits), sieveMost
	}
}

// lacks tells that the store surely has no such key.
func (s *sieve) lacks(key []byte) bool { return s.lacked(s.whole.Load(), key) }

// lacked tells that the store surely had no such key when whole was the newest.
func (s *sieve) lacked(whole *bits, key []byte) bool {
	return whole != nil && s.sparse.Is(key) && !whole.has(maphash.Bytes(s.seed, key))
}

// add notes a key that is about to be written.
func (s *sieve) add(key []byte) {
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

// advance adds what is in the store already, some keys at a time. After an error
// it does no more: then keys are looked for in the store.
func (s *sieve) advance(db *pebble.DB) (err error) {
	if s.young == nil {
		if s.sparse == nil || s.over || s.added <= sieveKeys {
			return nil
		}
		s.young, s.from, s.found, s.added = new(bits), nil, 0, 0
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: s.from})
	if err != nil {
		s.young, s.from = nil, nil
		return fmt.Errorf("kv: sieve: %w", coded(err))
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("kv: sieve: %w", coded(cerr))
		}
		if err != nil {
			s.young, s.from = nil, nil
		}
	}()
	valid := it.First()
	for range sieveStep {
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
		s.over, s.young, s.from = true, nil, nil // until the store is opened again
		return nil
	}
	if valid {
		s.from = bytes.Clone(it.Key())
		return nil
	}
	if it.Error() == nil { // else Close tells
		s.whole.Store(s.young)
		s.young, s.from = nil, nil
	}
	return nil
}
