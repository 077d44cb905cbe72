package kv

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	mathbits "math/bits"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Bounds of a filter.
const (
	// A filter has between leastBlocks and mostBlocks blocks, a power of two. A block has 64 bytes,
	// a line of the processor's cache, so a filter has 4 to 32 MiB.
	leastBlocks = 1 << 16
	mostBlocks  = 1 << 19
	// blockKeys is the number of keys for each block up to which a filter is accurate: at 11 bits
	// a key, 1 % of the answers are false positives.
	blockKeys = 45
	// filterGrowth is how many times as many blocks the next filter has, if a build finds too many
	// keys for this one.
	filterGrowth = 4
	// filterMost is the largest number of keys in a store that has a filter. With more keys,
	// false positives are frequent and each rebuild reads all keys.
	filterMost = 64_000_000
	// filterStep is the number of keys that a build reads with one iterator. It then pauses for
	// as long as this took, 2 ms or so, which leaves time to others.
	filterStep = 4096
)

// filter is a Bloom filter of the keys that Options.Sparse selects. If the filter shows that a key
// does not exist, a read need not search Pebble. The filter is in memory only. A goroutine builds
// it while commits continue, and until it is complete it excludes no key. If the store has more
// than filterMost keys, the filter is given up.
type filter struct {
	sparse *Sparse // nil selects nothing
	seed   maphash.Seed
	// whole has every selected key of the store. It is nil until the first build is complete.
	// A key is added before readers can see it in the store, and whole is replaced between
	// commits.
	whole atomic.Pointer[bits]

	// Store.writer guards the rest.

	over  bool // the store has too many keys, so there is no filter
	added int  // number of keys added since the start of the last build
	room  int  // number of added keys at which the filter is rebuilt without deleted keys
	most  int  // filterMost; tests set a smaller number
	// young is the filter that is being built; nil if none is. Commits add the keys that they
	// write, and the goroutine of the build adds the keys that existed before.
	young *build
}

// build is a filter that is being built, and the goroutine that builds it.
type build struct {
	bits *bits
	end  chan struct{} // closed to end the goroutine
	done chan struct{} // closed by the goroutine at its end

	// The goroutine writes the following fields before it closes done.

	found int  // number of keys that it has added
	over  bool // there are more keys than a store with a filter may have
	small bool // there are more keys than fit in bits
	err   error
}

// bits is a blocked Bloom filter: the four bits of a key are in one block. The highest bits of the
// hash of a key select the block.
type bits struct {
	blocks [][8]atomic.Uint64
	shift  int
}

// newBits returns an empty filter with a number of blocks that is a power of two.
func newBits(blocks int) *bits {
	return &bits{blocks: make([][8]atomic.Uint64, blocks), shift: 64 - mathbits.TrailingZeros(uint(blocks))}
}

// capacity returns the number of keys up to which the filter is accurate.
func (b *bits) capacity() int { return len(b.blocks) * blockKeys }

func (b *bits) add(hash uint64) {
	block := &b.blocks[hash>>b.shift]
	for range 4 {
		block[hash>>6&7].Or(1 << (hash & 63))
		hash >>= 9
	}
}

func (b *bits) has(hash uint64) bool {
	block := &b.blocks[hash>>b.shift]
	for range 4 {
		if block[hash>>6&7].Load()&(1<<(hash&63)) == 0 {
			return false
		}
		hash >>= 9
	}
	return true
}

// begin starts the first build.
func (s *filter) begin(db *pebble.DB, sparse *Sparse) {
	if s.sparse = sparse; sparse != nil {
		s.seed, s.most = maphash.MakeSeed(), filterMost
		s.build(db, leastBlocks)
	}
}

// build starts to build a filter with a number of blocks. The caller holds Store.writer: the goroutine finds in db what was
// committed before the call, and later commits call add.
func (s *filter) build(db *pebble.DB, blocks int) {
	b := &build{bits: newBits(blocks), end: make(chan struct{}), done: make(chan struct{})}
	s.young, s.added = b, 0
	go func(most int) {
		defer close(b.done)
		b.err = b.fill(db, s.sparse, s.seed, most)
	}(s.most)
}

// stop ends the build. No transaction is open then.
func (s *filter) stop() {
	if s.young != nil {
		close(s.young.end)
		<-s.young.done
	}
}

// lacks returns true if the store certainly does not have the key.
func (s *filter) lacks(key []byte) bool { return s.lacked(s.whole.Load(), key) }

// lacked returns true if the store certainly did not have the key when whole was the newest filter.
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
		s.young.bits.add(hash)
	}
}

// advance is called after each commit. If a build is complete, advance makes it the filter that
// reads use. If the filter has become too full, or was too small for the keys that the build has
// found, advance starts a new build. It returns the error of a build that has failed; reads then
// search Pebble without a filter.
func (s *filter) advance(db *pebble.DB) error {
	if s.young == nil {
		if whole := s.whole.Load(); whole != nil && s.added > s.room {
			s.build(db, len(whole.blocks))
		}
		return nil
	}
	select {
	case <-s.young.done:
	default:
		return nil
	}
	made := s.young
	s.young = nil
	switch {
	case made.err != nil:
		return fmt.Errorf("kv: filter: %w", coded(made.err))
	case made.over:
		s.whole.Store(nil)
		s.over = true // until the next Open
	case made.small:
		s.build(db, min(len(made.bits.blocks)*filterGrowth, mostBlocks))
	default:
		s.whole.Store(made.bits)
		s.room = max(made.bits.capacity()-made.found, made.bits.capacity()/4)
	}
	return nil
}

// fill adds the selected keys of db. It ends early if there are more than most of them, or if they
// leave too little room for further ones in a filter that can be larger.
func (b *build) fill(db *pebble.DB, sparse *Sparse, seed maphash.Seed, most int) error {
	fits := most
	if len(b.bits.blocks) < mostBlocks {
		fits = b.bits.capacity() / 4 * 3
	}
	var from []byte
	for {
		start := time.Now()
		n, next, err := b.step(db, from, sparse, seed)
		b.found, from = b.found+n, next
		b.over, b.small = b.found > most, b.found > fits
		if err != nil || b.over || b.small || next == nil {
			return err
		}
		select {
		case <-time.After(time.Since(start)):
		case <-b.end:
			return nil
		}
	}
}

// step adds the next filterStep keys, beginning with the key from. It returns the number of added
// keys, and the key at which the next step must begin; nil means that all keys were added.
func (b *build) step(db *pebble.DB, from []byte, sparse *Sparse, seed maphash.Seed) (found int, next []byte, err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from})
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	valid := it.First()
	for range filterStep {
		if !valid {
			break
		}
		if sparse.Is(it.Key()) {
			b.bits.add(maphash.Bytes(seed, it.Key()))
			found++
		} else if after := sparse.After(it.Key()); bytes.Compare(after, it.Key()) > 0 {
			valid = it.SeekGE(after)
			continue
		}
		valid = it.Next()
	}
	if !valid {
		return found, nil, nil // Close returns the error of the iterator
	}
	return found, bytes.Clone(it.Key()), nil
}
