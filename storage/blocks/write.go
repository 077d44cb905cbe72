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
	// putStepBytes and putStepBlocks bound what one step of Put carries.
	putStepBytes  = 4 << 20
	putStepBlocks = 512
	// dropTries and dropPause bound how long Drop waits on a full disk for the
	// few bytes of its record: it is what makes room.
	dropTries = 20
	dropPause = time.Second
	// sweepStep is how many references one step of Drop takes back, and
	// sweepBytes what one of them counts for in a batch, where only time is
	// spent: so a batch takes back 256 at the most, a few milliseconds, before
	// others have their turn.
	sweepStep  = 256
	sweepBytes = maxBatchBytes / sweepStep
	// countStep is how many references one step of Seal makes hidden, or not; they
	// count as those that Drop takes back.
	countStep = sweepStep
	// recordSlack is counted for the head and the names of a record.
	recordSlack = 512
)

func checkOwner(owner string) error {
	if owner == "" || len(owner) > MaxOwnerBytes {
		return fmt.Errorf("%w: %d bytes", ErrBadOwner, len(owner))
	}
	return nil
}

func isIdentity(c cid.Cid) bool { return c.Prefix().MhType == multihash.IDENTITY }

// checkBlock says whether the block may be stored.
func checkBlock(b blocks.Block) error {
	c, data := b.Cid(), b.RawData()
	if len(data) > MaxBlockBytes {
		return fmt.Errorf("%w: %s has %d bytes, %d are allowed", ErrTooLarge, c, len(data), MaxBlockBytes)
	}
	if !c.Defined() {
		return fmt.Errorf("%w: no CID", ErrBadBlock)
	}
	// A weak hash would let one account put other bytes under another's CID.
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

// hashChecked is a block that whoever took it in from outside has compared with
// its hash already. Hashing is a large part of what storing takes, so it is not
// done twice; what happens to the bytes later is found by reading.
type hashChecked interface{ HashChecked() bool }

func hasHash(data []byte, hash multihash.Multihash) bool {
	code, digest, ok := splitHash(hash)
	if !ok {
		return false
	}
	sum, err := multihash.Sum(data, code, digest)
	return err == nil && string(sum) == string(hash)
}

// splitHash reads the function and the length of the digest.
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

// Put stores blks and adds references to them for owner. On return all are durable and
// readable. It compares blocks that it already has and only references good ones. Blocks
// with an identity hash are not stored. It checks every hash first, except of blocks that
// say HashChecked; if one is wrong, nothing is stored. After any other error some blocks
// may be stored.
func (s *Store) Put(ctx context.Context, owner string, blks []blocks.Block) error {
	return s.put(ctx, owner, blks, false)
}

// PutCold is Put for blocks that are not expected to be read soon: if that is cheaper, it
// writes them past the page cache.
func (s *Store) PutCold(ctx context.Context, owner string, blks []blocks.Block) error {
	return s.put(ctx, owner, blks, true)
}

func (s *Store) put(ctx context.Context, owner string, blks []blocks.Block, cold bool) error {
	stored, bad, err := s.storable(ctx, owner, blks)
	if err != nil {
		return err
	}
	for len(stored) > 0 {
		n, bytes := putStep(stored)
		step := stored[:n]
		o := &op{bytes: bytes, cold: cold, run: func(b *batch) error { return b.put(owner, step, bad) }}
		if err := s.queued(ctx, o); err != nil {
			return fmt.Errorf("blocks: put: %w", err)
		}
		stored = stored[n:]
	}
	return nil
}

// putStep says how many of blks one step of Put carries, and their bytes.
func putStep(blks []blocks.Block) (n int, bytes int64) {
	for n < len(blks) && n < putStepBlocks && (n == 0 || bytes+int64(len(blks[n].RawData())) <= putStepBytes) {
		bytes += int64(len(blks[n].RawData())) + recordSlack
		n++
	}
	return n, bytes
}

// PutAndSeal is Put followed by Seal, in one transaction if blks fit into one.
func (s *Store) PutAndSeal(ctx context.Context, owner string, blks []blocks.Block, sealed Sealed) error {
	return s.putAndSeal(ctx, owner, blks, sealed, false)
}

// PutColdAndSeal is PutAndSeal for the blocks of PutCold.
func (s *Store) PutColdAndSeal(ctx context.Context, owner string, blks []blocks.Block, sealed Sealed) error {
	return s.putAndSeal(ctx, owner, blks, sealed, true)
}

func (s *Store) putAndSeal(ctx context.Context, owner string, blks []blocks.Block, sealed Sealed, cold bool) error {
	if n, _ := putStep(blks); n < len(blks) {
		if err := s.put(ctx, owner, blks, cold); err != nil {
			return err
		}
		return s.Seal(ctx, owner, sealed)
	}
	stored, bad, err := s.storable(ctx, owner, blks)
	if err != nil {
		return err
	}
	_, bytes := putStep(stored)
	var inc uint64
	err = s.queued(ctx, &op{bytes: bytes + recordSlack, cold: cold, run: func(b *batch) (err error) {
		inc, err = b.putAndSeal(owner, stored, bad, sealed)
		return err
	}})
	if err != nil {
		return fmt.Errorf("blocks: put and seal: %w", err)
	}
	return s.counted(ctx, inc)
}

func (b *batch) putAndSeal(owner string, blks []blocks.Block, bad rotten, sealed Sealed) (inc uint64, err error) {
	b.seals, b.hiding, b.hid = true, sealed.Hidden, 0 // counted at once, not again by the seal
	defer func() { b.seals, b.hiding = false, false }()
	if err := b.put(owner, blks, bad); err != nil {
		return 0, err
	}
	return b.seal(owner, sealed)
}

// storable checks an owner and its blocks, and returns those that need storing, and
// which of them are here and no good.
func (s *Store) storable(ctx context.Context, owner string, blks []blocks.Block) ([]blocks.Block, rotten, error) {
	if err := checkOwner(owner); err != nil {
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

// put writes references before blocks, so that recovery finds no block without its reference.
// It stores bad blocks again; the newest location counts.
func (b *batch) put(owner string, blks []blocks.Block, bad rotten) error {
	refs := make([]ref, 0, len(blks))
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
		refs = append(refs, ref{hash, uint32(len(blk.RawData()))})
	}
	if b.low && len(absent) > 0 {
		return fmt.Errorf("%w: what is free is the reserve", ErrNoSpace)
	}
	if err := b.reference(owner, refs); err != nil {
		return err
	}
	for _, blk := range absent {
		hash, data := blk.Cid().Hash(), blk.RawData()
		here, err := b.here(hash, bad)
		if err != nil {
			return err
		}
		if here {
			continue // twice in one call
		}
		if err := b.block(record{kind: kindBlock, hash: hash, data: data}); err != nil {
			return err
		}
		delete(bad, string(hash))
	}
	return nil
}

// here tells whether the bytes of hash are stored, and are none of the bad.
func (b *batch) here(hash multihash.Multihash, bad rotten) (bool, error) {
	e, ok, err := getBlock(b.tx, hash)
	return ok && e.segment != 0 && !bad.has(hash), err
}

// reference writes down those of refs that owner does not have yet.
func (b *batch) reference(owner string, refs []ref) error {
	o, ok, err := getOwner(b.tx, owner)
	if err != nil {
		return err
	}
	fresh := refs
	if ok {
		fresh = make([]ref, 0, len(refs))
		for _, r := range refs {
			_, has, err := b.of(o.inc).Get(refKey(o.inc, r.hash))
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
		b.s.buf = appendRefs(b.s.buf, o.inc, owner, fresh[:n])
		if err := b.end(record{kind: kindReference, inc: o.inc, owner: owner, refs: fresh[:n]}); err != nil {
			return err
		}
		fresh = fresh[n:]
	}
	return nil
}

// Adopt references, in the name of owner, those of cids whose blocks are here,
// durable on return, and returns the others.
func (s *Store) Adopt(ctx context.Context, owner string, cids []cid.Cid) (missing []cid.Cid, err error) {
	_, missing, err = s.TakeOver(ctx, owner, cids, false)
	return missing, err
}

// TakeOver is Adopt and also returns the size in bytes of the blocks that the store has.
// hidden announces how the owner will be sealed, so that Seal need not walk its references
// again. The seal may differ from the announcement.
func (s *Store) TakeOver(ctx context.Context, owner string, cids []cid.Cid, hidden bool) (bytes uint64, missing []cid.Cid, err error) {
	if err := checkOwner(owner); err != nil {
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
			here, absent, err = b.adopt(owner, step)
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

// noneHere tells whether no block of cids is in the store, by a look without
// being the committer.
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

func (b *batch) adopt(owner string, cids []cid.Cid) (bytes uint64, missing []cid.Cid, err error) {
	refs := make([]ref, 0, len(cids))
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
		refs = append(refs, ref{c.Hash(), e.size})
		bytes += uint64(e.size)
	}
	if len(refs) == 0 {
		return 0, missing, nil
	}
	return bytes, missing, b.reference(owner, refs)
}

// Seal declares owner complete, durable on return. An owner without blocks, such as a root
// with an identity hash, exists by its seal. A later Seal replaces the declaration. A Seal
// that changes whether the owner is hidden takes time proportional to its blocks, in steps
// between which other writes proceed; meanwhile none of its blocks is visible. After an
// interruption (ctx, a crash), Compact, Run or Open continue.
func (s *Store) Seal(ctx context.Context, owner string, sealed Sealed) error {
	if err := checkOwner(owner); err != nil {
		return err
	}
	o, ok, err := getOwner(s.index, owner)
	// Index entries are durable.
	if err == nil && ok && o.says(sealed) {
		return s.counted(ctx, o.inc)
	}
	var inc uint64
	err = s.do(ctx, recordSlack+o.turning(sealed.Hidden), func(b *batch) (err error) {
		inc, err = b.seal(owner, sealed)
		return err
	})
	if err != nil {
		return fmt.Errorf("blocks: seal: %w", err)
	}
	return s.counted(ctx, inc)
}

// Hide makes a sealed owner hidden or visible, as Seal would, and reports whether that
// changed it. It does not change an owner that is not sealed.
func (s *Store) Hide(ctx context.Context, owner string, hidden bool) (changed bool, err error) {
	if err := checkOwner(owner); err != nil {
		return false, err
	}
	o, ok, err := getOwner(s.index, owner)
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
		o, ok, err := getOwner(b.tx, owner)
		if err != nil || !ok || o.sealSegment == 0 {
			return err
		}
		changed = o.sealed.Hidden != hidden
		o.sealed.Hidden = hidden
		inc, err = b.seal(owner, o.sealed)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("blocks: hide: %w", err)
	}
	return changed, s.counted(ctx, inc)
}

// turning is what the first step of a seal counts for in a batch.
func (e ownerEntry) turning(hidden bool) int64 {
	if e.sealed.Hidden == hidden {
		return 0
	}
	return int64(min(e.blocks, countStep)) * sweepBytes
}

func (b *batch) seal(owner string, sealed Sealed) (inc uint64, err error) {
	o, ok, err := getOwner(b.tx, owner)
	if err != nil || ok && o.says(sealed) {
		return o.inc, err
	}
	if !ok {
		o.inc = b.position()
	}
	sealed = o.declares(sealed)
	b.begin()
	b.s.buf = appendSeal(b.s.buf, o.inc, owner, sealed)
	return o.inc, b.end(record{kind: sealKind(sealed), inc: o.inc, owner: owner, sealed: sealed})
}

// counted returns when the references of a sealed incarnation are counted as its
// seal says, or somebody else is at it.
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
			// Here, for the next step may be a seal that turns it again.
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

// countOn is a step of what turn began; done: there is nothing left of it.
func (c *change) countOn(inc uint64, limit int) (done bool, err error) {
	owner, from, ok, err := getUncounted(c.tx, inc)
	if err != nil || !ok {
		return err == nil, err
	}
	o, ok, err := getOwner(c.tx, owner)
	if err != nil {
		return false, err
	}
	if !ok || o.inc != inc {
		return false, badEntry(openKey(inc))
	}
	return c.count(inc, owner, from, o.sealed.Hidden, limit)
}

// Drop removes all references of owner and frees the blocks that no other owner
// references. It returns the bytes that this call freed. The owner ceases to exist durably
// at once; its references go in steps between which other writes proceed. After an
// interruption (ctx, a crash), Compact or Run finish them. Dropping an owner that does not
// exist is no error.
func (s *Store) Drop(ctx context.Context, owner string) (freed uint64, err error) {
	if err := checkOwner(owner); err != nil {
		return 0, err
	}
	b, err := s.bury(ctx, owner)
	for range dropTries {
		if !errors.Is(err, ErrNoSpace) || !s.wait(ctx, dropPause) {
			break
		}
		b, err = s.bury(ctx, owner)
	}
	freed = b.freed
	if err == nil && b.inc != 0 {
		if b.swept {
			s.wakeRun()
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

// buried is the incarnation of an owner that has been dropped; 0 means that
// there was none.
type buried struct {
	inc   uint64
	freed uint64 // bytes
	swept bool   // it had few references, which are taken back
}

// bury writes down that owner does not exist any more, and takes back the
// references that it has, up to a step of them.
func (s *Store) bury(ctx context.Context, owner string) (buried, error) {
	o, ok, err := getOwner(s.index, owner)
	if err != nil {
		return buried{}, s.readError(err)
	}
	refs := int64(1)
	if ok {
		refs = int64(min(max(o.blocks, 1), sweepStep))
	}
	var done buried
	err = s.do(ctx, recordSlack+refs*sweepBytes, func(b *batch) (err error) {
		done, err = b.bury(owner, int(refs)+1)
		return err
	})
	if err != nil {
		return buried{}, err
	}
	return done, nil
}

func (b *batch) bury(owner string, limit int) (done buried, err error) {
	o, ok, err := getOwner(b.tx, owner)
	if err != nil || !ok {
		return done, err
	}
	done.inc = o.inc
	b.begin()
	b.s.buf = appendOwner(b.s.buf, o.inc, owner)
	if err := b.end(record{kind: kindDrop, inc: o.inc, owner: owner}); err != nil {
		return done, err
	}
	if done.freed, done.swept, err = b.sweep(o.inc, limit); err == nil && done.swept {
		delete(b.opened, o.inc)
	}
	return done, err
}

// wait pauses; it returns false when ctx or the store ends.
func (s *Store) wait(ctx context.Context, pause time.Duration) bool {
	s.wakeRun() // what is garbage already may give the room
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

// sweep takes back the references of a dropped incarnation, step by step.
func (s *Store) sweep(ctx context.Context, inc uint64) (freed uint64, err error) {
	s.stats.Lock()
	busy, open := s.unswept[inc]
	if open && !busy {
		s.unswept[inc] = true
	}
	s.stats.Unlock()
	if busy || !open {
		return 0, nil // somebody else is at it, or was
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
	s.wakeRun()
	return freed, err
}

// restoreDrop writes the drop record of an incarnation again, if it was lost to
// damage and the dead records are still there.
func (b *batch) restoreDrop(inc uint64) error {
	x, ok, err := getDropped(b.tx, inc)
	if err != nil || !ok || x.segment != 0 {
		return err
	}
	b.begin()
	b.s.buf = appendOwner(b.s.buf, inc, x.owner)
	return b.end(record{kind: kindDrop, inc: inc, owner: x.owner})
}

func (s *Store) wakeRun() {
	select {
	case s.garbage <- struct{}{}:
	default:
	}
}
