package blocks

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/multiformats/go-multihash"
	"github.com/zeebo/xxh3"
	"golang.org/x/time/rate"

	"github.com/holdfast-ipfs/holdfast/storage/kv"
)

// Limits of Check.
const (
	// checkCells is the number of sums that the first pass keeps, of 16 bytes each.
	checkCells = 1 << 16
	// checkOpen is the largest number of blocks whose counts the second pass keeps.
	checkOpen = 1 << 16
	// checkBytesPerSecond is the rate at which Check reads the index.
	checkBytesPerSecond = 64 << 20
	// checkStep is the number of bytes after which Check applies the rate.
	checkStep = 1 << 20
)

// Difference is a difference between what the index stores and what Check computed. All fields are
// texts for people.
type Difference struct{ What, Key, Stored, Computed string }

// Checked is the result of Check.
type Checked struct {
	Rows        uint64       // rows of the index that were read
	Differences []Difference // at most as many as the caller has asked for
	More        uint64       // number of further differences
	AtLeast     bool         // More is a lower bound
}

// check is a running Check.
type check struct {
	view  *kv.View
	limit int
	out   Checked

	// The first pass adds hashes of blocks to cells, as often as the block should have references,
	// and subtracts them as often as its entry says. So a cell is zero if its counts are right. The
	// second pass keeps the counts of the blocks of other cells.
	cells [checkCells][2]uint64
	open  map[string]*blockCount
	shut  bool // there are more blocks than open may have
	// owned is 0 if all entries belong to references: the sum of the hashes of their incarnations, as
	// often as the references have blocks, without those of the entries.
	owned uint64

	pace   *rate.Limiter
	unread int
	totals totals
}

// blockCount is the number of references of a block, and how many of them are hidden.
type blockCount struct{ refs, hidden, isRefs, isHidden int64 }

// Check computes the reference counts of all blocks, the number of blocks of each reference and the
// totals from the entries of the references, and compares them with the index, at one moment. It
// reports up to limit differences and repairs nothing. It reads no segment; Scrub does that. Its
// memory does not depend on the size of the store.
func (s *Store) Check(ctx context.Context, limit int) (Checked, error) {
	c := &check{view: s.index.View(), limit: limit, pace: rate.NewLimiter(checkBytesPerSecond, checkStep)}
	defer c.view.Close()
	err := c.references(ctx)
	if err == nil {
		err = c.counts(ctx)
	}
	if err == nil && (c.dirty() || c.owned != 0) {
		c.open = map[string]*blockCount{}
		if err = c.counts(ctx); err == nil {
			c.reportCounts()
		}
	}
	if err == nil && c.owned != 0 {
		err = c.strays(ctx)
	}
	if err != nil {
		return c.out, fmt.Errorf("blocks: check: %w", s.readError(err))
	}
	return c.out, nil
}

func (c *check) differs(what, key, stored, computed string) {
	if len(c.out.Differences) < c.limit {
		c.out.Differences = append(c.out.Differences, Difference{what, key, stored, computed})
	} else {
		c.out.More++
	}
}

// scan calls fn for the rows with a letter, at the rate of a Check.
func (c *check) scan(ctx context.Context, letter byte, fn func(key, value []byte) error) error {
	return c.view.Scan([]byte{letter}, []byte{letter + 1}, false, func(key, value []byte) (bool, error) {
		if c.open == nil {
			c.out.Rows++
		}
		for c.unread += len(key) + len(value); c.unread >= checkStep; c.unread -= checkStep {
			if err := c.pace.WaitN(ctx, checkStep); err != nil {
				return false, err
			}
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		return true, fn(key, value)
	})
}

// references checks the number of blocks of each reference. The entries of an incarnation are next
// to each other.
func (c *check) references(ctx context.Context) error {
	return c.scan(ctx, keyReference, func(key, value []byte) error {
		name := string(key[1:])
		o, err := decodeReferenceEntry(key, value)
		if err != nil {
			c.differs("reference", name, fmt.Sprintf("%d bytes", len(value)), "an entry of a reference")
			return nil
		}
		n := uint64(0)
		c.owned += hashOf(o.inc) * o.blocks
		prefix := blockRefPrefix(o.inc)
		err = c.view.Scan(prefix, after(prefix), false, func(key, value []byte) (bool, error) {
			n++
			c.unread += len(key) + len(value)
			return true, ctx.Err()
		})
		if err == nil && n != o.blocks {
			c.differs("blocks of reference", name, fmt.Sprint(o.blocks), fmt.Sprint(n))
		}
		return err
	})
}

// counts reads the entries of all references and of all blocks.
func (c *check) counts(ctx context.Context) error {
	if err := c.owners(ctx); err != nil {
		return err
	}
	c.totals = totals{}
	err := c.scan(ctx, keyBlock, func(key, value []byte) error {
		hash := multihash.Multihash(key[1:])
		e, err := decodeBlockEntry(key, value)
		if err != nil {
			if c.open == nil {
				c.differs("block", hash.B58String(), fmt.Sprintf("%d bytes", len(value)), "an entry of a block")
			}
			return nil
		}
		c.count(hash, -int64(e.refs), -int64(e.hidden))
		if e.segment == 0 {
			c.totals.missing++
		} else {
			c.totals.blocks++
			c.totals.bytes += int64(e.size)
		}
		return nil
	})
	if err != nil || c.open != nil {
		return err
	}
	v, ok, err := c.view.Get([]byte{keyMeta})
	if err != nil || !ok {
		return err
	}
	m, err := decodeMeta(v)
	if err == nil && m.totals != c.totals {
		c.differs("totals", "of the store", m.totals.text(), c.totals.text())
	}
	return err
}

func (t totals) text() string {
	return fmt.Sprintf("%d blocks of %d bytes, %d missing", t.blocks, t.bytes, t.missing)
}

// entries calls fn for the entries of all references. dropped is true if the reference was dropped
// and its entries are being removed.
func (c *check) entries(ctx context.Context, fn func(inc uint64, dropped bool, hash []byte, e blockRefEntry)) error {
	last, dropped := uint64(0), false
	return c.scan(ctx, keyBlockRef, func(key, value []byte) error {
		const head = 1 + 8 // letter, incarnation
		e, err := decodeBlockRefEntry(key, value)
		if err != nil || len(key) <= head {
			if c.open == nil {
				c.differs("block of a reference", fmt.Sprintf("0x%x", key), fmt.Sprintf("%d bytes", len(value)), "an entry of a block of a reference")
			}
			return nil
		}
		if inc := binary.BigEndian.Uint64(key[1:]); inc != last {
			last = inc
			if _, dropped, err = getDropped(c.view, inc); err != nil {
				return err
			}
		}
		fn(last, dropped, key[head:], e)
		return nil
	})
}

// owners reads the entries of all references.
func (c *check) owners(ctx context.Context) error {
	return c.entries(ctx, func(inc uint64, dropped bool, hash []byte, e blockRefEntry) {
		hidden := int64(0)
		if e.hidden {
			hidden = 1
		}
		c.count(hash, 1, hidden)
		if c.open == nil && !dropped {
			c.owned -= hashOf(inc)
		}
	})
}

// strays reports entries that belong to no reference. It is called only if there are some, or if the
// number of blocks of a reference is wrong.
func (c *check) strays(ctx context.Context) error {
	known := map[uint64]bool{}
	err := c.scan(ctx, keyReference, func(key, value []byte) error {
		o, err := decodeReferenceEntry(key, value)
		if err == nil && len(known) < checkOpen {
			known[o.inc] = true
		}
		return nil
	})
	if err != nil || len(known) == checkOpen {
		return err
	}
	stray := map[uint64]int{}
	err = c.entries(ctx, func(inc uint64, dropped bool, _ []byte, _ blockRefEntry) {
		if !dropped && !known[inc] && (stray[inc] > 0 || len(stray) < checkOpen) {
			stray[inc]++
		}
	})
	for _, inc := range slices.Sorted(maps.Keys(stray)) {
		c.differs("blocks of reference", fmt.Sprintf("number %d", inc), fmt.Sprint(stray[inc]), "none: there is no such reference")
	}
	return err
}

func hashOf(inc uint64) uint64 { return xxh3.Hash(binary.BigEndian.AppendUint64(nil, inc)) | 1 }

// count adds to the counts of a block: positive numbers are computed, negative ones are stored.
func (c *check) count(hash []byte, refs, hidden int64) {
	h := xxh3.Hash(hash)
	cell := &c.cells[h%checkCells]
	if c.open == nil {
		cell[0] += (h | 1) * uint64(refs)
		cell[1] += (h | 1) * uint64(hidden)
		return
	}
	if *cell == [2]uint64{} {
		return
	}
	b := c.open[string(hash)]
	if b == nil {
		if c.shut = c.shut || len(c.open) == checkOpen; c.shut {
			return
		}
		b = &blockCount{}
		c.open[string(hash)] = b
	}
	if refs > 0 {
		b.isRefs, b.isHidden = b.isRefs+refs, b.isHidden+hidden
	} else {
		b.refs, b.hidden = b.refs-refs, b.hidden-hidden
	}
}

func (c *check) dirty() bool {
	return slices.ContainsFunc(c.cells[:], func(sums [2]uint64) bool { return sums != [2]uint64{} })
}

// reportCounts reports the blocks whose counts differ.
func (c *check) reportCounts() {
	var differ []string
	for hash, b := range c.open {
		if b.refs != b.isRefs || b.hidden != b.isHidden {
			differ = append(differ, hash)
		}
	}
	slices.Sort(differ)
	for _, hash := range differ {
		b := c.open[hash]
		c.differs("references of block", multihash.Multihash(hash).B58String(),
			fmt.Sprintf("%d, of which %d are hidden", b.refs, b.hidden), fmt.Sprintf("%d, of which %d are hidden", b.isRefs, b.isHidden))
	}
	if c.shut {
		c.out.More, c.out.AtLeast = c.out.More+1, true
	}
}
