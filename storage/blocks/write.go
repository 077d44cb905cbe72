package blocks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ipfs/boxo/verifcid"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

const (
	// putStepBytes and putStepBlocks bound one step of Put.
	putStepBytes  = 4 << 20
	putStepBlocks = 512
	// dropTries is how often Drop tries to write its record of a few bytes on a full disk, with the
	// pause dropPause in between. Drop waits because it frees space.
	dropTries = 20
	dropPause = time.Second
	// sweepStep is the number of index entries that one step of Drop removes. sweepBytes is the
	// size for which one entry counts in a batch. So a batch removes at most sweepStep entries, in
	// a few milliseconds, before other writes run.
	sweepStep  = 256
	sweepBytes = maxBatchBytes / sweepStep
	// countStep is the number of blocks that one step of Seal marks as hidden or visible. Marking a
	// block costs as much as removing one in Drop.
	countStep = sweepStep
	// recordSlack is an estimate of the bytes that a record has in addition to its blocks: its head
	// and names.
	recordSlack = 512
)

func checkReference(reference string) error {
	if reference == "" || len(reference) > MaxReferenceBytes {
		return fmt.Errorf("%w: %d bytes", ErrBadReference, len(reference))
	}
	return nil
}

func isIdentity(c cid.Cid) bool { return c.Prefix().MhType == multihash.IDENTITY }

// checkBlock returns an error for a block that must not be stored.
func checkBlock(b blocks.Block) error {
	c, data := b.Cid(), b.RawData()
	if len(data) > MaxBlockBytes {
		return fmt.Errorf("%w: %s has %d bytes, %d are allowed", ErrTooLarge, c, len(data), MaxBlockBytes)
	}
	if !c.Defined() {
		return fmt.Errorf("%w: no CID", ErrBadBlock)
	}
	// With a weak hash, an account could store other bytes under the CID of another
	// account.
	if err := verifcid.ValidateCid(verifcid.DefaultAllowlist, c); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBadBlock, c, err)
	}
	if h, ok := b.(hashChecked); ok && h.HashChecked() {
		return nil
	}
	if !hasHash(data, c.Hash()) {
		return fmt.Errorf("%w: %s", ErrBadBlock, c)
	}
	return nil
}

// hashChecked is a block whose hash was verified when it was received. Hashing is a large
// part of the cost of storing, so Put does not repeat it. Later damage is detected when the
// block is read.
type hashChecked interface{ HashChecked() bool }

func hasHash(data []byte, hash multihash.Multihash) bool {
	code, digest, ok := splitHash(hash)
	if !ok {
		return false
	}
	sum, err := multihash.Sum(data, code, digest)
	return err == nil && string(sum) == string(hash)
}

// splitHash returns the code of the hash function and the length of the digest.
func splitHash(hash multihash.Multihash) (code uint64, digest int, ok bool) {
	code, n := binary.Uvarint(hash)
	if n <= 0 {
		return 0, 0, false
	}
	length, m := binary.Uvarint(hash[n:])
	if m <= 0 || uint64(len(hash)-n-m) != length {
		return 0, 0, false
	}
	return code, int(length), true
}

// Put stores blks and adds them to a reference. On return all are durable and readable. It
// compares blocks that the store already has, and stores damaged ones again. It does not
// store blocks with an identity hash. It verifies every hash first, except of blocks whose
// method HashChecked returns true; if one is wrong, it stores nothing. After any other
// error some blocks may be stored.
func (s *Store) Put(ctx context.Context, reference string, blks []blocks.Block) error {
	return s.put(ctx, reference, blks, false)
}

// PutCold does the same as Put for blocks that will probably not be read soon. It bypasses the
// page cache if that is cheaper.
func (s *Store) PutCold(ctx context.Context, reference string, blks []blocks.Block) error {
	return s.put(ctx, reference, blks, true)
}

func (s *Store) put(ctx context.Context, reference string, blks []blocks.Block, cold bool) error {
	stored, bad, err := s.storable(ctx, reference, blks)
	if err != nil {
		return err
	}
	for len(stored) > 0 {
		n, bytes := putStep(stored)
		step := stored[:n]
		o := &op{bytes: bytes, cold: cold, run: func(b *batch) error { return b.put(reference, step, bad) }}
		if err := s.queued(ctx, o); err != nil {
			return fmt.Errorf("blocks: put: %w", err)
		}
		stored = stored[n:]
	}
	return nil
}

// putStep returns the number of blocks in blks that one step of Put stores, and their size in
// bytes.
func putStep(blks []blocks.Block) (n int, bytes int64) {
	for n < len(blks) && n < putStepBlocks && (n == 0 || bytes+int64(len(blks[n].RawData())) <= putStepBytes) {
		bytes += int64(len(blks[n].RawData())) + recordSlack
		n++
	}
	return n, bytes
}

// PutAndSeal does the same as Put followed by Seal. It needs only one transaction if blks fit
// into one.
func (s *Store) PutAndSeal(ctx context.Context, reference string, blks []blocks.Block, sealed Sealed) error {
	return s.putAndSeal(ctx, reference, blks, sealed, false)
}

// PutColdAndSeal does the same as PutCold followed by Seal, in one transaction if blks fit into
// one.
func (s *Store) PutColdAndSeal(ctx context.Context, reference string, blks []blocks.Block, sealed Sealed) error {
	return s.putAndSeal(ctx, reference, blks, sealed, true)
}

func (s *Store) putAndSeal(ctx context.Context, reference string, blks []blocks.Block, sealed Sealed, cold bool) error {
	if n, _ := putStep(blks); n < len(blks) {
		if err := s.put(ctx, reference, blks, cold); err != nil {
			return err
		}
		return s.Seal(ctx, reference, sealed)
	}
	stored, bad, err := s.storable(ctx, reference, blks)
	if err != nil {
		return err
	}
	_, bytes := putStep(stored)
	var inc uint64
	err = s.queued(ctx, &op{bytes: bytes + recordSlack, cold: cold, run: func(b *batch) (err error) {
		inc, err = b.putAndSeal(reference, stored, bad, sealed)
		return err
	}})
	if err != nil {
		return fmt.Errorf("blocks: put and seal: %w", err)
	}
	return s.counted(ctx, inc)
}

func (b *batch) putAndSeal(reference string, blks []blocks.Block, bad rotten, sealed Sealed) (inc uint64, err error) {
	b.seals, b.hiding, b.hid = true, sealed.Hidden, 0 // counted at once, so that the seal need not do it
	defer func() { b.seals, b.hiding = false, false }()
	if err := b.put(reference, blks, bad); err != nil {
		return 0, err
	}
	return b.seal(reference, sealed)
}

// storable checks the name of a reference and its blocks. It returns the blocks to store,
// and which of them are stored but damaged.
func (s *Store) storable(ctx context.Context, reference string, blks []blocks.Block) ([]blocks.Block, rotten, error) {
	if err := checkReference(reference); err != nil {
		return nil, nil, err
	}
	stored := make([]blocks.Block, 0, len(blks))
	for _, b := range blks {
		if err := checkBlock(b); err != nil {
			return nil, nil, err
		}
		if !isIdentity(b.Cid()) {
			stored = append(stored, b)
		}
	}
	_, bad, err := s.compare(ctx, stored)
	if err != nil {
		return nil, nil, err
	}
	return stored, bad, nil
}

// put appends the record that adds the blocks to the reference, and then the records of the blocks
// themselves, so that recovery never finds a block without a reference. It also stores blocks again
// that are damaged (bad has their hashes); the index then uses the new location.
func (b *batch) put(reference string, blks []blocks.Block, bad rotten) error {
	refs := make([]blockRef, 0, len(blks))
	absent := make([]blocks.Block, 0, len(blks))
	for _, blk := range blks {
		hash := blk.Cid().Hash()
		here, err := b.here(hash, bad)
		if err != nil {
			return err
		}
		if !here {
			absent = append(absent, blk)
		}
		refs = append(refs, blockRef{hash, uint32(len(blk.RawData()))})
	}
	if b.low && len(absent) > 0 {
		return fmt.Errorf("%w: what is free is the reserve", ErrNoSpace)
	}
	if err := b.addBlocks(reference, refs); err != nil {
		return err
	}
	for _, blk := range absent {
		hash, data := blk.Cid().Hash(), blk.RawData()
		here, err := b.here(hash, bad)
		if err != nil {
			return err
		}
		if here {
			continue // the block was repeated in one call
		}
		if err := b.block(record{kind: kindBlock, hash: hash, data: data}); err != nil {
			return err
		}
		delete(bad, string(hash))
	}
	return nil
}

// here returns whether the block with this hash is stored and its bytes are not known to be
// damaged. bad has the hashes of blocks that were found damaged just before.
func (b *batch) here(hash multihash.Multihash, bad rotten) (bool, error) {
	e, ok, err := getBlock(b.tx, hash)
	return ok && e.segment != 0 && !bad.has(hash), err
}

// addBlocks writes a record with the blocks of refs that the reference does not have yet.
func (b *batch) addBlocks(reference string, refs []blockRef) error {
	o, ok, err := getReference(b.tx, reference)
	if err != nil {
		return err
	}
	fresh := refs
	if ok {
		fresh = make([]blockRef, 0, len(refs))
		for _, r := range refs {
			_, has, err := b.of(o.inc).Get(blockRefKey(o.inc, r.hash))
			if err != nil {
				return err
			}
			if !has {
				fresh = append(fresh, r)
			}
		}
	} else {
		o.inc = b.position()
	}
	for len(fresh) > 0 {
		n := min(len(fresh), maxRefsPerRecord)
		b.begin()
		b.s.buf = appendRefs(b.s.buf, o.inc, reference, fresh[:n])
		if err := b.end(record{kind: kindReference, inc: o.inc, reference: reference, refs: fresh[:n]}); err != nil {
			return err
		}
		fresh = fresh[n:]
	}
	return nil
}

// Adopt adds to a reference those of cids whose blocks are in the store, and returns the other
// CIDs. The change is durable on return.
func (s *Store) Adopt(ctx context.Context, reference string, cids []cid.Cid) (missing []cid.Cid, err error) {
	_, missing, err = s.TakeOver(ctx, reference, cids, false)
	return missing, err
}

// TakeOver does the same as Adopt and also returns the size in bytes of those blocks that the store
// has. hidden says whether the reference will be sealed as hidden, so that Seal need not mark its
// blocks later. The later Seal may decide differently.
func (s *Store) TakeOver(ctx context.Context, reference string, cids []cid.Cid, hidden bool) (bytes uint64, missing []cid.Cid, err error) {
	if err := checkReference(reference); err != nil {
		return 0, nil, err
	}
	for _, c := range cids {
		if !c.Defined() {
			return 0, nil, fmt.Errorf("blocks: adopt: %w: no CID", ErrBadBlock)
		}
	}
	for len(cids) > 0 {
		step := cids[:min(len(cids), maxRefsPerRecord)]
		cids = cids[len(step):]
		// Content is usually new on this node. A block that arrives at this moment is only
		// reported as missing.
		none, err := s.noneHere(step)
		if err != nil {
			return 0, nil, fmt.Errorf("blocks: adopt: %w", s.readError(err))
		}
		if none {
			missing = append(missing, step...)
			continue
		}
		var here uint64
		var absent []cid.Cid
		err = s.do(ctx, int64(len(step))*recordSlack/4, func(b *batch) (err error) {
			b.coming = hidden
			defer func() { b.coming = false }()
			here, absent, err = b.adopt(reference, step)
			return err
		})
		if err != nil {
			return 0, nil, fmt.Errorf("blocks: adopt: %w", err)
		}
		bytes += here
		missing = append(missing, absent...)
	}
	return bytes, missing, nil
}

// noneHere returns whether the store has none of the blocks of cids. It reads the index without
// waiting for the committer.
func (s *Store) noneHere(cids []cid.Cid) (bool, error) {
	for _, c := range cids {
		if isIdentity(c) {
			return false, nil
		}
		if e, ok, err := getBlock(s.index, c.Hash()); err != nil || (ok && e.segment != 0) {
			return false, err
		}
	}
	return true, nil
}

func (b *batch) adopt(reference string, cids []cid.Cid) (bytes uint64, missing []cid.Cid, err error) {
	refs := make([]blockRef, 0, len(cids))
	for _, c := range cids {
		if isIdentity(c) {
			continue
		}
		e, ok, err := getBlock(b.tx, c.Hash())
		if err != nil {
			return 0, nil, err
		}
		if !ok || e.segment == 0 {
			missing = append(missing, c)
			continue
		}
		refs = append(refs, blockRef{c.Hash(), e.size})
		bytes += uint64(e.size)
	}
	if len(refs) == 0 {
		return 0, missing, nil
	}
	return bytes, missing, b.addBlocks(reference, refs)
}

// Seal declares a reference complete; it is durable on return. A reference without blocks,
// such as that of a root with an identity hash, exists because of its seal. A later Seal
// replaces the declaration. A Seal that changes whether the reference is hidden takes time
// proportional to its blocks, in steps between which other writes proceed; meanwhile none
// of its blocks is visible. After an interruption (ctx, a crash), Compact, Run or Open
// continue.
func (s *Store) Seal(ctx context.Context, reference string, sealed Sealed) error {
	if err := checkReference(reference); err != nil {
		return err
	}
	o, ok, err := getReference(s.index, reference)
	// Entries in the index are durable.
	if err == nil && ok && o.says(sealed) {
		return s.counted(ctx, o.inc)
	}
	var inc uint64
	err = s.do(ctx, recordSlack+o.turning(sealed.Hidden), func(b *batch) (err error) {
		inc, err = b.seal(reference, sealed)
		return err
	})
	if err != nil {
		return fmt.Errorf("blocks: seal: %w", err)
	}
	return s.counted(ctx, inc)
}

// Hide makes a sealed reference hidden or visible, as Seal would do, and returns whether this
// changed the reference. Hide does not change a reference that is not sealed.
func (s *Store) Hide(ctx context.Context, reference string, hidden bool) (changed bool, err error) {
	if err := checkReference(reference); err != nil {
		return false, err
	}
	o, ok, err := getReference(s.index, reference)
	if err != nil {
		return false, fmt.Errorf("blocks: hide: %w", s.readError(err))
	}
	if !ok || o.sealSegment == 0 {
		return false, nil
	}
	if o.sealed.Hidden == hidden {
		return false, s.counted(ctx, o.inc)
	}
	var inc uint64
	err = s.do(ctx, recordSlack+o.turning(hidden), func(b *batch) error {
		o, ok, err := getReference(b.tx, reference)
		if err != nil || !ok || o.sealSegment == 0 {
			return err
		}
		changed = o.sealed.Hidden != hidden
		o.sealed.Hidden = hidden
		inc, err = b.seal(reference, o.sealed)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("blocks: hide: %w", err)
	}
	return changed, s.counted(ctx, inc)
}

// turning returns the size for which the first step of a seal counts in a batch. It is 0 if the
// seal does not change whether the reference is hidden.
func (e referenceEntry) turning(hidden bool) int64 {
	if e.sealed.Hidden == hidden {
		return 0
	}
	return int64(min(e.blocks, countStep)) * sweepBytes
}

func (b *batch) seal(reference string, sealed Sealed) (inc uint64, err error) {
	o, ok, err := getReference(b.tx, reference)
	if err != nil || ok && o.says(sealed) {
		return o.inc, err
	}
	if !ok {
		o.inc = b.position()
	}
	sealed = o.declares(sealed)
	b.begin()
	b.s.buf = appendSeal(b.s.buf, o.inc, reference, sealed)
	return o.inc, b.end(record{kind: sealKind(sealed), inc: o.inc, reference: reference, sealed: sealed})
}

// counted marks the blocks of a sealed incarnation as hidden or visible, as its seal says, step by
// step. It returns at once if another goroutine is already doing so or nothing is left to mark.
func (s *Store) counted(ctx context.Context, inc uint64) error {
	if err := s.count(ctx, inc); err != nil {
		return fmt.Errorf("blocks: seal: %w", err)
	}
	return nil
}

func (s *Store) count(ctx context.Context, inc uint64) error {
	s.stats.Lock()
	busy, open := s.uncounted[inc]
	if open && !busy {
		s.uncounted[inc] = true
	}
	s.stats.Unlock()
	if busy || !open {
		return nil
	}
	for {
		done := false
		err := s.do(ctx, recordSlack+countStep*sweepBytes, func(b *batch) (err error) {
			if done, err = b.countOn(inc, b.step); err != nil || !done {
				return err
			}
			// Here, because the next step may be a seal that changes it again.
			delete(b.turned, inc)
			s.stats.Lock()
			defer s.stats.Unlock()
			delete(s.uncounted, inc)
			return nil
		})
		if err != nil {
			s.stats.Lock()
			if _, ok := s.uncounted[inc]; ok {
				s.uncounted[inc] = false
			}
			s.stats.Unlock()
		}
		if err != nil || done {
			return err
		}
	}
}

// countOn does one further step of marking the blocks of an incarnation, which turn has begun. done
// is true if no blocks are left.
func (c *change) countOn(inc uint64, limit int) (done bool, err error) {
	reference, from, ok, err := getUncounted(c.tx, inc)
	if err != nil || !ok {
		return err == nil, err
	}
	o, ok, err := getReference(c.tx, reference)
	if err != nil {
		return false, err
	}
	if !ok || o.inc != inc {
		return false, badEntry(openKey(inc))
	}
	return c.count(inc, reference, from, o.sealed.Hidden, limit)
}

// Drop removes a reference and frees the blocks that no other reference includes. It
// returns the bytes that this call freed. The reference ceases to exist durably at once;
// its entries are removed in steps between which other writes proceed. After an
// interruption (ctx, a crash), Compact or Run finish them. Dropping a reference that does
// not exist is no error.
func (s *Store) Drop(ctx context.Context, reference string) (freed uint64, err error) {
	if err := checkReference(reference); err != nil {
		return 0, err
	}
	b, err := s.bury(ctx, reference)
	for range dropTries {
		if !errors.Is(err, ErrNoSpace) || !s.wait(ctx, dropPause) {
			break
		}
		b, err = s.bury(ctx, reference)
	}
	freed = b.freed
	if err == nil && b.inc != 0 {
		if b.swept {
			s.notifyRun()
		} else {
			var more uint64
			more, err = s.sweep(ctx, b.inc)
			freed += more
		}
	}
	if err != nil {
		return freed, fmt.Errorf("blocks: drop: %w", err)
	}
	return freed, nil
}

// buried is the result of bury: the incarnation (the life of the reference) that was dropped. inc
// is 0 if the reference did not exist.
type buried struct {
	inc   uint64
	freed uint64 // freed bytes
	swept bool   // the incarnation had few entries, which are removed already
}

// bury writes the record that a reference does not exist any more and makes it durable. It also
// removes index entries of the reference, at most as many as one step removes.
func (s *Store) bury(ctx context.Context, reference string) (buried, error) {
	o, ok, err := getReference(s.index, reference)
	if err != nil {
		return buried{}, s.readError(err)
	}
	refs := int64(1)
	if ok {
		refs = int64(min(max(o.blocks, 1), sweepStep))
	}
	var done buried
	err = s.do(ctx, recordSlack+refs*sweepBytes, func(b *batch) (err error) {
		done, err = b.bury(reference, int(refs)+1)
		return err
	})
	if err != nil {
		return buried{}, err
	}
	return done, nil
}

func (b *batch) bury(reference string, limit int) (done buried, err error) {
	o, ok, err := getReference(b.tx, reference)
	if err != nil || !ok {
		return done, err
	}
	done.inc = o.inc
	b.begin()
	b.s.buf = appendReference(b.s.buf, o.inc, reference)
	if err := b.end(record{kind: kindDrop, inc: o.inc, reference: reference}); err != nil {
		return done, err
	}
	if done.freed, done.swept, err = b.sweep(o.inc, limit); err == nil && done.swept {
		delete(b.opened, o.inc)
	}
	return done, err
}

// wait pauses. It returns false when ctx ends or the store closes.
func (s *Store) wait(ctx context.Context, pause time.Duration) bool {
	s.notifyRun() // garbage may already be enough to make space
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-s.closing:
	}
	return false
}

// sweep removes the entries of a dropped incarnation, step by step.
func (s *Store) sweep(ctx context.Context, inc uint64) (freed uint64, err error) {
	s.stats.Lock()
	busy, open := s.unswept[inc]
	if open && !busy {
		s.unswept[inc] = true
	}
	s.stats.Unlock()
	if busy || !open {
		return 0, nil // another goroutine does it, or did
	}
	done := false
	for !done && err == nil {
		var n uint64
		err = s.do(ctx, recordSlack+sweepStep*sweepBytes, func(b *batch) (err error) {
			if n, done, err = b.sweep(inc, sweepStep); err == nil && done {
				err = b.restoreDrop(inc)
			}
			return err
		})
		if err == nil {
			freed += n
		}
	}
	s.stats.Lock()
	if done && err == nil {
		delete(s.unswept, inc)
	} else {
		s.unswept[inc] = false
	}
	s.stats.Unlock()
	s.notifyRun()
	return freed, err
}

// restoreDrop writes the drop record of an incarnation again, if damage has destroyed it and
// segments still contain records of the incarnation.
func (b *batch) restoreDrop(inc uint64) error {
	x, ok, err := getDropped(b.tx, inc)
	if err != nil || !ok || x.segment != 0 {
		return err
	}
	b.begin()
	b.s.buf = appendReference(b.s.buf, inc, x.reference)
	return b.end(record{kind: kindDrop, inc: inc, reference: x.reference})
}

func (s *Store) notifyRun() {
	select {
	case s.garbage <- struct{}{}:
	default:
	}
}
